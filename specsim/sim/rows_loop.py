"""The functions of `rows` as plain loops, for the compiled engine. Same results to the byte."""

from typing import Any

import numpy as np

from specsim.sim import fields as f
from specsim.sim.fields import Core
from specsim.sim.kv import take_blocks


def node_below_loop(grid: Any, x: float) -> int:
    low = 0
    high = len(grid) - 1
    while high - low > 1:
        middle = (low + high) // 2
        if grid[middle] <= x:
            low = middle
        else:
            high = middle
    return low


def between_corners_loop(corners: Any, share_a: float, share_b: float, share_d: float) -> float:
    total = 0.0
    for i in range(2):
        weight_a = share_a if i > 0 else 1.0 - share_a
        for j in range(2):
            weight_b = weight_a * (share_b if j > 0 else 1.0 - share_b)
            for m in range(2):
                weight = weight_b * (share_d if m > 0 else 1.0 - share_d)
                if weight != 0.0:
                    total += weight * corners[i, j, m]
    return total


def grow_rows_loop(c: Core, count: int, width: int) -> bool:
    block = c.ints[f.I_BLOCK]
    reach = width + c.ints[f.I_LOOKAHEAD] + block - 1
    computed = c.rows[f.R_COMPUTED]
    held = c.rows[f.R_HELD]
    total = 0
    for r in range(count):
        # Divide only where a block is missing: a division costs more than all the rest.
        if computed[r] + reach >= (held[r] + 1) * block:
            total += (computed[r] + reach) // block - held[r]
    if total == 0:
        return True
    if total > c.ints[f.I_FREE]:
        return False
    for r in range(count):
        if computed[r] + reach >= (held[r] + 1) * block:
            held[r] = (computed[r] + reach) // block
    take_blocks(c, total)
    return True


def emit_rows_loop(c: Core, count: int) -> int:
    ints = c.ints
    drafts = ints[f.I_K_NOW]
    skips = ints[f.I_SKIPS]
    by_position = ints[f.I_BY_POSITION]
    left = c.rows[f.R_REMAINING]
    computed = c.rows[f.R_COMPUTED]
    draw = c.rows[f.R_DRAW]
    accepted_sum = c.rows[f.R_ACCEPTED]
    verify_steps = c.rows[f.R_VERIFY_STEPS]
    drafted = c.rows[f.R_DRAFTED]
    tokens = 0
    all_accepted = 0
    least = left[0]
    for r in range(count):
        got = 1
        if drafts > 0:
            drawn = int(c.accept[draw[r]])
            accepted = min(drawn, drafts)
            if skips > 0 and drawn == f.NO_DRAFT:
                accepted = 0
            else:
                verify_steps[r] += 1
                drafted[r] += drafts
            accepted_sum[r] += accepted
            all_accepted += accepted
            got = accepted + 1
            draw[r] += got if by_position > 0 else 1
        got = min(got, left[r])
        left[r] -= got
        computed[r] += got
        tokens += got
        least = min(least, left[r])
    if ints[f.I_ADAPTIVE] > 0:
        ints[f.I_STEP_ACCEPTED] = all_accepted
    ints[f.I_LEAST_LEFT] = least
    ints[f.I_CONTEXT] += tokens
    ints[f.I_TOKENS] += tokens
    return tokens


def keep_rows_loop(c: Core, keep: np.ndarray) -> None:
    rows = c.rows
    to = 0
    for r in range(c.ints[f.I_N_ROWS]):
        if keep[r]:
            if to != r:
                for field in range(f.R_LENGTH):
                    rows[field, to] = rows[field, r]
            to += 1
    c.ints[f.I_N_ROWS] = to


def no_stretch(c: Core, horizon_s: float) -> None:
    """Stretches save nothing where each step is cheap."""
    return

"""What happens to all decoding requests of a step at once, vectorised with numpy.

`rows_loop` holds the same functions as plain loops: numba compiles those, and the tests run both
and compare every byte. Everything here is integer arithmetic, so the order of operations cannot
matter. A row is one decoding request; rows are columns of `Core.rows`.
"""

from bisect import bisect_right

import numpy as np
from numpy.typing import NDArray

from specsim.sim import fields as f
from specsim.sim.fields import Core
from specsim.sim.kv import take_blocks

# What R_DRAW, R_VERIFY_STEPS and R_DRAFTED gain in a step that verifies so many drafts.
_ADVANCE = [np.array([[1], [1], [drafts]], dtype=np.int64) for drafts in range(65)]


def node_below(grid: list[float], x: float) -> int:
    """Largest i < len(grid) - 1 with grid[i] <= x (0 if there is none). grid rises."""
    return min(max(bisect_right(grid, x) - 1, 0), len(grid) - 2)


def between_corners(
    corners: NDArray[np.float64], share_a: float, share_b: float, share_d: float
) -> float:
    """Trilinear interpolation between 2 x 2 x 2 corners. share: of the upper corner."""
    total = 0.0
    values = iter(corners.ravel().tolist())
    for weight_a in (1.0 - share_a, share_a):
        for weight_b in (weight_a * (1.0 - share_b), weight_a * share_b):
            for weight in (weight_b * (1.0 - share_d), weight_b * share_d):
                value = next(values)
                # Corners without weight may have no price yet.
                if weight != 0.0:
                    total += weight * value
    return total


def grow_rows(c: Core, count: int, width: int) -> bool:
    """Give the first `count` rows blocks for `width` more tokens and the lookahead.

    False, with nothing changed, if there are not enough.
    """
    rows = c.rows
    block = c.ints[f.I_BLOCK]
    reach = width + c.ints[f.I_LOOKAHEAD] + block - 1
    need = (rows[f.R_COMPUTED, :count] + reach) // block - rows[f.R_HELD, :count]
    np.maximum(need, 0, out=need)
    total = int(np.add.reduce(need))
    if total == 0:
        return True
    if total > c.ints[f.I_FREE]:
        return False
    rows[f.R_HELD, :count] += need
    take_blocks(c, total)
    return True


def emit_rows(c: Core, count: int) -> int:
    """Draw what the step yields for the first `count` rows. Returns the tokens given out."""
    ints, rows = c.ints, c.rows
    drafts = ints[f.I_K_NOW]
    left = rows[f.R_REMAINING, :count]
    if drafts:
        draw = rows[f.R_DRAW, :count]
        # [accepted, draws, verify steps, drafted] of every row in this step
        gain = np.empty((4, count), dtype=np.int64)
        gain[1:] = _ADVANCE[drafts]
        accepted = gain[0]
        c.accept.take(draw, out=accepted, mode="clip")
        if ints[f.I_SKIPS]:
            drafted = accepted != f.NO_DRAFT
            accepted *= drafted
            gain[2:] *= drafted
        if drafts < ints[f.I_K_MAX]:
            np.minimum(accepted, drafts, out=accepted)
        if ints[f.I_ADAPTIVE]:
            ints[f.I_STEP_ACCEPTED] = int(np.add.reduce(accepted))
        if ints[f.I_BY_POSITION]:
            gain[1] += accepted
        rows[f.R_ACCEPTED : f.R_DRAFTED + 1, :count] += gain
        accepted += 1
        got = np.minimum(accepted, left, out=accepted)
    else:
        got = np.minimum(left, 1)
    left -= got
    rows[f.R_COMPUTED, :count] += got
    ints[f.I_LEAST_LEFT] = int(np.minimum.reduce(left))
    tokens = int(np.add.reduce(got))
    ints[f.I_CONTEXT] += tokens
    ints[f.I_TOKENS] += tokens
    return tokens


def keep_rows(c: Core, keep: np.ndarray) -> None:
    """Close the gaps of rows that left, keeping the order. keep: bool per row."""
    count = c.ints[f.I_N_ROWS]
    kept = c.rows[:, :count][:, keep]
    c.rows[:, : kept.shape[1]] = kept
    c.ints[f.I_N_ROWS] = kept.shape[1]

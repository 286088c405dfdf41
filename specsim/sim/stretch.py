"""Many decode steps at once in numpy, where nothing can happen in between.

While the same requests decode and none finishes, arrives or lacks blocks, all steps of a stretch
follow from the draws alone: cumulative sums over steps give every request's tokens, the blocks,
the context, hence the step times. Steps are taken only as far as that holds; the ordinary step
goes on from there. The compiled engine has no use for this and leaves it out. The same bytes
come out either way: whatever is not integer arithmetic is added up in the same order.
"""

import numpy as np

from specsim.sim import fields as f
from specsim.sim.fields import Core
from specsim.sim.kv import take_blocks
from specsim.sim.schedule import draws_left, settle_reserve

MOST_STEPS = 128
FEWEST_STEPS = 3


def stretch(c: Core, horizon_s: float) -> None:
    """Advance through decode steps that end before the horizon and finish no request."""
    ints, flts = c.ints, c.flts
    drafts = ints[f.I_K_NOW]
    certain = (ints[f.I_LEAST_LEFT] - 1) // (drafts + 1)  # steps that surely finish nobody
    if certain < 1 or not ints[f.I_STRETCHES]:
        return
    count = ints[f.I_N_ROWS]
    if (
        count == 0
        or ints[f.I_N_PREFILL] + ints[f.I_N_ZOMBIES] + ints[f.I_N_STALLED] > 0
        or (ints[f.I_W_LEN] > 0 and ints[f.I_BLOCKED] == 0 and count < ints[f.I_MAX_SEQS])
    ):
        return
    width = ints[f.I_WIDTH] if drafts > 0 and ints[f.I_WIDTH] > 0 else drafts + 1
    if count * width > ints[f.I_BUDGET]:
        return
    if ints[f.I_K_MAX] > 0 and c.k_table[min(count, len(c.k_table) - 1)] != drafts:
        return
    rows = c.rows
    left = rows[f.R_REMAINING, :count]
    steps = min(2 * certain if drafts else certain, MOST_STEPS, ints[f.I_LOG_CAP] - ints[f.I_LOG_N])
    if flts[f.X_STEP_S] > 0.0 and horizon_s < np.inf:
        steps = min(steps, int((horizon_s - flts[f.X_CLOCK_S]) / flts[f.X_STEP_S]) + 1)
    if drafts and steps >= FEWEST_STEPS:
        if ints[f.I_SAFE_DRAWS] < steps:
            ints[f.I_SAFE_DRAWS] = draws_left(c)
        steps = min(steps, ints[f.I_SAFE_DRAWS])
    if steps < FEWEST_STEPS:
        return
    if drafts:
        places = rows[f.R_DRAW, :count][:, None] + np.arange(steps)
        drawn = c.accept.take(places)
        if drafts < ints[f.I_K_MAX]:
            np.minimum(drawn, drafts, out=drawn)
        written = np.cumsum(drawn, axis=1)
        written += np.arange(1, steps + 1)  # [rows, steps] tokens of each row after each step
        if steps > certain:
            ends = (written >= left[:, None]).any(axis=0)
            if ends.any():
                steps = int(ends.argmax())
    else:
        written = np.broadcast_to(np.arange(1, steps + 1), (count, steps))
    steps, need, blocks = _within_blocks(c, count, width, written[:, :steps])
    if steps == 0:
        return
    out = written[:, :steps].sum(axis=0)
    context = ints[f.I_CONTEXT] + np.concatenate(([0], out[:-1]))
    ends_s = _step_ends(c, count, context)
    steps = int(np.searchsorted(ends_s, horizon_s, side="left"))
    if steps > 0:
        _apply(c, count, width, written[:, :steps], need, blocks[:steps], context, ends_s[:steps])


def _within_blocks(
    c: Core, count: int, width: int, written: np.ndarray
) -> tuple[int, np.ndarray, np.ndarray]:
    """Steps that the free blocks allow; new blocks [rows, steps] and their sum [steps] by then."""
    rows, block = c.rows, c.ints[f.I_BLOCK]
    before = np.zeros(written.shape, dtype=np.int64)
    before[:, 1:] = written[:, :-1]
    reach = rows[f.R_COMPUTED, :count] + (width + c.ints[f.I_LOOKAHEAD] + block - 1)
    need = (before + reach[:, None]) // block - rows[f.R_HELD, :count][:, None]
    np.maximum(need, 0, out=need)
    total = need.sum(axis=0)
    return int(np.searchsorted(total, c.ints[f.I_FREE], side="right")), need, total


def _step_ends(c: Core, count: int, context: np.ndarray) -> np.ndarray:
    """End times of consecutive steps, up to the first whose price is missing."""
    tier = c.tier[c.ints[f.I_K_NOW]][c.ints[f.I_K_NOW]]
    grid = np.array(c.grid_ctx)
    mean = context / count
    j = np.searchsorted(grid, mean, side="right") - 1
    np.clip(j, 0, len(grid) - 2, out=j)
    share = (mean - grid[j]) / (grid[j + 1] - grid[j])
    table = c.decode_s[tier, count]
    below = table[j]
    seconds = below + (table[j + 1] - below) * share
    missing = np.isnan(seconds)
    if missing.any():
        seconds = seconds[: int(missing.argmax())]
    # cumsum adds one after the other, as the step loop does.
    return np.cumsum(np.concatenate(([c.flts[f.X_CLOCK_S]], seconds)))[1:]


def _apply(
    c: Core,
    count: int,
    width: int,
    written: np.ndarray,
    need: np.ndarray,
    blocks: np.ndarray,
    context: np.ndarray,
    ends_s: np.ndarray,
) -> None:
    """Bring all state to the end of the last of these steps."""
    ints, flts, rows = c.ints, c.flts, c.rows
    steps = len(ends_s)
    drafts = ints[f.I_K_NOW]
    tokens = written[:, -1]
    out = written.sum(axis=0)
    held = ints[f.I_BLOCKS] - ints[f.I_FREE]
    waiting = ints[f.I_W_LEN] + ints[f.I_BACKLOG]
    n = ints[f.I_LOG_N]
    span = slice(n, n + steps)
    c.log[f.L_ROWS, span] = count
    c.log[f.L_WIDTH, span] = width
    c.log[f.L_CONTEXT, span] = context[:steps]
    c.log[f.L_NEW, span] = 0
    c.log[f.L_CHUNKS, span] = 0
    c.log[f.L_SPAN_WORK, span] = 0
    c.log[f.L_NEXT_DRAFTS, span] = drafts
    c.log[f.L_WAITING, span] = waiting
    c.log[f.L_HELD, span] = blocks + held
    c.log[f.L_EMIT, span] = 1
    c.log[f.L_OUT, span] = np.diff(out, prepend=0)
    c.log_s[0, n] = flts[f.X_CLOCK_S]
    c.log_s[0, n + 1 : n + steps] = ends_s[:-1]
    c.log_s[1, span] = ends_s
    ints[f.I_HELD_MAX] = max(ints[f.I_HELD_MAX], held + int(blocks[-1]))
    ints[f.I_WAIT_MAX] = max(ints[f.I_WAIT_MAX], waiting)
    rows[f.R_HELD, :count] += need[:, steps - 1]
    take_blocks(c, int(blocks[-1]))
    rows[f.R_REMAINING, :count] -= tokens
    ints[f.I_LEAST_LEFT] = int(np.minimum.reduce(rows[f.R_REMAINING, :count]))
    rows[f.R_COMPUTED, :count] += tokens
    if drafts:
        rows[f.R_ACCEPTED, :count] += tokens - steps
        rows[f.R_VERIFY_STEPS, :count] += steps
        rows[f.R_DRAFTED, :count] += steps * drafts
        rows[f.R_DRAW, :count] += steps
        ints[f.I_SAFE_DRAWS] -= steps
    ints[f.I_CONTEXT] += int(out[-1])
    ints[f.I_TOKENS] += int(out[-1])
    starts_s = np.concatenate(([flts[f.X_LAST_EMIT_S]], ends_s[:-1]))
    ints[f.I_STALL_STEPS] += int(np.count_nonzero(ends_s - starts_s > flts[f.X_STALL_S]))
    ints[f.I_LOG_N] += steps
    ints[f.I_STEP] += steps
    ints[f.I_EMIT_STEP] += steps
    ints[f.I_K_NEXT] = drafts
    ints[f.I_SCHEDULED] = count
    end_s = float(ends_s[-1])
    flts[f.X_PLANNED_S] = float(ends_s[-2]) if steps > 1 else flts[f.X_CLOCK_S]
    flts[f.X_CLOCK_S] = flts[f.X_LAST_EMIT_S] = end_s
    if flts[f.X_RESERVE] > 0.0:
        for _ in range(steps):
            settle_reserve(c)

"""Many decode steps at once in numpy, where nothing can happen in between.

While the same requests decode and none finishes, arrives or lacks blocks, all steps of a stretch
follow from the draws alone: cumulative sums over steps give every request's tokens, the blocks,
the context, hence the step times. Steps are taken only as far as that holds; the ordinary step
goes on from there. The compiled engine has no use for this and leaves it out. The same bytes
come out either way: whatever is not integer arithmetic is added up in the same order.
"""

import numpy as np

from specsim.sim.core import Core
from specsim.sim.kv_nodes import take_blocks
from specsim.sim.kv_window import SWEEP, sweep
from specsim.sim.price import step_width
from specsim.sim.rows import draws_left
from specsim.sim.schedule import settle_reserve

MOST_STEPS = 128
FEWEST_STEPS = 3


def stretch(c: Core, horizon_s: float) -> None:
    """Advance through decode steps that end before the horizon and finish no request."""
    drafts = c.drafts
    certain = (c.least_left - 1) // (drafts + 1)  # steps that surely finish nobody
    rules = c.rules
    if certain < 1 or not rules.stretches:
        return
    count = c.n_rows
    if (
        count == 0
        or c.prefill.count + c.lingering + c.sitting_out > 0
        or (c.waiting.count > 0 and not c.admission_blocked and count < rules.max_num_seqs)
    ):
        return
    width = step_width(c, drafts)
    if count * width > rules.max_num_batched_tokens:
        return
    table = c.drafts_by_batch
    if rules.num_speculative_tokens > 0 and table[min(count, len(table) - 1)] != drafts:
        return
    rows = c.rows
    left = rows.remaining[:count]
    steps = min(2 * certain if drafts else certain, MOST_STEPS, rules.log_capacity - c.logged)
    if rules.window_blocks > 0:
        steps = min(steps, SWEEP - c.steps % SWEEP)
    if c.step_s > 0.0 and horizon_s < np.inf:
        steps = min(steps, int((horizon_s - c.clock_s) / c.step_s) + 1)
    if drafts and steps >= FEWEST_STEPS:
        if c.safe_draws < steps:
            c.safe_draws = draws_left(c)
        steps = min(steps, c.safe_draws)
    if steps < FEWEST_STEPS:
        return
    if drafts:
        places = rows.draw[:count][:, None] + np.arange(steps)
        drawn = c.accept.take(places)
        if drafts < rules.num_speculative_tokens:
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
    context = c.context + np.concatenate(([0], out[:-1]))
    ends_s, seconds = _step_ends(c, count, context)
    steps = int(np.searchsorted(ends_s, horizon_s, side="left"))
    if steps > 0:
        _apply(c, count, width, written[:, :steps], need, blocks[:steps], context, ends_s[:steps])
        c.before_s = float(seconds[steps - 1])


def _within_blocks(
    c: Core, count: int, width: int, written: np.ndarray
) -> tuple[int, np.ndarray, np.ndarray]:
    """Steps that the free blocks allow; new units [rows, steps] and blocks [steps] by then."""
    rows, block = c.rows, c.rules.block_size
    before = np.zeros(written.shape, dtype=np.int64)
    before[:, 1:] = written[:, :-1]
    reach = rows.computed[:count] + (width + c.rules.lookahead + block - 1)
    need = (before + reach[:, None]) // block - rows.held[:count][:, None]
    np.maximum(need, 0, out=need)
    total = need.sum(axis=0) * (c.rules.full_blocks + c.rules.window_blocks)
    return int(np.searchsorted(total, c.free_blocks, side="right")), need, total


def _step_ends(c: Core, count: int, context: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """End times and lengths of consecutive steps, up to the first whose price is missing."""
    tier = c.prices.tier[c.drafts][c.drafts]
    grid = np.array(c.prices.context)
    mean = context / count
    j = np.searchsorted(grid, mean, side="right") - 1
    np.clip(j, 0, len(grid) - 2, out=j)
    share = (mean - grid[j]) / (grid[j + 1] - grid[j])
    table = c.prices.decode_s[tier, count]
    below = table[j]
    seconds = below + (table[j + 1] - below) * share
    missing = np.isnan(seconds)
    if missing.any():
        seconds = seconds[: int(missing.argmax())]
    # cumsum adds one after the other, as the step loop does.
    return np.cumsum(np.concatenate(([c.clock_s], seconds)))[1:], seconds


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
    rows = c.rows
    steps = len(ends_s)
    drafts = c.drafts
    tokens = written[:, -1]
    out = written.sum(axis=0)
    held = c.rules.num_kv_blocks - c.free_blocks
    waiting = c.waiting.count + c.backlog
    log, n = c.log, c.logged
    span = slice(n, n + steps)
    log.rows[span] = count
    log.width[span] = width
    log.context[span] = context[:steps]
    log.new[span] = 0
    log.chunks[span] = 0
    log.span_work[span] = 0
    log.next_drafts[span] = drafts
    log.waiting[span] = waiting
    log.held[span] = blocks + held
    if not c.rules.plan_ahead:
        log.held[n + 1 : n + steps] = log.held[n : n + steps - 1]
        log.held[n] = c.gauge
    c.gauge = held + int(blocks[-1])
    log.emits[span] = 1
    log.out[span] = np.diff(out, prepend=0)
    log.start_s[n] = c.clock_s
    log.start_s[n + 1 : n + steps] = ends_s[:-1]
    log.end_s[span] = ends_s
    c.held_max = max(c.held_max, c.gauge)
    c.waiting_max = max(c.waiting_max, waiting)
    rows.held[:count] += need[:, steps - 1]
    take_blocks(c, int(blocks[-1]))
    rows.remaining[:count] -= tokens
    c.least_left = int(np.minimum.reduce(rows.remaining[:count]))
    rows.computed[:count] += tokens
    if drafts:
        rows.accepted[:count] += tokens - steps
        rows.verify_steps[:count] += steps
        rows.drafted[:count] += steps * drafts
        rows.draw[:count] += steps
        c.safe_draws -= steps
    c.context += int(out[-1])
    c.tokens += int(out[-1])
    starts_s = np.concatenate(([c.last_emit_s], ends_s[:-1]))
    c.stall_steps += int(np.count_nonzero(ends_s - starts_s > c.rules.stall_s))
    c.logged += steps
    c.steps += steps
    c.emit_step += steps
    c.next_drafts = drafts
    c.scheduled = count
    end_s = float(ends_s[-1])
    c.planned_s = float(ends_s[-2]) if steps > 1 else c.clock_s
    c.clock_s = c.last_emit_s = end_s
    if c.rules.window_blocks > 0 and c.steps % SWEEP == 0:
        sweep(c)
    if c.reserve > 0.0:
        for _ in range(steps):
            settle_reserve(c)

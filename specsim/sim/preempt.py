"""Requests that leave the engine, for good or to come again: blocks, rows and counters.

When blocks run out, the request that was admitted last (vLLM), or the one with the fewest tokens
(SGLang), loses all of its own and starts again from the head of the queue (recompute).
"""

from specsim.sim.core import LIVE, NOWHERE, WAITING, Core, append, push_front
from specsim.sim.kv import release_blocks
from specsim.sim.kv_nodes import take_blocks
from specsim.sim.kv_window import sweep
from specsim.sim.streams import sit_out


def grow_or_preempt(c: Core, count: int, width: int) -> int:
    """Like `grow_rows` where blocks are short: preempt until the rest fits. Returns rows left."""
    block = c.rules.block_size
    unit_blocks = c.rules.full_blocks + c.rules.window_blocks
    reach = width + c.rules.lookahead + block - 1
    if c.rules.window_blocks > 0:
        sweep(c)
    r = 0
    while r < count:
        need = int((c.rows.computed[r] + reach) // block - c.rows.held[r])
        if need <= 0:
            r += 1
            continue
        lost = False
        while need * unit_blocks > c.free_blocks:
            victim = choose_victim(c)
            preempt(c, victim)
            if victim >= 0:
                if victim == r:
                    lost = True
                    break
                if victim < r:
                    r -= 1
        count = min(count, c.n_rows)
        if lost:
            # SGLang's victim may stand before others that still need their blocks.
            continue
        c.rows.held[r] += need
        take_blocks(c, need * unit_blocks)
        r += 1
    return count


def choose_victim(c: Core) -> int:
    """Row to preempt, or -1 for the last request in prefill."""
    if c.prefill.count > 0:
        return -1
    last = c.n_rows - 1
    if not c.rules.preempt_fewest_tokens:
        return last
    best = last
    for r in range(last + 1):
        request = c.slots[c.rows.slot[r]]
        chosen = c.slots[c.rows.slot[best]]
        done = request.requested_tokens - c.rows.remaining[r]
        fewest = chosen.requested_tokens - c.rows.remaining[best]
        if done < fewest or (done == fewest and request.prompt_tokens > chosen.prompt_tokens):
            best = r
    return best


def preempt(c: Core, row: int) -> None:
    """Take everything from row `row` (or the last request in prefill) and queue it in front."""
    c.preempted += 1
    if row < 0:
        c.prefill.count -= 1
        slot = c.prefill.slots[c.prefill.count]
        # Its chunk of this step, if it has one, is the last that was planned.
        if c.n_chunks > 0 and c.chunks[c.n_chunks - 1].slot == slot:
            drop_chunk(c)
    else:
        slot = int(c.rows.slot[row])
        lingers = c.rows.state[row] != LIVE
        if not lingers and c.rows.stalled[row] == 0:
            sit_out(c, row)
        remove_row(c, row)
        if lingers:
            c.lingering -= 1
            discard(c, slot)
            return
    request = c.slots[slot]
    if request.dropped:
        discard(c, slot)
        return
    release_blocks(c, slot, request.computed)
    c.preemptions += 1
    request.preemptions += 1
    request.target = request.prompt_tokens + request.requested_tokens - request.remaining
    request.computed = 0
    request.where = WAITING
    push_front(c.waiting, slot)


def discard(c: Core, slot: int) -> None:
    """Give up a request's place for good."""
    release_blocks(c, slot, c.slots[slot].computed)
    c.slots[slot].where = NOWHERE
    append(c.freed, slot)


def drop_chunk(c: Core) -> None:
    j = c.n_chunks - 1
    new = c.chunks[j].new
    c.n_chunks = j
    c.new_tokens -= new
    c.span_work -= new * (2 * c.chunks[j].cached + new + 1) // 2


def save_blocks(c: Core, row: int) -> None:
    """Copy the blocks that a row holds back to its request."""
    request = c.slots[c.rows.slot[row]]
    held = int(c.rows.held[row])
    request.private += held - request.held
    request.held = held
    request.computed = int(c.rows.computed[row])


def save_row(c: Core, row: int) -> None:
    """Copy all that a row counts back to its request."""
    rows = c.rows
    slot = int(rows.slot[row])
    save_blocks(c, row)
    request = c.slots[slot]
    request.remaining = int(rows.remaining[row])
    request.draw = int(rows.draw[row]) - slot * c.rules.draws
    request.accepted_tokens = int(rows.accepted[row])
    request.verify_steps = int(rows.verify_steps[row])
    request.drafted_tokens = int(rows.drafted[row])
    request.stalled = int(rows.stalled[row])


def remove_row(c: Core, row: int) -> None:
    """Save a row and take it out, keeping the order of the others."""
    if c.rows.state[row] == LIVE:
        save_row(c, row)
    else:
        save_blocks(c, row)
    c.context -= int(c.rows.computed[row])
    if c.rows.stalled[row] != 0:
        c.sitting_out -= 1
    last = c.n_rows - 1
    if row < last:
        table = c.rows.table
        for field in range(len(table)):
            for r in range(row, last):
                table[field, r] = table[field, r + 1]
    c.n_rows = last

"""Requests that begin to decode, here or at another replica.

A request whose prompt another replica has computed comes with its cache: a decode replica gives it
blocks for its prompt when it is next in the queue, and it decodes from the next step on; nothing of
its prompt is computed again, unless it is preempted.
A prefill replica holds the blocks of a prompt until its cache is sent (`send_chunk`).
"""

from specsim.sim.core import DECODING, LIVE, SENDING, Core, append, pop
from specsim.sim.kv import match_prefix, pin_prefix, publish_prefix
from specsim.sim.kv_nodes import take_blocks
from specsim.sim.kv_window import move_window, receive_window, sweep, window_start

# SGLang counts so much of a new request's own output in full (CLIP_MAX_NEW_TOKENS_ESTIMATION).
OWN_RESERVE = 4096


def admit_received(c: Core) -> int:
    """Requests at the head of the queue that bring their cache start to decode, while places and
    blocks last. Returns how many did."""
    rules = c.rules
    block = rules.block_size
    joined = 0
    swept = rules.window_blocks == 0
    while (
        c.waiting.count > 0
        and not c.admission_blocked
        and c.n_rows + c.prefill.count < c.rules.max_num_seqs
    ):
        slot = c.waiting.slots[c.waiting.head]
        request = c.slots[slot]
        if request.computed == 0 or (c.rules.plan_ahead and request.ready_s > c.planned_s):
            return joined
        hits = match_prefix(c, slot)
        need = (request.target + rules.lookahead + block - 1) // block - hits
        blocks = need * rules.full_blocks + rules.state_blocks
        missing = need
        if rules.window_blocks > 0:
            # Of what windows have passed nothing is received.
            missing = min(need, hits + need - window_start(c, request.computed))
            blocks += missing * rules.window_blocks
        if not has_room(c, slot, blocks):
            if swept:
                return joined
            sweep(c)
            swept = True
            c.admission_blocked = False
            continue
        pin_prefix(c, slot, hits)
        take_blocks(c, blocks)
        if missing < need:
            receive_window(c, slot, window_start(c, request.computed))
        request.held = hits + need
        request.private = need
        publish_prefix(c, slot, request.computed, False)
        if rules.window_blocks > 0:
            move_window(c, slot, request.computed)
        join_rows(c, pop(c.waiting))
        joined += 1
    return joined


def has_room(c: Core, slot: int, need: int) -> bool:
    """Whether the first request of the queue may take `need` blocks besides those it found."""
    request = c.slots[slot]
    block = c.rules.block_size
    free = c.free_blocks - c.cache.matched_unused - c.rules.watermark_blocks
    if c.reserve > 0.0:
        may_come = c.reserve * may_still_write(c)
        own = min(request.remaining, OWN_RESERVE)
        free -= ((int(may_come) + own) // block + 1) * c.rules.full_blocks
    if need > free:
        # SGLang admits a lone request whatever its reserve, vLLM whatever its watermark.
        alone = c.n_rows + c.prefill.count == 0
        if not alone or need > c.free_blocks - c.cache.matched_unused:
            c.admission_blocked = True
            return False
    return True


def may_still_write(c: Core) -> int:
    """Output tokens that the running requests may still write."""
    total = 0
    for r in range(c.n_rows):
        total += int(c.rows.remaining[r])
    for j in range(c.prefill.count):
        total += c.slots[c.prefill.slots[j]].remaining
    return total


def join_rows(c: Core, slot: int) -> None:
    """A request whose prompt is complete joins the decoding ones, as the last."""
    rows, request = c.rows, c.slots[slot]
    r = c.n_rows
    rows.slot[r] = slot
    rows.remaining[r] = request.remaining
    rows.computed[r] = request.computed
    rows.held[r] = request.held
    rows.draw[r] = slot * c.rules.draws + request.draw
    rows.accepted[r] = request.accepted_tokens
    rows.verify_steps[r] = request.verify_steps
    rows.drafted[r] = request.drafted_tokens
    rows.state[r] = LIVE
    rows.stalled[r] = request.stalled
    rows.depth[r] = rows.next_depth[r] = request.depth
    c.sitting_out += request.stalled
    c.n_rows = r + 1
    c.context += request.computed
    if c.rules.num_speculative_tokens > 0:
        steps = c.rules.draws - request.draw
        c.safe_draws = min(c.safe_draws, steps) if r > 0 else steps
    c.least_left = min(c.least_left, request.remaining) if r > 0 else request.remaining
    request.where = DECODING


def send_chunk(c: Core, slot: int, new: int, end_s: float) -> None:
    """`new` tokens of a prompt were computed in the step that ends now: what may be sent queues
    for the link, and with the last of it the request waits to be handed over."""
    request = c.slots[slot]
    complete = request.computed == request.target
    tokens = request.computed if request.sent_s < 0.0 else new
    if not c.rules.send_by_chunk:
        if not complete:
            return
        tokens = request.computed
    lane = request.request_id % len(c.lanes)
    busy_s = tokens * c.rules.send_token_s + (request.send_rest_s if complete else 0.0)
    c.lanes[lane] = max(c.lanes[lane], end_s) + busy_s
    request.sent_s = c.lanes[lane]
    if complete:
        request.where = SENDING
        c.sending += 1
        append(c.finished, slot)

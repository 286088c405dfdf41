"""What runs in the next step: vLLM's scheduler (and SGLang's order), on the arrays of `Core`.

vLLM 0.25 to 0.33: every decoding request first asks for 1 + k tokens, oldest first; running
prompts and then waiting ones get what is left of the token budget, in chunks. A request holds
blocks for its tokens, the scheduled ones and the lookahead. If blocks run out, the request that
was admitted last loses all of its own and starts again from the head of the queue (recompute). A
prompt is admitted if a place, the token budget and blocks for the *whole* prompt are there.

SGLang 0.5: prompts run first and alone, decoding waits; admission keeps blocks for a share of
what the running requests may still write; the victim is the request with the fewest tokens.
"""

import numpy as np

from specsim.sim.core import (
    IN_PREFILL,
    LIVE,
    NEED_FEED,
    NEED_NODES,
    RAN_IDLE,
    RAN_STUCK,
    Core,
    append,
    pop,
)
from specsim.sim.joining import admit_received, has_room
from specsim.sim.kv import match_prefix, nodes_needed, pin_prefix
from specsim.sim.kv_nodes import take_blocks
from specsim.sim.kv_window import sweep
from specsim.sim.policies.adaptive import adaptive_drafts
from specsim.sim.preempt import discard, grow_or_preempt, preempt
from specsim.sim.price import step_width
from specsim.sim.rows import grow_rows
from specsim.sim.streams import sit_out

SCHEDULED = -1


def schedule(c: Core, now: float) -> int:
    """Plan the next step. Returns SCHEDULED, or why there is none (RAN_* or NEED_*)."""
    running = c.n_rows + c.prefill.count
    places = c.rules.max_num_seqs - running - c.sending
    if c.backlog > 0 and c.waiting.count < places:
        return NEED_FEED
    entering = min(places, c.waiting.count)
    if c.supply_left and c.standby.count < running + entering:
        return NEED_FEED
    if c.rules.prefix_caching and c.cache.unused < nodes_needed(c, entering):
        return NEED_NODES
    c.n_chunks = 0
    c.new_tokens = 0
    c.span_work = 0
    c.scheduled = 0
    c.verified = 0
    c.preempted = 0
    admit_received(c)
    if c.rules.prefill_first:
        budget = continue_prefill(c, c.rules.max_num_batched_tokens)
        if c.preempted == 0:
            admit(c, now, budget)
        if c.n_chunks == 0:
            schedule_rows(c)
    else:
        budget = schedule_rows(c)
        if c.prefill.count > 0:
            budget = continue_prefill(c, budget)
        if c.preempted == 0 and c.waiting.count > 0:
            admit(c, now, budget)
    asked = c.scheduled + c.n_chunks
    if asked == 0 and c.preempted > 0:
        # The engine comes round again at once, and finds the blocks of those it preempted.
        admit(c, now, c.rules.max_num_batched_tokens)
        asked = c.n_chunks
    if asked == 0:
        # Nothing was planned for this step: nobody launched it, and who arrived meanwhile can
        # run in it.
        c.before_s = 0.0
        if c.rules.plan_ahead and c.waiting.count > 0:
            c.planned_s = np.inf
            if admit_received(c) > 0:
                schedule_rows(c)
            admit(c, now, c.rules.max_num_batched_tokens)
            asked = c.scheduled + c.n_chunks
    if asked == 0:
        if c.sending > 0:
            return RAN_IDLE  # their blocks come free when their caches are sent
        if c.n_rows + c.prefill.count > 0:
            return RAN_STUCK
        return RAN_STUCK if c.waiting.count > 0 else RAN_IDLE
    c.next_drafts = next_drafts(c, asked)
    return SCHEDULED


def next_drafts(c: Core, asked: int) -> int:
    """Drafts proposed in this step for the next one; none if no request could use them."""
    c.undecided = False
    if c.rules.num_speculative_tokens == 0:
        return 0
    if c.rules.adaptive:
        return adaptive_drafts(c, asked)
    if c.scheduled == 0:
        usable = False
        for j in range(c.n_chunks):
            chunk = c.chunks[j]
            request = c.slots[chunk.slot]
            if chunk.cached + chunk.new >= request.target and request.remaining > 1:
                usable = True
        # Requests that wait for this prompt step keep the drafts they have.
        if not usable:
            return c.drafts if c.n_rows > 0 else 0
    c.undecided = c.rules.asks_policy
    return c.drafts_by_batch[min(asked, len(c.drafts_by_batch) - 1)]


def schedule_rows(c: Core) -> int:
    """Decoding requests, oldest first. Returns the budget left."""
    width = step_width(c, c.drafts)
    budget = c.rules.max_num_batched_tokens
    if c.n_rows == 0:
        return budget
    count = rows_within(c, budget) if c.rules.ragged else min(c.n_rows, budget // width)
    if count > 0 and not grow_rows(c, count, width):
        count = grow_or_preempt(c, count, width)
    c.scheduled = count
    c.verified = count * width
    if c.rules.ragged:
        c.verified = count
        for r in range(count):
            c.verified += int(c.rows.depth[r])
    for r in range(count, c.n_rows):
        if c.rows.stalled[r] == 0 and c.rows.state[r] == LIVE:
            sit_out(c, r)
    return budget - c.verified


def rows_within(c: Core, budget: int) -> int:
    """How many decoding requests, oldest first, verify their own drafts within the budget."""
    count = 0
    while count < c.n_rows and c.rows.depth[count] + 1 <= budget:
        budget -= int(c.rows.depth[count]) + 1
        count += 1
    return count


def add_chunk(c: Core, slot: int, new: int) -> None:
    """Plan `new` prompt tokens of a request for this step."""
    cached = c.slots[slot].computed
    chunk = c.chunks[c.n_chunks]
    chunk.slot = slot
    chunk.new = new
    chunk.cached = cached
    c.n_chunks += 1
    c.new_tokens += new
    # Token i of the chunk attends to cached + i tokens, itself included.
    c.span_work += new * (2 * cached + new + 1) // 2


def continue_prefill(c: Core, budget: int) -> int:
    """Next chunks of prompts that are under way. Returns the budget left."""
    rules = c.rules
    block = rules.block_size
    unit_blocks = rules.full_blocks + rules.window_blocks
    most = rules.max_num_batched_tokens // rules.groups
    j = 0
    while j < c.prefill.count:
        slot = c.prefill.slots[j]
        request = c.slots[slot]
        if request.dropped:
            for m in range(j, c.prefill.count - 1):
                c.prefill.slots[m] = c.prefill.slots[m + 1]
            c.prefill.count -= 1
            discard(c, slot)
            continue
        if budget <= 0:
            break
        new = min(request.target - request.computed, budget, most)
        reach = request.computed + new + rules.lookahead + block - 1
        need = reach // block - request.held
        lost = False
        if rules.window_blocks > 0 and need * unit_blocks > c.free_blocks:
            sweep(c)
        while need * unit_blocks > c.free_blocks:
            lost = c.prefill.slots[c.prefill.count - 1] == slot
            preempt(c, -1)
            if lost:
                break
        if lost:
            break
        if need > 0:
            take_blocks(c, need * unit_blocks)
            request.held += need
            request.private += need
        add_chunk(c, slot, new)
        budget -= new
        j += 1
    return budget


def admit(c: Core, now: float, budget: int) -> None:
    """Start waiting requests, first come first served, while places, budget and blocks last."""
    rules = c.rules
    block = rules.block_size
    unit_blocks = rules.full_blocks + rules.window_blocks
    swept = rules.window_blocks == 0
    while (
        c.waiting.count > 0
        and not c.admission_blocked
        and budget > 0
        and c.n_rows + c.prefill.count + c.sending < rules.max_num_seqs
    ):
        slot = c.waiting.slots[c.waiting.head]
        request = c.slots[slot]
        if request.computed > 0:
            return  # it brings its cache, and joins before a step is planned
        if rules.plan_ahead and request.ready_s > c.planned_s:
            return
        target = request.target
        hits = match_prefix(c, slot)
        cached = hits * block
        new = target - cached
        most = min(budget, rules.max_num_batched_tokens // rules.groups)
        if new > most:
            if not rules.chunked_prefill:
                return
            new = most
        reach = rules.lookahead + block - 1
        need = (cached + new + reach) // block - hits
        blocks = need * unit_blocks + rules.state_blocks
        whole = blocks
        if rules.reserve_full_isl:
            units = (target + reach) // block
            whole = (units - hits) * rules.full_blocks + rules.state_blocks
            whole += max(0, min(units, rules.window_cap) - hits) * rules.window_blocks
            whole = max(whole, blocks)
        if not has_room(c, slot, whole):
            if swept:
                return
            sweep(c)
            swept = True
            c.admission_blocked = False
            continue
        pin_prefix(c, slot, hits)
        take_blocks(c, blocks)
        request.held = hits + need
        request.private = need
        request.computed = cached
        if request.scheduled_s < 0.0:
            request.scheduled_s = now
            request.cached_tokens = cached
        append(c.prefill, pop(c.waiting))
        request.where = IN_PREFILL
        add_chunk(c, slot, new)
        budget -= new


def settle_reserve(c: Core) -> None:
    """SGLang expects the running requests to write less and less of what they may."""
    if c.scheduled > 0:
        lower = c.reserve - c.rules.reserve_decay
        c.reserve = max(lower, c.rules.reserve_min)

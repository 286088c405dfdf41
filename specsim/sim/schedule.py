"""What runs in the next step: vLLM's scheduler (and SGLang's order), on the arrays of `Core`.

vLLM 0.25 to 0.33: every decoding request first asks for 1 + k tokens, oldest first; running
prompts and then waiting ones get what is left of the token budget, in chunks. A request holds
blocks for its tokens, the scheduled ones and the lookahead. If blocks run out, the request that
was admitted last loses all of its own and starts again from the head of the queue (recompute). A
prompt is admitted if a seat, the token budget and blocks for the *whole* prompt are there.

SGLang 0.5: prompts run first and alone, decoding waits; admission keeps blocks for a share of
what the running requests may still write; the victim is the request with the fewest tokens.

Functions here run as Python or compiled.
"""

# State is arrays or lists of numbers; what is read from it has no static type.
# mypy: disable-error-code="no-any-return"

import numpy as np

from specsim.sim import fields as f
from specsim.sim.adapt import adaptive_drafts
from specsim.sim.fields import Core
from specsim.sim.kv import match_prefix, pin_prefix, take_blocks
from specsim.sim.preempt import discard, grow_or_preempt, preempt
from specsim.sim.price import step_width
from specsim.sim.rows import grow_rows
from specsim.sim.streams import sit_out

SCHEDULED = -1
# SGLang counts so much of a new request's own output in full (CLIP_MAX_NEW_TOKENS_ESTIMATION).
OWN_RESERVE = 4096


def schedule(c: Core, now: float) -> int:
    """Plan the next step. Returns SCHEDULED, or why there is none (RAN_* or NEED_*)."""
    ints = c.ints
    running = ints[f.I_N_ROWS] + ints[f.I_N_PREFILL]
    seats = ints[f.I_MAX_SEQS] - running
    if ints[f.I_BACKLOG] > 0 and ints[f.I_W_LEN] < seats:
        return f.NEED_FEED
    if ints[f.I_S_MORE] and ints[f.I_S_LEN] < running + min(seats, ints[f.I_W_LEN]):
        return f.NEED_FEED
    entering = min(seats, ints[f.I_W_LEN])
    if ints[f.I_CACHING] and ints[f.I_NODES_FREE] < entering * (ints[f.I_SPAN_MAX] + 2):
        return f.NEED_NODES
    ints[f.I_N_CHUNKS] = 0
    ints[f.I_NEW_TOKENS] = 0
    ints[f.I_SPAN_WORK] = 0
    ints[f.I_SCHEDULED] = 0
    ints[f.I_PREEMPTED] = 0
    if ints[f.I_PREFILL_FIRST]:
        budget = continue_prefill(c, ints[f.I_BUDGET])
        if ints[f.I_PREEMPTED] == 0:
            admit(c, now, budget)
        if ints[f.I_N_CHUNKS] == 0:
            schedule_rows(c)
    else:
        budget = schedule_rows(c)
        if ints[f.I_N_PREFILL] > 0:
            budget = continue_prefill(c, budget)
        if ints[f.I_PREEMPTED] == 0 and ints[f.I_W_LEN] > 0:
            admit(c, now, budget)
    asked = ints[f.I_SCHEDULED] + ints[f.I_N_CHUNKS]
    if asked == 0 and ints[f.I_PREEMPTED] > 0:
        # The engine comes round again at once, and finds the blocks of those it preempted.
        admit(c, now, ints[f.I_BUDGET])
        asked = ints[f.I_N_CHUNKS]
    if asked == 0 and ints[f.I_AHEAD] and ints[f.I_W_LEN] > 0:
        # Nothing was planned for this step: who arrived meanwhile can run in it.
        c.flts[f.X_PLANNED_S] = np.inf
        admit(c, now, ints[f.I_BUDGET])
        asked = ints[f.I_N_CHUNKS]
    if asked == 0:
        if ints[f.I_N_ROWS] + ints[f.I_N_PREFILL] > 0:
            return f.RAN_STUCK
        return f.RAN_STUCK if ints[f.I_W_LEN] > 0 else f.RAN_IDLE
    ints[f.I_K_NEXT] = next_drafts(c, asked)
    return SCHEDULED


def next_drafts(c: Core, asked: int) -> int:
    """Drafts proposed in this step for the next one; none if no request could use them."""
    ints = c.ints
    if ints[f.I_K_MAX] == 0:
        return 0
    if ints[f.I_ADAPTIVE]:
        return adaptive_drafts(c, asked)
    if ints[f.I_SCHEDULED] == 0:
        usable = False
        for j in range(ints[f.I_N_CHUNKS]):
            slot = c.chunk[f.C_SLOT][j]
            end = c.chunk[f.C_CACHED][j] + c.chunk[f.C_NEW][j]
            if end >= c.slot[slot][f.S_TARGET] and c.slot[slot][f.S_REMAINING] > 1:
                usable = True
        # Requests that wait for this prompt step keep the drafts they have.
        if not usable:
            return ints[f.I_K_NOW] if ints[f.I_N_ROWS] > 0 else 0
    return c.k_table[min(asked, len(c.k_table) - 1)]


def schedule_rows(c: Core) -> int:
    """Decoding requests, oldest first. Returns the budget left."""
    ints = c.ints
    width = step_width(c, ints[f.I_K_NOW])
    have = ints[f.I_N_ROWS]
    if have == 0:
        return ints[f.I_BUDGET]
    count = min(have, ints[f.I_BUDGET] // width)
    if count > 0 and not grow_rows(c, count, width):
        count = grow_or_preempt(c, count, width)
    ints[f.I_SCHEDULED] = count
    for r in range(count, ints[f.I_N_ROWS]):
        if c.rows[f.R_STALLED, r] == 0 and c.rows[f.R_ZOMBIE, r] == f.ROW_LIVE:
            sit_out(c, r)
    return ints[f.I_BUDGET] - count * width


def add_chunk(c: Core, slot: int, new: int) -> None:
    ints = c.ints
    j = ints[f.I_N_CHUNKS]
    cached = c.slot[slot][f.S_COMPUTED]
    c.chunk[f.C_SLOT][j] = slot
    c.chunk[f.C_NEW][j] = new
    c.chunk[f.C_CACHED][j] = cached
    ints[f.I_N_CHUNKS] = j + 1
    ints[f.I_NEW_TOKENS] += new
    # Token i of the chunk attends to cached + i tokens, itself included.
    ints[f.I_SPAN_WORK] += new * (2 * cached + new + 1) // 2


def continue_prefill(c: Core, budget: int) -> int:
    """Next chunks of prompts that are under way. Returns the budget left."""
    ints = c.ints
    block = ints[f.I_BLOCK]
    j = 0
    while j < ints[f.I_N_PREFILL]:
        slot = c.prefill[j]
        if c.slot[slot][f.S_DROPPED]:
            for m in range(j, ints[f.I_N_PREFILL] - 1):
                c.prefill[m] = c.prefill[m + 1]
            ints[f.I_N_PREFILL] -= 1
            discard(c, slot)
            continue
        if budget <= 0:
            break
        new = min(c.slot[slot][f.S_TARGET] - c.slot[slot][f.S_COMPUTED], budget)
        if ints[f.I_CHUNK_MAX] > 0:
            new = min(new, ints[f.I_CHUNK_MAX])
        reach = c.slot[slot][f.S_COMPUTED] + new + ints[f.I_LOOKAHEAD] + block - 1
        need = reach // block - c.slot[slot][f.S_HELD]
        lost = False
        while need > ints[f.I_FREE]:
            lost = c.prefill[ints[f.I_N_PREFILL] - 1] == slot
            preempt(c, -1)
            if lost:
                break
        if lost:
            break
        if need > 0:
            take_blocks(c, need)
            c.slot[slot][f.S_HELD] += need
            c.slot[slot][f.S_PRIVATE] += need
        add_chunk(c, slot, new)
        budget -= new
        j += 1
    return budget


def admit(c: Core, now: float, budget: int) -> None:
    """Start waiting requests, first come first served, while seat, budget and blocks last."""
    ints = c.ints
    block = ints[f.I_BLOCK]
    while (
        ints[f.I_W_LEN] > 0
        and ints[f.I_BLOCKED] == 0
        and budget > 0
        and ints[f.I_N_ROWS] + ints[f.I_N_PREFILL] < ints[f.I_MAX_SEQS]
    ):
        slot = c.wait[ints[f.I_W_HEAD]]
        if ints[f.I_AHEAD] and c.slot_time[slot][f.T_READY] > c.flts[f.X_PLANNED_S]:
            return
        target = c.slot[slot][f.S_TARGET]
        hits = match_prefix(c, slot)
        cached = hits * block
        new = target - cached
        if ints[f.I_CHUNK_MAX] > 0:
            new = min(new, ints[f.I_CHUNK_MAX])
        if new > budget:
            if not ints[f.I_CHUNKED]:
                return
            new = budget
        reach = ints[f.I_LOOKAHEAD] + block - 1
        need = (cached + new + reach) // block - hits
        whole = need
        if ints[f.I_RESERVE_FULL]:
            whole = (target + reach) // block - hits
        free = ints[f.I_FREE] - ints[f.I_MATCH_FREE] - ints[f.I_WATERMARK]
        if c.flts[f.X_RESERVE] > 0.0:
            may_come = c.flts[f.X_RESERVE] * may_still_write(c)
            own = min(c.slot[slot][f.S_REMAINING], OWN_RESERVE)
            free -= (int(may_come) + own) // block + 1
        if whole > free:
            # SGLang admits a lone request whatever its reserve, vLLM whatever its watermark.
            alone = ints[f.I_N_ROWS] + ints[f.I_N_PREFILL] == 0
            if not alone or whole > ints[f.I_FREE] - ints[f.I_MATCH_FREE]:
                ints[f.I_BLOCKED] = 1
                return
        pin_prefix(c, slot, hits)
        take_blocks(c, need)
        c.slot[slot][f.S_HELD] = hits + need
        c.slot[slot][f.S_PRIVATE] = need
        c.slot[slot][f.S_COMPUTED] = cached
        if c.slot_time[slot][f.T_SCHEDULED] < 0.0:
            c.slot_time[slot][f.T_SCHEDULED] = now
            c.slot[slot][f.S_CACHED] = cached
        head = ints[f.I_W_HEAD] + 1
        ints[f.I_W_HEAD] = 0 if head == len(c.wait) else head
        ints[f.I_W_LEN] -= 1
        c.prefill[ints[f.I_N_PREFILL]] = slot
        ints[f.I_N_PREFILL] += 1
        c.slot[slot][f.S_WHERE] = f.WHERE_PREFILL
        add_chunk(c, slot, new)
        budget -= new


def may_still_write(c: Core) -> int:
    """Output tokens that the running requests may still write."""
    total = 0
    for r in range(c.ints[f.I_N_ROWS]):
        total += int(c.rows[f.R_REMAINING, r])
    for j in range(c.ints[f.I_N_PREFILL]):
        total += c.slot[c.prefill[j]][f.S_REMAINING]
    return total


def settle_reserve(c: Core) -> None:
    """SGLang expects the running requests to write less and less of what they may."""
    if c.ints[f.I_SCHEDULED] > 0:
        lower = c.flts[f.X_RESERVE] - c.flts[f.X_RESERVE_DECAY]
        c.flts[f.X_RESERVE] = max(lower, c.flts[f.X_RESERVE_MIN])


def draws_left(c: Core) -> int:
    """Draws that the row with the fewest has left."""
    count = c.ints[f.I_N_ROWS]
    draws = c.ints[f.I_DRAWS]
    places = c.rows[f.R_DRAW, :count] - c.rows[f.R_SLOT, :count] * draws
    return int(draws - places.max())


def steps_of_draws(c: Core, draws: int) -> int:
    """Verify steps that `draws` surely last for."""
    if c.ints[f.I_BY_POSITION]:
        return (draws + c.ints[f.I_K_MAX]) // (c.ints[f.I_K_MAX] + 1)
    return draws

"""The step loop of one replica: plan, price, wait, give out tokens, again.

`run` goes through as many steps as end before the horizon (the next thing that happens outside)
and returns with the next step in flight. Its outcome is settled only when the replica is called
again at its end, so that the state seen from outside in between is that of the running step.
"""

from specsim.latency.launches import hidden_s
from specsim.sim.core import (
    BOUNDARY,
    GONE,
    IN_FLIGHT,
    LINGERING,
    LIVE,
    NEED_DRAWS,
    NEED_LOG,
    NEED_POLICY,
    NEED_PRICE,
    RAN_IDLE,
    RAN_TO_ARRIVAL,
    RAN_TO_FINISH,
    RAN_TO_FLIGHT,
    UNDECIDED,
    UNPRICED,
    WAITING,
    Core,
    append,
    pop,
    push,
)
from specsim.sim.joining import join_rows, send_chunk
from specsim.sim.kv import publish_prefix
from specsim.sim.kv_window import SWEEP, move_window, sweep
from specsim.sim.policies.adaptive import observe_step
from specsim.sim.preempt import discard, save_blocks, save_row
from specsim.sim.price import price_step, proposing, scheduled_context, step_width
from specsim.sim.rows import close_gaps, draws_left, emit_rows, ending_rows, fewest_left
from specsim.sim.schedule import SCHEDULED, schedule, settle_reserve
from specsim.sim.streams import close_run, prompt_token, resume_rows


def run(c: Core, horizon_s: float) -> int:
    """Go on from the replica's clock until a step ends at or after the horizon, or until the
    driver is needed. Returns a RAN_* or NEED_* reason."""
    while True:
        if c.stage == BOUNDARY:
            if c.logged >= c.rules.log_capacity or c.n_gaps >= c.rules.gap_capacity:
                return NEED_LOG
            receive(c)
            code = schedule(c, c.clock_s)
            if code == RAN_IDLE and c.coming.count > 0:
                next_s = c.slots[c.coming.slots[c.coming.head]].ready_s
                if next_s >= horizon_s:
                    return RAN_TO_ARRIVAL
                c.clock_s = next_s
                continue
            if code != SCHEDULED:
                return code
            c.stage = UNDECIDED if c.undecided else UNPRICED
        if c.stage == UNDECIDED:
            return NEED_POLICY
        if c.stage == UNPRICED:
            if not price_step(c):
                return NEED_PRICE
            begin_step(c)
            if c.end_s >= horizon_s:
                return RAN_TO_FLIGHT
        if not settle_step(c):
            return NEED_DRAWS
        if c.rules.stop_on_finish and c.finished.count > 0:
            return RAN_TO_FINISH


def receive(c: Core) -> None:
    """Requests that have left the front end by now join the queue."""
    while c.coming.count > 0:
        slot = c.coming.slots[c.coming.head]
        request = c.slots[slot]
        if request.ready_s > c.clock_s:
            return
        request.where = WAITING
        push(c.waiting, pop(c.coming))


def begin_step(c: Core) -> None:
    """The planned and priced step starts."""
    c.planned_s = c.clock_s
    if c.rules.hides_launches:
        c.step_s -= hidden_s(c.idle_s, c.before_s)
        c.before_s = c.free_s
    c.end_s = c.clock_s + c.step_s
    c.stage = IN_FLIGHT
    waiting = c.waiting.count + c.backlog
    if c.rules.plan_ahead:
        read_gauge(c)
    c.waiting_max = max(c.waiting_max, waiting)
    log, n = c.log, c.logged
    log.start_s[n] = c.clock_s
    log.end_s[n] = c.end_s
    log.rows[n] = c.scheduled
    log.width[n] = step_width(c, c.drafts)
    if c.rules.ragged and c.scheduled > 0:
        log.width[n] = (2 * c.verified + c.scheduled) // (2 * c.scheduled)  # rounded mean
    log.context[n] = scheduled_context(c)
    log.new[n] = c.new_tokens
    log.chunks[n] = c.n_chunks
    log.span_work[n] = c.span_work
    log.next_drafts[n] = proposing(c)
    log.waiting[n] = waiting
    log.held[n] = c.gauge
    log.emits[n] = 0 if c.rules.prefill_first and c.scheduled == 0 else 1


def read_gauge(c: Core) -> None:
    """vLLM reads its gauge when a step's requests are settled: before the next step is planned, or
    after it where that is planned ahead."""
    c.gauge = c.rules.num_kv_blocks - c.free_blocks
    c.held_max = max(c.held_max, c.gauge)


def settle_step(c: Core) -> bool:
    """The step in flight ends. False, with nothing changed, if draws of acceptance are missing."""
    seqs = c.scheduled
    if seqs > 0 and c.drafts > 0:
        if c.safe_draws <= 0:
            c.safe_draws = draws_left(c)
            if c.safe_draws <= 0:
                return False
        c.safe_draws -= 1
    end_s = c.end_s
    n = c.logged
    emits = c.log.emits[n] > 0
    if emits and end_s - c.last_emit_s > c.rules.stall_s:
        c.stall_steps += 1
    before = c.tokens
    if seqs > 0:
        emit_rows(c, seqs)
        if c.sitting_out > 0:
            resume_rows(c, seqs, end_s)
        if c.rules.adaptive:
            observe_step(c)
    retire_rows(c, end_s)
    if c.n_chunks > 0:
        settle_chunks(c, end_s)
    if c.reserve > 0.0:
        settle_reserve(c)
    c.log.out[n] = c.tokens - before
    c.logged = n + 1
    c.steps += 1
    if emits:
        c.emit_step += 1
        c.last_emit_s = end_s
    if not c.rules.plan_ahead:
        read_gauge(c)
    if c.rules.window_blocks > 0 and c.steps % SWEEP == 0:
        sweep(c)
    c.drafts = c.next_drafts
    if c.rules.ragged:
        for r in range(c.n_rows):
            c.rows.depth[r] = c.rows.next_depth[r]
    c.clock_s = end_s
    c.stage = BOUNDARY
    return True


def retire_rows(c: Core, end_s: float) -> None:
    """Finish requests that got their last token; let go of those that finished a step before."""
    if c.least_left > 0 and c.lingering == 0:
        return
    rows = c.rows
    gone = False
    for i in range(ending_rows(c)):
        r = int(c.picked[i])
        slot = int(rows.slot[r])
        if rows.state[r] == LIVE:
            save_row(c, r)
            if rows.stalled[r] == 0:
                close_run(c, slot, c.emit_step)
            c.slots[slot].last_token_s = end_s
            finish(c, slot, end_s)
            if c.rules.readback_lag_steps > 0:
                rows.state[r] = LINGERING
                c.lingering += 1
                continue
        else:
            save_blocks(c, r)
            c.lingering -= 1
        c.context -= int(rows.computed[r])
        discard(c, slot)
        rows.state[r] = GONE
        gone = True
    if gone:
        close_gaps(c)
    if c.n_rows > 0 and c.lingering == 0:
        c.least_left = fewest_left(c)


def finish(c: Core, slot: int, end_s: float) -> None:
    """The request has all its tokens. A closed loop sends its next one at once."""
    c.slots[slot].end_s = end_s
    append(c.finished, slot)
    if c.rules.supplied and c.standby.count > 0:
        following = pop(c.standby)
        request = c.slots[following]
        request.arrival_s = end_s
        request.ready_s = end_s + c.rules.front_end_s
        request.measured = 1 if end_s >= c.rules.warmup_s else 0
        push(c.coming, following)


def settle_chunks(c: Core, end_s: float) -> None:
    """Prompt chunks were computed; a prompt that is complete gives a token and starts decoding."""
    for j in range(c.n_chunks):
        slot = c.chunks[j].slot
        request = c.slots[slot]
        request.computed += c.chunks[j].new
        publish_prefix(c, slot, request.computed, False)
        if c.rules.window_blocks > 0:
            move_window(c, slot, request.computed)
        if request.dropped or request.computed < request.target:
            if request.sends and not request.dropped:
                send_chunk(c, slot, c.chunks[j].new, end_s)
            continue
        if request.remaining > 0:
            request.remaining -= 1
            c.tokens += 1
            if request.first_token_s < 0.0:
                request.first_token_s = end_s
            prompt_token(c, slot, end_s)
        if request.remaining > 0:
            join_rows(c, slot)
        elif request.sends:
            send_chunk(c, slot, c.chunks[j].new, end_s)
        else:
            # The length was known before the step: nothing runs on.
            finish(c, slot, end_s)
            discard(c, slot)
    prefill = c.prefill
    kept = 0
    for j in range(prefill.count):
        slot = prefill.slots[j]
        request = c.slots[slot]
        if request.dropped or request.computed < request.target:
            prefill.slots[kept] = slot
            kept += 1
    prefill.count = kept

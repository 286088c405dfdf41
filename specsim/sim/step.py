"""The step loop of one replica: plan, price, wait, give out tokens, again.

`run` goes through as many steps as end before the horizon (the next thing that happens outside)
and returns with the next step in flight. Its outcome is settled only when the replica is called
again at its end, so that the state seen from outside in between is that of the running step.

Functions here run as Python or compiled.
"""

import numpy as np

from specsim.sim import fields as f
from specsim.sim.adapt import observe_step
from specsim.sim.fields import Core
from specsim.sim.kv import publish_prefix
from specsim.sim.preempt import discard, save_blocks, save_row
from specsim.sim.price import price_step, step_width
from specsim.sim.rows import emit_rows, keep_rows
from specsim.sim.schedule import (
    SCHEDULED,
    draws_left,
    schedule,
    settle_reserve,
    steps_of_draws,
)
from specsim.sim.streams import close_run, prompt_token, resume_rows
from specsim.sim.stretch import stretch


def run(c: Core, horizon_s: float) -> int:
    """Go on from the replica's clock until a step ends at or after the horizon, or until the
    driver is needed. Returns a RAN_* or NEED_* reason."""
    ints = c.ints
    while True:
        if ints[f.I_STAGE] == f.STAGE_BOUNDARY:
            if ints[f.I_LOG_N] >= ints[f.I_LOG_CAP] or ints[f.I_N_GAPS] >= ints[f.I_GAP_CAP]:
                return f.NEED_LOG
            if ints[f.I_C_LEN] > 0:
                next_s = receive(c)
                stretch(c, min(horizon_s, next_s))
                receive(c)
            else:
                stretch(c, horizon_s)
            code = schedule(c, c.flts[f.X_CLOCK_S])
            if code == f.RAN_IDLE and ints[f.I_C_LEN] > 0:
                next_s = c.slot_time[c.coming[ints[f.I_C_HEAD]]][f.T_READY]
                if next_s >= horizon_s:
                    return f.RAN_TO_ARRIVAL
                c.flts[f.X_CLOCK_S] = next_s
                continue
            if code != SCHEDULED:
                return code
            ints[f.I_STAGE] = f.STAGE_UNPRICED
        if ints[f.I_STAGE] == f.STAGE_UNPRICED:
            if not price_step(c):
                return f.NEED_PRICE
            begin_step(c)
            if c.flts[f.X_END_S] >= horizon_s:
                return f.RAN_TO_FLIGHT
        if not settle_step(c):
            return f.NEED_DRAWS
        if ints[f.I_STOP_ON_FINISH] and ints[f.I_N_FINISHED] > 0:
            return f.RAN_TO_FINISH


def receive(c: Core) -> float:
    """Requests that have left the front end by now join the queue. Returns when the next one
    will; infinite if none is on its way."""
    ints = c.ints
    while ints[f.I_C_LEN] > 0:
        slot = c.coming[ints[f.I_C_HEAD]]
        if c.slot_time[slot][f.T_READY] > c.flts[f.X_CLOCK_S]:
            return float(c.slot_time[slot][f.T_READY])
        head = ints[f.I_C_HEAD] + 1
        ints[f.I_C_HEAD] = 0 if head == len(c.coming) else head
        ints[f.I_C_LEN] -= 1
        c.slot[slot][f.S_WHERE] = f.WHERE_WAITING
        tail = ints[f.I_W_HEAD] + ints[f.I_W_LEN]
        c.wait[tail if tail < len(c.wait) else tail - len(c.wait)] = slot
        ints[f.I_W_LEN] += 1
    return np.inf


def begin_step(c: Core) -> None:
    """The planned and priced step starts."""
    ints, flts = c.ints, c.flts
    flts[f.X_PLANNED_S] = flts[f.X_CLOCK_S]
    flts[f.X_END_S] = flts[f.X_CLOCK_S] + flts[f.X_STEP_S]
    ints[f.I_STAGE] = f.STAGE_IN_FLIGHT
    held = ints[f.I_BLOCKS] - ints[f.I_FREE]
    waiting = ints[f.I_W_LEN] + ints[f.I_BACKLOG]
    ints[f.I_HELD_MAX] = max(ints[f.I_HELD_MAX], held)
    ints[f.I_WAIT_MAX] = max(ints[f.I_WAIT_MAX], waiting)
    n = ints[f.I_LOG_N]
    seqs = ints[f.I_SCHEDULED]
    c.log_s[0, n] = flts[f.X_CLOCK_S]
    c.log_s[1, n] = flts[f.X_END_S]
    c.log[f.L_ROWS, n] = seqs
    c.log[f.L_WIDTH, n] = step_width(c, ints[f.I_K_NOW])
    c.log[f.L_CONTEXT, n] = ints[f.I_CONTEXT]
    c.log[f.L_NEW, n] = ints[f.I_NEW_TOKENS]
    c.log[f.L_CHUNKS, n] = ints[f.I_N_CHUNKS]
    c.log[f.L_SPAN_WORK, n] = ints[f.I_SPAN_WORK]
    c.log[f.L_NEXT_DRAFTS, n] = ints[f.I_K_NEXT]
    c.log[f.L_WAITING, n] = waiting
    c.log[f.L_HELD, n] = held
    c.log[f.L_EMIT, n] = 0 if ints[f.I_PREFILL_FIRST] and seqs == 0 else 1


def settle_step(c: Core) -> bool:
    """The step in flight ends. False, with nothing changed, if draws of acceptance are missing."""
    ints, flts = c.ints, c.flts
    seqs = ints[f.I_SCHEDULED]
    if seqs > 0 and ints[f.I_K_NOW] > 0:
        if ints[f.I_SAFE_DRAWS] <= 0:
            ints[f.I_SAFE_DRAWS] = steps_of_draws(c, draws_left(c))
            if ints[f.I_SAFE_DRAWS] <= 0:
                return False
        ints[f.I_SAFE_DRAWS] -= 1
    end_s = flts[f.X_END_S]
    n = ints[f.I_LOG_N]
    emits = c.log[f.L_EMIT, n] > 0
    if emits and end_s - flts[f.X_LAST_EMIT_S] > flts[f.X_STALL_S]:
        ints[f.I_STALL_STEPS] += 1
    before = ints[f.I_TOKENS]
    if seqs > 0:
        emit_rows(c, seqs)
        if ints[f.I_N_STALLED] > 0:
            resume_rows(c, seqs, end_s)
        if ints[f.I_ADAPTIVE]:
            observe_step(c)
    retire_rows(c, end_s)
    if ints[f.I_N_CHUNKS] > 0:
        settle_chunks(c, end_s)
    if flts[f.X_RESERVE] > 0.0:
        settle_reserve(c)
    c.log[f.L_OUT, n] = ints[f.I_TOKENS] - before
    ints[f.I_LOG_N] = n + 1
    ints[f.I_STEP] += 1
    if emits:
        ints[f.I_EMIT_STEP] += 1
        flts[f.X_LAST_EMIT_S] = end_s
    ints[f.I_K_NOW] = ints[f.I_K_NEXT]
    flts[f.X_CLOCK_S] = end_s
    ints[f.I_STAGE] = f.STAGE_BOUNDARY
    return True


def retire_rows(c: Core, end_s: float) -> None:
    """Finish requests that got their last token; let go of those that finished a step before."""
    ints = c.ints
    count = ints[f.I_N_ROWS]
    if ints[f.I_LEAST_LEFT] > 0 and ints[f.I_N_ZOMBIES] == 0:
        return
    gone = False
    for place in (c.rows[f.R_REMAINING, :count] == 0).nonzero()[0]:
        r = int(place)
        slot = int(c.rows[f.R_SLOT, r])
        if c.rows[f.R_ZOMBIE, r] == f.ROW_LIVE:
            save_row(c, r)
            if c.rows[f.R_STALLED, r] == 0:
                close_run(c, slot, ints[f.I_EMIT_STEP])
            c.slot_time[slot][f.T_LAST] = end_s
            finish(c, slot, end_s)
            if ints[f.I_LAG] > 0:
                c.rows[f.R_ZOMBIE, r] = f.ROW_ZOMBIE
                ints[f.I_N_ZOMBIES] += 1
                continue
        else:
            save_blocks(c, r)
            ints[f.I_N_ZOMBIES] -= 1
        ints[f.I_CONTEXT] -= int(c.rows[f.R_COMPUTED, r])
        discard(c, slot)
        c.rows[f.R_ZOMBIE, r] = f.ROW_GONE
        gone = True
    if gone:
        keep_rows(c, c.rows[f.R_ZOMBIE, :count] != f.ROW_GONE)
    count = ints[f.I_N_ROWS]
    if count > 0 and ints[f.I_N_ZOMBIES] == 0:
        ints[f.I_LEAST_LEFT] = int(c.rows[f.R_REMAINING, :count].min())


def finish(c: Core, slot: int, end_s: float) -> None:
    """The request has all its tokens. A closed loop sends its next one at once."""
    ints = c.ints
    c.slot_time[slot][f.T_END] = end_s
    c.finished[ints[f.I_N_FINISHED]] = slot
    ints[f.I_N_FINISHED] += 1
    if ints[f.I_SUPPLIED] and ints[f.I_S_LEN] > 0:
        following = c.standby[ints[f.I_S_HEAD]]
        head = ints[f.I_S_HEAD] + 1
        ints[f.I_S_HEAD] = 0 if head == len(c.standby) else head
        ints[f.I_S_LEN] -= 1
        c.slot_time[following][f.T_ARRIVAL] = end_s
        c.slot_time[following][f.T_READY] = end_s + c.flts[f.X_FRONT_END_S]
        c.slot[following][f.S_MEASURED] = 1 if end_s >= c.flts[f.X_WARM_UP_S] else 0
        tail = ints[f.I_C_HEAD] + ints[f.I_C_LEN]
        c.coming[tail if tail < len(c.coming) else tail - len(c.coming)] = following
        ints[f.I_C_LEN] += 1


def settle_chunks(c: Core, end_s: float) -> None:
    """Prompt chunks were computed; a prompt that is complete gives a token and starts decoding."""
    ints = c.ints
    for j in range(ints[f.I_N_CHUNKS]):
        slot = c.chunk[f.C_SLOT][j]
        computed = c.slot[slot][f.S_COMPUTED] + c.chunk[f.C_NEW][j]
        c.slot[slot][f.S_COMPUTED] = computed
        publish_prefix(c, slot, computed, False)
        if c.slot[slot][f.S_DROPPED] or computed < c.slot[slot][f.S_TARGET]:
            continue
        if c.slot[slot][f.S_REMAINING] > 0:
            c.slot[slot][f.S_REMAINING] -= 1
            ints[f.I_TOKENS] += 1
            if c.slot_time[slot][f.T_FIRST] < 0.0:
                c.slot_time[slot][f.T_FIRST] = end_s
            prompt_token(c, slot, end_s)
        if c.slot[slot][f.S_REMAINING] > 0:
            join_rows(c, slot)
        else:
            # The length was known before the step: nothing runs on.
            finish(c, slot, end_s)
            discard(c, slot)
    kept = 0
    for j in range(ints[f.I_N_PREFILL]):
        slot = c.prefill[j]
        if c.slot[slot][f.S_DROPPED] or c.slot[slot][f.S_COMPUTED] < c.slot[slot][f.S_TARGET]:
            c.prefill[kept] = slot
            kept += 1
    ints[f.I_N_PREFILL] = kept


def join_rows(c: Core, slot: int) -> None:
    """A request whose prompt is complete joins the decoding ones, as the last."""
    ints, rows = c.ints, c.rows
    r = ints[f.I_N_ROWS]
    rows[f.R_SLOT, r] = slot
    rows[f.R_REMAINING, r] = c.slot[slot][f.S_REMAINING]
    rows[f.R_COMPUTED, r] = c.slot[slot][f.S_COMPUTED]
    rows[f.R_HELD, r] = c.slot[slot][f.S_HELD]
    rows[f.R_DRAW, r] = slot * ints[f.I_DRAWS] + c.slot[slot][f.S_DRAW]
    rows[f.R_ACCEPTED, r] = c.slot[slot][f.S_ACCEPTED]
    rows[f.R_VERIFY_STEPS, r] = c.slot[slot][f.S_VERIFY_STEPS]
    rows[f.R_DRAFTED, r] = c.slot[slot][f.S_DRAFTED]
    rows[f.R_ZOMBIE, r] = f.ROW_LIVE
    rows[f.R_STALLED, r] = c.slot[slot][f.S_STALLED]
    ints[f.I_N_STALLED] += c.slot[slot][f.S_STALLED]
    ints[f.I_N_ROWS] = r + 1
    ints[f.I_CONTEXT] += c.slot[slot][f.S_COMPUTED]
    if ints[f.I_K_MAX] > 0:
        steps = steps_of_draws(c, ints[f.I_DRAWS] - c.slot[slot][f.S_DRAW])
        ints[f.I_SAFE_DRAWS] = min(ints[f.I_SAFE_DRAWS], steps) if r > 0 else steps
    left = c.slot[slot][f.S_REMAINING]
    ints[f.I_LEAST_LEFT] = min(ints[f.I_LEAST_LEFT], left) if r > 0 else left
    c.slot[slot][f.S_WHERE] = f.WHERE_DECODE

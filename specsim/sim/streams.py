"""When the tokens of a request reach its client, kept in a few numbers per request.

A request that decodes gets tokens in every decode step, so its token times are those of a *run*
of consecutive steps and only the run's ends are stored. The gaps between its chunks are counted
in bulk: `Core.cover` notes at which step a run starts and ends to count, and the log of step
times gives the gaps. A request that sits out (preempted, or left out of a step for want of token
budget) ends its run; the long gap until it gets tokens again is noted by itself.

Functions here run as Python or compiled.
"""

from specsim.sim import fields as f
from specsim.sim.fields import Core


def start_run(c: Core, slot: int) -> None:
    """The step that ends now gives the request tokens, and so will the next ones."""
    c.slot[slot][f.S_RUN_START] = c.ints[f.I_EMIT_STEP]
    c.slot[slot][f.S_CHUNKS] += 1
    c.slot[slot][f.S_STALL_MARK] = c.ints[f.I_STALL_STEPS]


def close_run(c: Core, slot: int, last: int) -> None:
    """Emit step `last` was the last of the request's run."""
    start = c.slot[slot][f.S_RUN_START]
    c.slot[slot][f.S_CHUNKS] += last - start
    c.slot[slot][f.S_STALLS] += c.ints[f.I_STALL_STEPS] - c.slot[slot][f.S_STALL_MARK]
    c.slot[slot][f.S_STALL_MARK] = c.ints[f.I_STALL_STEPS]
    if c.slot[slot][f.S_MEASURED] and last > start:
        c.cover[start + 1 - c.ints[f.I_EMIT_BASE]] += 1
        c.cover[last + 1 - c.ints[f.I_EMIT_BASE]] -= 1


def sit_out(c: Core, row: int) -> None:
    """A decoding request gets no tokens in the coming step."""
    slot = int(c.rows[f.R_SLOT, row])
    close_run(c, slot, c.ints[f.I_EMIT_STEP] - 1)
    c.slot_time[slot][f.T_LAST] = c.flts[f.X_LAST_EMIT_S]
    c.rows[f.R_STALLED, row] = 1
    c.slot[slot][f.S_STALLED] = 1
    c.ints[f.I_N_STALLED] += 1


def note_gap(c: Core, slot: int, end_s: float) -> None:
    """Tokens after a time out of the run."""
    gap = end_s - c.slot_time[slot][f.T_LAST]
    if gap > c.flts[f.X_STALL_S]:
        c.slot[slot][f.S_STALLS] += 1
    if c.slot[slot][f.S_MEASURED]:
        c.gaps[c.ints[f.I_N_GAPS]] = gap
        c.ints[f.I_N_GAPS] += 1


def resume_rows(c: Core, count: int, end_s: float) -> None:
    """The first `count` rows get tokens now; those that had sat out start a new run."""
    for r in range(count):
        if c.rows[f.R_STALLED, r] != 0:
            slot = int(c.rows[f.R_SLOT, r])
            c.rows[f.R_STALLED, r] = 0
            c.slot[slot][f.S_STALLED] = 0
            c.ints[f.I_N_STALLED] -= 1
            note_gap(c, slot, end_s)
            start_run(c, slot)


def prompt_token(c: Core, slot: int, end_s: float) -> None:
    """The step that ends now finished the request's prompt (or recomputed it) and gave a token."""
    if c.slot[slot][f.S_STALLED]:
        note_gap(c, slot, end_s)
        c.slot[slot][f.S_STALLED] = 0
    if c.ints[f.I_PREFILL_FIRST]:
        # Not a decode step: the next decode step ends a gap that began here.
        c.slot[slot][f.S_CHUNKS] += 1
        c.slot[slot][f.S_STALLED] = 1
    else:
        start_run(c, slot)
    c.slot_time[slot][f.T_LAST] = end_s


def cut_runs(c: Core) -> None:
    """Count all gaps so far, so that the log before the last step can be forgotten."""
    last = c.ints[f.I_EMIT_STEP] - 1
    for r in range(c.ints[f.I_N_ROWS]):
        if c.rows[f.R_STALLED, r] == 0 and c.rows[f.R_ZOMBIE, r] == f.ROW_LIVE:
            slot = int(c.rows[f.R_SLOT, r])
            close_run(c, slot, last)
            c.slot[slot][f.S_RUN_START] = last

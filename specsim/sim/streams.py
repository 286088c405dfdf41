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
    c.slot[f.S_RUN_START][slot] = c.ints[f.I_EMIT_STEP]
    c.slot[f.S_CHUNKS][slot] += 1
    c.slot[f.S_STALL_MARK][slot] = c.ints[f.I_STALL_STEPS]


def close_run(c: Core, slot: int, last: int) -> None:
    """Emit step `last` was the last of the request's run."""
    start = c.slot[f.S_RUN_START][slot]
    c.slot[f.S_CHUNKS][slot] += last - start
    c.slot[f.S_STALLS][slot] += c.ints[f.I_STALL_STEPS] - c.slot[f.S_STALL_MARK][slot]
    c.slot[f.S_STALL_MARK][slot] = c.ints[f.I_STALL_STEPS]
    if c.slot[f.S_MEASURED][slot] and last > start:
        c.cover[start + 1 - c.ints[f.I_EMIT_BASE]] += 1
        c.cover[last + 1 - c.ints[f.I_EMIT_BASE]] -= 1


def sit_out(c: Core, row: int) -> None:
    """A decoding request gets no tokens in the coming step."""
    slot = int(c.rows[f.R_SLOT, row])
    close_run(c, slot, c.ints[f.I_EMIT_STEP] - 1)
    c.slot_time[f.T_LAST][slot] = c.flts[f.X_LAST_EMIT_S]
    c.rows[f.R_STALLED, row] = 1
    c.slot[f.S_STALLED][slot] = 1
    c.ints[f.I_N_STALLED] += 1


def note_gap(c: Core, slot: int, end_s: float) -> None:
    """Tokens after a time out of the run."""
    gap = end_s - c.slot_time[f.T_LAST][slot]
    if gap > c.flts[f.X_STALL_S]:
        c.slot[f.S_STALLS][slot] += 1
    if c.slot[f.S_MEASURED][slot]:
        c.gaps[c.ints[f.I_N_GAPS]] = gap
        c.ints[f.I_N_GAPS] += 1


def resume_rows(c: Core, count: int, end_s: float) -> None:
    """The first `count` rows get tokens now; those that had sat out start a new run."""
    for r in range(count):
        if c.rows[f.R_STALLED, r] != 0:
            slot = int(c.rows[f.R_SLOT, r])
            c.rows[f.R_STALLED, r] = 0
            c.slot[f.S_STALLED][slot] = 0
            c.ints[f.I_N_STALLED] -= 1
            note_gap(c, slot, end_s)
            start_run(c, slot)


def prompt_token(c: Core, slot: int, end_s: float) -> None:
    """The step that ends now finished the request's prompt (or recomputed it) and gave a token."""
    if c.slot[f.S_STALLED][slot]:
        note_gap(c, slot, end_s)
        c.slot[f.S_STALLED][slot] = 0
    if c.ints[f.I_PREFILL_FIRST]:
        # Not a decode step: the next decode step ends a gap that began here.
        c.slot[f.S_CHUNKS][slot] += 1
        c.slot[f.S_STALLED][slot] = 1
    else:
        start_run(c, slot)
    c.slot_time[f.T_LAST][slot] = end_s


def cut_runs(c: Core) -> None:
    """Count all gaps so far, so that the log before the last step can be forgotten."""
    last = c.ints[f.I_EMIT_STEP] - 1
    for r in range(c.ints[f.I_N_ROWS]):
        if c.rows[f.R_STALLED, r] == 0 and c.rows[f.R_ZOMBIE, r] == f.ROW_LIVE:
            slot = int(c.rows[f.R_SLOT, r])
            close_run(c, slot, last)
            c.slot[f.S_RUN_START][slot] = last

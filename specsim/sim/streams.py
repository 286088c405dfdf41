"""When the tokens of a request reach its client, kept in a few numbers per request.

A request that decodes gets tokens in every decode step, so its token times are those of a *run*
of consecutive steps and only the run's ends are stored. The gaps between its chunks are counted
in bulk: `Core.cover` notes at which step a run starts and ends to count, and the log of step
times gives the gaps. A request that sits out (preempted, or left out of a step for lack of token
budget) ends its run; the long gap until it gets tokens again is noted by itself.
"""

from specsim.sim.core import LIVE, Core


def start_run(c: Core, slot: int) -> None:
    """The step that ends now gives the request tokens, and so will the next ones."""
    request = c.slots[slot]
    request.run_start = c.emit_step
    request.chunks += 1
    request.stall_mark = c.stall_steps


def close_run(c: Core, slot: int, last: int) -> None:
    """Emit step `last` was the last of the request's run."""
    request = c.slots[slot]
    start = request.run_start
    request.chunks += last - start
    request.stalls += c.stall_steps - request.stall_mark
    request.stall_mark = c.stall_steps
    if request.measured and last > start:
        c.cover[start + 1 - c.cover_from] += 1
        c.cover[last + 1 - c.cover_from] -= 1


def sit_out(c: Core, row: int) -> None:
    """A decoding request gets no tokens in the coming step."""
    slot = int(c.rows.slot[row])
    request = c.slots[slot]
    close_run(c, slot, c.emit_step - 1)
    request.last_token_s = c.last_emit_s
    c.rows.stalled[row] = 1
    request.stalled = 1
    c.sitting_out += 1


def note_gap(c: Core, slot: int, end_s: float) -> None:
    """Tokens after a time out of the run."""
    request = c.slots[slot]
    gap = end_s - request.last_token_s
    if gap > c.rules.stall_s:
        request.stalls += 1
    if request.measured:
        c.gaps[c.n_gaps] = gap
        c.n_gaps += 1


def resume_rows(c: Core, count: int, end_s: float) -> None:
    """The first `count` rows get tokens now; those that had sat out start a new run."""
    for r in range(count):
        if c.rows.stalled[r] != 0:
            slot = int(c.rows.slot[r])
            c.rows.stalled[r] = 0
            c.slots[slot].stalled = 0
            c.sitting_out -= 1
            note_gap(c, slot, end_s)
            start_run(c, slot)


def prompt_token(c: Core, slot: int, end_s: float) -> None:
    """The step that ends now finished the request's prompt (or recomputed it) and gave a token."""
    request = c.slots[slot]
    if request.stalled:
        note_gap(c, slot, end_s)
        request.stalled = 0
    if c.rules.prefill_first:
        # Not a decode step: the next decode step ends a gap that began here.
        request.chunks += 1
        request.stalled = 1
    else:
        start_run(c, slot)
    request.last_token_s = end_s


def cut_runs(c: Core) -> None:
    """Count all gaps so far, so that the log before the last step can be forgotten."""
    last = c.emit_step - 1
    for r in range(c.n_rows):
        if c.rows.stalled[r] == 0 and c.rows.state[r] == LIVE:
            slot = int(c.rows.slot[r])
            close_run(c, slot, last)
            c.slots[slot].run_start = last

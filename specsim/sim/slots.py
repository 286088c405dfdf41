"""Requests in and out of the arrays of one replica: slots, records, draws.

Every request inside an engine has a slot, which holds all its numbers. This is where they are
written when it comes and read when it goes; the step loop does the rest.
"""

import math
from collections.abc import Callable
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specsim.sim import fields as f
from specsim.sim.acceptance import DRAWS, DrawSource
from specsim.sim.fields import Core
from specsim.sim.preempt import save_row
from specsim.sim.records import INT_FIELDS, status_code
from specsim.sim.request import FINISHED
from specsim.sim.spans import SpanPool
from specsim.sim.streams import close_run
from specsim.sim.ticket import Counts, Ticket, Times

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
Ended = Callable[[Ticket, str, Counts, Times], None]
EndedBlock = Callable[[IntArray, FloatArray], None]


_FRESH = [0] * f.S_LENGTH
_FRESH_TIMES = [-1.0] * f.T_LENGTH
_COUNTED = itemgetter(
    f.S_CACHED, f.S_REMAINING, f.S_CHUNKS, f.S_VERIFY_STEPS, f.S_DRAFTED, f.S_ACCEPTED,
    f.S_PREEMPTIONS, f.S_STALLS,
)
_OUTPUT_TOKENS = INT_FIELDS.index("output_tokens")
_REPLICA = INT_FIELDS.index("replica")
_STATUS = INT_FIELDS.index("status")
# Slot field of each column of a record; -1: computed.
_PLACES = tuple(
    {
        "request_id": f.S_ID,
        "session": f.S_SESSION,
        "turn": f.S_TURN,
        "prompt_tokens": f.S_PROMPT,
        "cached_tokens": f.S_CACHED,
        "requested_tokens": f.S_OUTPUT,
        "chunks": f.S_CHUNKS,
        "verify_steps": f.S_VERIFY_STEPS,
        "drafted_tokens": f.S_DRAFTED,
        "accepted_tokens": f.S_ACCEPTED,
        "preemptions": f.S_PREEMPTIONS,
        "stalls": f.S_STALLS,
        "attempts": f.S_ATTEMPTS,
    }.get(name, -1)
    for name in INT_FIELDS
)


class Slots:
    """The part of a replica that handles single requests. outstanding: requests inside."""

    index: int
    compiled: bool
    core: Core
    source: DrawSource | None
    spans: SpanPool
    tickets: list[Ticket | None]
    outstanding: int
    _slots: int
    _free: list[int]
    _ended: Ended
    _ended_block: EndedBlock | None

    def _bind(self) -> None:
        """Arrays of the core were replaced."""
        raise NotImplementedError

    def _append(
        self, ring: str, head: int, length: int, ticket: Ticket, ready_s: float = -1.0
    ) -> None:
        """Put a request of the closed loop into one of the rings that precede the queue."""
        slot = self._fill_slot(ticket, f.WHERE_NOWHERE)
        c = self.core
        tail = c.ints[head] + c.ints[length]
        getattr(c, ring)[tail if tail < self._slots else tail - self._slots] = slot
        c.ints[length] += 1
        c.slot_time[slot][f.T_READY] = ready_s
        ticket.replica = self.index
        self.outstanding += 1

    def _append_standby(self, tickets: list[Ticket]) -> None:
        """Put the next requests of the closed loop where the engine finds them."""
        if not self.compiled or any(ticket.request.spans for ticket in tickets):
            for ticket in tickets:
                self._append("standby", f.I_S_HEAD, f.I_S_LEN, ticket)
            return
        if not tickets:
            return
        # All at once: a row of numbers each, spread over the columns of the state.
        c = self.core
        slots = np.array([self._free.pop() for _ in tickets])
        table = np.zeros((len(tickets), f.S_LENGTH), dtype=np.int64)
        table[:, (f.S_ID, f.S_PROMPT, f.S_OUTPUT, f.S_SESSION, f.S_TURN)] = [
            (t.request_id, t.request.prompt_tokens, t.output_tokens, t.request.session,
             t.request.turn)
            for t in tickets
        ]
        table[:, f.S_TARGET] = table[:, f.S_PROMPT]
        table[:, f.S_REMAINING] = table[:, f.S_OUTPUT]
        table[:, f.S_ATTEMPTS] = 1
        c.slot[slots] = table
        c.slot_time[slots] = -1.0
        for ticket, slot in zip(tickets, slots.tolist(), strict=True):
            if self.source is not None:
                draws = self.source.block(ticket.request_id, 0)
                c.accept[slot * DRAWS : (slot + 1) * DRAWS] = draws
            self.tickets[slot] = ticket
            ticket.slot = slot
            ticket.replica = self.index
        tail = int(c.ints[f.I_S_HEAD] + c.ints[f.I_S_LEN])
        c.standby[(tail + np.arange(len(tickets))) % self._slots] = slots
        c.ints[f.I_S_LEN] += len(tickets)
        self.outstanding += len(tickets)

    def _enter(self, ticket: Ticket, ready_s: float = -1.0) -> None:
        """Give a request a slot and put it into the engine's queue, where it is since ready_s."""
        slot = self._fill_slot(ticket, f.WHERE_WAITING)
        c = self.core
        c.slot_time[slot][f.T_READY] = ready_s
        tail = c.ints[f.I_W_HEAD] + c.ints[f.I_W_LEN]
        c.wait[tail if tail < self._slots else tail - self._slots] = slot
        c.ints[f.I_W_LEN] += 1

    def _fill_slot(self, ticket: Ticket, where: int) -> int:
        """Write a request's numbers into a free slot."""
        c = self.core
        slot = self._free.pop()
        request = ticket.request
        fresh: Any = c.slot[slot] if self.compiled else _FRESH.copy()
        if self.compiled:
            fresh[:] = 0
        fresh[f.S_ID] = ticket.request_id
        fresh[f.S_PROMPT] = fresh[f.S_TARGET] = request.prompt_tokens
        fresh[f.S_OUTPUT] = fresh[f.S_REMAINING] = ticket.output_tokens
        fresh[f.S_MEASURED] = ticket.measured
        fresh[f.S_WHERE] = where
        fresh[f.S_SESSION] = request.session
        fresh[f.S_TURN] = request.turn
        fresh[f.S_ATTEMPTS] = ticket.attempts
        if self.compiled:
            c.slot_time[slot] = -1.0
        else:
            c.slot[slot] = fresh
            c.slot_time[slot] = _FRESH_TIMES.copy()
        c.slot_time[slot][f.T_ARRIVAL] = ticket.arrival_s
        if request.spans and c.ints[f.I_CACHING]:
            c = self._place_spans(slot, ticket)
        if self.source is not None:
            c.accept[slot * DRAWS : (slot + 1) * DRAWS] = self.source.block(ticket.request_id, 0)
        self.tickets[slot] = ticket
        ticket.slot = slot
        return slot

    def _place_spans(self, slot: int, ticket: Ticket) -> Any:
        core = self.spans.place(self.core, slot, ticket.request)
        if core is not self.core:
            self.core = core
            self._bind()
        return core

    def _collect(self) -> None:
        """Hand over finished requests and take back slots that nothing refers to."""
        ints = self.core.ints
        count = int(ints[f.I_N_FINISHED])
        if count:
            ints[f.I_N_FINISHED] = 0
            if self._ended_block is not None:
                self._end_block(self.core.finished[:count].copy())
            else:
                for i in range(count):
                    self._end(int(self.core.finished[i]), FINISHED)
        count = ints[f.I_N_FREED]
        if count:
            ints[f.I_N_FREED] = 0
            for i in range(count):
                slot = int(self.core.freed[i])
                if self.spans.count:
                    self.spans.forget(self.core, slot)
                self._free.append(slot)

    def _end(self, slot: int, status: str) -> None:
        ticket = self.tickets[slot]
        assert ticket is not None
        self.tickets[slot] = None
        ticket.slot = -1
        self.outstanding -= 1
        self._ended(ticket, status, self._counts(slot), self._times(slot))

    def _end_block(self, slots: IntArray) -> None:
        """Hand over many finished requests as two tables."""
        assert self._ended_block is not None
        c = self.core
        table = c.slot[slots].T
        ints = np.empty((len(slots), len(INT_FIELDS)), dtype=np.int64)
        for column, place in enumerate(_PLACES):
            if place >= 0:
                ints[:, column] = table[place]
        ints[:, _OUTPUT_TOKENS] = table[f.S_OUTPUT] - table[f.S_REMAINING]
        ints[:, _REPLICA] = self.index
        ints[:, _STATUS] = status_code(FINISHED)
        times = c.slot_time[slots, : f.T_READY]
        times[times < 0.0] = math.nan
        for slot in slots.tolist():
            self.tickets[slot] = None
        self.outstanding -= len(slots)
        self._ended_block(ints, times)

    def _counts(self, slot: int) -> Counts:
        values = self.core.slot[slot]
        if self.compiled:
            values = values.tolist()
        cached, remaining, *others = _COUNTED(values)
        return (cached, values[f.S_OUTPUT] - remaining, *others)

    def _times(self, slot: int) -> Times:
        arrival, scheduled, first, last, end, *_ = map(float, self.core.slot_time[slot])
        return arrival, scheduled, first, last, end

    def _settle_row(self, slot: int) -> None:
        """Bring a decoding request's counters up to the last step, as if it ended there."""
        c = self.core
        if c.slot[slot][f.S_WHERE] != f.WHERE_DECODE:
            return
        row = self._row_of(slot)
        save_row(c, row)
        if not c.rows[f.R_STALLED, row]:
            close_run(c, slot, int(c.ints[f.I_EMIT_STEP]) - 1)
            c.slot[slot][f.S_RUN_START] = int(c.ints[f.I_EMIT_STEP]) - 1
            c.slot_time[slot][f.T_LAST] = float(c.flts[f.X_LAST_EMIT_S])

    def _row_of(self, slot: int) -> int:
        count = self.core.ints[f.I_N_ROWS]
        return int((self.core.rows[f.R_SLOT, :count] == slot).argmax())

    def _leave_queue(self, slot: int) -> None:
        c = self.core
        head, length = int(c.ints[f.I_W_HEAD]), int(c.ints[f.I_W_LEN])
        places = [(head + i) % self._slots for i in range(length)]
        queue = [int(c.wait[place]) for place in places if c.wait[place] != slot]
        for place, other in zip(places, queue, strict=False):
            c.wait[place] = other
        c.ints[f.I_W_LEN] = len(queue)
        c.ints[f.I_BLOCKED] = 0
        c.slot[slot][f.S_WHERE] = f.WHERE_NOWHERE
        c.freed[c.ints[f.I_N_FREED]] = slot
        c.ints[f.I_N_FREED] += 1

    def _more_draws(self) -> None:
        """Load the next block of draws of every row that has used up its own."""
        c = self.core
        assert self.source is not None
        count = c.ints[f.I_N_ROWS]
        slots = c.rows[f.R_SLOT, :count]
        used = c.rows[f.R_DRAW, :count] - slots * DRAWS
        for row in (used >= DRAWS).nonzero()[0]:
            slot = int(slots[row])
            number = int(c.slot[slot][f.S_DRAW_BLOCK]) + 1
            c.slot[slot][f.S_DRAW_BLOCK] = number
            block = self.source.block(int(c.slot[slot][f.S_ID]), number)
            c.accept[slot * DRAWS : (slot + 1) * DRAWS] = block
            c.rows[f.R_DRAW, row] -= DRAWS

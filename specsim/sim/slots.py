"""Requests in and out of one replica: slots, records, draws.

Every request inside an engine has a slot, which holds all its numbers. This is where they are
written when it comes and read when it goes; the step loop does the rest.
"""

import math
from collections.abc import Callable
from typing import cast

import numpy as np
from numpy.typing import NDArray

from specsim.sim.acceptance import DRAWS
from specsim.sim.core import (
    DECODING,
    NOWHERE,
    SENDING,
    WAITING,
    Core,
    Ring,
    Slot,
    append,
    drain,
    pop,
    push,
)
from specsim.sim.preempt import save_row
from specsim.sim.records import INT_FIELDS, TIME_FIELDS, status_code
from specsim.sim.request import FINISHED
from specsim.sim.spans import SpanPool
from specsim.sim.state import RunContext
from specsim.sim.streams import close_run
from specsim.sim.structs import table_of
from specsim.sim.ticket import Counts, Ticket, Times

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
Ended = Callable[[Ticket, str, Counts, Times], None]
EndedBlock = Callable[[IntArray, FloatArray], None]
Computed = Callable[[Ticket, Counts, Times, float], None]


_OUTPUT_TOKENS = INT_FIELDS.index("output_tokens")
_REPLICA = INT_FIELDS.index("replica")
_STATUS = INT_FIELDS.index("status")
# Fields of a record that stand in a slot as they are.
_COPIED = tuple(name for name in INT_FIELDS if name in Slot.__dataclass_fields__)


class Slots:
    """The part of a replica that handles single requests. outstanding: requests inside."""

    index: int
    run: RunContext
    core: Core
    spans: SpanPool
    tickets: list[Ticket | None]
    outstanding: int
    _free: list[int]
    _fresh_slot: Callable[[], Slot]
    _ended: Ended
    _ended_block: EndedBlock | None
    _computed: Computed

    def _bind(self) -> None:
        """Lists or arrays of the core were replaced."""
        raise NotImplementedError

    def _append(self, ring: Ring, ticket: Ticket, ready_s: float = -1.0) -> None:
        """Put a request of the closed loop into one of the rings that precede the queue."""
        slot = self._fill_slot(ticket, NOWHERE)
        push(ring, slot)
        self.core.slots[slot].ready_s = ready_s
        ticket.replica = self.index
        self.outstanding += 1

    def _append_standby(self, tickets: list[Ticket]) -> None:
        """Put the next requests of the closed loop where the engine finds them."""
        if not self.run.compiled or any(ticket.request.spans for ticket in tickets):
            for ticket in tickets:
                self._append(self.core.standby, ticket)
            return
        if not tickets:
            return
        # All at once: columns of the table of slots.
        c = self.core
        table = table_of(c.slots, Slot)
        fresh = np.zeros(len(tickets), dtype=table.dtype)
        for name in (*TIME_FIELDS, "ready_s"):
            fresh[name] = -1.0
        fresh["request_id"] = [ticket.request_id for ticket in tickets]
        fresh["prompt_tokens"] = [ticket.request.prompt_tokens for ticket in tickets]
        fresh["requested_tokens"] = [ticket.output_tokens for ticket in tickets]
        fresh["session"] = [ticket.request.session for ticket in tickets]
        fresh["turn"] = [ticket.request.turn for ticket in tickets]
        fresh["target"] = fresh["prompt_tokens"]
        fresh["remaining"] = fresh["requested_tokens"]
        fresh["attempts"] = 1
        count, ring = len(tickets), c.standby
        taken = self._free[: -count - 1 : -1]
        del self._free[-count:]
        slots = np.array(taken)
        table[slots] = fresh
        for ticket, slot in zip(tickets, taken, strict=True):
            self.tickets[slot] = ticket
            ticket.slot, ticket.replica = slot, self.index
        places = (ring.head + ring.count + np.arange(count)) % len(ring.slots)
        cast(IntArray, ring.slots)[places] = slots
        ring.count += count
        if self.run.source is not None:
            draws = self.run.source.first_blocks(fresh["request_id"])
            c.accept.reshape(-1, DRAWS)[slots] = draws
        self.outstanding += count

    def _enter(self, ticket: Ticket, ready_s: float = -1.0) -> None:
        """Give a request a slot and put it into the engine's queue, where it is since ready_s."""
        slot = self._fill_slot(ticket, WAITING)
        self.core.slots[slot].ready_s = ready_s
        push(self.core.waiting, slot)

    def _fill_slot(self, ticket: Ticket, where: int) -> int:
        """Write a request's numbers into a free slot."""
        c = self.core
        slot = self._free.pop()
        request = ticket.request
        c.slots[slot] = self._fresh_slot()
        inside = c.slots[slot]
        inside.request_id = ticket.request_id
        inside.prompt_tokens = inside.target = request.prompt_tokens
        inside.requested_tokens = inside.remaining = ticket.output_tokens
        inside.measured = int(ticket.measured)
        inside.where = where
        inside.session = request.session
        inside.turn = request.turn
        inside.attempts = ticket.attempts
        inside.arrival_s = ticket.arrival_s
        if ticket.computed:
            self._go_on(inside, ticket)
        elif self.run.link is not None:
            inside.requested_tokens = inside.remaining = min(1, ticket.output_tokens)
            inside.sends = int(ticket.output_tokens > 1)
            inside.send_rest_s = self.run.link.rest_s(request.prompt_tokens)
        if request.spans and c.rules.prefix_caching and self.spans.place(c, slot, request):
            self._bind()
        self._occupy(slot, ticket)
        return slot

    def _go_on(self, inside: Slot, ticket: Ticket) -> None:
        """The request comes with its cache and its first token, and sits out until it gets more."""
        for name in Counts._fields:
            if name != "output_tokens":
                setattr(inside, name, getattr(ticket.counts, name))
        for name in TIME_FIELDS:
            value = getattr(ticket.times, name)
            setattr(inside, name, -1.0 if math.isnan(value) else value)
        inside.computed = inside.prompt_tokens
        inside.remaining -= ticket.counts.output_tokens
        inside.stalled = 1

    def _occupy(self, slot: int, ticket: Ticket) -> None:
        self._load_draws(slot, ticket.request_id, 0)
        self.tickets[slot] = ticket
        ticket.slot = slot

    def _load_draws(self, slot: int, request_id: int, number: int) -> None:
        source = self.run.source
        if source is not None:
            block = source.block(request_id, number)
            self.core.accept[slot * DRAWS : (slot + 1) * DRAWS] = block

    def _collect(self) -> None:
        """Hand over finished requests and take back slots that nothing refers to."""
        ended = drain(self.core.finished)
        if ended and self._ended_block is not None:
            self._end_block(ended)
        else:
            for slot in ended:
                if self.core.slots[slot].where == SENDING:
                    self._hand_over(slot)
                else:
                    self._end(slot, FINISHED)
        freed = drain(self.core.freed)
        if self.spans.count:
            for slot in freed:
                self.spans.forget(slot)
        self._free.extend(freed)

    def _hand_over(self, slot: int) -> None:
        """A prompt is computed and its cache on its way; its blocks are held until `let_go`."""
        ticket = self.tickets[slot]
        assert ticket is not None
        self._computed(ticket, self._counts(slot), self._times(slot), self.core.slots[slot].sent_s)

    def _end(self, slot: int, status: str) -> None:
        ticket = self.tickets[slot]
        assert ticket is not None
        self.tickets[slot] = None
        ticket.slot = -1
        self.outstanding -= 1
        self._ended(ticket, status, self._counts(slot), self._times(slot))

    def _end_block(self, slots: list[int]) -> None:
        """Hand over many finished requests as two tables."""
        assert self._ended_block is not None
        table = table_of(self.core.slots, Slot)[slots]
        ints = np.empty((len(slots), len(INT_FIELDS)), dtype=np.int64)
        for name in _COPIED:
            ints[:, INT_FIELDS.index(name)] = table[name]
        ints[:, _OUTPUT_TOKENS] = table["requested_tokens"] - table["remaining"]
        ints[:, _REPLICA] = self.index
        ints[:, _STATUS] = status_code(FINISHED)
        times = np.stack([table[name] for name in TIME_FIELDS], axis=1)
        times[times < 0.0] = math.nan
        for slot in slots:
            self.tickets[slot] = None
        self.outstanding -= len(slots)
        self._ended_block(ints, times)

    def _counts(self, slot: int) -> Counts:
        request = self.core.slots[slot]
        counts = {name: getattr(request, name) for name in Counts._fields if name in _COPIED}
        return Counts(output_tokens=request.requested_tokens - request.remaining, **counts)

    def _times(self, slot: int) -> Times:
        request = self.core.slots[slot]
        return Times(*(getattr(request, name) for name in Times._fields))

    def _settle_row(self, slot: int) -> None:
        """Bring a decoding request's counters up to the last step, as if it ended there."""
        c = self.core
        request = c.slots[slot]
        if request.where != DECODING:
            return
        row = self._row_of(slot)
        save_row(c, row)
        if not c.rows.stalled[row]:
            close_run(c, slot, c.emit_step - 1)
            request.run_start = c.emit_step - 1
            request.last_token_s = c.last_emit_s

    def _row_of(self, slot: int) -> int:
        return int((self.core.rows.slot[: self.core.n_rows] == slot).argmax())

    def _leave_queue(self, slot: int) -> None:
        c = self.core
        for other in [pop(c.waiting) for _ in range(c.waiting.count)]:
            if other != slot:
                push(c.waiting, other)
        c.admission_blocked = False
        c.slots[slot].where = NOWHERE
        append(c.freed, slot)

    def _more_draws(self) -> None:
        """Load the next block of draws of every row that has used up its own."""
        c = self.core
        slots = c.rows.slot[: c.n_rows]
        used = c.rows.draw[: c.n_rows] - slots * DRAWS
        for row in (used >= DRAWS).nonzero()[0]:
            slot = int(slots[row])
            request = c.slots[slot]
            request.draw_block += 1
            self._load_draws(slot, request.request_id, request.draw_block)
            c.rows.draw[row] -= DRAWS

"""One replica as a simpy process: it owns a `Core`, feeds it, runs it and collects what ends.

The process sleeps until the step in flight ends, goes on from there through as many steps as end
before anything outside can happen, and sleeps again: one simpy event per stretch. Whether other
things can happen at any time (somebody waits for finished requests) or only at known outside
events decides how far a stretch may go.
"""

import itertools
import math
from collections import deque
from collections.abc import Callable, Generator, Iterator
from operator import itemgetter
from typing import Any

import numpy as np
import simpy
from numpy.typing import NDArray
from simpy.events import Event

from specsim.errors import CapacityError
from specsim.sim import fields as f
from specsim.sim.acceptance import DRAWS, DrawSource
from specsim.sim.clock import Clock
from specsim.sim.config import SimConfig
from specsim.sim.fields import Core
from specsim.sim.records import INT_FIELDS, status_code
from specsim.sim.request import FINISHED, UNFINISHED
from specsim.sim.schedule import save_row
from specsim.sim.spans import SpanPool
from specsim.sim.state import check_integrity, grow_nodes, make_core, slots_for
from specsim.sim.step import run
from specsim.sim.steplog import StepStats
from specsim.sim.streams import close_run
from specsim.sim.surface import Surface, checked_seconds
from specsim.sim.ticket import NO_COUNTS, NO_TIMES, Counts, Ticket, Times

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
Ended = Callable[["Replica", Ticket, str, Counts, Times], None]
EndedBlock = Callable[[IntArray, FloatArray], None]
HANG_PREEMPTIONS = 1000  # in one log without a token
CHECK_EVERY = 37  # stretches between comparisons of the cost surface with the cost function


class Replica:
    """A serving engine. Times in seconds on the run's clock."""

    def __init__(
        self,
        index: int,
        config: SimConfig,
        surface: Surface,
        source: DrawSource | None,
        clock: Clock,
        ended: Ended,
        *,
        coupled: bool,
        compiled: bool,
        keep_trace: bool = False,
        pulse: Callable[[], None] | None = None,
        ended_block: EndedBlock | None = None,
        clients: int = 0,
    ) -> None:
        self.index = index
        self.config = config
        self.surface = surface
        self.source = source
        self.clock = clock
        self.coupled = coupled
        self.compiled = compiled
        self.up = True
        self.core: Core
        self._run: Callable[[float], int]
        self.outstanding = 0
        self.weight = config.replicas[index].weight if config.replicas else 1.0
        self.longest = config.longest_request(index)
        self.stats = StepStats(config.warmup_s, keep_trace)
        self.backlog: deque[Ticket] = deque()
        self._ended = ended
        # Many at once where nobody needs to hear of each: needs state in arrays.
        self._ended_block = ended_block if compiled else None
        self._pulse = pulse
        self._clients = clients
        self._supply: Iterator[Ticket] | None = None
        self._slots = slots_for(config.rules_of(index), clients)
        self._past = dict.fromkeys(("tokens", "preemptions"), 0)
        self._held_max = self._wait_max = 0
        self._stretches = 0
        self._seen = (0, 0)
        self._bell: Event | None = None
        self._back: Event | None = None
        self._start_fresh()
        self.process = clock.process(self._serve())

    # --- seen from outside --------------------------------------------------------------------

    def submit(self, ticket: Ticket) -> None:
        """A request arrives at the engine now."""
        ticket.replica = self.index
        self.outstanding += 1
        if self._free and not self.backlog:
            self._enter(ticket, self.clock.now)
        else:
            self.backlog.append(ticket)
            self.core.ints[f.I_BACKLOG] = len(self.backlog)
        if self._bell is not None:
            bell, self._bell = self._bell, None
            self.clock.ring(bell)

    def abort(self, ticket: Ticket, status: str) -> None:
        """The client of a live request gives up."""
        if ticket.slot < 0:
            self.backlog.remove(ticket)
            self.core.ints[f.I_BACKLOG] = len(self.backlog)
            self.outstanding -= 1
            self._ended(self, ticket, status, NO_COUNTS, NO_TIMES)
            return
        c, slot = self.core, ticket.slot
        where = c.slot[slot][f.S_WHERE]
        self._settle_row(slot)
        self._end(slot, status)
        if where == f.WHERE_WAITING:
            self._leave_queue(slot)
        elif where == f.WHERE_PREFILL:
            c.slot[slot][f.S_DROPPED] = 1
        else:
            row = self._row_of(slot)
            if c.rows[f.R_STALLED, row]:
                c.rows[f.R_STALLED, row] = 0
                c.ints[f.I_N_STALLED] -= 1
            c.rows[f.R_REMAINING, row] = 0
            c.rows[f.R_ZOMBIE, row] = f.ROW_ZOMBIE
            c.ints[f.I_N_ZOMBIES] += 1

    def fail(self) -> list[tuple[Ticket, Counts, Times]]:
        """Lose everything. Returns the requests that were here, with what they had received."""
        lost: list[tuple[Ticket, Counts, Times]] = []
        for slot, ticket in enumerate(self.tickets):
            if ticket is not None:
                self._settle_row(slot)
                lost.append((ticket, self._counts(slot), self._times(slot)))
        lost.extend((ticket, NO_COUNTS, NO_TIMES) for ticket in self.backlog)
        lost.sort(key=lambda entry: entry[0].request_id)
        for ticket, _, _ in lost:
            ticket.slot = ticket.replica = -1
        self.backlog.clear()
        self.stats.flush(self.core)
        self.outstanding = 0
        self.up = False
        self._bell = None
        self._keep_totals()
        self._start_fresh()
        self.process.interrupt()
        return lost

    def come_back(self) -> None:
        self.up = True
        if self._back is not None:
            back, self._back = self._back, None
            self.clock.ring(back)

    def close(self) -> None:
        """The run ends: account for what is still here."""
        standby = self._ring_slots("standby", f.I_S_HEAD, f.I_S_LEN)
        coming = self._ring_slots("coming", f.I_C_HEAD, f.I_C_LEN)
        for slot, ticket in enumerate(self.tickets):
            if ticket is not None and slot not in standby:
                if slot in coming and self.core.slot_time[slot][f.T_READY] > self.clock.now:
                    ticket.replica = -1  # still in the front end
                self._settle_row(slot)
                self._end(slot, UNFINISHED)
        for ticket in self.backlog:
            self.outstanding -= 1
            self._ended(self, ticket, UNFINISHED, NO_COUNTS, NO_TIMES)
        self.backlog.clear()
        self.stats.flush(self.core)

    def _ring_slots(self, ring: str, head: int, length: int) -> set[int]:
        """Slots in one of the rings of a closed loop inside the engine."""
        first, count = int(self.core.ints[head]), int(self.core.ints[length])
        places = getattr(self.core, ring)
        return {int(places[(first + i) % self._slots]) for i in range(count)}

    @property
    def unsent(self) -> int:
        """Requests that a closed loop inside the engine holds ready but has not sent."""
        return int(self.core.ints[f.I_S_LEN])

    @property
    def clock_s(self) -> float:
        """How far the engine has run."""
        return float(self.core.flts[f.X_CLOCK_S])

    @property
    def tokens(self) -> int:
        """Tokens given out up to the step in flight."""
        return self._past["tokens"] + int(self.core.ints[f.I_TOKENS])

    @property
    def preemptions(self) -> int:
        return self._past["preemptions"] + int(self.core.ints[f.I_N_PREEMPTIONS])

    @property
    def kv_usage_max(self) -> float:
        held = max(self._held_max, int(self.core.ints[f.I_HELD_MAX]))
        return held / int(self.core.ints[f.I_BLOCKS])

    @property
    def waiting_max(self) -> int:
        return max(self._wait_max, int(self.core.ints[f.I_WAIT_MAX]))

    def check(self) -> None:
        """AssertionError if blocks or counters do not add up (used after every run)."""
        used = [s for s in range(self._slots) if self.core.slot[s][f.S_WHERE] != f.WHERE_NOWHERE]
        check_integrity(self.core, used)

    # --- the process --------------------------------------------------------------------------

    def _serve(self) -> Generator[Event, Any, None]:
        while True:
            try:
                yield from self._stretches_until_failure()
            except simpy.Interrupt:
                if not self.up:
                    self._back = self.clock.event()
                    yield self._back
                self.core.flts[f.X_CLOCK_S] = self.clock.now
                self.core.flts[f.X_LAST_EMIT_S] = self.clock.now

    def _stretches_until_failure(self) -> Generator[Event, Any, None]:
        clock = self.clock
        while True:
            horizon_s = clock.peek() if self.coupled else clock.next_outside_s()
            reason = self._advance(horizon_s)
            flts = self.core.flts
            if reason == f.RAN_TO_FLIGHT:
                self._collect()
                self._stretches += 1
                if self._stretches % CHECK_EVERY == 0 and not self.config.exact_cost:
                    self.surface.check(self.core)
                yield clock.engine_wakes_at(float(flts[f.X_END_S]))
            elif reason == f.RAN_TO_FINISH:
                if flts[f.X_CLOCK_S] > clock.now:
                    yield clock.engine_wakes_at(float(flts[f.X_CLOCK_S]))
                self._collect()
            elif reason == f.RAN_TO_ARRIVAL:
                self._collect()
                slot = self.core.coming[self.core.ints[f.I_C_HEAD]]
                yield clock.engine_wakes_at(float(self.core.slot_time[slot][f.T_READY]))
                flts[f.X_CLOCK_S] = clock.now
            elif reason == f.RAN_IDLE:
                self._collect()
                self._bell = clock.event()
                yield self._bell
                flts[f.X_CLOCK_S] = clock.now
            else:
                raise self._no_progress("none can be admitted or stepped")

    def _advance(self, horizon_s: float) -> int:
        """Run the step loop, serving its needs, until it says why it stopped."""
        while True:
            reason = self._run(horizon_s)
            if reason == f.NEED_PRICE:
                self._price()
            elif reason == f.NEED_DRAWS:
                self._more_draws()
            elif reason == f.NEED_LOG:
                self._collect()
                self.stats.flush(self.core)
                self._check_progress()
                if self._pulse is not None:
                    self._pulse()
            elif reason == f.NEED_NODES:
                wanted = self.core.ints[f.I_MAX_SEQS] * (self.core.ints[f.I_SPAN_MAX] + 2)
                self.core = grow_nodes(self.core, int(wanted))
                self._bind()
            elif reason == f.NEED_FEED:
                self._collect()
                self._feed()
            else:
                return reason

    def _check_progress(self) -> None:
        """A log full of steps in which requests only displace each other is a hang."""
        tokens, preemptions = self.tokens, self.preemptions
        if tokens == self._seen[0] and preemptions > self._seen[1] + HANG_PREEMPTIONS:
            raise self._no_progress(
                f"{preemptions - self._seen[1]} preemptions brought not one token"
            )
        self._seen = (tokens, preemptions)

    def _no_progress(self, how: str) -> CapacityError:
        ints, now_s = self.core.ints, self.core.flts[f.X_CLOCK_S]
        return CapacityError(
            f"replica {self.index} makes no progress at {now_s:.3f} s: {ints[f.I_W_LEN]} requests "
            f"wait and {how}; give it more num_kv_blocks or max_num_batched_tokens"
        )

    def _price(self) -> None:
        if not self.config.exact_cost:
            self.surface.fill(self.core)
            return
        ints, flts = self.core.ints, self.core.flts
        flts[f.X_STEP_S] = checked_seconds(self.surface.cost, self.surface.shape_of(self.core))
        # The step loop would ask for a price again: let it find this one, for this step only.
        ints[f.I_EXACT] = f.EXACT_GIVEN

    # --- requests in and out ------------------------------------------------------------------

    def _start_fresh(self) -> None:
        self.core = make_core(
            self.config,
            self.index,
            self.surface,
            self.source,
            arrays=self.compiled,
            stop_on_finish=self.coupled,
            clock_s=self.clock.now,
            clients=self._clients,
        )
        self.stats.last_emit_s = self.clock.now
        self.spans = SpanPool(self.config.rules_of(self.index).block_size)
        self.tickets: list[Ticket | None] = [None] * self._slots
        self._free = list(range(self._slots - 1, -1, -1))
        self._bind()

    def _bind(self) -> None:
        if self.compiled:
            from specsim.sim.compiled import bind

            self._run = bind(self.core)
        else:
            core = self.core
            self._run = lambda horizon_s: run(core, horizon_s)

    def _keep_totals(self) -> None:
        ints = self.core.ints
        self._past["tokens"] += int(ints[f.I_TOKENS])
        self._past["preemptions"] += int(ints[f.I_N_PREEMPTIONS])
        self._held_max = max(self._held_max, int(ints[f.I_HELD_MAX]))
        self._wait_max = max(self._wait_max, int(ints[f.I_WAIT_MAX]))

    def supply(self, tickets: Iterator[Ticket]) -> None:
        """A closed loop of `clients` inside the engine: `tickets` are its requests in order."""
        self._supply = tickets
        for _ in range(self._clients):
            ticket = next(tickets, None)
            if ticket is None:
                break
            ticket.measured = self.clock.now >= self.config.warmup_s
            ready_s = self.clock.now + self.config.request_overhead_s
            self._append("coming", f.I_C_HEAD, f.I_C_LEN, ticket, ready_s)
        self.core.ints[f.I_S_MORE] = 1
        self._feed()
        if self._bell is not None:
            bell, self._bell = self._bell, None
            self.clock.ring(bell)

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

    def _feed(self) -> None:
        while self.backlog and self._free:
            self._enter(self.backlog.popleft())
        c = self.core
        c.ints[f.I_BACKLOG] = len(self.backlog)
        if self._supply is not None:
            tickets = list(itertools.islice(self._supply, len(self._free) - 1))
            if len(tickets) < len(self._free) - 1:
                c.ints[f.I_S_MORE] = 0
                self._supply = None
            self._append_standby(tickets)

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
        ]  # fmt: skip
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
        fresh = c.slot[slot] if self.compiled else _FRESH.copy()
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
        self._ended(self, ticket, status, self._counts(slot), self._times(slot))

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
        times: Times = tuple(map(float, self.core.slot_time[slot][: f.T_READY]))
        return times

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


_FRESH = [0] * f.S_LENGTH
_FRESH_TIMES = [-1.0] * f.T_LENGTH
_COUNTED = itemgetter(
    f.S_CACHED, f.S_REMAINING, f.S_CHUNKS, f.S_VERIFY_STEPS, f.S_DRAFTED, f.S_ACCEPTED,
    f.S_PREEMPTIONS, f.S_STALLS,
)  # fmt: skip
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

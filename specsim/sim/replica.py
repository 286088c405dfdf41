"""One replica as a simpy process: it owns a `Core`, feeds it, runs it and collects what ends.

The process sleeps until the step in flight ends, goes on from there through as many steps as end
before anything outside can happen, and sleeps again: one simpy event per stretch. Whether other
things can happen at any time (somebody waits for finished requests) or only at known outside
events decides how far a stretch may go.
"""

import itertools
from collections import deque
from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import Any

import simpy
from simpy.events import Event

from specsim.errors import CapacityError
from specsim.sim.acceptance import DrawSource
from specsim.sim.clock import Clock
from specsim.sim.config import SimConfig
from specsim.sim.core import (
    EXACT_GIVEN,
    IN_PREFILL,
    LINGERING,
    NEED_DRAWS,
    NEED_FEED,
    NEED_LOG,
    NEED_NODES,
    NEED_PRICE,
    NOWHERE,
    RAN_IDLE,
    RAN_STUCK,
    RAN_TO_ARRIVAL,
    RAN_TO_FINISH,
    RAN_TO_FLIGHT,
    WAITING,
    Core,
    Ring,
    Slot,
)
from specsim.sim.request import UNFINISHED
from specsim.sim.slots import Ended, EndedBlock, Slots
from specsim.sim.spans import SpanPool
from specsim.sim.state import check_integrity, grow_nodes, make_core
from specsim.sim.step import run
from specsim.sim.steplog import StepStats
from specsim.sim.structs import as_struct
from specsim.sim.surface import Surface, checked_seconds
from specsim.sim.ticket import NO_COUNTS, NO_TIMES, Counts, Ticket, Times

HANG_PREEMPTIONS = 1000  # in one log without a token
CHECK_EVERY = 37  # stretches between comparisons of the cost surface with the cost function


def _members(ring: Ring) -> list[int]:
    """The slots in a ring, first to last."""
    return [int(ring.slots[(ring.head + i) % len(ring.slots)]) for i in range(ring.count)]


class Replica(Slots):
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
        self.stats = StepStats(config.warmup_s, keep_trace)
        self.backlog: deque[Ticket] = deque()
        self._ended = ended
        # Many at once where nobody needs to hear of each: needs state in arrays.
        self._ended_block = ended_block if compiled else None
        self._pulse = pulse
        self._clients = clients
        self._supply: Iterator[Ticket] | None = None
        self._past = dict.fromkeys(("tokens", "preemptions"), 0)
        self._held_max = self._wait_max = 0
        self._stretches = 0
        self._seen = (0, 0)
        self._bell: Event | None = None
        self._back: Event | None = None
        fresh = as_struct(Slot())
        self._fresh_slot = (lambda: fresh) if compiled else Slot
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
            self.core.backlog = len(self.backlog)
        if self._bell is not None:
            bell, self._bell = self._bell, None
            self.clock.ring(bell)

    def abort(self, ticket: Ticket, status: str) -> None:
        """The client of a live request gives up."""
        if ticket.slot < 0:
            self.backlog.remove(ticket)
            self.core.backlog = len(self.backlog)
            self.outstanding -= 1
            self._ended(ticket, status, NO_COUNTS, NO_TIMES)
            return
        c, slot = self.core, ticket.slot
        where = c.slots[slot].where
        self._settle_row(slot)
        self._end(slot, status)
        if where == WAITING:
            self._leave_queue(slot)
        elif where == IN_PREFILL:
            c.slots[slot].dropped = 1
        else:
            row = self._row_of(slot)
            if c.rows.stalled[row]:
                c.rows.stalled[row] = 0
                c.sitting_out -= 1
            c.rows.remaining[row] = 0
            c.rows.state[row] = LINGERING
            c.lingering += 1

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
        standby, coming = set(_members(self.core.standby)), set(_members(self.core.coming))
        for slot, ticket in enumerate(self.tickets):
            if ticket is not None and slot not in standby:
                if slot in coming and self.core.slots[slot].ready_s > self.clock.now:
                    ticket.replica = -1  # still in the front end
                self._settle_row(slot)
                self._end(slot, UNFINISHED)
        for ticket in self.backlog:
            self.outstanding -= 1
            self._ended(ticket, UNFINISHED, NO_COUNTS, NO_TIMES)
        self.backlog.clear()
        self.stats.flush(self.core)

    @property
    def unsent(self) -> int:
        """Requests that a closed loop inside the engine holds ready but has not sent."""
        return self.core.standby.count

    @property
    def clock_s(self) -> float:
        """How far the engine has run."""
        return self.core.clock_s

    @property
    def tokens(self) -> int:
        """Tokens given out up to the step in flight."""
        return self._past["tokens"] + self.core.tokens

    @property
    def preemptions(self) -> int:
        return self._past["preemptions"] + self.core.preemptions

    @property
    def kv_usage_max(self) -> float:
        held = max(self._held_max, self.core.held_max)
        return held / self.core.rules.num_kv_blocks

    @property
    def waiting_max(self) -> int:
        return max(self._wait_max, self.core.waiting_max)

    def check(self) -> None:
        """AssertionError if blocks or counters do not add up (used after every run)."""
        slots = self.core.slots
        check_integrity(self.core, [s for s in range(len(slots)) if slots[s].where != NOWHERE])

    # --- the process --------------------------------------------------------------------------

    def _serve(self) -> Generator[Event, Any, None]:
        while True:
            try:
                yield from self._stretches_until_failure()
            except simpy.Interrupt:
                if not self.up:
                    self._back = self.clock.event()
                    yield self._back
                self.core.clock_s = self.clock.now
                self.core.last_emit_s = self.clock.now

    def _stretches_until_failure(self) -> Generator[Event, Any, None]:
        clock = self.clock
        while True:
            horizon_s = clock.peek() if self.coupled else clock.next_outside_s()
            reason = self._advance(horizon_s)
            core = self.core
            if reason == RAN_STUCK:
                raise self._no_progress("none can be admitted or stepped")
            if reason == RAN_TO_FINISH and core.clock_s > clock.now:
                yield clock.engine_wakes_at(core.clock_s)
            self._collect()
            if reason == RAN_TO_FLIGHT:
                self._stretches += 1
                if self._stretches % CHECK_EVERY == 0 and not self.config.exact_cost:
                    self.surface.check(core)
                yield clock.engine_wakes_at(core.end_s)
            elif reason == RAN_TO_ARRIVAL:
                coming = core.coming
                yield clock.engine_wakes_at(core.slots[coming.slots[coming.head]].ready_s)
                core.clock_s = clock.now
            elif reason == RAN_IDLE:
                self._bell = clock.event()
                yield self._bell
                core.clock_s = clock.now

    def _advance(self, horizon_s: float) -> int:
        """Run the step loop, serving its needs, until it says why it stopped."""
        while True:
            reason = self._run(horizon_s)
            if reason == NEED_PRICE:
                self._price()
            elif reason == NEED_DRAWS:
                self._more_draws()
            elif reason == NEED_LOG:
                self._collect()
                self.stats.flush(self.core)
                self._check_progress()
                if self._pulse is not None:
                    self._pulse()
            elif reason == NEED_NODES:
                cache = self.core.cache
                grow_nodes(cache, self.core.rules.max_num_seqs * (cache.most_pieces + 2))
                self._bind()
            elif reason == NEED_FEED:
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
        core = self.core
        return CapacityError(
            f"replica {self.index} makes no progress at {core.clock_s:.3f} s: "
            f"{core.waiting.count} requests wait and {how}; "
            "give it more num_kv_blocks or max_num_batched_tokens"
        )

    def _price(self) -> None:
        if not self.config.exact_cost:
            self.surface.fill(self.core)
            return
        core = self.core
        core.step_s = checked_seconds(self.surface.cost, self.surface.shape_of(core))
        # The step loop would ask for a price again: let it find this one, for this step only.
        core.pricing = EXACT_GIVEN

    # --- requests in and out ------------------------------------------------------------------

    def _start_fresh(self) -> None:
        self.core = make_core(
            self.config,
            self.surface,
            self.source,
            compiled=self.compiled,
            stop_on_finish=self.coupled,
            clock_s=self.clock.now,
            clients=self._clients,
        )
        self.stats.last_emit_s = self.clock.now
        self.spans = SpanPool(self.config.rules.block_size)
        slots = len(self.core.slots)
        self.tickets: list[Ticket | None] = [None] * slots
        self._free = list(range(slots - 1, -1, -1))
        self._bind()

    def _bind(self) -> None:
        if self.compiled:
            from specsim.sim.compiled import bind

            self._run = bind(self.core)
        else:
            self._run = partial(run, self.core)

    def _keep_totals(self) -> None:
        core = self.core
        self._past["tokens"] += core.tokens
        self._past["preemptions"] += core.preemptions
        self._held_max = max(self._held_max, core.held_max)
        self._wait_max = max(self._wait_max, core.waiting_max)

    def supply(self, tickets: Iterator[Ticket]) -> None:
        """A closed loop of `clients` inside the engine: `tickets` are its requests in order."""
        self._supply = tickets
        for _ in range(self._clients):
            ticket = next(tickets, None)
            if ticket is None:
                break
            ticket.measured = self.clock.now >= self.config.warmup_s
            ready_s = self.clock.now + self.config.request_overhead_s
            self._append(self.core.coming, ticket, ready_s)
        self.core.supply_left = True
        self._feed()
        if self._bell is not None:
            bell, self._bell = self._bell, None
            self.clock.ring(bell)

    def _feed(self) -> None:
        while self.backlog and self._free:
            self._enter(self.backlog.popleft())
        self.core.backlog = len(self.backlog)
        if self._supply is not None:
            tickets = list(itertools.islice(self._supply, len(self._free) - 1))
            if len(tickets) < len(self._free) - 1:
                self.core.supply_left = False
                self._supply = None
            self._append_standby(tickets)

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

import simpy
from simpy.events import Event

from specsim.errors import CapacityError
from specsim.sim.core import (
    EXACT,
    IN_PREFILL,
    INTERPOLATED,
    LINGERING,
    NEED_DRAWS,
    NEED_FEED,
    NEED_LOG,
    NEED_NODES,
    NEED_POLICY,
    NEED_PRICE,
    NOWHERE,
    RAN_IDLE,
    RAN_STUCK,
    RAN_TO_ARRIVAL,
    RAN_TO_FINISH,
    RAN_TO_FLIGHT,
    SENDING,
    WAITING,
    Core,
    Ring,
    Slot,
)
from specsim.sim.kv import nodes_needed
from specsim.sim.kv_nodes import give_blocks, take_blocks
from specsim.sim.policies.deciding import Decider
from specsim.sim.preempt import discard
from specsim.sim.request import UNFINISHED
from specsim.sim.slots import Computed, Ended, EndedBlock, Slots
from specsim.sim.spans import SpanPool
from specsim.sim.state import RunContext, check_integrity, grow_nodes, make_core
from specsim.sim.step import run as run_steps
from specsim.sim.steplog import StepStats
from specsim.sim.structs import as_struct
from specsim.sim.ticket import Counts, Ticket, Times

HANDED_OVER = 64  # requests at once
HANG_PREEMPTIONS = 1000  # in one log without a token


def _members(ring: Ring) -> list[int]:
    """The slots in a ring, first to last."""
    return [int(ring.slots[(ring.head + i) % len(ring.slots)]) for i in range(ring.count)]


class Replica(Slots):
    """A serving engine. Times in seconds on the run's clock."""

    def __init__(
        self, index: int, run: RunContext, ended: Ended, ended_block: EndedBlock | None,
        computed: Computed,
    ) -> None:
        self.index = index
        self.run = run
        self.clock = run.clock
        self.up = True
        self.outstanding = 0
        self.stats = StepStats(run.config.warmup_s, run.config.duration_s, run.keep_trace)
        self.backlog: deque[Ticket] = deque()
        self._ended = ended
        self._ended_block = ended_block
        self._computed = computed
        # Nobody looks at single requests: they may wait to be handed over with others.
        alone = run.config.all_replicas == 1 and not run.config.faults
        self._hand_over_from = HANDED_OVER if ended_block is not None and alone else 0
        self._supply: Iterator[Ticket] | None = None
        self._grids = run.surface.added  # nodes added to the tables when they were last taken
        self._seen = (0, 0)  # tokens and preemptions at the last look
        self._bell: Event | None = None
        self._back: Event | None = None
        fresh = as_struct(Slot())
        self._fresh_slot = (lambda: fresh) if run.compiled else Slot
        self._decider: Decider | None = None
        self._use(make_core(run))
        self.process = self.clock.process(self._serve())

    # --- seen from outside --------------------------------------------------------------------

    def submit(self, ticket: Ticket) -> None:
        """A request arrives at the engine now."""
        ticket.replica = self.index
        self.outstanding += 1
        if not self._free:
            self._collect()
        if self._free and not self.backlog:
            self._enter(ticket, self.clock.now)
        else:
            self.backlog.append(ticket)
            self.core.backlog = len(self.backlog)
        self._wake()

    def _wake(self) -> None:
        if self._bell is not None:
            bell, self._bell = self._bell, None
            self.clock.ring(bell)

    def let_go(self, ticket: Ticket) -> None:
        """The cache of a computed prompt has been sent: its blocks come free."""
        slot = ticket.slot
        self.tickets[slot] = None
        ticket.slot = ticket.replica = -1
        self.outstanding -= 1
        self._stop_sending(slot)

    def _stop_sending(self, slot: int) -> None:
        self.core.sending -= 1
        discard(self.core, slot)
        self._wake()

    def abort(self, ticket: Ticket, status: str) -> None:
        """The client of a live request gives up."""
        if ticket.slot < 0:
            self.backlog.remove(ticket)
            self.core.backlog = len(self.backlog)
            self.outstanding -= 1
            self._ended(ticket, status, ticket.counts, ticket.times)
            return
        c, slot = self.core, ticket.slot
        where = c.slots[slot].where
        self._settle_row(slot)
        self._end(slot, status)
        if where == WAITING:
            self._leave_queue(slot)
        elif where == IN_PREFILL:
            c.slots[slot].dropped = 1
        elif where == SENDING:
            self._stop_sending(slot)
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
        lost.extend((ticket, ticket.counts, ticket.times) for ticket in self.backlog)
        lost.sort(key=lambda entry: entry[0].request_id)
        for ticket, _, _ in lost:
            ticket.slot = ticket.replica = -1
        self.backlog.clear()
        self._flush()
        self.outstanding = 0
        self.up = False
        self._bell = None
        self._start_fresh()
        self.process.interrupt()
        return lost

    def come_back(self) -> None:
        self.up = True
        if self._back is not None:
            back, self._back = self._back, None
            self.clock.ring(back)

    def hand_over(self) -> None:
        """Requests that have ended and were not handed over yet."""
        self._collect()

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
            self._ended(ticket, UNFINISHED, ticket.counts, ticket.times)
        self.backlog.clear()
        self._flush()

    @property
    def kv_usage_max(self) -> float:
        return self.core.held_max / self.run.config.most_kv_blocks

    def check(self) -> None:
        """AssertionError if blocks or counters do not add up (used after every run)."""
        slots = self.core.slots
        check_integrity(self.core, [s for s in range(len(slots)) if slots[s].where != NOWHERE])

    # --- the process --------------------------------------------------------------------------

    def _serve(self) -> Generator[Event, object, None]:
        while True:
            try:
                yield from self._stretches_until_failure()
            except simpy.Interrupt:
                if not self.up:
                    self._back = self.clock.event()
                    yield self._back
                self.core.clock_s = self.clock.now
                self.core.last_emit_s = self.clock.now

    def _stretches_until_failure(self) -> Generator[Event, object, None]:
        clock = self.clock
        while True:
            horizon_s = clock.peek() if self.run.coupled else clock.next_outside_s()
            reason = self._advance(horizon_s)
            core = self.core
            if reason == RAN_STUCK:
                raise self._no_progress("none can be admitted or stepped")
            if reason == RAN_TO_FINISH and core.clock_s > clock.now:
                yield clock.engine_wakes_at(core.clock_s)
            if core.finished.count >= self._hand_over_from:
                self._collect()
            if reason == RAN_TO_FLIGHT:
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
            if self._grids != self.run.surface.added:
                self._take_grids()
            reason = self._run(horizon_s)
            if reason == NEED_PRICE:
                self._price()
            elif reason == NEED_POLICY:
                self._decide()
            elif reason == NEED_DRAWS:
                self._more_draws()
            elif reason == NEED_LOG:
                self._collect()
                self._flush()
                self._check_progress()
                if self.run.pulse is not None:
                    self.run.pulse()
            elif reason == NEED_NODES:
                cache = self.core.cache
                grow_nodes(cache, nodes_needed(self.core, self.core.rules.max_num_seqs))
                self._bind()
            elif reason == NEED_FEED:
                self._collect()
                self._feed()
            else:
                return reason

    def _check_progress(self) -> None:
        """A log full of steps in which requests only displace each other is a hang."""
        tokens, preemptions = self.core.tokens, self.core.preemptions
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
        core, surface = self.core, self.run.surface
        if core.pricing == INTERPOLATED:
            surface.price(core)
            return
        core.step_s, core.idle_s, core.free_s = surface.exact_of(core)
        core.priced = True

    def _decide(self) -> None:
        """Ask the policy about the planned step; the drafter goes and comes as it wants."""
        decider, core = self._decider, self.core
        assert decider is not None
        decider.decide(core)
        blocks, wanted = decider.drafter_blocks, decider.policy.drafter_wanted
        if not decider.policy.unloads or wanted == decider.drafter_loaded:
            return
        if wanted and core.free_blocks >= blocks:
            take_blocks(core, blocks)
            core.rules.num_kv_blocks -= blocks
        elif not wanted and core.next_drafts == core.drafts == 0:
            if core.rules.prefix_caching and core.cache.unused < 1:
                grow_nodes(core.cache, 1)
                self._bind()
            give_blocks(core, blocks, True)
            core.rules.num_kv_blocks += blocks
            core.admission_blocked = False
        else:
            return
        decider.drafter_loaded = wanted
        core.unloaded = not wanted

    def _take_grids(self) -> None:
        """The tables of prices were made anew, with more nodes."""
        self._grids = self.run.surface.added
        if self.run.compiled:
            self.core.prices = as_struct(self.run.surface.prices)
            self._bind()

    def _flush(self) -> None:
        if self.core.pricing != EXACT:
            self.run.surface.check_log(self.core)
        self.stats.flush(self.core)

    # --- requests in and out ------------------------------------------------------------------

    def _start_fresh(self) -> None:
        """An empty engine, whose counters go on."""
        old, core = self.core, make_core(self.run)
        core.tokens, core.preemptions = old.tokens, old.preemptions
        core.held_max, core.waiting_max = old.held_max, old.waiting_max
        self._use(core)

    def _use(self, core: Core) -> None:
        """Run on this state, in which nothing has happened yet."""
        self.core = core
        config, self._decider = self.run.config, None
        choice = config.speculation.policy
        if choice is not None and core.rules.asks_policy:
            self._decider = Decider(choice, self.run.surface, config.drafter_blocks)
        self.stats.last_emit_s = self.clock.now
        self.spans = SpanPool(core.rules.block_size)
        slots = len(core.slots)
        self.tickets: list[Ticket | None] = [None] * slots
        self._free = list(range(slots - 1, -1, -1))
        self._bind()

    def _bind(self) -> None:
        self._run: Callable[[float], int]
        if self.run.compiled:
            from specsim.sim.compiled import bind

            self._run = bind(self.core)
        else:
            self._run = partial(run_steps, self.core)

    def supply(self, tickets: Iterator[Ticket]) -> None:
        """A closed loop of `clients` inside the engine: `tickets` are its requests in order."""
        self._supply = tickets
        for _ in range(self.run.clients):
            ticket = next(tickets, None)
            if ticket is None:
                break
            ticket.measured = self.clock.now >= self.run.config.warmup_s
            ready_s = self.clock.now + self.run.config.request_overhead_s
            self._append(self.core.coming, ticket, ready_s)
        self.core.supply_left = True
        self._feed()
        self._wake()

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

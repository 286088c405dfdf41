"""Replicas behind a gateway: admission per backend, routing, failures, clients that give up.

A request arrives at the gateway after its front-end time and goes to the replica the router chooses
among those that are up and have room under `max_concurrent`; if there is none it waits, first come
first served. Where prompts and decoding are apart, a prefill replica is chosen first; when all of
its cache has left and the link's latency has passed, the router chooses a decode replica.
"""

import math
from array import array
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from specsim.errors import CapacityError
from specsim.sim.config import Fault, SimConfig
from specsim.sim.records import Records, status_code
from specsim.sim.replica import Replica
from specsim.sim.request import FAILED, FINISHED, REJECTED, TIMEOUT, UNFINISHED, Request
from specsim.sim.router import make_router
from specsim.sim.state import RunContext
from specsim.sim.ticket import NO_COUNTS, NO_TIMES, Counts, Done, Ticket, Times

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]


MOST_REFUSALS = 10_000


def can_supply(config: SimConfig) -> bool:
    """Whether a closed loop may run inside the engine: one replica and nothing in between."""
    return (
        config.all_replicas == 1
        and not config.max_concurrent
        and not config.faults
        and math.isinf(config.request_timeout_s)
    )


def check_refusals(in_a_row: int, ticket: Ticket) -> None:
    """A closed loop whose requests are all refused would never end: CapacityError."""
    if in_a_row > MOST_REFUSALS:
        raise CapacityError(
            f"{in_a_row} requests in a row were refused, the last with "
            f"{ticket.request.prompt_tokens} prompt tokens; no replica can hold them: "
            "shorten them or give more memory"
        )


@dataclass(slots=True)
class Counters:
    """Requests by what became of them; conservation holds at every moment."""

    arrived: int = 0
    ended: dict[str, int] = field(default_factory=dict)

    def end(self, status: str, count: int = 1) -> None:
        self.ended[status] = self.ended.get(status, 0) + count

    @property
    def inside(self) -> int:
        return self.arrived - sum(self.ended.values())


class Cluster:
    """All that serves. Loads call `submit`; what ends goes to `records`."""

    def __init__(self, run: RunContext, prefill: RunContext | None = None) -> None:
        """prefill: what the replicas share that compute prompts, where others decode."""
        self.config = config = run.config
        self.clock = clock = run.clock
        self.surface = run.surface
        self._longest = config.longest_request
        self.counters = Counters()
        self.records = Records()
        self.queue: deque[Ticket] = deque()
        self.queue_max = 0
        self.between: deque[Ticket] = deque()  # computed, while no decode replica is up
        self.transfers_s = array("d")  # of measured requests: first token to decode replica
        self.last_end_s = 0.0
        self._router = make_router(config.router, run.seed)
        self._decode_router = make_router(config.router, run.seed)
        self._computing = prefill
        self._live: dict[int, Ticket] = {}  # only if clients give up
        self._front_end: dict[int, Ticket] = {}
        self.closing = False
        self._refusals = 0
        # Many at once where nobody needs to hear of each: needs state in arrays.
        alone = run.compiled and not run.coupled and math.isinf(config.request_timeout_s)
        ended_block = self._ended_block if alone else None
        first = config.prefill.n_replicas if config.prefill is not None else 0
        self.replicas = [
            Replica(index, prefill if prefill is not None and index < first else run, self._ended,
                    ended_block, self._computed)
            for index in range(config.all_replicas)
        ]
        self._entry = self.replicas[:first] or self.replicas
        self._decode = self.replicas[first:]
        for fault in config.faults:
            clock.call_at(fault.fail_s, self._fail, fault)
            if math.isfinite(fault.return_s):
                clock.call_at(fault.return_s, self._return, fault.replica)

    # --- requests -----------------------------------------------------------------------------

    def submit(self, request: Request, on_done: Done | None = None) -> Ticket:
        """A client sends a request now."""
        config, now_s = self.config, self.clock.now
        ticket = self._ticket(request, on_done)
        reason = self._unservable(ticket)
        if reason:
            # Told in an event of its own: a client may answer a refusal with its next request.
            ticket.on_done = None
            self._note(ticket, REJECTED, NO_COUNTS, NO_TIMES, reason)
            if on_done is not None:
                self.clock.call_at(now_s, on_done, ticket, REJECTED, now_s)
            return ticket
        if math.isfinite(config.request_timeout_s):
            self._live[ticket.request_id] = ticket
            self.clock.call_at(now_s + config.request_timeout_s, self._expire, ticket)
        if config.request_overhead_s > 0.0:
            self._front_end[ticket.request_id] = ticket
            self.clock.call_at(now_s + config.request_overhead_s, self._leave_front_end, ticket)
        else:
            self._route(ticket)
        return ticket

    def _ticket(self, request: Request, on_done: Done | None) -> Ticket:
        config, now_s = self.config, self.clock.now
        output = request.output_tokens
        if config.max_model_len is not None:
            output = max(0, min(output, config.max_model_len - request.prompt_tokens))
        ticket = Ticket(
            self.counters.arrived, request, now_s, output, now_s >= config.warmup_s, on_done
        )
        self.counters.arrived += 1
        return ticket

    def supply(self, requests: Iterator[Request]) -> None:
        """Run a closed loop inside the one replica (see `can_supply`)."""

        def tickets() -> Iterator[Ticket]:
            for request in requests:
                ticket = self._ticket(request, None)
                reason = self._unservable(ticket)
                if reason:
                    self._note(ticket, REJECTED, NO_COUNTS, NO_TIMES, reason)
                    self._refusals += 1
                    check_refusals(self._refusals, ticket)
                    continue
                self._refusals = 0
                yield ticket

        self.replicas[0].supply(tickets())

    def _leave_front_end(self, ticket: Ticket) -> None:
        # Gone if its client gave up meanwhile.
        if self._front_end.pop(ticket.request_id, None) is not None:
            self._route(ticket)

    def _unservable(self, ticket: Ticket) -> str:
        """Why no replica can ever serve the request; empty if one can."""
        prompt, limit = ticket.request.prompt_tokens, self.config.max_model_len
        if limit is not None and prompt >= limit:
            return f"prompt of {prompt} tokens, but max_model_len is {limit}"
        total = prompt + ticket.output_tokens
        if total > self._longest:
            return (
                f"{total} tokens (prompt {prompt}, output {ticket.output_tokens}), but the cache "
                f"holds one request of at most {self._longest}"
            )
        rules = self.config.rules
        if self._computing is not None:
            computing = self._computing.config
            rules = computing.rules
            if prompt + 1 > computing.longest_request:
                return (
                    f"prompt of {prompt} tokens, but the cache of a prefill replica holds one of "
                    f"at most {computing.longest_request - 1}"
                )
        if not rules.chunked_prefill and prompt > rules.max_num_batched_tokens:
            return (
                f"prompt of {prompt} tokens exceeds max_num_batched_tokens "
                f"{rules.max_num_batched_tokens}, and chunked prefill is off"
            )
        return ""

    def _route(self, ticket: Ticket) -> None:
        if self.queue or not self._send(ticket):
            self.queue.append(ticket)
            self.queue_max = max(self.queue_max, len(self.queue))

    def _send(self, ticket: Ticket) -> bool:
        """To a replica with room; False if there is none now."""
        limit = self.config.max_concurrent
        able = [
            replica
            for replica in self._entry
            if replica.up and (not limit or replica.outstanding < limit)
        ]
        if able:
            self._router.choose(ticket, able).submit(ticket)
        return bool(able)

    def _drain_queue(self) -> None:
        while self.queue and self._send(self.queue[0]):
            self.queue.popleft()

    def _computed(self, ticket: Ticket, counts: Counts, times: Times, sent_s: float) -> None:
        """A prompt is computed; its cache leaves the prefill replica until sent_s."""
        assert self._computing is not None and self._computing.link is not None
        arrives_s = sent_s + self._computing.link.latency_s
        if ticket.measured:
            self.transfers_s.append(arrives_s - times.first_token_s)
        self.clock.call_at(arrives_s, self._handed_over, ticket, ticket.attempts, counts, times)

    def _handed_over(self, ticket: Ticket, attempt: int, counts: Counts, times: Times) -> None:
        if ticket.slot < 0 or ticket.attempts != attempt:
            return  # its client gave up, or its replica failed
        self.replicas[ticket.replica].let_go(ticket)
        ticket.counts, ticket.times = counts, times
        self.between.append(ticket)
        self._hand_on()

    def _hand_on(self) -> None:
        """Computed requests go to the decode replicas that are up."""
        able = [replica for replica in self._decode if replica.up]
        while able and self.between:
            ticket = self.between.popleft()
            self._decode_router.choose(ticket, able).submit(ticket)

    def _ended(self, ticket: Ticket, status: str, counts: Counts, times: Times) -> None:
        """A replica let go of a request."""
        self._note(ticket, status, counts, times)
        if self.queue and not self.closing:
            self._drain_queue()

    def _ended_block(self, ints: IntArray, times: FloatArray) -> None:
        """Many finished requests at once, where nobody waits for any of them."""
        self.counters.end(FINISHED, len(ints))
        self.last_end_s = max(self.last_end_s, float(times[:, -1].max()))
        self.records.add_block(ints, times)

    def _note(
        self, ticket: Ticket, status: str, counts: Counts, times: Times, reason: str = ""
    ) -> None:
        """Write the record of a request that ended, and tell who sent it."""
        self.counters.end(status)
        self._live.pop(ticket.request_id, None)
        request = ticket.request
        ints = (
            ticket.request_id,
            request.session,
            request.turn,
            ticket.replica,
            status_code(status),
            request.prompt_tokens,
            counts.cached_tokens,
            counts.output_tokens,
            ticket.output_tokens,
            *counts[2:],
            ticket.attempts,
        )
        stamps = [time_s if time_s >= 0.0 else math.nan for time_s in times]
        if math.isnan(stamps[0]):
            stamps[0] = ticket.arrival_s
        if math.isnan(stamps[-1]) and status != UNFINISHED:
            stamps[-1] = self.clock.now
        end_s = stamps[-1]
        if not math.isnan(end_s):
            self.last_end_s = max(self.last_end_s, end_s)
        self.records.add(ints, stamps, reason)
        if ticket.on_done is not None and not self.closing:
            ticket.on_done(ticket, status, end_s)

    # --- failures and clients -----------------------------------------------------------------

    def _expire(self, ticket: Ticket) -> None:
        if ticket.request_id not in self._live:
            return
        if ticket.replica >= 0:
            self.replicas[ticket.replica].abort(ticket, TIMEOUT)
            return
        if self._front_end.pop(ticket.request_id, None) is None:
            (self.between if ticket.computed else self.queue).remove(ticket)
        self._note(ticket, TIMEOUT, ticket.counts, ticket.times)

    def _fail(self, fault: Fault) -> None:
        retry = self.config.retry
        again = []
        for ticket, counts, times in self.replicas[fault.replica].fail():
            started = counts[1] > 0
            if retry == "all" or (retry == "unstarted" and not started):
                ticket.attempts += 1
                ticket.counts, ticket.times = NO_COUNTS, NO_TIMES
                again.append(ticket)
            else:
                ticket.replica = fault.replica
                reason = f"replica {fault.replica} failed"
                self._note(ticket, FAILED, counts, times, reason)
        for ticket in reversed(again):
            self.queue.appendleft(ticket)
        self.queue_max = max(self.queue_max, len(self.queue))
        self._drain_queue()

    def _return(self, index: int) -> None:
        self.replicas[index].come_back()
        self._drain_queue()
        self._hand_on()

    def hand_over(self) -> None:
        """What has ended is in the records."""
        for replica in self.replicas:
            replica.hand_over()

    # --- the end ------------------------------------------------------------------------------

    def close(self) -> None:
        """Account for everything that is still inside, and check that nothing was lost."""
        self.closing = True
        for replica in self.replicas:
            self.counters.arrived -= replica.core.standby.count  # ready, but never sent
            replica.close()
        for ticket in [*self.queue, *self.between, *self._front_end.values()]:
            self._note(ticket, UNFINISHED, ticket.counts, ticket.times)
        self.queue.clear()
        self.between.clear()
        self._front_end.clear()

    @property
    def tokens(self) -> int:
        return sum(replica.core.tokens for replica in self.replicas)

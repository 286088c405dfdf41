"""Replicas and queues through a day, step by step.

A rule wants so many replicas (`Scaling`); it has as many as it wanted at most within the last
cool-down, as far as the pool goes, and those serve that it has had for the time a start takes: the
newest stop first. Requests are a fluid: with n replicas that serve, at most n x `most_rate` leave
per second; what comes beyond that waits and is served first come, first served, or given up. People
who wait ask nothing: of U people (U - waiting) / cycle ask per second.

A step keeps the objectives when nobody waits so and each replica that serves has at most the load
at which its gates hold. That is a share of demand over time, not of requests of one step.

The day is run twice; the second time is told, so that night follows evening.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from specsim.planning.fleet import replicas_needed

TOLERANCE = 0.1  # of a queue's target within which Kubernetes' autoscaler leaves things alone
NOTHING = 1e-9


@dataclass(frozen=True, slots=True)
class Scaling:
    """share: of the capacity that is aimed at. queue: waiting requests per replica that are aimed
    at instead; 0: none. spares: replicas whose loss leaves the demand within capacity. start, cool,
    ahead: steps."""

    share: float
    queue: float
    spares: int
    least: int
    most: int
    start: int
    cool: int
    ahead: int


@dataclass(frozen=True)
class Stream:
    """A model of the day. demand: in each step, in its unit. gpus: of a replica. believed: load of
    a replica that the rule counts on; capacity: that at which its gates hold; most_rate: requests
    per second that leave it at most. cycle_s: from one request of a person to the next, without
    queue; 0: demand is requests per second. waiting: requests that wait in a replica of a load.
    fails: (first step, step after the last, replicas) that are lost."""

    demand: Sequence[float]
    gpu: str
    gpus: int
    believed: float
    capacity: float
    most_rate: float
    scaling: Scaling
    cycle_s: float = 0.0
    waiting: Callable[[float], float] | None = None
    fails: tuple[int, int, int] = (0, 0, 0)


@dataclass(frozen=True, slots=True)
class Flow:
    """By step: replicas that are paid, those that serve and what they serve per second at most,
    requests that wait at its end, those that were given up, and whether the objectives hold."""

    demand: Sequence[float]
    replicas: list[int]
    ready: list[int]
    most: list[float]
    queue: list[float]
    given_up: list[float]
    holds: list[bool]

    def longest_wait_s(self, step_s: float, first: int = 0, last: int | None = None) -> float:
        """Longest that one who comes at the end of these steps waits, by what is served after; up
        to the end of the day."""
        longest = 0.0
        for step in range(first, len(self.queue) if last is None else last):
            left, wait_s = self.queue[step], 0.0
            for most in self.most[step + 1:]:
                if left <= most * step_s:
                    wait_s += left / most if left else 0.0
                    break
                left, wait_s = left - most * step_s, wait_s + step_s
            longest = max(longest, wait_s)
        return longest

    def share(self, first: int = 0, last: int | None = None) -> float | None:
        """Share of the demand of these steps that comes while the objectives hold; None: none."""
        pairs = list(zip(self.demand, self.holds, strict=True))[first:last]
        whole = sum(amount for amount, _ in pairs)
        return sum(amount for amount, holds in pairs if holds) / whole if whole > 0 else None


class _Lane:
    """One stream under way."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.wants: list[int] = []
        self.flow = Flow(stream.demand, [], [], [], [], [], [])
        self.waiting = 0.0

    def wanted(self, step: int) -> int:
        """Replicas that the rule has, were there GPUs for all."""
        stream, rule = self.stream, self.stream.scaling
        steps = len(stream.demand)
        if rule.queue and self.flow.ready:
            ready, load = self.flow.ready[-1], stream.demand[step - 1]
            inside = stream.waiting(load / ready) if stream.waiting and ready else 0.0
            ratio = (self.waiting / max(1, ready) + inside) / rule.queue
            want = ready if abs(ratio - 1) <= TOLERANCE else -int(-max(1, ready) * ratio // 1)
            want = max(rule.least, want)
        else:
            seen = max(stream.demand[(step + i) % steps] for i in range(rule.ahead + 1))
            want = replicas_needed(seen, stream.believed, rule.share, rule.spares, rule.least)
        self.wants.append(want)
        return min(rule.most, max(self.wants[-(rule.cool + 1):]))

    def go(self, step: int, replicas: int, step_s: float, give_up_s: float) -> None:
        stream, flow = self.stream, self.flow
        flow.replicas.append(replicas)
        ready = min(flow.replicas[-(stream.scaling.start + 1):])
        first, last, lost = stream.fails
        if first <= step < last:
            ready = max(0, ready - lost)
        amount = stream.demand[step]
        before = self.waiting
        most = ready * stream.most_rate
        coming, after = amount, before + (amount - most) * step_s
        if stream.cycle_s:  # dQ/dt = (people - Q) / cycle - most
            coming, still = amount / stream.cycle_s, amount - most * stream.cycle_s
            after = still + (before - still) * math.exp(-step_s / stream.cycle_s)
        after = max(0.0, after)
        kept = min(after, max(coming, most) * give_up_s)
        self.waiting = kept if kept > NOTHING else 0.0
        flow.ready.append(ready)
        flow.queue.append(self.waiting)
        flow.most.append(most)
        flow.given_up.append(after - kept)
        flow.holds.append(
            before + self.waiting <= 0 and amount <= ready * stream.capacity * (1 + NOTHING)
        )


def run_day(
    streams: Sequence[Stream], pool: Callable[[str, int], float], step_s: float, give_up_s: float
) -> list[Flow]:
    """The flows of a day, the streams served in their order. pool(type, step): GPUs there are."""
    lanes = [_Lane(stream) for stream in streams]
    steps = len(streams[0].demand) if streams else 0
    for turn in range(2 * steps):
        step = turn % steps
        used: dict[str, int] = {}
        for lane in lanes:
            gpu, gpus = lane.stream.gpu, lane.stream.gpus
            free = max(0.0, pool(gpu, step) - used.get(gpu, 0))
            replicas = int(min(lane.wanted(step), free // gpus))
            used[gpu] = used.get(gpu, 0) + replicas * gpus
            lane.go(step, replicas, step_s, give_up_s)
    return [_second(lane.flow, steps) for lane in lanes]


def _second(flow: Flow, steps: int) -> Flow:
    """The flow of the second day."""
    return Flow(
        flow.demand, flow.replicas[steps:], flow.ready[steps:], flow.most[steps:],
        flow.queue[steps:], flow.given_up[steps:], flow.holds[steps:],
    )

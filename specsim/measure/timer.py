"""Repeated timings of calls, on either device.

`timer.sweep([(label, call), ...], limits)` runs all calls in order again and again and gives, per
label, the time of one call. Several calls of one label are the same work on other memory (the next
layer's weights), so that a repeat does not find its operands in the cache; one sample is their
mean.

CpuTimer    reads the clock around each call.
CudaTimer   captures the calls of a label in one CUDA graph, so that no launch gap is timed, and
            puts events around its replays. Work that cannot be captured is run eagerly.

The two give the same result type and are used through one interface; only the CPU's runs in the
tests of a machine without a GPU.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch

from specsim.calibrate.records import Timing

Call = Callable[[], object]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RepeatLimits:
    """How long a point is repeated: `warmups` unmeasured sweeps, then `least` to `most` measured
    ones, no more than `cap_s` once `least` are done, nor than four times that once two are."""

    warmups: int = 2
    least: int = 5
    most: int = 30
    cap_s: float = 0.5

    def enough(self, done: int, elapsed_s: float) -> bool:
        if done >= self.most:
            return True
        if done < min(2, self.least):
            return False
        return elapsed_s > (self.cap_s if done >= self.least else 4 * self.cap_s)


def repeat(
    limits: RepeatLimits, once: Callable[[], T], clock: Callable[[], float] = time.perf_counter
) -> tuple[list[T], float]:
    """What `once` gave each time after the warm-ups, and CPU seconds of this process per wall
    second meanwhile."""
    for _ in range(limits.warmups):
        once()
    found: list[T] = []
    begun, cpu = clock(), time.process_time()
    while not limits.enough(len(found), clock() - begun):
        found.append(once())
    return found, cpu_ratio(cpu, clock() - begun)


@dataclass(frozen=True, slots=True)
class Timed:
    """timing: of one call. cpu_over_wall: CPU seconds of this process per wall second meanwhile."""

    timing: Timing
    cpu_over_wall: float


class CpuTimer:
    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock

    def sweep(self, calls: Sequence[tuple[str, Call]], limits: RepeatLimits) -> dict[str, Timed]:
        counts = Counter(label for label, _ in calls)

        def once() -> dict[str, float]:
            """Mean time of a call, by label."""
            sums = dict.fromkeys(counts, 0.0)
            for label, call in calls:
                before = self._clock()
                call()
                sums[label] += self._clock() - before
            return {label: total / counts[label] for label, total in sums.items()}

        rounds, busy = repeat(limits, once, self._clock)
        return {label: Timed(Timing.of(each[label] for each in rounds), busy) for label in counts}


class CudaTimer:
    """Captures the calls; what cannot be captured is timed eagerly."""

    def sweep(self, calls: Sequence[tuple[str, Call]], limits: RepeatLimits) -> dict[str, Timed]:
        grouped: dict[str, list[Call]] = {}
        for label, call in calls:
            grouped.setdefault(label, []).append(call)
        return {label: self._time(group, limits) for label, group in grouped.items()}

    def _time(self, calls: list[Call], limits: RepeatLimits) -> Timed:
        replay = self._replay(calls)

        def once() -> float:
            first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
            first.record()
            replay()
            last.record()
            last.synchronize()
            return float(first.elapsed_time(last)) / 1e3 / len(calls)

        samples, busy = repeat(limits, once)
        return Timed(Timing.of(samples), busy)

    def _replay(self, calls: list[Call]) -> Call:
        def eager() -> None:
            for call in calls:
                call()

        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # cuBLAS and Triton initialise outside the capture
            for call in calls[:2]:
                call()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                eager()
        except RuntimeError:
            torch.cuda.synchronize()
            return eager
        return graph.replay


def cpu_ratio(cpu_before: float, wall: float) -> float:
    """CPU seconds of this process per wall second since `cpu_before` (time.process_time)."""
    return (time.process_time() - cpu_before) / wall if wall > 0 else 0.0


def timer_for(device: torch.device) -> CpuTimer | CudaTimer:
    return CudaTimer() if device.type == "cuda" else CpuTimer()

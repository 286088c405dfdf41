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
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from specsim.calibrate.records import Timing

Call = Callable[[], object]


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


@dataclass(frozen=True, slots=True)
class Timed:
    """timing: of one call. cpu_over_wall: CPU seconds of this process per wall second meanwhile."""

    timing: Timing
    cpu_over_wall: float


class Timer(Protocol):
    def sweep(
        self, calls: Sequence[tuple[str, Call]], limits: RepeatLimits
    ) -> dict[str, Timed]: ...


class CpuTimer:
    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock

    def sweep(self, calls: Sequence[tuple[str, Call]], limits: RepeatLimits) -> dict[str, Timed]:
        clock = self._clock
        labels = [label for label, _ in calls]
        counts = {label: labels.count(label) for label in dict.fromkeys(labels)}
        for _ in range(limits.warmups):
            for _, call in calls:
                call()
        samples: dict[str, list[float]] = {label: [] for label in counts}
        begun, cpu = clock(), time.process_time()
        done = 0
        while not limits.enough(done, clock() - begun):
            done += 1
            sums = dict.fromkeys(counts, 0.0)
            for label, call in calls:
                before = clock()
                call()
                sums[label] += clock() - before
            for label, total in sums.items():
                samples[label].append(total / counts[label])
        busy = cpu_ratio(cpu, clock() - begun)
        return {label: Timed(Timing.of(values), busy) for label, values in samples.items()}


class CudaTimer:
    """graphs: capture the calls (what cannot be captured is timed eagerly either way)."""

    def __init__(self, graphs: bool = True) -> None:
        self._graphs = graphs

    def sweep(self, calls: Sequence[tuple[str, Call]], limits: RepeatLimits) -> dict[str, Timed]:
        grouped: dict[str, list[Call]] = {}
        for label, call in calls:
            grouped.setdefault(label, []).append(call)
        return {label: self._time(group, limits) for label, group in grouped.items()}

    def _time(self, calls: list[Call], limits: RepeatLimits) -> Timed:
        replay = self._replay(calls)
        for _ in range(limits.warmups):
            replay()
        torch.cuda.synchronize()
        samples: list[float] = []
        begun, cpu = time.perf_counter(), time.process_time()
        while not limits.enough(len(samples), time.perf_counter() - begun):
            first, last = _event(), _event()
            first.record()
            replay()
            last.record()
            last.synchronize()
            samples.append(first.elapsed_time(last) / 1e3 / len(calls))
        busy = cpu_ratio(cpu, time.perf_counter() - begun)
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
        if not self._graphs:
            return eager
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                eager()
        except RuntimeError:
            torch.cuda.synchronize()
            return eager
        return graph.replay


def _event() -> Any:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def cpu_ratio(cpu_before: float, wall: float) -> float:
    """CPU seconds of this process per wall second since `cpu_before` (time.process_time)."""
    return (time.process_time() - cpu_before) / wall if wall > 0 else 0.0


def timer_for(device: torch.device) -> Timer:
    return CudaTimer() if device.type == "cuda" else CpuTimer()

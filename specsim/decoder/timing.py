"""Where the time of a step goes: draft, verify, sample and prompt.

`PhaseClock.mark(name)` ends a phase. On the CPU a mark reads the clock. On CUDA it records an
event, and nothing is read until the step's record has been (so timing adds no sync).
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch


@dataclass(frozen=True, slots=True)
class StepTiming:
    """One engine step. wall_s: from step start to its outputs being on the host.

    decode_seqs, decode_q_len: rows and tokens per row of the verification; context_tokens: sum of
    the rows' committed tokens before the step, as the host knew them.
    """

    wall_s: float
    decode_seqs: int
    decode_q_len: int
    context_tokens: int
    prompt_tokens: int
    phases_s: dict[str, float] = field(default_factory=dict)


class PhaseClock:
    """Times of the phases of one step."""

    __slots__ = ("_clock", "_cuda", "_marks")

    def __init__(self, device: torch.device, clock: Callable[[], float] = time.perf_counter):
        self._cuda = device.type == "cuda"
        self._clock = clock
        self._marks: list[tuple[str, float | torch.cuda.Event]] = []

    def start(self) -> None:
        self._marks = [("", self._now())]

    def mark(self, phase: str) -> None:
        self._marks.append((phase, self._now()))

    def _now(self) -> float | torch.cuda.Event:
        if not self._cuda:
            return self._clock()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def resolve(self) -> dict[str, float]:
        """Seconds per phase; phases that did not run are absent. Call after the step's record
        has been read."""
        out: dict[str, float] = {}
        for (_, before), (phase, after) in zip(self._marks, self._marks[1:], strict=False):
            out[phase] = out.get(phase, 0.0) + _seconds(before, after)
        return out


def _seconds(before: float | torch.cuda.Event, after: float | torch.cuda.Event) -> float:
    if not isinstance(before, torch.cuda.Event):
        assert not isinstance(after, torch.cuda.Event)
        return after - before
    assert isinstance(after, torch.cuda.Event)
    after.synchronize()
    milliseconds: float = before.elapsed_time(after)
    return milliseconds / 1e3

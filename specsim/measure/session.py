"""What the parts of a run share: device, loaded models, the memory's rate, expected costs."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from specsim.calibrate.records import Measurement, Value
from specsim.decoder.models import TORCH_DTYPES, load_model
from specsim.decoder.native_ops import native_by_default
from specsim.decoder.transformer import ModelOptions, Transformer
from specsim.decoder.weights import RandomSource
from specsim.measure.models import MeasuredModel
from specsim.measure.timer import Call, RepeatLimits, Timed, timer_for

_PROBE_AGE_S = 20.0  # a memory rate older than this is probed again
_BLOCK = 1 << 20  # values drawn at random before they repeat
_WEIGHTS_KEPT = {"cpu": 8e9, "cuda": 40e9}  # bytes of models kept loaded


@dataclass(frozen=True, slots=True)
class MeasurePoint:
    """What is to be measured: one line of the file."""

    kind: str
    shape: Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class JobCost:
    """What one repeat of a job moves and computes, and what setting it up writes: for the estimate
    of its time alone. calls: kernel calls per repeat."""

    bytes: float = 0.0
    flops: float = 0.0
    calls: float = 1.0
    setup_bytes: float = 0.0
    extra_s: float = 0.0  # time that does not depend on the device's speed


def measured(point: MeasurePoint, timed: Timed, **values: float) -> Measurement:
    """A point with its time; part, memory rate and time of day are the run's to fill in."""
    return Measurement("", point.kind, point.shape, timed.timing, timed.cpu_over_wall, 0.0,
                       values=values)


@dataclass(frozen=True, slots=True)
class MeasureJob:
    """Points that are measured together. models: names that must be loaded for it."""

    part: str
    points: tuple[MeasurePoint, ...]
    work: JobCost
    models: tuple[str, ...]
    run: "Callable[[Session], list[Measurement]]"


class Session:
    """models: what the run may load, by name. dtype: 'bf16' | 'fp32'."""

    def __init__(
        self, device: torch.device, dtype: str, models: Sequence[MeasuredModel],
        limits: RepeatLimits, seed: int = 0,
    ) -> None:
        self.device, self.dtype, self.limits, self.seed = device, dtype, limits, seed
        self.torch_dtype = TORCH_DTYPES[dtype]
        self.timer = timer_for(device)
        self._known = {model.name: model for model in models}
        self._loaded: dict[str, Transformer] = {}
        cuda = device.type == "cuda"
        # Rates for estimates until ceilings are measured: a slow machine's, so that the first
        # estimates err towards too long.
        self.bytes_per_s = 1e12 if cuda else 5e9
        self.flop_per_s = 1e14 if cuda else 5e10
        self.call_s = 5e-6 if cuda else 30e-6
        self.fill_bytes_per_s = 1e11 if cuda else 1e8  # random numbers
        self._slack: dict[str, float] = {}
        self.stream_bytes_per_s = 0.0
        self._probed = -_PROBE_AGE_S
        self._probe: Callable[[], object] | None = None

    def generator(self, stream: int = 0) -> torch.Generator:
        return torch.Generator(self.device).manual_seed(self.seed * 1009 + stream)

    def normal(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """Random values of the run's dtype: never zeros, which multiply faster.

        Large tensors repeat a block of 2^20 values: drawing gigabytes takes a CPU minutes.
        """
        made = torch.empty(shape, dtype=dtype or self.torch_dtype, device=self.device)
        refill(made, self.generator())
        return made

    def time(self, calls: Sequence[Call], limits: RepeatLimits | None = None) -> Timed:
        """The time of one of several calls that are the same work on other memory."""
        return self.timer.sweep([("", call) for call in calls], limits or self.limits)[""]

    # ------------------------------------------------------------------ models

    def model(self, name: str) -> Transformer:
        """Load a model, or take it from those loaded; the oldest go when memory runs short."""
        if name in self._loaded:
            return self._loaded[name]
        wanted = self._known[name]
        size = self._size(name)
        while self._loaded and size + sum(map(self._size, self._loaded)) > _WEIGHTS_KEPT[
            self.device.type
        ]:
            del self._loaded[next(iter(self._loaded))]
        before = time.perf_counter()
        with torch.no_grad():
            if wanted.source:
                model = load_model(wanted.source, dtype=self.dtype, device=str(self.device)).model
            else:
                source = RandomSource(wanted.config, self.torch_dtype, self.seed,
                                      device=self.device)
                model = Transformer(wanted.config, source, ModelOptions(
                    self.torch_dtype, self.device, native=native_by_default(self.device.type)
                ))
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        self.fill_bytes_per_s = size / (time.perf_counter() - before)
        self._loaded[name] = model
        return model

    def model_of(self, point: MeasurePoint) -> Transformer:
        return self.model(str(point.shape["model"]))

    def _size(self, name: str) -> float:
        element = torch.empty((), dtype=self.torch_dtype).element_size()
        return float(self._known[name].config.num_parameters() * element)

    # ------------------------------------------------------------------ memory rate

    def probe(self) -> float:
        """The memory's read rate now, bytes/s, at most 20 s old."""
        now = time.perf_counter()
        if now - self._probed < _PROBE_AGE_S:
            return self.stream_bytes_per_s
        size = (4 << 30) if self.device.type == "cuda" else (512 << 20)
        if self._probe is None:
            self._probe = reader(self.normal(size // 4, dtype=torch.float32))
        found = self.time([self._probe], RepeatLimits(1, 3, 3, 0.0))
        self.stream_bytes_per_s = size / found.timing.min_s
        self._probed = time.perf_counter()
        return self.stream_bytes_per_s

    def release_probe(self) -> None:
        self._probe = None

    # ------------------------------------------------------------------ expected cost

    def estimate_s(self, job: MeasureJob) -> float:
        """Seconds the job will take: its bytes and FLOP at the rates measured so far, stretched by
        what earlier jobs of its part took beyond theirs."""
        loading = sum(self._size(m) for m in job.models if m not in self._loaded)
        setup = loading / self.fill_bytes_per_s + job.work.setup_bytes / self.bytes_per_s
        return setup + job.work.extra_s + self._timed_s(job) * self._slack.get(job.part, 2.0)

    def _timed_s(self, job: MeasureJob) -> float:
        work, limits = job.work, self.limits
        once = (work.bytes / self.bytes_per_s + work.flops / self.flop_per_s
                + work.calls * self.call_s)
        return max(limits.cap_s, (limits.warmups + limits.least) * once)

    def learn(self, job: MeasureJob, estimate_s: float, took_s: float) -> None:
        """Note how long a job took beside its estimate: half the way to the newest ratio."""
        slack = self._slack.get(job.part, 2.0)
        timed = self._timed_s(job)
        rest = estimate_s - timed * slack
        seen = min(20.0, max(0.5, (took_s - rest) / timed))
        self._slack[job.part] = max(seen, 0.5 * (slack + seen))


def refill(data: Tensor, generator: torch.Generator) -> None:
    """Overwrite a contiguous tensor with normal values, a block repeated where it is large."""
    flat = data.view(-1)
    block = flat[:_BLOCK].normal_(0.0, 1.0, generator=generator)
    whole = flat.numel() // _BLOCK
    if whole > 1:
        flat[_BLOCK : whole * _BLOCK].view(-1, _BLOCK).copy_(block)
    rest = flat.numel() - whole * _BLOCK
    if whole and rest:
        flat[whole * _BLOCK :].copy_(block[:rest])


def reader(data: Tensor) -> Callable[[], object]:
    """A call that reads `data` (fp32) once and writes next to nothing.

    On the CPU a dot product of the tensor with itself, which reads at twice the rate of a sum
    (whose additions are the limit there); on a GPU a sum.
    """
    if data.device.type == "cuda":
        return partial(torch.sum, data)
    return partial(torch.dot, data, data)

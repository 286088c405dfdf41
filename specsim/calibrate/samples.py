"""Which timings a fit can trust, and how far: disturbed samples are seen, and treated by rule.

Each record carries what tells a disturbance: CPU seconds per wall second (others had the cores)
and the memory's read rate measured beside it (a shared host's rate drifts). On a CPU:

contended   cpu_over_wall below CONTENDED of what points of its kind have when they are left
            alone (their 90th percentile): left out. Small calls of attention and sampling run on
            one core and are held to one
slow memory stream below SLOW of the best (90th percentile) of its run: left out; between that and
            the best it is kept with the shortfall added to its uncertainty

The relative uncertainty of what is kept is that of its median over the repeats (from the spread of
its samples), never less than LEAST. On a GPU only the spread counts.
"""

import hashlib
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from specsim.calibrate.records import Measurement, RunHeader
from specsim.hardware.profile import HardwareProfile
from specsim.jsonable import json_text
from specsim.summary import quantile

CONTENDED = 0.85
SLOW = 0.75
LEAST = 0.01
_SMALL_FLOP = {True: 16e6, False: 6e6}  # attention on one core: with one query, with more
_P10_TO_P90 = 2.563  # standard deviations of a normal distribution


@dataclass(frozen=True, slots=True)
class FitSample:
    """A record as a fit takes it. seconds: of the statistic; noise: relative standard deviation;
    fault: why it is left out, '' where it is kept."""

    record: Measurement
    seconds: float
    noise: float
    fault: str = ""


def samples(records: Iterable[Measurement], statistic: str = "median") -> list[FitSample]:
    """Every record with its uncertainty and, where it is disturbed, the reason."""
    found = list(records)
    busy: dict[_Alike, list[float]] = defaultdict(list)
    rates: dict[int, list[float]] = defaultdict(list)
    for record in found:
        busy[_alike(record)].append(record.cpu_over_wall)
        if record.stream_bytes_per_s > 0:
            rates[id(record.run)].append(record.stream_bytes_per_s)
    alone = {
        key: 1.0 if key[2] else quantile(sorted(values), 0.9) for key, values in busy.items()
    }
    best = {key: quantile(sorted(values), 0.9) for key, values in rates.items()}
    return [
        _sample(record, statistic, alone[_alike(record)], best.get(id(record.run)))
        for record in found
    ]


_Alike = tuple[int, str, bool]


def _alike(record: Measurement) -> _Alike:
    return id(record.run), record.kind, one_core(record)


def one_core(record: Measurement) -> bool:
    """Whether the decoder runs this on a single core (decoder/native_ops.py; torch's own rule for
    a row of logits)."""
    s = record.shape
    if record.kind == "attention":
        q_len, ctx = float(s["q_len"]), float(s["ctx"])
        flop = 4.0 * float(s["seqs"]) * q_len * (ctx + q_len)
        flop *= float(s["heads"]) * float(s["head_dim"])
        return flop <= _SMALL_FLOP[q_len == 1]
    if record.kind == "sample":
        return float(s["rows"]) * (float(s["k"]) + 1) <= 1
    return record.kind == "launch"


def _sample(
    record: Measurement, statistic: str, alone: float, best_rate: float | None
) -> FitSample:
    timing = record.timing
    seconds = float(getattr(timing, f"{statistic}_s"))
    noise = max(LEAST, timing.spread / _P10_TO_P90 * 1.25 / math.sqrt(timing.n))
    if seconds <= 0:
        return FitSample(record, seconds, noise, "no time measured")
    if not on_cpu(record):
        return FitSample(record, seconds, noise)
    if record.cpu_over_wall < CONTENDED * alone:
        return FitSample(record, seconds, noise, "contended: others had the cores")
    if best_rate and record.stream_bytes_per_s > 0:
        share = record.stream_bytes_per_s / best_rate
        if share < SLOW:
            return FitSample(record, seconds, noise, "slow memory: the host's rate had dropped")
        noise = math.hypot(noise, max(0.0, 1 - share))
    return FitSample(record, seconds, noise)


def on_cpu(record: Measurement) -> bool:
    return record.run is None or record.run.device.get("kind", "cpu") != "cuda"


def faults(found: Sequence[FitSample]) -> dict[str, int]:
    """How many samples are left out, by reason."""
    return dict(Counter(sample.fault for sample in found if sample.fault))


FIT_PARTS = "ABCDFG"
_RUN = re.compile(r"run ([0-9a-f]{12})\b")


def run_id(run: RunHeader) -> str:
    """12 hexadecimal digits that tell runs apart: a run that is continued keeps its id."""
    text = json_text(run.identity(), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def runs_seen(profile: HardwareProfile) -> set[str]:
    """Ids of the runs (see `run_id`) that the profile's kernel tables were fitted on."""
    return {found for table in profile.kernels.values() for found in _RUN.findall(table.source)}


def split_of(record: Measurement, seen: Iterable[str]) -> str:
    """'fitted' for a point that a fit of these runs used, else 'held-out'. Kernel points and
    prompts are what a fit may use; whole steps and serving (E, H) are kept to judge it, except a
    few steps that give the engine's own time per step (see `calibrate.host`)."""
    known = record.run is not None and run_id(record.run) in seen
    return "fitted" if known and record.part in FIT_PARTS else "held-out"

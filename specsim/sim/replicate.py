"""Several runs that differ only in their seed: means with confidence intervals, and when to stop.

Figures of one run are not independent of each other (waits follow waits), so an interval comes from
independent runs: mean +- t s / sqrt(n). With a precision asked for, runs are added until the
half-width of every figure asked for is at most that share of its mean.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from specsim.errors import UsageError
from specsim.latency.shape import StepCost
from specsim.sim.config import SimConfig
from specsim.sim.loads import Load
from specsim.sim.run import Progress, SimResult, simulate

DEFAULT_FIGURES = ("ttft_s.p95", "tpot_s.mean", "output_tok_s")


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure over runs: its mean, the half-width of its confidence interval, and the runs."""

    mean: float
    half_width: float
    runs: int

    @property
    def relative(self) -> float:
        return self.half_width / abs(self.mean) if self.mean else math.inf * (self.half_width > 0)


@dataclass(frozen=True, slots=True, eq=False)
class Replications:
    """All runs, and the estimates of every numeric figure of their summaries by dotted name."""

    results: tuple[SimResult, ...]
    summaries: tuple[dict[str, Any], ...]
    estimates: dict[str, Estimate]
    confidence: float
    precise: bool  # every figure asked for reached the precision (True if none was asked for)

    def summary(self) -> dict[str, Any]:
        """The summary of the first run with every figure replaced by its mean over runs, and
        `interval` with the half-widths."""
        out = _nested_means(self.summaries)
        out["replications"] = len(self.summaries)
        out["confidence"] = self.confidence
        out["interval"] = {name: estimate.half_width for name, estimate in self.estimates.items()}
        return out


def t_quantile(confidence: float, degrees: int) -> float:
    """Two-sided Student t quantile."""
    from scipy.stats import t

    return float(t.ppf(0.5 + confidence / 2, degrees))


def estimate(values: Sequence[float], confidence: float = 0.95) -> Estimate:
    """Mean and t half-width; infinite for a single value."""
    count = len(values)
    mean = math.fsum(values) / count
    if count < 2:
        return Estimate(mean, math.inf, count)
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
    if spread == 0.0:
        return Estimate(mean, 0.0, count)
    return Estimate(mean, t_quantile(confidence, count - 1) * spread / math.sqrt(count), count)


def replicate(
    config: SimConfig,
    make_load: Callable[[int], Load],
    cost: StepCost,
    *,
    seed: int = 0,
    replications: int = 5,
    precision: float | None = None,
    figures: Sequence[str] = DEFAULT_FIGURES,
    most: int = 64,
    confidence: float = 0.95,
    progress: Callable[[int, Progress], None] | None = None,
) -> Replications:
    """Runs with seeds seed, seed + 1, ...; `make_load(seed)` makes each run's load.

    precision: go on after `replications` until the half-width of each of `figures` is at most
    this share of its mean, or `most` runs are done. progress(run, Progress). A run that is
    interrupted ends the series.
    """
    if replications < 1 or most < replications:
        raise UsageError(
            f"replications is {replications}; it must be 1 or more and at most {most}"
        )
    if precision is not None and not 0 < precision < 1:
        raise UsageError(f"precision is {precision!r}; it must be a share between 0 and 1")
    results: list[SimResult] = []
    summaries: list[dict[str, Any]] = []
    precise = precision is None
    while len(results) < most:
        number = len(results)
        report = None if progress is None else (lambda p, n=number: progress(n, p))
        result = simulate(config, make_load(seed + number), cost, seed + number, progress=report)
        results.append(result)
        summaries.append(result.summary())
        if result.partial:
            break
        if len(results) < replications:
            continue
        if precision is None:
            break
        wanted = [_figure(summaries, name, confidence) for name in figures]
        precise = all(found.relative <= precision for found in wanted)
        if precise:
            break
    names = sorted(_names(summaries[0]))
    estimates = {
        name: estimate(values, confidence)
        for name in names
        if (values := _values(summaries, name)) is not None
    }
    return Replications(tuple(results), tuple(summaries), estimates, confidence, precise)


def _figure(summaries: Sequence[dict[str, Any]], name: str, confidence: float) -> Estimate:
    values = _values(summaries, name)
    if values is None:
        known = ", ".join(sorted(_names(summaries[0]))[:12])
        raise UsageError(f"figure {name!r} is not in the results; figures are {known}, ...")
    return estimate(values, confidence)


def _names(summary: dict[str, Any], prefix: str = "") -> list[str]:
    names = []
    for key, value in summary.items():
        if isinstance(value, dict):
            names += _names(value, f"{prefix}{key}.")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            names.append(prefix + key)
    return names


def _values(summaries: Sequence[dict[str, Any]], name: str) -> list[float] | None:
    """The figure in every run; None if a run lacks it."""
    values = []
    for summary in summaries:
        value: Any = summary
        for key in name.split("."):
            value = value.get(key) if isinstance(value, dict) else None
        if not isinstance(value, int | float) or isinstance(value, bool):
            return None
        values.append(float(value))
    return values


def _nested_means(summaries: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The first summary with numbers replaced by means over runs; a flag holds if all hold."""
    first = summaries[0]
    out: dict[str, Any] = {}
    for key, value in first.items():
        parts = [summary.get(key) for summary in summaries]
        if isinstance(value, dict) and all(isinstance(part, dict) for part in parts):
            out[key] = _nested_means(parts)  # type: ignore[arg-type]
        elif isinstance(value, bool):
            out[key] = any(parts) if key == "partial" else all(parts)
        elif isinstance(value, int | float) and all(isinstance(p, int | float) for p in parts):
            mean = math.fsum(parts) / len(parts)  # type: ignore[arg-type]
            out[key] = int(mean) if isinstance(value, int) and mean.is_integer() else mean
        else:
            out[key] = value
    return out

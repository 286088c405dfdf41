"""Means and medians over runs that differ only in their seed, with confidence intervals.

Figures of one run are not independent of each other (waits follow waits), so an interval comes from
independent runs. Of the mean: mean +- t s / sqrt(n). Of the median, which tail latencies are
described by (near capacity they are skewed and differ severalfold between runs): by order
statistics, whatever the law (W. J. Conover, Practical Nonparametric Statistics, 3.2), from six
runs on; fewer runs cannot give 95 % that way, and the interval of the mean stands in.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MeanOfRuns:
    """A figure over runs: its mean, the half-width of its confidence interval, and the runs."""

    mean: float
    half_width: float
    runs: int

    @property
    def relative(self) -> float:
        return self.half_width / abs(self.mean) if self.mean else math.inf * (self.half_width > 0)

    @property
    def interval(self) -> tuple[float, float]:
        return self.mean - self.half_width, self.mean + self.half_width

    def bounded(self, most: float = math.inf) -> tuple[float, float] | None:
        """The interval of what is never below 0 nor above `most`; None for a single run."""
        low, high = self.interval
        return (max(0.0, low), min(high, most)) if self.runs > 1 else None


def t_quantile(confidence: float, degrees: int) -> float:
    """Two-sided Student t quantile."""
    from scipy.special import stdtrit  # scipy.stats takes most of a second to import

    return float(stdtrit(degrees, 0.5 + confidence / 2))


def mean_of_runs(values: Sequence[float], confidence: float = 0.95) -> MeanOfRuns:
    """Mean and t half-width; infinite for a single value."""
    count = len(values)
    mean = math.fsum(values) / count
    if count < 2:
        return MeanOfRuns(mean, math.inf, count)
    spread = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
    if spread == 0.0:
        return MeanOfRuns(mean, 0.0, count)
    return MeanOfRuns(mean, t_quantile(confidence, count - 1) * spread / math.sqrt(count), count)


def median_or_none(values: Sequence[float | None]) -> float | None:
    """Median of times, where None is a time that no run was long enough to see."""
    found = statistics.median([math.inf if value is None else value for value in values])
    return found if math.isfinite(found) else None


def median_interval(values: Sequence[float], most: float = math.inf) -> tuple[float, float] | None:
    """95 % interval of the median; None for fewer than two values.

    It holds the median of the values (t / sqrt(n) is above 1 up to five of them, and no median is
    further than s from the mean). Nothing lies above `most`, nor below 0 where no value does."""
    ranked, count = sorted(values), len(values)
    if count < 2:
        return None
    tail, below = 0.0, -1  # values below the interval on each side
    while tail + math.comb(count, below + 1) / 2.0**count <= 0.025:
        below += 1
        tail += math.comb(count, below) / 2.0**count
    if below < 0:
        found = mean_of_runs(values)
        return found.interval if ranked[0] < 0 else found.bounded(most)
    return ranked[below], ranked[-1 - below]

"""Means over runs that differ only in their seed, with confidence intervals.

Figures of one run are not independent of each other (waits follow waits), so an interval comes from
independent runs: mean +- t s / sqrt(n).
"""

import math
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


def t_quantile(confidence: float, degrees: int) -> float:
    """Two-sided Student t quantile."""
    from scipy.stats import t

    return float(t.ppf(0.5 + confidence / 2, degrees))


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

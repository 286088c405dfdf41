"""Percentiles and means of times, also where some are only known to be longer than something.

Requests that have no first token when a run ends have waited at least so long; dropping them
would make an overloaded system look good. The product-limit estimator (Kaplan and Meier 1958) uses
them for what they are.

Bins of a `LogHistogram` are 0.1 % wide from 1 microsecond to 10^6 seconds (and one for zero), so a
percentile is within 0.05 % of the exact one; count, sum and extremes are exact.
"""

import math
from typing import cast

import numpy as np
from numpy.typing import NDArray

from specsim.sim.figures import Distribution

Floats = NDArray[np.float64]

FLOOR_S = 1e-6
TOP_S = 1e6
STEP = math.log(1.001)
BINS = int(math.log(TOP_S / FLOOR_S) / STEP) + 2


class LogHistogram:
    """Counts of non-negative numbers."""

    def __init__(self) -> None:
        self.counts: NDArray[np.int64] = np.zeros(BINS, dtype=np.int64)
        self.count = 0
        self.total = 0.0
        self.least = math.inf
        self.most = -math.inf

    def add_many(self, values: NDArray[np.float64], weights: NDArray[np.int64] | None = None
                 ) -> None:
        """Add values, each `weights` times."""
        if weights is not None:
            values, weights = values[weights > 0], weights[weights > 0]
        if not len(values):
            return
        bins = np.zeros(len(values), dtype=np.int64)
        above = values > FLOOR_S
        bins[above] = 1 + (np.log(values[above] / FLOOR_S) / STEP).astype(np.int64)
        np.minimum(bins, BINS - 1, out=bins)
        np.add.at(self.counts, bins, 1 if weights is None else weights)
        self.count += len(values) if weights is None else int(weights.sum())
        self.total += float(values.sum() if weights is None else (values * weights).sum())
        self.least = min(self.least, float(values.min()))
        self.most = max(self.most, float(values.max()))

    def merge(self, other: "LogHistogram") -> None:
        self.counts += other.counts
        self.count += other.count
        self.total += other.total
        self.least = min(self.least, other.least)
        self.most = max(self.most, other.most)

    def percentile(self, percent: float, zeros: int = 0) -> float | None:
        """Value below which `percent` of the counts lie; `zeros` further counts at 0."""
        count = self.count + zeros
        if count == 0:
            return None
        wanted = percent / 100.0 * count - zeros
        if wanted <= 0 and zeros:
            return 0.0
        place = int(np.searchsorted(np.cumsum(self.counts), max(wanted, 1e-9), side="left"))
        if place == 0:
            return min(max(0.0, self.least), FLOOR_S)
        middle = FLOOR_S * math.exp((place - 0.5) * STEP)
        return min(max(middle, self.least), self.most)

    def mean(self, zeros: int = 0) -> float | None:
        count = self.count + zeros
        return self.total / count if count else None

    def summary(self, percents: tuple[float, ...], zeros: int = 0) -> Distribution:
        out: dict[str, float | None] = {"mean": self.mean(zeros)}
        for percent in percents:
            out[f"p{percent:g}"] = self.percentile(percent, zeros)
        return cast(Distribution, out)


def survival_curve(observed: Floats, censored: Floats) -> tuple[Floats, Floats]:
    """Times at which something was observed, and the share that lasts longer than each."""
    times, counts = np.unique(observed, return_counts=True)
    total = len(observed) + len(censored)
    ordered = np.sort(observed)
    waiting = np.sort(censored)
    # At risk at t: all that were not over, observed or censored, before t.
    risk = total - np.searchsorted(ordered, times, "left") - np.searchsorted(waiting, times, "left")
    lasting: Floats = np.cumprod(1.0 - counts / risk, dtype=np.float64)
    return times, lasting


def percentile(observed: Floats, censored: Floats, percent: float) -> float | None:
    """The time that `percent` of all stay below; None if that is beyond what was seen."""
    if not len(censored):
        return float(np.percentile(observed, percent)) if len(observed) else None
    if not len(observed):
        return None
    times, lasting = survival_curve(observed, censored)
    reached = np.flatnonzero(lasting <= 1.0 - percent / 100.0 + 1e-12)
    return float(times[reached[0]]) if len(reached) else None


def mean(observed: Floats, censored: Floats) -> float | None:
    """The mean; with censored observations the mean of min(time, longest time seen)."""
    if not len(censored):
        return float(observed.mean()) if len(observed) else None
    if not len(observed):
        return float(censored.mean())
    times, lasting = survival_curve(observed, censored)
    last = max(float(times[-1]), float(censored.max()))
    edges = np.concatenate(([0.0], times, [last]))
    return float((np.diff(edges) * np.concatenate(([1.0], lasting))).sum())

"""Whether the measured part of a run is stationary, or what it measures still grows or falls.

A line is fitted by least squares to each series over BATCHES of equal length (docs/simulate.md);
`change` is what it gains from the first to the last. In one run residuals are taken as first-order
autoregressive: n (1 - r) / (1 + r) of n batches count as independent, in the variance and in the
degrees of freedom of the t test (Santer et al. 2000, J. Geophys. Res. 105(D6):7337, section 4), r
corrected for its bias in short series with a fitted line, -(2 + 4 r) / n (Kendall 1954, Biometrika
41:403). Changes of several runs are independent: t test of their mean. A series drifts when its p
is below LEVEL shared by the series (Bonferroni) and its change is at least MATERIAL of its mean
(waiting requests: of the mean running). Seconds.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specsim.jsonable import Jsonable
from specsim.sim.figures import Figures, TrendFigures
from specsim.sim.records import Records
from specsim.sim.steplog import Timeline
from specsim.units import rounded, seconds

BATCHES = 20
LEAST_BINS = 2  # of the timeline in a batch
LEAST_REQUESTS = 3  # in a batch, for a median
LEVEL = 0.05
LEAST_P = 0.001  # that is told as a number
MATERIAL = 0.1
LEAST_INDEPENDENT = 3.0  # batches, below which nothing can be said
WORDS = {
    "running": "running requests", "waiting": "waiting requests",
    "context": "tokens held per running request", "ttft": "median TTFT",
}
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Drift(Jsonable):
    """One series. first, last: medians over the runs of its first and last batch. change: of the
    fitted line. p: that a stationary series changes so much."""

    first: float
    last: float
    change: float
    p: float
    drifts: bool


@dataclass(frozen=True, slots=True)
class Stationarity(Jsonable):
    """stationary: None where the runs are too short to say. series: by name."""

    stationary: bool | None
    series: dict[str, Drift]
    sentence: str


def trend_figures(
    timeline: Timeline, records: Records, start_s: float, end_s: float, block_size: int
) -> dict[str, TrendFigures]:
    """The series of one run from start_s to end_s, or until the last request was sent: after that
    a load only drains."""
    arrival = records.times("arrival_s")
    end_s = min(end_s, timeline.end_s, float(arrival.max()) if len(arrival) else 0.0)
    width = timeline.width_s
    first, last = math.ceil(start_s / width), math.floor(end_s / width)
    if last - first < BATCHES * LEAST_BINS:
        return {}
    edges = np.linspace(first, last, BATCHES + 1).round().astype(int)
    running, waiting, blocks = (
        np.add.reduceat(timeline.area[i, : last], edges[:-1]) / (np.diff(edges) * width)
        for i in (0, 1, 2)
    )
    held = np.divide(blocks * block_size, running, out=np.full(BATCHES, math.nan),
                     where=running > 0)
    found = {"running": running, "waiting": waiting, "context": held,
             "ttft": _medians(records, arrival, edges * width)}
    return {
        name: trend_of(values) for name, values in found.items() if not np.isnan(values).any()
    }


def _medians(records: Records, arrival: Floats, edges_s: Floats) -> Floats:
    """Median time to first token by batch; nan where too few were sent."""
    ttft = records.times("first_token_s") - arrival
    place = np.searchsorted(edges_s, arrival, "right") - 1
    out = np.full(BATCHES, math.nan)
    for i in range(BATCHES):
        inside = ttft[(place == i) & ~np.isnan(ttft)]
        if len(inside) >= LEAST_REQUESTS:
            out[i] = np.median(inside)
    return out


def trend_of(values: Floats) -> TrendFigures:
    """The line through a series, with the standard error of its change and the independent
    batches that it rests on."""
    count = len(values)
    time = np.linspace(-0.5, 0.5, count)
    change = float((time * values).sum() / (time * time).sum())
    residual = values - values.mean() - change * time
    power = float((residual**2).sum())
    tiny = (1e-9 * float(np.abs(values).max())) ** 2 * count
    lagged = float((residual[1:] * residual[:-1]).sum()) / power if power > tiny else 0.0
    lagged = min(0.99, max(0.0, (count * lagged + 2) / (count - 4)))
    independent = count * (1 - lagged) / (1 + lagged)
    variance = power / (independent - 2) if independent > LEAST_INDEPENDENT else math.nan
    error = math.sqrt(variance / float((time * time).sum())) if power > tiny else 0.0
    return TrendFigures(
        mean=float(values.mean()), first=float(values[0]), last=float(values[-1]), change=change,
        change_se=None if math.isnan(error) else error, independent=independent,
    )


def judge_trends(runs: Sequence[Figures]) -> Stationarity:
    """The verdict over one or several runs of a load."""
    trends = [run.get("trend", {}) for run in runs]
    names = [name for name in WORDS if trends and all(name in one for one in trends)]
    series: dict[str, Drift] = {}
    for name in names:
        found = [one[name] for one in trends]
        change = float(np.mean([one["change"] for one in found]))
        scale = "running" if name == "waiting" else name
        level = float(np.mean([abs(one[scale]["mean"]) for one in trends]))
        p = _p_value(found)
        series[name] = Drift(
            float(np.median([one["first"] for one in found])),
            float(np.median([one["last"] for one in found])),
            change, p, p < LEVEL / len(names) and abs(change) >= MATERIAL * level,
        )
    return _judged(series)


def _p_value(found: Sequence[TrendFigures]) -> float:
    """Two-sided p of the mean change."""
    from scipy.special import stdtr

    changes = np.array([one["change"] for one in found], dtype=float)
    count = len(changes)
    change, error, degrees = float(changes.mean()), found[0]["change_se"], 0.0
    if count > 1:
        error, degrees = float(changes.std(ddof=1)) / math.sqrt(count), count - 1.0
    elif error is not None:
        degrees = found[0]["independent"] - 2
    if error is None or change == 0.0:
        return 1.0
    return float(2 * stdtr(degrees, -abs(change) / error)) if error > 0 else 0.0


def _judged(series: dict[str, Drift]) -> Stationarity:
    if not series:
        return Stationarity(None, {}, "too short to say whether it is stationary")
    drifting = {name: one for name, one in series.items() if one.drifts}
    if not drifting:
        return Stationarity(True, series, "stationary: no trend in the measured time")
    told = [_told(name, one) for name, one in drifting.items()]
    return Stationarity(
        False, series,
        f"not stationary: {'; '.join(told)} within the measured time, so a longer or later stage "
        "gives other figures",
    )


def _told(name: str, one: Drift) -> str:
    shown, plural = (seconds, "s") if name == "ttft" else (rounded, "")
    verb = ("rise" if one.change > 0 else "fall") + plural
    chance = f"p {one.p:.1g}" if one.p >= LEAST_P else f"p < {LEAST_P:g}"
    return f"{WORDS[name]} {verb} from {shown(one.first)} to {shown(one.last)} ({chance})"

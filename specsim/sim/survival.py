"""Percentiles and means when some observations are only known to be longer than something.

Requests that have no first token when a run ends have waited at least so long; dropping them
would make an overloaded system look good. The product-limit estimator (Kaplan and Meier 1958) uses
them for what they are.
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


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

"""Many values in a few figures: quantiles, and of errors count, median and 90th percentile of the
size, bias, worst.

Errors are relative, predicted / measured - 1. What judges a fit, a profile or a prediction is
summed up here and nowhere else.
"""

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import TypedDict


class ErrorSummary(TypedDict):
    """bias: the median with its sign; worst: the largest, with its sign."""

    count: int
    median_abs_error: float
    p90_abs_error: float
    bias: float
    worst: float


def quantile(ordered: Sequence[float], q: float) -> float:
    """Linear interpolation between the order statistics of a sorted sequence."""
    at = q * (len(ordered) - 1)
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])


def times_summary(**times: Sequence[float]) -> dict[str, float]:
    """Median and 95th percentile of each, by name."""
    ordered = {name: sorted(values) for name, values in times.items()}
    return {f"{name}_p{percent}": quantile(values, percent / 100)
            for name, values in ordered.items() for percent in (50, 95)}


def error_summary(errors: Iterable[float]) -> ErrorSummary | None:
    """The figures of some errors; None of none."""
    values = list(errors)
    if not values:
        return None
    sizes = sorted(abs(value) for value in values)
    return {
        "count": len(values),
        "median_abs_error": statistics.median(sizes),
        "p90_abs_error": quantile(sizes, 0.9),
        "bias": statistics.median(values),
        "worst": max(values, key=abs),
    }

"""The checks that every number about acceptance passes: a share, a draft length, a mean length.

Each returns the value or raises a UsageError that names the value, the rule and the way out.
"""

import math

from specsim.errors import UsageError


def check_draft_length(k: int, *, minimum: int = 1, name: str = "k") -> int:
    """Return k, or raise UsageError if it is not a whole number of at least `minimum`."""
    if isinstance(k, bool) or not isinstance(k, int):
        raise UsageError(f"{name} is {k!r}, but it must be a whole number")
    if k < minimum:
        raise UsageError(f"{name} is {k}, but it must be at least {minimum}")
    return k


def check_probability(value: float, name: str) -> float:
    """Return the value as a float in [0, 1], or raise UsageError naming value, rule and way out."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UsageError(f"{name} is {value!r}, but it must be a number from 0 to 1")
    value = float(value)
    if math.isnan(value):
        raise UsageError(f"{name} is not a number (NaN); give a number from 0 to 1 or leave it out")
    if not 0.0 <= value <= 1.0:
        way_out = (
            f"if it is a percentage write {value / 100:g}"
            if 1.0 < value <= 100.0
            else "acceptance is a share of the drafted tokens"
        )
        raise UsageError(f"{name} is {value:g}, but it must be from 0 to 1; {way_out}")
    return value


def check_mean_length(acceptance_length: float, k: int) -> float:
    """Return AL as a float, or raise UsageError if it is not a number within [1, k + 1]."""
    check_draft_length(k)
    if isinstance(acceptance_length, bool) or not isinstance(acceptance_length, int | float):
        raise UsageError(f"acceptance length is {acceptance_length!r}, but it must be a number")
    value = float(acceptance_length)
    if not math.isfinite(value):
        raise UsageError(f"acceptance length is {value}, but it must be from 1 to k + 1 = {k + 1}")
    if value < 1.0:
        hint = f"if yours excludes it, give {value + 1:g}"
        raise UsageError(
            f"acceptance length is {value:g}, but it counts the bonus token and so is at least 1; "
            f"{hint if value >= 0 else 'give tokens per verify step'}"
        )
    if value > k + 1:
        raise UsageError(
            f"acceptance length is {value:g}, but {k} drafts and the bonus token give at most "
            f"k + 1 = {k + 1}; check k or the acceptance length"
        )
    return value

"""Values of fleet and demand files as numbers, and as JSON writes them.

TOML and JSON hold whole numbers of any size: one of 400 digits is no float.
"""

import math


def real(value: object) -> float | None:
    """A number as a float, infinite beyond its range; None for everything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def written(value: object) -> object:
    """A value for JSON, which knows no infinity: that of `burstiness` is written as 'inf'."""
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return value

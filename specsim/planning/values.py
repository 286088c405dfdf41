"""Values of fleet and demand files as numbers and as an error shows them.

TOML and JSON hold whole numbers of any size: one of 400 digits is no float, and would push the
rule out of an error's line.
"""

import math

MAX_SHOWN = 60  # characters of a bad value that an error repeats


def shown(value: object) -> str:
    """A bad value of any kind, short."""
    try:
        text = repr(value)
    except ValueError:  # a whole number with more digits than Python prints
        text = f"a {type(value).__name__} too large to print"
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 3] + "..."


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

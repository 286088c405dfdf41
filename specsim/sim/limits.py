"""Checks of single numbers that several objects of a run make."""

import math

from specsim.errors import UsageError

MAX_BLOCKS = 1 << 40


def whole(name: str, value: object, low: int, high: int = MAX_BLOCKS) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise UsageError(f"{name} is {value!r}; it must be a whole number from {low} to {high}")


def seconds(name: str, value: float, *, positive: bool = False) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or math.isnan(value) or value < 0 or (positive and value == 0):
        least = "above 0" if positive else "0 or more"
        raise UsageError(f"{name} is {value!r}; it must be seconds, {least}")

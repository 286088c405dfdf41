"""Cells of a measurements file as numbers, and the reason a row is left out."""

import math
import re


class SkipRow(Exception):
    """This row is not predicted; the text is the reason it is counted under."""


def number(text: str | None) -> float | None:
    """The first number in a cell, None when there is none."""
    if not text:
        return None
    match = re.search(r"-?\d+(?:\.\d+)?(?:e-?\d+)?", text.replace(",", ""))
    if match is None:
        return None
    value = float(match.group())
    return value if math.isfinite(value) else None


def whole(text: str | None) -> int | None:
    value = number(text)
    return int(value) if value is not None and 1 <= value < 1e9 else None


def measurement(text: str | None) -> float | None:
    """A measured time or rate in the file's unit; None for what no server measures."""
    value = number(text)
    return value if value is not None and 1e-6 < value < 1e9 else None

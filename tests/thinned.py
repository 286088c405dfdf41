"""Which cases of a long list `python -m pytest` runs; the others are slow, and CI runs them."""

import os
from collections.abc import Iterable
from itertools import product
from typing import Any

import pytest


def diagonal(*axes: Iterable[Any], most: int = 0) -> list[Any]:
    """Every combination of the axes' values, as parametrize takes them; all are slow but a
    diagonal, in which every value of every axis stands at least once, or `most` spread over it."""
    values = [list(axis) for axis in axes]
    longest = max(map(len, values))
    places = [i * longest // most for i in range(most)] if most else range(longest)
    kept = [tuple(axis[i % len(axis)] for axis in values) for i in places]
    return [one if one in kept else slow(*one) for one in product(*values)]


def some(values: Iterable[Any], most: int) -> list[Any]:
    """The values; all are slow but `most` of them, spread evenly from the first on."""
    listed = list(values)
    kept = {i * len(listed) // most for i in range(most)}
    return [one if i in kept else slow(one) for i, one in enumerate(listed)]


def slow(*case: Any) -> Any:
    """One case of a list, not run by default."""
    return pytest.param(*case, marks=pytest.mark.slow)


def examples(full: int, least: int = 10) -> int:
    """Examples of a property: `full` in CI, which sets SPECSIM_TESTS=all; elsewhere a quarter, but
    `least`."""
    return full if os.environ.get("SPECSIM_TESTS") == "all" else max(least, full // 4)

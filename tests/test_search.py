"""The one bisection: the answer, and how seldom it asks."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim.search import first_between, first_from_one, rising_root


@given(st.integers(0, 500), st.integers(1, 500), st.integers(1, 500))
def test_the_first_number_between(below: int, span: int, after: int) -> None:
    at = below + span
    first = min(at, below + after)
    asked: list[int] = []

    def holds(n: int) -> bool:
        asked.append(n)
        return n >= first

    assert first_between(holds, below, at) == first
    assert len(asked) <= math.ceil(math.log2(span)) + 1 and {below, at}.isdisjoint(asked)


@given(st.integers(1, 2000), st.integers(1, 2000))
def test_the_first_number_from_one(first: int, limit: int) -> None:
    asked: list[int] = []

    def holds(n: int) -> bool:
        asked.append(n)
        return n >= first

    assert first_from_one(holds, limit) == (first if first <= limit else None)
    assert max(asked) <= limit and len(asked) <= 2 * math.log2(limit) + 2


@given(st.integers(1, 2000), st.integers(1, 2000))
def test_a_coarse_answer_is_never_too_low(first: int, limit: int) -> None:
    found = first_from_one(lambda n: n >= first, limit, resolution=1 / 16)
    assert (found is None) == (first > limit)
    if found is not None:
        assert first <= found <= max(first, first * 1.0667 + 1)


def test_the_first_of_two_crossings_is_found_where_doubling_shows_it() -> None:
    assert first_from_one(lambda n: 6 <= n <= 20 or n > 900, 1000) == 6


@pytest.mark.parametrize("target", [0.0, 0.3, 2.0, 9.0])
def test_the_root_is_exact_to_the_last_bit(target: float) -> None:
    root = rising_root(lambda x: x * x, target, 3.0)
    assert root * root >= target
    below = math.nextafter(root, 0.0)
    assert target == 0.0 or below * below < target


def test_a_coarse_search_halves_downwards() -> None:
    """Published break-evens were found by these steps; others are as good, but other numbers."""
    asked: list[int] = []

    def holds(number: int) -> bool:
        asked.append(number)
        return number >= 91

    assert first_from_one(holds, 1000, 1 / 16) == 92
    assert asked[-4:] == [96, 80, 88, 92]
    assert first_from_one(lambda number: number >= 94, 95, 1 / 16) == 95

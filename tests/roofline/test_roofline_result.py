"""smooth_max and the labels of a KernelTime."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim.roofline.result import datasheet_time, kernel_time, labelled, smooth_max

times = st.floats(0.0, 1e-2, allow_subnormal=False)


@given(times, times, st.floats(1.0, 50.0))
def test_smooth_max_lies_between_the_maximum_and_the_sum(a: float, b: float, p: float) -> None:
    value = smooth_max(a, b, p)
    assert max(a, b) * (1 - 1e-12) <= value <= (a + b) * (1 + 1e-12)


def test_smooth_max_is_the_sum_at_1_and_the_maximum_in_the_limit() -> None:
    assert smooth_max(3.0, 4.0, 1.0) == pytest.approx(7.0)
    assert smooth_max(3.0, 4.0, 2.0) == pytest.approx(5.0)
    errors = [smooth_max(3.0, 4.0, p) - 4.0 for p in (1, 2, 4, 8, 16, 64, 256)]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-12


def test_smooth_max_of_nothing_is_nothing() -> None:
    assert smooth_max(0.0, 0.0, 3.0) == 0.0
    assert smooth_max(0.0, 2.0, 3.0) == 2.0


def test_latency_is_added_by_default_and_overlaps_with_an_exponent() -> None:
    assert kernel_time(3.0, 0.0, 4.0).seconds == pytest.approx(7.0)
    assert kernel_time(3.0, 0.0, 4.0, p_floor=2.0).seconds == pytest.approx(5.0)


@pytest.mark.parametrize(
    ("terms", "bound"),
    [((3.0, 2.0, 1.0), "memory"), ((2.0, 3.0, 1.0), "compute"), ((1.0, 2.0, 3.0), "latency")],
)
def test_the_largest_term_is_the_bound(terms: tuple[float, float, float], bound: str) -> None:
    assert labelled(6.0, *terms).bound == bound
    assert kernel_time(*terms).bound == bound


def test_the_datasheet_takes_the_greater_and_knows_no_latency() -> None:
    assert datasheet_time(2.0, 3.0) == (3.0, 2.0, 3.0, 0.0, "compute")
    assert datasheet_time(3.0, 2.0) == (3.0, 3.0, 2.0, 0.0, "memory")

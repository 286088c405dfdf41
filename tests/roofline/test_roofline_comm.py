"""Collectives, elementwise kernels and sampling."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofline_calls import all_gather, all_reduce, all_to_all, elementwise, sample
from specsim.hardware.profile import HardwareProfile

sizes = st.floats(1.0, 1e9)
counts = st.sampled_from([2, 4, 8])


@pytest.mark.parametrize("collective", [all_reduce, all_gather, all_to_all])
def test_one_gpu_needs_no_collective(h200: HardwareProfile, collective: object) -> None:
    assert collective(h200, 1e6, 1).seconds == 0.0  # type: ignore[operator]


def test_bytes_by_hand(h200: HardwareProfile) -> None:
    # 8 GPUs: 14/8 of the buffer leave each one in an all-reduce, 7/8 arrive in a gather.
    assert all_reduce(h200, 8e6, 8, fidelity="datasheet").seconds == pytest.approx(14e6 / 450e9)
    assert all_gather(h200, 8e6, 8, fidelity="datasheet").seconds == pytest.approx(7e6 / 450e9)
    assert all_to_all(h200, 8e6, 8, fidelity="datasheet").seconds == pytest.approx(7e6 / 450e9)


@given(sizes, counts)
def test_bounds_and_growth(h200: HardwareProfile, nbytes: float, gpus: int) -> None:
    """Not monotone in the number of GPUs: more of them keep more links busy."""
    for collective in (all_reduce, all_gather, all_to_all):
        time = collective(h200, nbytes, gpus).seconds
        assert time >= collective(h200, nbytes, gpus, fidelity="datasheet").seconds
        assert collective(h200, nbytes * 1.5, gpus).seconds >= time
        fast = replace(h200, link_bytes_per_s=2 * h200.link_bytes_per_s)
        assert collective(fast, nbytes, gpus).seconds <= time


@pytest.mark.parametrize(("kb", "us"), [(16, 5.15), (128, 7.94), (1024, 14.1), (16384, 87.2)])
def test_all_reduce_of_eight_gpus_as_measured(h200: HardwareProfile, kb: int, us: float) -> None:
    assert all_reduce(h200, kb * 1024, 8).seconds == pytest.approx(us * 1e-6, rel=0.2)


@given(sizes)
def test_elementwise(h200: HardwareProfile, nbytes: float) -> None:
    time = elementwise(h200, nbytes).seconds
    assert time >= elementwise(h200, nbytes, fidelity="datasheet").seconds
    assert time >= elementwise(h200, 0.0).seconds > 0


def test_sampling_streams_fp32_logits(h200: HardwareProfile) -> None:
    time = sample(h200, 128, 151936, passes=2, fidelity="datasheet")
    assert time.seconds == pytest.approx(128 * 151936 * 4 * 2 / 4.8e12)
    few, many = sample(h200, 1, 151936).seconds, sample(h200, 1000, 151936).seconds
    assert few < 1.2 * sample(h200, 0, 151936).seconds
    assert many > 10 * few

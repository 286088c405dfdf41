"""The CPU timer with a clock that is told what to say, and what jobs are expected to take."""

import pytest

from measure_helpers import TINY, session
from specsim.measure.session import JobCost, MeasureJob, MeasurePoint
from specsim.measure.timer import CpuTimer, RepeatLimits


class Clock:
    """Advances by what calls say they take."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def work(self, seconds: float):
        def call() -> None:
            self.now += seconds

        return call


def test_a_sample_is_the_mean_over_a_labels_calls() -> None:
    clock = Clock()
    calls = [("a", clock.work(1.0)), ("b", clock.work(10.0)), ("a", clock.work(3.0))]
    out = CpuTimer(clock).sweep(calls, RepeatLimits(warmups=2, least=2, most=5, cap_s=1e9))
    assert out["a"].timing.median_s == pytest.approx(2.0) and out["a"].timing.n == 5
    assert out["b"].timing.min_s == pytest.approx(10.0)
    assert clock.now == pytest.approx((2 + 5) * 14.0)


def test_slow_calls_stop_early_quick_ones_at_the_cap() -> None:
    clock = Clock()
    slow = CpuTimer(clock).sweep([("s", clock.work(3.0))], RepeatLimits(0, 10, 30, cap_s=1.0))
    assert slow["s"].timing.n == 2  # 3 s once is below 4 caps, twice is above
    middle = CpuTimer(clock).sweep([("m", clock.work(0.3))], RepeatLimits(0, 10, 30, cap_s=1.0))
    assert middle["m"].timing.n == 10  # past the cap, but the least number first
    quick = CpuTimer(clock).sweep([("q", clock.work(0.06))], RepeatLimits(0, 5, 30, cap_s=1.0))
    assert quick["q"].timing.n == 17  # the first repeat to end beyond 1 s
    tiny = CpuTimer(clock).sweep([("t", clock.work(1e-6))], RepeatLimits(0, 5, 30, cap_s=1.0))
    assert tiny["t"].timing.n == 30


def _job(**work) -> MeasureJob:
    return MeasureJob("B", (MeasurePoint("gemm", {}),), JobCost(**work), (), lambda _: [])


def test_estimates_follow_bytes_flops_and_calls() -> None:
    s = session()
    s.limits = RepeatLimits(warmups=1, least=4, most=10, cap_s=0.0)
    s.bytes_per_s, s.flop_per_s, s.call_s = 1e9, 1e10, 1e-3
    # slack 2, 5 sweeps of 2 + 1 + 1 s
    assert s.estimate_s(_job(bytes=2e9, flops=1e10, calls=1000)) == pytest.approx(40.0)
    assert s.estimate_s(_job(bytes=0, calls=0, setup_bytes=3e9, extra_s=7)) == pytest.approx(10)


def test_estimates_learn_from_what_jobs_took() -> None:
    s = session()
    s.limits = RepeatLimits(warmups=1, least=4, most=10, cap_s=0.0)
    s.bytes_per_s = 1e9
    job = _job(bytes=1e9, calls=0)
    before = s.estimate_s(job)  # 5 sweeps of 1 s, slack 2
    assert before == pytest.approx(10.0)
    s.learn(job, before, took_s=40.0)  # took 8 times the bare time
    assert s.estimate_s(job) == pytest.approx(40.0)
    for _ in range(20):
        s.learn(job, s.estimate_s(job), took_s=5.0)
    assert s.estimate_s(job) == pytest.approx(5.0, rel=0.01)


def test_loading_a_model_is_part_of_the_estimate() -> None:
    s = session()
    s.fill_bytes_per_s = 1.0
    job = MeasureJob("B", (MeasurePoint("gemm", {}),), JobCost(calls=0), ("tiny",), lambda _: [])
    size = 4 * TINY.num_parameters()
    first = s.estimate_s(job)
    s.model("tiny")
    s.fill_bytes_per_s = 1.0
    assert first - s.estimate_s(job) == pytest.approx(size)

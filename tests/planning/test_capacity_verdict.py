"""Verdicts from replications, ladders and the search between loads."""

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thinned import examples

from specsim.planning.ladder import Prober, climb, search, search_roughly
from specsim.sim.passing import (
    MOST_MARGIN,
    PassVerdict,
    binomial_p,
    enough,
    gate_margin,
    verdict_of,
    wilson_interval,
)
from specsim.sim.slo import judge

SLO = {"ttft_p95": 2.0, "stream_tok_s_p10": 15.0}


def run(ttft_s: float | None, stream: float) -> dict:
    return judge(SLO, {"ttft_s": {"p95": ttft_s}, "stream_tok_s": {"p10": stream}})


def sure(ok: bool) -> PassVerdict:
    return PassVerdict(4 if ok else 0, 4, "margin", 1.0 if ok else -1.0, "ttft_p95")


def test_margins_have_the_sign_of_the_gate() -> None:
    assert gate_margin("ttft_p95", {"value": 1.0, "limit": 2.0}) == pytest.approx(math.log(2))
    assert gate_margin("stream_tok_s_p10", {"value": 10.0, "limit": 15.0}) < 0
    assert gate_margin("ttft_p95", {"value": None, "limit": 2.0, "pass": False}) == -MOST_MARGIN
    assert gate_margin("error_rate", {"value": 0.0, "limit": 0.01}) == MOST_MARGIN
    assert gate_margin("error_rate", {"value": 0.5, "limit": 0.0}) == -MOST_MARGIN


def test_clear_cases_are_decided_by_their_margin_after_four_runs() -> None:
    good = verdict_of([run(0.5, 30.0), run(0.6, 31.0), run(0.5, 29.0), run(0.55, 30.0)])
    assert good.ok and good.decided == "margin" and good.worst == "stream_tok_s_p10"
    bad = verdict_of([run(9.0, 30.0), run(8.0, 31.0), run(9.5, 29.0), run(None, 30.0)])
    assert not bad.ok and bad.sure and bad.worst == "ttft_p95"


def test_scattered_cases_are_too_close_and_the_majority_decides() -> None:
    runs = [run(1.0, 30.0)] * 13 + [run(3.0, 30.0)] * 11
    verdict = verdict_of(runs)
    assert verdict.ok and not verdict.sure and verdict.word == "too close to call"
    assert not verdict_of([run(1.0, 30.0)] * 11 + [run(3.0, 30.0)] * 13).ok
    # Three of three could be luck.
    assert not verdict_of([run(1.0, 30.0), run(1.9, 30.0), run(1.5, 30.0)]).sure


def test_counts_decide_where_margins_do_not() -> None:
    assert binomial_p(0, 8) == pytest.approx(2 / 256)
    assert binomial_p(4, 8) == 1.0
    one_heavy = [run(1.99, 30.0)] * 7 + [run(0.02, 30.0)]
    assert verdict_of(one_heavy).sure


def test_a_ladder_stops_at_the_first_stage_that_fails() -> None:
    tried = []

    def evaluate(load: float) -> PassVerdict:
        tried.append(load)
        return sure(load <= 180)

    assert climb(Prober(evaluate), [216, 144, 252, 180]) == 180
    assert tried == [144, 180, 216]
    assert climb(Prober(lambda load: sure(False)), [10, 20]) == 0


@settings(max_examples=examples(60), deadline=None)
@given(true=st.integers(0, 5000), guess=st.floats(1, 5000), resolution=st.floats(0.001, 0.3))
def test_the_search_brackets_the_capacity(true: int, guess: float, resolution: float) -> None:
    prober = Prober(lambda load: sure(load <= true))
    found = search(
        prober, guess, whole=True, resolution=resolution, lowest=1, highest=100_000
    )
    assert found.capacity <= true
    assert found.fails is not None and found.fails > true
    assert found.fails - found.capacity <= max(1, resolution * found.capacity)
    assert len(found.trials) < 40


def test_rates_are_bracketed_too_and_the_top_is_respected() -> None:
    found = search(
        Prober(lambda load: sure(load <= 0.0371)), 5.0, whole=False, resolution=0.02, lowest=1e-4,
        highest=1e6,
    )
    assert 0.0371 * 0.97 <= found.capacity <= 0.0371
    found = search(
        Prober(lambda load: sure(True)), 5.0, whole=True, resolution=0.02, lowest=1, highest=300
    )
    assert found.capacity == 300 and found.fails is None


def test_ladder_trials_begin_the_bracket() -> None:
    prober = Prober(lambda load: sure(load <= 190))
    climb(prober, [144, 180, 216])
    found = search(prober, 20, whole=True, resolution=0.05, lowest=1, highest=1000)
    assert 181 <= found.capacity <= 190
    assert min(t.load for t in found.trials) == 144


def test_sure_bounds_leave_out_what_is_too_close() -> None:
    def evaluate(load: float) -> PassVerdict:
        close = 170 <= load <= 200
        return PassVerdict(13, 24, "close", 0.1, "ttft_p95") if close else sure(load < 170)

    prober = Prober(evaluate)
    climb(prober, [144, 180, 216])
    found = prober.bracket()
    assert found.capacity == 180 and found.sure_pass == 144 and found.sure_fail == 216


def test_noise_does_not_break_the_search() -> None:
    for seed in range(20):
        chance = random.Random(seed)

        def evaluate(load: float, chance: random.Random = chance) -> PassVerdict:
            share = 1 / (1 + math.exp((load - 100) / 10))
            passes = sum(chance.random() < share for _ in range(12))
            return PassVerdict(passes, 12, "close" if 1 < passes < 11 else "count", 0.0, "ttft_p95")

        found = search(Prober(evaluate), 60, whole=True, resolution=0.05, lowest=1, highest=1e5)
        assert 60 < found.capacity < 140


def test_wilsons_interval_is_the_root_of_its_equation() -> None:
    """Its ends are the p with (share - p)^2 = z^2 p (1 - p) / n (Wilson 1927)."""
    for passes, runs in ((4, 4), (0, 8), (14, 24), (1, 2)):
        low, high = wilson_interval(passes, runs)
        for end in (low, high):
            left, right = (passes / runs - end) ** 2, 1.959964**2 * end * (1 - end) / runs
            assert left == pytest.approx(right, abs=1e-9), (passes, runs)
    assert wilson_interval(4, 4)[1] == 1.0 and wilson_interval(0, 8)[0] == 0.0


def test_replicating_stops_when_it_is_sure_or_at_the_most() -> None:
    clear, scattered = [run(0.5, 30.0), run(0.6, 30.0)], [run(1.0, 30.0), run(3.0, 30.0)]
    assert [enough(clear * n, 16) for n in (1, 2)] == [False, True]
    assert [enough(scattered * n, 16) for n in (2, 5, 8)] == [False, False, True]
    assert not enough(clear * 2 + clear[:1], 16)  # looked at every second run


def test_medians_of_gates_count_what_never_came_as_longest() -> None:
    verdict = verdict_of([run(1.0, 30.0), run(None, 20.0), run(3.0, 25.0)])
    assert verdict.medians == {"ttft_p95": 3.0, "stream_tok_s_p10": 25.0}
    assert verdict_of([run(1.0, 30.0), run(None, 20.0)]).medians["ttft_p95"] is None


def test_a_rough_verdict_needs_agreement_and_a_margin() -> None:
    assert verdict_of([run(1.0, 30.0)] * 2, rough=True).decided == "rough"
    assert not verdict_of([run(1.9, 30.0)] * 2, rough=True).sure
    assert not verdict_of([run(0.5, 30.0), run(3.0, 30.0)], rough=True).sure


@pytest.mark.parametrize("guess", [20.0, 100.0, 104.0, 700.0])
def test_a_rough_search_ends_between_a_load_that_passes_and_one_that_fails(guess: float) -> None:
    def evaluate(load: float) -> PassVerdict:
        close = 95 < load < 110
        return PassVerdict(1, 2, "close", 0.1, "ttft_p95") if close else sure(load < 102)

    prober = Prober(evaluate)
    found = search_roughly(prober, guess, whole=True, lowest=1.0, highest=1e5)
    assert found.sure_pass <= 95 and found.sure_fail is not None and found.sure_fail >= 110
    assert found.sure_fail / found.sure_pass < 1.15**4

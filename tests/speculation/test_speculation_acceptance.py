"""Acceptance: every form it can be given in, views that must agree, extension, bad input."""

import dataclasses
import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim.errors import UsageError
from specsim.speculation.acceptance import DEPTH_SLOPE, Acceptance

RATES = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=12).map(
    lambda values: sorted(values, reverse=True)
)
CONDITIONAL = st.lists(st.floats(0.0, 1.0), min_size=1, max_size=12)

# Golden AL(k) of Qwen3.5-397B, SPEED-Bench coding, thinking on (rows GOLDAL-001 to 008).
QWEN_LENGTHS = {1: 1.93, 2: 2.73, 3: 3.39, 4: 3.97, 5: 4.41, 6: 4.8, 7: 5.04, 8: 5.21}
QWEN_RATES = (0.93, 0.80, 0.66, 0.58, 0.44, 0.39, 0.24, 0.17)


def test_qwen_golden_curve_gives_its_rates() -> None:
    curve = Acceptance.from_curve(QWEN_LENGTHS)
    assert curve.unconditional == pytest.approx(QWEN_RATES, abs=1e-9)
    assert curve.expected_tokens(8) == pytest.approx(5.21)
    assert not curve.extrapolated


@pytest.mark.parametrize(
    ("rates", "length"),
    [
        ((0.675, 0.437, 0.279), 2.391),  # EAGLE, Llama-3.1-8B, GSM8K (SDBT-001)
        ((0.622, 0.381, 0.252), 2.254),  # ShareGPT; its source rounds 2.255 down
        ((0.366, 0.204, 0.070), 1.64),  # GLM-5.1, random prompts (RECIPE-012)
        ((0.858, 0.721, 0.603, 0.504, 0.418, 0.343, 0.269, 0.196), 4.91),  # Gemma-4 DFlash
    ],
)
def test_published_rates_add_up_to_published_lengths(
    rates: tuple[float, ...], length: float
) -> None:
    assert Acceptance.from_unconditional(rates).expected_tokens() == pytest.approx(
        length, abs=0.0045
    )


def test_vllm_counters() -> None:
    # Checked live: 584, 517 and 437 accepted per position in 714 drafts give AL 3.154.
    acceptance = Acceptance.from_unconditional([584 / 714, 517 / 714, 437 / 714])
    assert acceptance.expected_tokens() == pytest.approx(3.154, abs=5e-4)
    assert acceptance.rate() == pytest.approx(1538 / 2142)


def test_not_every_step_has_a_draft() -> None:
    # Live n-gram run: AL 3.19 over drafting steps, 262 of 449 steps drafted.
    acceptance = dataclasses.replace(
        Acceptance.from_mean_length(3.19, 3), draft_probability=262 / 449
    )
    assert acceptance.expected_tokens() == pytest.approx(3.19)
    assert acceptance.tokens_per_step() == pytest.approx(1 + 262 / 449 * 2.19)


@given(RATES)
def test_mean_and_variance_agree_with_the_rates(rates: list[float]) -> None:
    acceptance = Acceptance.from_unconditional(rates)
    reach = (1.0, *acceptance.unconditional, 0.0)
    pmf = [a - b for a, b in itertools.pairwise(reach)]  # P(exactly a drafts accepted)
    mean = sum(a * p for a, p in enumerate(pmf))
    second = sum(a * a * p for a, p in enumerate(pmf))
    assert acceptance.expected_tokens() == pytest.approx(1 + mean)
    assert acceptance.variance() == pytest.approx(second - mean**2, abs=1e-9)


@given(CONDITIONAL)
def test_conditional_and_unconditional_are_two_views(rates: list[float]) -> None:
    acceptance = Acceptance.from_conditional(rates)
    again = Acceptance.from_conditional(acceptance.conditional())
    assert again.unconditional == pytest.approx(acceptance.unconditional, abs=1e-12)


@given(RATES, st.integers(0, 20))
def test_expected_tokens_bounded_rising_and_concave_in_k(rates: list[float], k: int) -> None:
    acceptance = Acceptance.from_unconditional(rates)
    values = [acceptance.expected_tokens(i) for i in range(k, k + 3)]
    assert 1.0 <= values[0] <= k + 1 + 1e-12
    assert values[1] - values[0] >= -1e-12
    assert values[2] - values[1] <= values[1] - values[0] + 1e-12


@given(st.floats(0.0, 1.0), st.integers(1, 12))
def test_rate_equals_the_closed_form_at_any_k(alpha: float, k: int) -> None:
    acceptance = Acceptance.from_rate(alpha)
    # P(exactly a) = alpha^a (1 - alpha) below k, alpha^k at k; a accepted drafts give a + 1 tokens.
    pmf = [alpha**a * (1 - alpha) for a in range(k)] + [alpha**k]
    mean = sum(a * p for a, p in enumerate(pmf))
    second = sum(a * a * p for a, p in enumerate(pmf))
    assert acceptance.expected_tokens(k) == pytest.approx(1 + mean, rel=1e-9)
    assert acceptance.variance(k) == pytest.approx(second - mean**2, abs=1e-9)


def test_known_numbers_of_the_geometric_law() -> None:
    # EAGLE on Llama-3.1-8B, GSM8K: P_1 = 0.675 and a geometric law would give 2.44, not 2.391.
    assert Acceptance.from_rate(0.675, 3).expected_tokens() == pytest.approx(2.44, abs=0.005)
    # DeepSeek-V4-Pro's one-step head: geometric from P_1 = 0.79 says 4.04 (measured 2.54).
    assert Acceptance.from_rate(0.79, 7).expected_tokens() == pytest.approx(4.04, abs=0.005)
    assert Acceptance.from_rate(1.0, 7).expected_tokens() == 8.0


def odds(rate: float) -> float:
    return rate / (1.0 - rate)


@given(st.integers(1, 16), st.floats(0.0, 1.0))
def test_mean_length_is_met_whatever_the_value(k: int, share: float) -> None:
    length = 1.0 + share * k
    acceptance = Acceptance.from_mean_length(length, k)
    assert acceptance.expected_tokens(k) == pytest.approx(length, abs=1e-9)
    rates = acceptance.conditional()
    for i, (before, after) in enumerate(itertools.pairwise(rates), start=1):
        # Odds follow the stated slope, except where the rate is 1 or nothing gets that far.
        if 1e-6 < before < 1.0 - 1e-6 and acceptance.unconditional[-1] > 1e-9:
            assert odds(after) == pytest.approx(odds(before) * (1 + 1 / i) ** DEPTH_SLOPE, rel=1e-5)


@given(st.integers(1, 16), st.floats(0.0, 1.0))
def test_mean_rate_is_accepted_over_proposed(k: int, rate: float) -> None:
    acceptance = Acceptance.from_mean_rate(rate, k)
    assert acceptance.rate(k) == pytest.approx(rate, abs=1e-9)
    assert acceptance.expected_tokens(k) == pytest.approx(1 + k * rate, abs=1e-9)


def test_mindrouter_mean_rate() -> None:
    # "73 % at k=3" is AL 3.19 (the cluster measured 3.18).
    assert Acceptance.from_mean_rate(0.73, 3).expected_tokens() == pytest.approx(3.19)


@given(RATES)
def test_curve_returns_the_rates_it_came_from(rates: list[float]) -> None:
    source = Acceptance.from_unconditional(rates)
    lengths = {k: source.expected_tokens(k) for k in range(1, len(rates) + 1)}
    back = Acceptance.from_curve(lengths)
    assert back.unconditional == pytest.approx(source.unconditional, abs=1e-9)


@given(RATES, st.data())
def test_curve_with_gaps_meets_every_length_given(rates: list[float], data: st.DataObject) -> None:
    source = Acceptance.from_unconditional(rates)
    positions = list(range(1, len(rates) + 1))
    chosen = data.draw(st.sets(st.sampled_from(positions), min_size=1))
    lengths = {k: source.expected_tokens(k) for k in chosen}
    # Filled stretches decline and may end too low for what follows; those lengths move, but the
    # last one never does.
    filled = Acceptance.from_curve(lengths, tolerance=float(len(rates)))
    last = max(chosen)
    assert filled.positions == last
    assert filled.expected_tokens(last) == pytest.approx(lengths[last], abs=1e-9)


def test_curve_fills_gaps_with_the_usual_shape() -> None:
    # Llama-3.1-8B EAGLE-3 of SPECB at 3, 5, 7 drafts.
    filled = Acceptance.from_curve({3: 2.548, 5: 2.854, 7: 2.973})
    assert [filled.expected_tokens(k) for k in (3, 5, 7)] == pytest.approx([2.548, 2.854, 2.973])
    rates = filled.conditional()
    assert odds(rates[1]) == pytest.approx(odds(rates[0]) * 2**DEPTH_SLOPE)
    assert odds(rates[4]) == pytest.approx(odds(rates[3]) * 1.25**DEPTH_SLOPE)


def test_noisy_curve_is_smoothed_and_keeps_its_last_length() -> None:
    # Separate runs: DeepSeek-V4-Pro-0813 falls from 3.77 at k=6 to 3.47 at k=8 (GOLDAL-038, 040).
    noisy = {1: 1.84, 2: 2.51, 3: 3.01, 4: 3.36, 5: 3.61, 6: 3.77, 7: 3.73, 8: 3.47}
    with pytest.raises(UsageError, match="raise the tolerance"):
        Acceptance.from_curve(noisy)
    smooth = Acceptance.from_curve(noisy, tolerance=0.5)
    assert smooth.expected_tokens(8) == pytest.approx(3.47)
    assert smooth.expected_tokens(4) == pytest.approx(3.36)


@pytest.mark.parametrize(
    ("length", "k", "rates"),
    [
        (2.6, 3, (1.0, 0.6, 0.0)),
        (1.0, 2, (0.0, 0.0)),
        (4.0, 3, (1.0, 1.0, 1.0)),
        (3.0, 4, (1.0, 1.0, 0.0, 0.0)),
    ],
)
def test_vllm_synthetic_schedule(length: float, k: int, rates: tuple[float, ...]) -> None:
    schedule = Acceptance.synthetic_min_variance(length, k)
    assert schedule.unconditional == pytest.approx(rates)
    assert schedule.expected_tokens() == pytest.approx(length)


@given(st.integers(1, 10), st.floats(0.0, 1.0))
def test_synthetic_schedule_has_the_least_variance(k: int, share: float) -> None:
    length = 1.0 + share * k
    least = Acceptance.synthetic_min_variance(length, k).variance()
    # No integer-valued variable with that mean has less than f (1 - f), f the fractional part.
    fraction = length - math.floor(length)
    assert least == pytest.approx(fraction * (1 - fraction), abs=1e-9)
    assert least <= Acceptance.from_mean_length(length, k).variance() + 1e-9


def test_extension_is_flagged_and_follows_the_rule() -> None:
    measured = Acceptance.from_unconditional([0.8, 0.6], source="a test")
    longer = measured.at(4)
    last = 0.6 / 0.8
    third, fourth = longer.conditional()[2:]
    assert odds(third) == pytest.approx(odds(last) * 1.5**DEPTH_SLOPE)
    assert odds(fourth) == pytest.approx(odds(last) * 2**DEPTH_SLOPE)
    assert longer.extrapolated
    assert longer.source.startswith("a test; positions 3..4 extrapolated")
    assert not measured.at(1).extrapolated
    assert measured.at(1).source == "a test"
    # Cut back to what was measured it is the measured acceptance again.
    assert longer.at(2).unconditional == measured.unconditional
    assert not longer.at(2).extrapolated
    assert longer.at(6).unconditional == pytest.approx(measured.at(6).unconditional)


def test_zero_and_one_survive_every_view() -> None:
    none = Acceptance.from_unconditional([0.0, 0.0])
    assert none.conditional() == (0.0, 0.0)
    assert none.at(5).expected_tokens() == 1.0
    full = Acceptance.from_rate(1.0, 3)
    assert full.at(6).expected_tokens() == 7.0
    assert full.variance() == 0.0
    assert Acceptance.from_mean_length(4.0, 3).unconditional == (1.0, 1.0, 1.0)


def test_to_dict_is_plain() -> None:
    data = Acceptance.from_unconditional([0.5, 0.25]).to_dict()
    assert data["unconditional"] == [0.5, 0.25]
    assert data["conditional"] == [0.5, 0.5]
    assert data["acceptance_length"] == 1.75
    assert data["extrapolated"] is False


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: Acceptance.from_unconditional([]), "empty"),
        (lambda: Acceptance.from_unconditional([0.5, 0.6]), "position 2 is 0.6.*conditional"),
        (lambda: Acceptance.from_unconditional([0.5, -0.1]), "position 2 is -0.1"),
        (lambda: Acceptance.from_unconditional([73.0]), r"write 0\.73"),
        (lambda: Acceptance.from_unconditional([0.5, math.nan]), "position 2.*NaN"),
        (lambda: Acceptance.from_unconditional(["0.5"]), "must be a number"),  # type: ignore[list-item]
        (lambda: Acceptance.from_unconditional("0.5"), "list of numbers"),  # type: ignore[arg-type]
        (lambda: Acceptance.from_unconditional([True]), "must be a number"),
        (lambda: Acceptance.from_unconditional([0.5], k=2), "1 acceptance rates for k = 2"),
        (lambda: Acceptance.from_conditional([0.5, 1.5]), "position 2 is 1.5"),
        (lambda: Acceptance.from_conditional([0.5, 0.5], k=3), "exactly one per position"),
        (lambda: Acceptance.from_rate(1.1), "acceptance rate is 1.1"),
        (lambda: Acceptance.from_rate(0.5, 0), "at least 1"),
        (lambda: Acceptance.from_mean_length(0.7, 3), "counts the bonus token"),
        (lambda: Acceptance.from_mean_length(4.5, 3), "at most k"),
        (lambda: Acceptance.from_mean_length(math.nan, 3), "from 1 to"),
        (lambda: Acceptance.from_mean_rate(1.2, 3), "from 0 to 1"),
        (lambda: Acceptance.from_curve({}), "empty"),
        (lambda: Acceptance.from_curve({2: 3.5}), "at most k"),
        (lambda: Acceptance.from_curve({1: 1.5, 2: 2.4}), "does not fit its neighbours"),
        (lambda: Acceptance.synthetic_min_variance(5, 3), "at most k"),
        (lambda: Acceptance((0.5,), draft_probability=1.5), "draft probability is 1.5"),
        (lambda: Acceptance.from_rate(0.5).at(0), "at least 1"),
        (lambda: Acceptance.from_rate(0.5).rate(0), "at least 1 draft"),
    ],
)
def test_bad_input_names_value_position_and_way_out(call, words: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UsageError, match=words) as caught:
        call()
    assert "\n" not in str(caught.value)

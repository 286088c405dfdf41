"""Closed forms: against the sum over outcomes, against papers' numbers, and at the edges."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim.errors import UsageError
from specsim.speculation import tokens

ALPHA = st.floats(0.0, 1.0, allow_nan=False)
K = st.integers(1, 16)


@given(ALPHA, K)
def test_expected_tokens_is_the_sum_over_accepted_lengths(alpha: float, k: int) -> None:
    # P(exactly a) = alpha^a (1 - alpha) below k, alpha^k at k; a accepted drafts give a + 1 tokens.
    mean = sum((a + 1) * alpha**a * (1 - alpha) for a in range(k)) + (k + 1) * alpha**k
    assert tokens.expected_tokens_iid(alpha, k) == pytest.approx(mean, rel=1e-9)


@given(ALPHA, K)
def test_variance_is_the_sum_over_accepted_lengths(alpha: float, k: int) -> None:
    pmf = [alpha**a * (1 - alpha) for a in range(k)] + [alpha**k]
    mean = sum(a * p for a, p in enumerate(pmf))
    second = sum(a * a * p for a, p in enumerate(pmf))
    assert tokens.variance_iid(alpha, k) == pytest.approx(second - mean**2, abs=1e-9)


@given(ALPHA, ALPHA, K)
def test_expected_tokens_rises_with_alpha_and_k_within_bounds(a: float, b: float, k: int) -> None:
    low, high = sorted((a, b))
    at_low, at_high = (tokens.expected_tokens_iid(x, k) for x in (low, high))
    assert 1.0 <= at_low <= at_high + 1e-12 <= k + 1 + 1e-9
    assert tokens.expected_tokens_iid(low, k + 1) >= at_low - 1e-12


def test_limit_at_alpha_one_is_continuous() -> None:
    assert tokens.expected_tokens_iid(1.0, 7) == 8.0
    # d/d alpha at 1 is k(k+1)/2 = 28.
    assert tokens.expected_tokens_iid(1 - 1e-6, 7) == pytest.approx(8.0 - 28e-6, abs=1e-9)
    either_side = [tokens.expected_tokens_iid(1 - x, 7) for x in (0.99e-4, 1.01e-4)]
    assert either_side[0] - either_side[1] == pytest.approx(28 * 0.02e-4, rel=1e-2)


def test_known_numbers() -> None:
    # EAGLE on Llama-3.1-8B, GSM8K: P_1 = 0.675 and a geometric law would give 2.44, not 2.391.
    assert tokens.expected_tokens_iid(0.675, 3) == pytest.approx(2.44, abs=0.005)
    # DeepSeek-V4-Pro's one-step head: geometric from P_1 = 0.79 says 4.04 (measured 2.54).
    assert tokens.expected_tokens_iid(0.79, 7) == pytest.approx(4.04, abs=0.005)


@given(st.floats(0.0, 1.0), K)
def test_rate_for_mean_length_inverts(alpha: float, k: int) -> None:
    length = tokens.expected_tokens_iid(alpha, k)
    solved = tokens.rate_for_mean_length(min(max(length, 1.0), k + 1.0), k)
    assert tokens.expected_tokens_iid(solved, k) == pytest.approx(length, abs=1e-12)


def test_rate_for_mean_length_at_the_ends() -> None:
    assert tokens.rate_for_mean_length(1.0, 5) == 0.0
    assert tokens.rate_for_mean_length(6.0, 5) == 1.0


@given(st.lists(st.integers(0, 20), min_size=2, max_size=6), st.randoms(use_true_random=False))
def test_acceptance_probability_is_one_minus_total_variation(counts: list[int], random) -> None:  # type: ignore[no-untyped-def]
    p = [c + 1 for c in counts]
    q = [random.randint(1, 20) for _ in counts]
    p_norm = [x / sum(p) for x in p]
    q_norm = [x / sum(q) for x in q]
    distance = 0.5 * sum(abs(a - b) for a, b in zip(p_norm, q_norm, strict=True))
    assert tokens.acceptance_probability(p_norm, q_norm) == pytest.approx(1 - distance, abs=1e-12)
    assert tokens.acceptance_probability(p_norm, p_norm) == pytest.approx(1.0)


def test_acceptance_probability_of_disjoint_supports_is_zero() -> None:
    assert tokens.acceptance_probability([1.0, 0.0], [0.0, 1.0]) == 0.0


def test_acceptance_probability_refuses_what_is_no_distribution() -> None:
    with pytest.raises(UsageError, match=r"sum to 0\.9"):
        tokens.acceptance_probability([0.5, 0.4], [0.5, 0.5])
    with pytest.raises(UsageError, match="same vocabulary"):
        tokens.acceptance_probability([1.0], [0.5, 0.5])


@given(st.floats(0.0, 0.99), K, st.floats(0.0, 1.0))
def test_leviathan_speedup_above_one_needs_alpha_above_cost(a: float, k: int, c: float) -> None:
    # With k = 1 the gain is (1 + a) / (1 + c): above 1 exactly if a > c.
    one = tokens.leviathan_speedup(a, 1, c)
    assert one == pytest.approx((1 + a) / (1 + c))
    assert tokens.leviathan_speedup(a, k, 0.0) == tokens.expected_tokens_iid(a, k)
    # Never fewer operations per token than plain decoding.
    assert tokens.leviathan_operations_factor(a, k, c) >= 1.0 - 1e-12


def test_position_pays_agrees_with_comparing_rates() -> None:
    steps = {1: 10.0, 2: 10.8, 3: 13.5}
    lengths = {1: 1.8, 2: 2.4, 3: 2.85}
    for k in (1, 2):
        gains = lengths[k + 1] / steps[k + 1] > lengths[k] / steps[k]
        pays = tokens.position_pays(lengths[k + 1] - lengths[k], lengths[k], steps[k], steps[k + 1])
        assert pays == gains
    assert tokens.best_draft_length(lengths, steps) == (2, pytest.approx(2.4 / 10.8))


def test_best_draft_length_looks_behind_a_jump_and_prefers_the_shortest() -> None:
    lengths = {0: 1.0, 1: 1.5, 2: 1.9, 3: 2.3}
    assert tokens.best_draft_length(lengths, {0: 1.0, 1: 1.6, 2: 1.7, 3: 1.8})[0] == 3
    assert tokens.best_draft_length({1: 2.0, 2: 4.0}, {1: 1.0, 2: 2.0})[0] == 1


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: tokens.expected_tokens_iid(1.2, 3), "from 0 to 1"),
        (lambda: tokens.expected_tokens_iid(73, 3), r"percentage write 0\.73"),
        (lambda: tokens.expected_tokens_iid(math.nan, 3), "NaN"),
        (lambda: tokens.expected_tokens_iid(0.5, -1), "at least 0"),
        (lambda: tokens.expected_tokens_iid(0.5, 2.5), "whole number"),  # type: ignore[arg-type]
        (lambda: tokens.expected_tokens_iid(0.5, True), "whole number"),
        (lambda: tokens.rate_for_mean_length(0.6, 3), r"give 1\.6"),
        (lambda: tokens.rate_for_mean_length(4.1, 3), r"k \+ 1 = 4"),
        (lambda: tokens.rate_for_mean_length(math.inf, 3), "from 1 to"),
        (lambda: tokens.speedup(2.0, 0.0), "above 0"),
        (lambda: tokens.leviathan_speedup(0.5, 2, -0.1), "at least 0"),
        (lambda: tokens.leviathan_operations_factor(0.5, 2, math.nan), "at least 0"),
        (lambda: tokens.best_draft_length({1: 2.0}, {2: 1.0}), "same k"),
        (lambda: tokens.best_draft_length({1: 2.0}, {1: 0.0}), "above 0"),
        (lambda: tokens.position_pays(0.5, 1.5, 0.0, 1.0), "above 0"),
    ],
)
def test_bad_input_names_value_and_rule(call, words: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UsageError, match=words) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_speedup_is_length_over_cost_ratio() -> None:
    # MindRouter's qwen3.6-27b: AL 3.18 at r = 1.38 gives its 2.3.
    assert tokens.speedup(3.18, 1.38) == pytest.approx(2.304, abs=1e-3)

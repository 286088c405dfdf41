"""Closed forms for tokens per step, wall-clock gain and the best draft length.

Notation: `alpha` is the probability that one drafted token is accepted given that all before it
were (independent of its position), `k` the number of drafted tokens, AL the mean number of tokens
a verify step yields with the bonus token counted. Times are seconds, ratios have no unit.

Sources:
* Leviathan, Kalman, Matias, "Fast Inference from Transformers via Speculative Decoding",
  arXiv 2211.17192: `expected_tokens_iid` (eq. 1), `acceptance_probability` (their beta, section
  3.2), `leviathan_speedup` (theorem 3.8), `leviathan_operations_factor` (theorem 3.11).
* The variance, the inverse and the rule for adding a position are elementary; the rule follows from
  comparing (AL + P) / (T + dT) with AL / T.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from specsim.errors import UsageError
from specsim.search import rising_root

# Below this distance from 1 the closed forms divide two rounding errors, so they sum instead.
_NEAR_ONE = 1e-4


def check_draft_length(k: int, *, minimum: int = 1, name: str = "k") -> int:
    """Return k, or raise UsageError if it is not a whole number of at least `minimum`."""
    if isinstance(k, bool) or not isinstance(k, int):
        raise UsageError(f"{name} is {k!r}, but it must be a whole number")
    if k < minimum:
        raise UsageError(f"{name} is {k}, but it must be at least {minimum}")
    return k


def check_probability(value: float, name: str) -> float:
    """Return the value as a float in [0, 1], or raise UsageError naming value, rule and way out."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UsageError(f"{name} is {value!r}, but it must be a number from 0 to 1")
    value = float(value)
    if math.isnan(value):
        raise UsageError(f"{name} is not a number (NaN); give a number from 0 to 1 or leave it out")
    if not 0.0 <= value <= 1.0:
        way_out = (
            f"if it is a percentage write {value / 100:g}"
            if 1.0 < value <= 100.0
            else "acceptance is a share of the drafted tokens"
        )
        raise UsageError(f"{name} is {value:g}, but it must be from 0 to 1; {way_out}")
    return value


def expected_tokens_iid(alpha: float, k: int) -> float:
    """Mean tokens per step, bonus counted: (1 - alpha^(k+1)) / (1 - alpha); k+1 at alpha = 1."""
    alpha = check_probability(alpha, "alpha")
    check_draft_length(k, minimum=0)
    if 1.0 - alpha < _NEAR_ONE:
        return math.fsum(alpha**i for i in range(k + 1))
    return (1.0 - alpha ** (k + 1)) / (1.0 - alpha)


def variance_iid(alpha: float, k: int) -> float:
    """Variance of the tokens of one step when every position is accepted with the same alpha.

    Tail-sum formula: E[A^2] = sum over i of (2i - 1) alpha^i, i = 1..k.
    """
    alpha = check_probability(alpha, "alpha")
    check_draft_length(k, minimum=0)
    mean = math.fsum(alpha**i for i in range(1, k + 1))
    second = math.fsum((2 * i - 1) * alpha**i for i in range(1, k + 1))
    return max(0.0, second - mean * mean)


def rate_for_mean_length(acceptance_length: float, k: int) -> float:
    """The alpha whose `expected_tokens_iid` is the acceptance length given, by bisection."""
    check_mean_length(acceptance_length, k)
    if acceptance_length in (1.0, k + 1.0):
        return 0.0 if acceptance_length == 1.0 else 1.0
    return rising_root(lambda alpha: expected_tokens_iid(alpha, k), acceptance_length, 1.0)


def check_mean_length(acceptance_length: float, k: int) -> float:
    """Return AL as a float, or raise UsageError if it is not a number within [1, k + 1]."""
    check_draft_length(k)
    if isinstance(acceptance_length, bool) or not isinstance(acceptance_length, int | float):
        raise UsageError(f"acceptance length is {acceptance_length!r}, but it must be a number")
    value = float(acceptance_length)
    if not math.isfinite(value):
        raise UsageError(f"acceptance length is {value}, but it must be from 1 to k + 1 = {k + 1}")
    if value < 1.0:
        hint = f"if yours excludes it, give {value + 1:g}"
        raise UsageError(
            f"acceptance length is {value:g}, but it counts the bonus token and so is at least 1; "
            f"{hint if value >= 0 else 'give tokens per verify step'}"
        )
    if value > k + 1:
        raise UsageError(
            f"acceptance length is {value:g}, but {k} drafts and the bonus token give at most "
            f"k + 1 = {k + 1}; check k or the acceptance length"
        )
    return value


def acceptance_probability(target: Sequence[float], draft: Sequence[float]) -> float:
    """Probability that a token sampled from `draft` is kept: sum of min(p, q) = 1 - TV(p, q).

    Both are probabilities over the same vocabulary and must each sum to 1.
    """
    if len(target) != len(draft):
        raise UsageError(
            f"target has {len(target)} probabilities and draft {len(draft)}; "
            "both must cover the same vocabulary"
        )
    for name, values in (("target", target), ("draft", draft)):
        for i, value in enumerate(values):
            check_probability(value, f"{name} probability {i}")
        total = math.fsum(values)
        if not math.isclose(total, 1.0, abs_tol=1e-6):
            raise UsageError(f"{name} probabilities sum to {total:g}, but they must sum to 1")
    return min(1.0, math.fsum(min(p, q) for p, q in zip(target, draft, strict=True)))


def leviathan_speedup(alpha: float, k: int, cost_ratio: float) -> float:
    """Wall-clock gain if verifying k+1 tokens costs one plain step: AL / (k c + 1).

    cost_ratio c is the time of one draft pass over the time of one target pass. It is an upper
    bound on a loaded GPU, where verification is not free: use `speedup` there.
    """
    if not (math.isfinite(cost_ratio) and cost_ratio >= 0.0):
        raise UsageError(f"cost ratio is {cost_ratio}, but it must be finite and at least 0")
    return expected_tokens_iid(alpha, k) / (k * cost_ratio + 1.0)


def leviathan_operations_factor(alpha: float, k: int, operations_ratio: float) -> float:
    """How many times more arithmetic speculation does per token: (k c + k + 1) / AL.

    operations_ratio c is the arithmetic of one draft pass over that of one target pass per token.
    """
    if not (math.isfinite(operations_ratio) and operations_ratio >= 0.0):
        raise UsageError(
            f"operations ratio is {operations_ratio}, but it must be a finite number of at least 0"
        )
    return (k * operations_ratio + k + 1.0) / expected_tokens_iid(alpha, k)


def speedup(acceptance_length: float, step_cost_ratio: float) -> float:
    """Tokens per second with speculation over without: AL / r, r = its step over a plain step."""
    if not (math.isfinite(step_cost_ratio) and step_cost_ratio > 0.0):
        raise UsageError(f"step cost ratio is {step_cost_ratio}, but it must be above 0")
    return acceptance_length / step_cost_ratio


def position_pays(
    next_probability: float, acceptance_length: float, step_s: float, next_step_s: float
) -> bool:
    """Does one more draft position pay? True iff P_{k+1} / AL(k) > (T(k+1) - T(k)) / T(k)."""
    if step_s <= 0.0:
        raise UsageError(f"step time is {step_s} s, but it must be above 0")
    return next_probability / acceptance_length > (next_step_s - step_s) / step_s


def best_draft_length(
    expected_tokens: Mapping[int, float], step_s: Mapping[int, float]
) -> tuple[int, float]:
    """(k, tokens per second) of the draft length with the highest rate.

    Both map k to a value; k = 0 is plain decoding with one token per step. Every k is looked at,
    because step times have jumps (graph sizes, tiles) behind which a longer draft can pay again;
    of equal rates the shortest draft wins. The rate is per request: multiply by the batch.
    """
    common = sorted(set(expected_tokens) & set(step_s))
    if not common:
        raise UsageError(
            "no draft length has both a token count and a step time; give both for the same k"
        )
    best_k, best_rate = -1, -math.inf
    for k in common:
        if not step_s[k] > 0.0:
            raise UsageError(f"step time at k = {k} is {step_s[k]} s, but it must be above 0")
        rate = expected_tokens[k] / step_s[k]
        if rate > best_rate:
            best_k, best_rate = k, rate
    return best_k, best_rate

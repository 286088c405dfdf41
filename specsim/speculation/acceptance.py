"""Acceptance of drafted tokens as one object, whatever form it was given in.

The state is vLLM's: the unconditional probability of each position, P_i = P(at least i drafts are
accepted), given that the step carries a draft at all. P never increases, the mean number of tokens
of a drafting step is AL(k) = 1 + P_1 + ... + P_k (bonus token counted), the conditional rate of
position i is P_i / P_{i-1} with P_0 = 1.

n-gram and suffix drafters propose in only some steps. vLLM counts only those, so its AL is not
tokens per step; `draft_probability` is the share of steps that carry a draft and
`tokens_per_step(k) = q AL(k) + (1 - q)`.

Where only a mean is known a shape is needed. Conditional rates change with depth as
logit c_i = a + s ln i: `DEPTH_SLOPE` is the s of the usual drafter (`acceptance_model` has that of
every kind on every work), used for a mean, for gaps of a curve and beyond the last measured
position; `from_rate` alone is independent of position by definition.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from operator import mul

from specsim.errors import UsageError
from specsim.jsonable import picked
from specsim.search import rising_root
from specsim.speculation.checks import check_draft_length, check_mean_length, check_probability

# Slope of logit(conditional rate) over ln(position) that carries the catalogue's curves from one
# draft length to the others with the least error (2.2 % to shorter, 4.0 % to longer ones).
DEPTH_SLOPE = -0.3
# Nine of ten drafters lie within this of it (their standard deviation, kinds and drafters together,
# is 0.36 in `catalog/acceptance_model.json`).
SLOPE_SPREAD_90 = 0.6
# Neighbours may be out of order by what two roundings to 0.01 can do.
CURVE_ROUNDING = 0.02


@dataclass(frozen=True, slots=True)
class Grounds:
    """What a catalogued acceptance rests on. level: how near the measurements are
    (`speculation.resolve`); rests_on: they, in few words; tokens_90: bounds of the 90 % interval of
    the tokens per step at k drafts."""

    level: str
    rests_on: tuple[str, ...]
    k: int
    tokens_90: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Unconditional acceptance P_1..P_m of drafted tokens, with where it comes from.

    unconditional       P_1..P_m, shares in [0, 1], non-increasing
    source              where the numbers come from, in words; printed with every result
    kind                how they were given: unconditional, conditional, rate, mean_length,
                        mean_rate, curve, synthetic, catalogue, tree, easiness
    draft_probability   share of steps that carry a draft (1 for model drafters)
    measured_positions  positions the source covers; those behind are extrapolated
    slope               change of logit(conditional rate) per ln(position) beyond the last one
    grounds             of an answer of the catalogue; None where a user gave it
    """

    unconditional: tuple[float, ...]
    source: str = "given"
    kind: str = "unconditional"
    draft_probability: float = 1.0
    measured_positions: int = 0
    slope: float = DEPTH_SLOPE
    grounds: Grounds | None = None

    def __post_init__(self) -> None:
        rates = _check_rates(self.unconditional, "acceptance")
        for i in range(1, len(rates)):
            if rates[i] > rates[i - 1]:
                raise UsageError(
                    f"acceptance at position {i + 1} is {rates[i]:g}, above {rates[i - 1]:g} at "
                    f"position {i}, but the probability that at least i drafts are accepted "
                    "cannot rise; multiply conditional rates up: --acceptance "
                    f"{','.join(f'{p:.3g}' for p in accumulate(rates, mul))}"
                )
        object.__setattr__(self, "unconditional", rates)
        check_probability(self.draft_probability, "draft probability")
        if not math.isfinite(self.slope):
            raise UsageError(f"slope of acceptance is {self.slope}, but it must be finite")
        if self.measured_positions == 0:
            object.__setattr__(self, "measured_positions", len(rates))

    # --- constructors -------------------------------------------------------------------------

    @classmethod
    def from_unconditional(
        cls,
        rates: Sequence[float],
        *,
        k: int | None = None,
        source: str = "given",
        draft_probability: float = 1.0,
    ) -> Acceptance:
        """From vLLM's per-position acceptance rates, P(at least i accepted). If k is given, the
        number of rates must equal it."""
        _check_count(rates, k)
        checked = _check_rates(rates, "acceptance")
        return cls(checked, source, "unconditional", draft_probability)

    @classmethod
    def from_conditional(
        cls,
        rates: Sequence[float],
        *,
        k: int | None = None,
        source: str = "given",
        draft_probability: float = 1.0,
    ) -> Acceptance:
        """From P(position i accepted | all before it accepted)."""
        _check_count(rates, k)
        product, unconditional = 1.0, []
        for rate in _check_rates(rates, "conditional acceptance"):
            product *= rate
            unconditional.append(product)
        return cls(tuple(unconditional), source, "conditional", draft_probability)

    @classmethod
    def from_rate(cls, alpha: float, k: int = 1, *, source: str = "given") -> Acceptance:
        """Every position accepted with the same conditional rate alpha: P_i = alpha^i."""
        alpha = check_probability(alpha, "acceptance rate")
        check_draft_length(k)
        rates = tuple(alpha**i for i in range(1, k + 1))
        return cls(rates, source, "rate", measured_positions=k, slope=0.0)

    @classmethod
    def from_mean_length(cls, acceptance_length: float, k: int, *, source: str = "") -> Acceptance:
        """From the mean tokens per verify step at k drafts, bonus counted, within [1, k + 1].

        The shape is `DEPTH_SLOPE`, with its level solved so that AL(k) equals the number given.
        """
        value = check_mean_length(acceptance_length, k)
        rates = _shaped(value - 1.0, 0, k, 1.0)
        return cls(rates, source or f"acceptance length {value:g} at k={k}", "mean_length")

    @classmethod
    def counted(
        cls, per_position: Sequence[float], length: float | None, k: int, source: str
    ) -> Acceptance | None:
        """What an engine counted at k drafts a step: by position, which counters read in between
        may let rise by a little, else the mean tokens per verify step, within what k drafts can
        give. None where it counted neither."""
        if per_position and per_position[0] > 0:
            rates = list(accumulate(per_position, min, initial=1.0))[1:]
            return cls.from_unconditional(rates, source=source)
        if length is None and not per_position:
            return None
        return cls.from_mean_length(min(max(length or 1.0, 1.0), k + 1.0), k, source=source)

    @classmethod
    def from_mean_rate(cls, rate: float, k: int, *, source: str = "") -> Acceptance:
        """From accepted / proposed draft tokens at k drafts ("73 % acceptance at k=3"):
        AL = 1 + k rate, then the shape of `from_mean_length`."""
        rate = check_probability(rate, "mean acceptance rate")
        check_draft_length(k)
        rates = _shaped(k * rate, 0, k, 1.0)
        return cls(rates, source or f"mean acceptance rate {rate:g} at k={k}", "mean_rate")

    @classmethod
    def from_curve(
        cls,
        lengths: Mapping[int, float],
        *,
        source: str = "given",
        tolerance: float = CURVE_ROUNDING,
        draft_probability: float = 1.0,
    ) -> Acceptance:
        """From acceptance lengths at several k: {k: AL(k)}, P_k = AL(k) - AL(k-1).

        Gaps are filled with the usual shape so that each AL given is met. Rounding, and the
        noise of separate runs, can make the gains rise; such neighbours are fitted as one stretch,
        which keeps AL at the largest k. A change of more than `tolerance` tokens in any AL(k) is
        refused.
        """
        if not lengths:
            raise UsageError("the acceptance curve is empty; give at least one k with its length")
        previous_k, previous_length = 0, 1.0
        stretches: list[tuple[float, int]] = []  # (tokens gained, positions) from one k to the next
        for k, length in sorted(lengths.items()):
            value = check_mean_length(length, k)
            stretches.append((value - previous_length, k - previous_k))
            previous_k, previous_length = k, value
        rates = _fit_stretches(stretches)
        total = 1.0
        for position, rate in enumerate(rates, start=1):
            total += rate
            if position in lengths and abs(total - lengths[position]) > tolerance + 1e-9:
                raise UsageError(
                    f"acceptance length {lengths[position]:g} at k={position} does not fit its "
                    "neighbours: gains from one k to the next cannot rise or be negative; correct "
                    "it, leave it out, or raise the tolerance for curves from separate runs"
                )
        return cls(tuple(rates), source, "curve", draft_probability)

    @classmethod
    def synthetic_min_variance(cls, acceptance_length: float, k: int) -> Acceptance:
        """vLLM's synthetic schedule for a mean length: whole positions always accepted, one with
        the remainder, none behind (`rejection_sample_method: synthetic`)."""
        drafts = check_mean_length(acceptance_length, k) - 1.0
        whole = int(drafts)
        rates = [1.0] * whole + ([drafts - whole] if whole < k else [])
        rates += [0.0] * (k - len(rates))
        source = f"synthetic acceptance length {acceptance_length:g} at k={k}"
        return cls(tuple(rates), source, "synthetic")

    # --- views --------------------------------------------------------------------------------

    @property
    def positions(self) -> int:
        """Positions held, measured and extrapolated."""
        return len(self.unconditional)

    @property
    def extrapolated(self) -> bool:
        """True if positions lie behind the last one the source covers."""
        return self.positions > self.measured_positions

    def probabilities(self, k: int | None = None) -> tuple[float, ...]:
        """P_1..P_k; beyond the positions held, conditional rates go on from the last one held along
        `slope`."""
        have = self.unconditional
        if k is None:
            return have
        check_draft_length(k, minimum=0)
        if k <= len(have):
            return have[:k]
        last, value = self.conditional()[-1], have[-1]
        rates = list(have)
        for position in range(len(have) + 1, k + 1):
            value *= _along(last, position / len(have), self.slope)
            rates.append(value)
        return tuple(rates)

    def at(self, k: int) -> Acceptance:
        """The same acceptance at exactly k positions; `extrapolated` and the source tell if some
        are beyond what was measured."""
        check_draft_length(k)
        if k == self.positions:
            return self
        measured = min(self.measured_positions, k)
        source = self.source
        if k > self.measured_positions and not self.extrapolated:
            source += (
                f"; positions {self.measured_positions + 1}..{k} extrapolated"
            )
        return replace(
            self,
            unconditional=self.probabilities(k),
            measured_positions=measured,
            source=source,
        )

    @property
    def log_error_90(self) -> tuple[float, float]:
        """ln of the 90 % bounds of the tokens per step over their value, (0, 0) where given."""
        if self.grounds is None:
            return 0.0, 0.0
        tokens = self.tokens_per_step(self.grounds.k)
        low, high = self.grounds.tokens_90
        return min(0.0, math.log(low / tokens)), max(0.0, math.log(high / tokens))

    def of_drafted_steps(self, first: float) -> Acceptance:
        """Rates of a lookup that were counted over all steps, as those of the steps that carry a
        draft, in which the first one is accepted with probability `first`: that tells how many do.
        Tokens per step stay."""
        share = min(1.0, max(self.unconditional[0], self.unconditional[0] / first))
        if share <= 0.0:
            return self
        rates = tuple(rate / share for rate in self.unconditional)
        return replace(self, unconditional=rates, draft_probability=share)

    def conditional(self) -> tuple[float, ...]:
        """P(position i accepted | all before it accepted); 0 where nothing gets that far."""
        previous, rates = 1.0, []
        for value in self.unconditional:
            rates.append(value / previous if previous > 0.0 else 0.0)
            previous = value
        return tuple(rates)

    def expected_tokens(self, k: int | None = None) -> float:
        """AL(k): mean tokens of a step that carries k drafts, bonus counted, in [1, k + 1]."""
        return 1.0 + math.fsum(self.probabilities(k))

    def tokens_per_step(self, k: int | None = None) -> float:
        """Mean tokens over all steps: a step without a draft yields one."""
        return 1.0 + self.draft_probability * math.fsum(self.probabilities(k))

    def rate(self, k: int | None = None) -> float:
        """Accepted over proposed draft tokens at k drafts per drafting step."""
        rates = self.probabilities(k)
        if not rates:
            raise UsageError("k is 0, but a share of accepted drafts needs at least 1 draft")
        return math.fsum(rates) / len(rates)

    def variance(self, k: int | None = None) -> float:
        """Variance of the tokens of a drafting step (of all steps pooled, requests unequal or
        not): sum (2i - 1) P_i - (sum P_i)^2."""
        rates = self.probabilities(k)
        mean = math.fsum(rates)
        second = math.fsum((2 * i - 1) * rate for i, rate in enumerate(rates, start=1))
        return max(0.0, second - mean * mean)

    def to_dict(self) -> dict[str, object]:
        """Plain types for JSON."""
        return {
            **picked(self, "kind source unconditional"),
            "conditional": list(self.conditional()),
            "acceptance_length": self.expected_tokens(),
            **picked(self, "draft_probability measured_positions extrapolated level=grounds.level "
                           "rests_on=grounds.rests_on tokens_90=grounds.tokens_90"),
        }


def _check_rates(rates: Sequence[float], name: str) -> tuple[float, ...]:
    if isinstance(rates, str) or not hasattr(rates, "__len__"):
        raise UsageError(f"{name} is {rates!r}, but it must be a list of numbers from 0 to 1")
    if len(rates) == 0:
        raise UsageError(f"{name} is empty; give one rate per draft position")
    return tuple(check_probability(r, f"{name} at position {i}") for i, r in enumerate(rates, 1))


def _check_count(rates: Sequence[float], k: int | None) -> None:
    if k is not None and len(rates) != check_draft_length(k):
        raise UsageError(
            f"{len(rates)} acceptance rates for k = {k} draft tokens; give exactly one per position"
        )


def _along(rate: float, ratio: float, slope: float) -> float:
    """The conditional rate at `ratio` times the depth of one that is `rate`."""
    if rate >= 1.0:
        return 1.0
    odds = rate * math.pow(ratio, slope)
    return odds / (odds + 1.0 - rate)


def _shaped(total: float, done: int, count: int, before: float) -> tuple[float, ...]:
    """`count` further positions after `done`, the last of them with probability `before`, that add
    up to `total`, with conditional rates along DEPTH_SLOPE."""
    if total <= 0.0 or before <= 0.0:
        return (0.0,) * count
    if total >= count * before:
        return (before,) * count

    def positions(first: float) -> list[float]:
        rates, value = [], before
        for i in range(count):
            value *= _along(first, (done + 1 + i) / (done + 1), DEPTH_SLOPE)
            rates.append(value)
        return rates

    first = rising_root(lambda x: math.fsum(positions(x)), total, 1.0)
    return tuple(positions(first))


def _fit_stretches(stretches: list[tuple[float, int]]) -> list[float]:
    """Non-increasing rates with the gain asked for over each stretch of positions.

    A stretch that gains more than its predecessor's last rate allows, or less than nothing, is
    joined with its predecessor and the two are fitted as one, so the total never changes.
    """
    fitted: list[tuple[float, int, tuple[float, ...]]] = []
    done = 0
    for stretch_gain, stretch_count in stretches:
        gain, count = stretch_gain, stretch_count
        while fitted:
            before = fitted[-1][2][-1]
            if -1e-12 <= gain <= count * before + 1e-12:
                break
            gain_before, count_before, _ = fitted.pop()
            gain, count = gain + gain_before, count + count_before
            done -= count_before
        before = fitted[-1][2][-1] if fitted else 1.0
        fitted.append((gain, count, _shaped(gain, done, count, before)))
        done += count
    return [rate for _, _, rates in fitted for rate in rates]

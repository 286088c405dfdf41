"""Forced acceptance: the drafts' fate drawn from given rates instead of the models' agreement.

For timing with the acceptance of another model pair. The normal test is computed and then
overridden, so kernels and time are those of a real run; the text is not the target's.

Rates are vLLM's `synthetic_acceptance_rates`: unconditional, rate[i] = P(drafts 1..i+1 are all
accepted), non-increasing. The test needs conditional ones, c[i] = rate[i] / rate[i-1].
"""

from collections.abc import Sequence
from dataclasses import dataclass

from specsim.errors import UsageError


@dataclass(frozen=True, slots=True)
class ForcedAcceptance:
    """Unconditional acceptance rates per draft position."""

    rates: tuple[float, ...]

    def __post_init__(self) -> None:
        for i, rate in enumerate(self.rates):
            if not 0.0 <= rate <= 1.0:
                raise UsageError(f"acceptance rate {rate} at position {i + 1} must lie in 0..1")
            if i and rate > self.rates[i - 1]:
                raise UsageError(
                    f"acceptance rates must be non-increasing (they are unconditional: all drafts "
                    f"up to a position accepted), got {self.rates[i - 1]} then {rate}"
                )

    @classmethod
    def from_alpha(cls, alpha: float, num_speculative_tokens: int) -> "ForcedAcceptance":
        """Independent acceptance with probability alpha at each position."""
        if not 0.0 <= alpha <= 1.0:
            raise UsageError(f"acceptance probability {alpha} must lie in 0..1")
        return cls(tuple(alpha ** (i + 1) for i in range(num_speculative_tokens)))

    def conditional(self) -> tuple[float, ...]:
        """P(position i accepted | all before it accepted); 0 once a position is never reached."""
        before: Sequence[float] = (1.0, *self.rates)
        return tuple(
            rate / last if last > 0 else 0.0
            for last, rate in zip(before, self.rates, strict=False)
        )

    def for_k(self, num_speculative_tokens: int) -> "ForcedAcceptance":
        """These rates for exactly k positions; raises UsageError if fewer are given."""
        if len(self.rates) < num_speculative_tokens:
            raise UsageError(
                f"{len(self.rates)} acceptance rates given for {num_speculative_tokens} "
                "speculative tokens; give one per position"
            )
        return ForcedAcceptance(self.rates[:num_speculative_tokens])

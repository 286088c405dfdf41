"""StepShape: what one engine step works on. The only thing a step cost depends on.

A step runs every scheduled token of every scheduled sequence through the target once:
`decode_seqs` sequences with `decode_q_len` tokens each (1 + drafts to verify) and any
number of prefill chunks. Under speculation the step also proposes `num_drafts` tokens
per decoding sequence for the next step. All tokens share one read of the weights.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from specsim.methods.base import SpecSetup


class PrefillChunk(NamedTuple):
    """`new_tokens` prompt tokens computed now, after `cached_tokens` already in the cache."""

    new_tokens: int
    cached_tokens: int = 0
    last: bool = True  # the chunk that ends the prompt samples one token


@dataclass(frozen=True, slots=True)
class StepShape:
    """decode_context_tokens: sum over the decoding sequences of tokens already cached. drafter:
    False where it was taken out of memory; such a step costs what one without speculation does.
    context_variation: coefficient of variation of what the sequences have cached."""

    decode_seqs: int = 0
    decode_q_len: int = 1
    decode_context_tokens: float = 0.0
    prefill: tuple[PrefillChunk, ...] = ()
    num_drafts: int = 0
    drafter: bool = True
    context_variation: float = 0.0

    @property
    def prefill_tokens(self) -> int:
        return sum(chunk.new_tokens for chunk in self.prefill)

    @property
    def tokens(self) -> int:
        """Tokens that pass through the target in this step."""
        return self.decode_seqs * self.decode_q_len + self.prefill_tokens

    def bare(self) -> "StepShape":
        """The same sequences in a step in which none has a draft: one token each."""
        return replace(self, decode_q_len=1, num_drafts=0)

    def by_drafts(self, draft_share: float) -> tuple[tuple[float, "StepShape"], ...]:
        """(share, step) pairs whose weighted prices are the mean price of this step where only
        `draft_share` of the sequences have a draft (a lookup that finds none in the rest).

        Sequences without one bring a single token, and step time is near linear in the tokens."""
        if draft_share >= 1 or self.decode_q_len == 1 or not self.decode_seqs:
            return ((1.0, self),)
        return ((draft_share, self), (1 - draft_share, self.bare()))


def decode_shape(seqs: int, context_tokens: float, setup: SpecSetup | None = None) -> StepShape:
    """A pure decode (or verify) step of `seqs` sequences with `context_tokens` cached each."""
    if setup is None or not setup.speculates or setup.k == 0:
        return StepShape(seqs, 1, seqs * context_tokens)
    return StepShape(seqs, setup.verify_tokens, seqs * context_tokens, num_drafts=setup.k)


class StepCost(Protocol):
    """Anything that prices a step: the roofline, a constant, a + b * batch, a table."""

    def seconds(self, shape: StepShape) -> float:
        """Wall time of the whole engine step: forward, sampling, drafting, host."""
        ...

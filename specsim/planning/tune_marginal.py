"""The marginal rule: one more draft pays if it brings more tokens than it costs time
(docs/tune.md).

    (AL(k') - AL(k)) / AL(k)  >  (T(k') - T(k)) / T(k)

k' is the next allowed draft length. T(0) is a step of plain decoding, with speculation off. It
speaks of decode steps; prompts that share the steps add a cost per token that does not depend on k,
so that under load a little less than the rule says is gained.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from specsim.analytic.system import System
from specsim.jsonable import Jsonable
from specsim.planning.tune_choices import decode_step_s


@dataclass(frozen=True, slots=True)
class Margin(Jsonable):
    """From `k` drafts to `next_k`. gain: relative gain of tokens per step; cost: of step time."""

    also: ClassVar = ("pays",)

    k: int
    next_k: int
    tokens_per_step: float
    step_s: float
    gain: float
    cost: float

    @property
    def pays(self) -> bool:
        return self.gain > self.cost


def margins(
    system: System, lengths: Sequence[int], seqs: int, context: float
) -> tuple[Margin, ...]:
    """The rule from each draft length to the next, at a batch of `seqs` sequences."""
    sides = []
    for k in (0, *lengths):
        side = system.with_(k=k)
        sides.append((k, side.tokens_per_step, decode_step_s(side, seqs, context)))
    return tuple(
        Margin(k, more, tokens, step_s, more_tokens / tokens - 1, more_s / step_s - 1)
        for (k, tokens, step_s), (more, more_tokens, more_s) in pairwise(sides)
    )

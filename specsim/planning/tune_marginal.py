"""The marginal rule: one more draft pays if it brings more tokens than it costs time.

    (AL(k') - AL(k)) / AL(k)  >  (T(k') - T(k)) / T(k)

AL(k) tokens of a step with k drafts, T(k) its seconds, k' the next allowed draft length; for k' =
k + 1 the left side is P(k+1) / AL(k), with P(i) the probability that at least i drafts are
accepted. T(0) is a step of plain decoding, with speculation off. (Elementary: AL / T rises exactly
as long as the rule holds.) It speaks of decode steps; prompts that share the steps add a cost per
token that does not depend on k, so that under load a little less than the rule says is gained.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from specsim.analytic.system import System
from specsim.planning.tune_choices import decode_step_s


@dataclass(frozen=True, slots=True)
class Margin:
    """From `k` drafts to `next_k`. gain: relative gain of tokens per step; cost: of step time."""

    k: int
    next_k: int
    tokens_per_step: float
    step_s: float
    gain: float
    cost: float

    @property
    def pays(self) -> bool:
        return self.gain > self.cost

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "pays": self.pays}


def margins(
    system: System, lengths: Sequence[int], seqs: int, context: float
) -> tuple[Margin, ...]:
    """The rule from each draft length to the next, at a batch of `seqs` sequences."""
    out = []
    ladder = [0, *lengths]
    systems = [system.with_(k=k) for k in ladder]
    tokens = [side.tokens_per_step for side in systems]
    times = [decode_step_s(side, seqs, context) for side in systems]
    for i in range(len(ladder) - 1):
        out.append(
            Margin(
                ladder[i], ladder[i + 1], tokens[i], times[i],
                tokens[i + 1] / tokens[i] - 1, times[i + 1] / times[i] - 1,
            )
        )
    return tuple(out)

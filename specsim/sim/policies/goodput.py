"""Draft length by predicted goodput: tokens per second of the coming step (TurboSpec).

Liu et al., "Optimizing Speculative Decoding for Serving LLMs Using Goodput" (arXiv 2406.14066):
k = argmax over k of E[tokens of the batch | k] / step time(batch, k), with the acceptance of the
last steps. The paper has one acceptance rate; here it is the moving average of each position. Step
times are the simulator's own, as an engine's that was profiled before.
"""

from collections.abc import Sequence

from pydantic import Field
from pydantic.dataclasses import dataclass

from specsim.sim.policies.protocol import STRICT, Policy, PolicyState


@dataclass(kw_only=True, config=STRICT)
class Goodput(Policy):
    """probe: while nothing is drafted, one step in so many drafts the shortest length, so that
    the acceptance does not stay what it was for ever (0: never; not in the paper)."""

    probe: int = Field(100, ge=0)

    def __post_init__(self) -> None:
        self._off = 0  # steps in a row without a draft

    def drafts(self, state: PolicyState) -> int | Sequence[int]:
        best = max(state.lengths, key=lambda k: state.tokens(k) / state.step_s(k))
        self._off = 0 if best else self._off + 1
        if self.probe and self._off == self.probe:
            self._off = 0
            return state.lengths[1]
        return best

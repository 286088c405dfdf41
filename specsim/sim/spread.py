"""Requests of a batch are not equally long: how conversations differ, without an engine, and the
price of steps with such contexts (see `specsim.ops.spread`)."""

from dataclasses import dataclass, field, replace

import numpy as np

from specsim.latency.launches import Launches
from specsim.latency.price import keep
from specsim.latency.shape import StepCost, StepShape
from specsim.sim.behaviour import ChatBehaviour, played_turns


@dataclass(frozen=True)
class SpreadCost:
    """Price of steps whose sequences have contexts with a coefficient of variation. The latency
    model behind it must price steps and, for the shares of time, give their `parts`. Seconds are
    kept, as replications ask for the same nodes of their tables."""

    cost: StepCost
    variation: float
    _seconds: dict[StepShape, float] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )

    def seconds(self, shape: StepShape) -> float:
        found = self._seconds.get(shape)
        if found is None:
            found = self.cost.seconds(self._spread(shape))
            keep(self._seconds, shape, found)
        return found

    def launches(self, shape: StepShape) -> Launches:
        return self.cost.launches(self._spread(shape))  # type: ignore[attr-defined, no-any-return]

    def power_w(self, shape: StepShape | None) -> float | None:
        seen = None if shape is None else self._spread(shape)
        return self.cost.power_w(seen)  # type: ignore[attr-defined, no-any-return]

    def parts(self, shape: StepShape) -> dict[str, float]:
        """Seconds by phase, for the shares of time."""
        return self.cost.parts(self._spread(shape))  # type: ignore[attr-defined, no-any-return]

    def _spread(self, shape: StepShape) -> StepShape:
        return replace(shape, context_variation=self.variation) if shape.decode_seqs else shape


def chat_contexts(
    behaviour: ChatBehaviour, first_s: float, last_s: float, *, thinking: bool = True,
    settled: bool = False,
) -> tuple[float, float]:
    """(mean, coefficient of variation) of the tokens that conversations hold between two times of
    a run, halfway through the answers and weighted by their length.

    Users are played without an engine, so that a short run sees young conversations.
    """
    played = played_turns(behaviour, last_s, thinking=thinking, settled=settled)
    turns = [turn for turn in played if turn.at_s >= first_s]
    held = [turn.prompt_tokens + turn.answer_tokens / 2 for turn in turns]
    weights = [turn.answer_tokens for turn in turns]
    if not held:
        first = behaviour.system_tokens + behaviour.opener_tokens.mean
        return first + behaviour.output_tokens.mean / 2, 0.0
    mean = float(np.average(held, weights=weights))
    variance = float(np.average((np.array(held) - mean) ** 2, weights=weights))
    return mean, variance**0.5 / mean

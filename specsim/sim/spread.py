"""Requests of a batch are not equally long, which matters where attention sees a window.

A step is priced from the mean context of its sequences. With sliding layers that is too much:
the mean of min(context, window) is below min(mean context, window). So the price of a step is the
mean of its prices at several contexts, spread around the mean as those of the load are (a gamma
law with the load's coefficient of variation, in parts of equal probability). What is linear in
the context comes out as before, and so do prompts.

`chat_contexts` finds mean and spread for conversations, without an engine.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

import numpy as np

from specsim.latency.launches import Launches, mean_launches
from specsim.latency.price import keep
from specsim.latency.shape import StepCost, StepShape
from specsim.sim.behaviour import ChatBehaviour, played_turns

PARTS = 4


@lru_cache(maxsize=64)
def spread_factors(variation: float) -> tuple[float, ...]:
    """Means of the parts of equal probability of a gamma law of mean 1 with this coefficient of
    variation; they average to 1."""
    if variation <= 0.0:
        return (1.0,)
    from scipy.special import gammainc, gammaincinv

    shape = variation**-2
    limits = [float(gammaincinv(shape, i / PARTS)) for i in range(PARTS)]
    below = [float(gammainc(shape + 1.0, x)) for x in limits] + [1.0]
    return tuple(PARTS * (below[i + 1] - below[i]) for i in range(PARTS))


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

    @cached_property
    def factors(self) -> tuple[float, ...]:
        return spread_factors(self.variation)

    def _shapes(self, shape: StepShape) -> list[StepShape]:
        if not shape.decode_seqs:
            return [shape]
        return [
            replace(shape, decode_context_tokens=shape.decode_context_tokens * factor)
            for factor in self.factors
        ]

    def seconds(self, shape: StepShape) -> float:
        found = self._seconds.get(shape)
        if found is None:
            shapes = self._shapes(shape)
            found = sum(self.cost.seconds(s) for s in shapes) / len(shapes)
            keep(self._seconds, shape, found)
        return found

    def launches(self, shape: StepShape) -> Launches:
        shapes = self._shapes(shape)
        ask = self.cost.launches  # type: ignore[attr-defined]
        return mean_launches((1 / len(shapes), ask(step)) for step in shapes)

    def parts(self, shape: StepShape) -> dict[str, float]:
        """Seconds by phase, for the shares of time."""
        shapes = self._shapes(shape)
        split = self.cost.parts  # type: ignore[attr-defined]
        each = [split(s) for s in shapes]
        return {name: sum(part[name] for part in each) / len(each) for name in each[0]}


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

"""Loads of which there can be more or less: people who chat, and requests at a rate.

A `LoadShape` makes the load of one run from its amount (people or requests per second) and a seed.
More people are the same people and others besides; a higher rate is the same arrivals closer
together with the same lengths, so that runs of one seed at two amounts differ by the amount alone.
Lengths in tokens, times in seconds.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from specsim.analytic.workload import Workload
from specsim.jsonable import picked
from specsim.sim.arrivals import gamma_times
from specsim.sim.behaviour import ChatBehaviour, behaviour_to_dict, chat_contexts
from specsim.sim.humans import Humans
from specsim.sim.loads import Load, OpenLoop, PromptPool, varied_lengths
from specsim.sim.request import Request

MOST_PEOPLE = 100_000
HIGHEST_RATE = 1e6
LOWEST_RATE = 1e-4


@dataclass(frozen=True)
class People:
    """People who chat as `behaviour` says; name: the scenario they are from. settled: in
    steady service, where the run as a load test makes it begins with first messages."""

    behaviour: ChatBehaviour
    duration_s: float = 300.0
    warmup_s: float = 60.0
    name: str = ""
    thinking: bool = True
    settled: bool = False

    whole = True
    lowest = 1.0
    highest = float(MOST_PEOPLE)

    @property
    def unit(self) -> str:
        return "users" if self.thinking else "streams"

    @cached_property
    def _contexts(self) -> tuple[float, float]:
        return chat_contexts(
            self.behaviour, self.warmup_s, self.duration_s, thinking=self.thinking,
            settled=self.settled,
        )

    @property
    def context_tokens(self) -> int:
        return max(1, round(self._contexts[0]))

    @property
    def context_variation(self) -> float:
        return self._contexts[1]

    def make(self, amount: float, seed: int) -> Load:
        return Humans(self.behaviour, round(amount), thinking=self.thinking, settled=self.settled)

    def to_dict(self) -> dict[str, object]:
        named = "scenario=name thinking settled duration_s warmup_s"
        return {
            "kind": "people", **picked(self, named), "behaviour": behaviour_to_dict(self.behaviour),
        }


@dataclass(frozen=True)
class Arrivals:
    """Requests of a workload at a rate, with gamma gaps (burstiness 1: Poisson, below: bursts).

    range_ratio: lengths vary uniformly by this share of themselves. stretch: whether the times are
    only the least, to be lengthened for slow requests or low rates (see `lengthened`)."""

    workload: Workload
    duration_s: float = 300.0
    warmup_s: float = 60.0
    burstiness: float = 1.0
    range_ratio: float = 0.0
    stretch: bool = False

    whole = False
    unit = "requests/s"
    lowest = LOWEST_RATE
    highest = HIGHEST_RATE
    context_variation = 0.0

    def __post_init__(self) -> None:
        shared_by(self.workload, self.range_ratio)

    @property
    def context_tokens(self) -> int:
        return max(1, round(self.workload.mean_context))

    def make(self, amount: float, seed: int) -> Load:
        return OpenLoop(self._requests(amount, seed))

    def _requests(self, rate: float, seed: int) -> Iterator[Request]:
        pool = shared_by(self.workload, self.range_ratio)
        times = gamma_times(rate, seed, burstiness=self.burstiness)
        fixed = (self.workload.input_len, self.workload.output_len)
        lengths = varied_lengths(fixed, self.range_ratio, seed)
        for time_s, (prompt, output) in zip(times, lengths, strict=False):
            if time_s > self.duration_s:
                return
            yield Request(time_s, prompt, output, pool.spans(0, prompt))

    def to_dict(self) -> dict[str, object]:
        return {
            "kind": "open",
            **picked(self.workload, "workload=name input_len output_len cached_share"),
            "range_ratio": self.range_ratio,
            "burstiness": self.burstiness if math.isfinite(self.burstiness) else "inf",
            **picked(self, "duration_s warmup_s"),
        }


def shared_by(workload: Workload, range_ratio: float) -> PromptPool:
    """Prompts whose beginnings are alike, so that the cache finds the workload's cached share."""
    workload.ranging(range_ratio)  # or the error that it gives
    return PromptPool(round(workload.input_len * workload.cached_share))


# whole: amounts are whole numbers. unit: what an amount counts. lowest, highest: amounts that are
# tried. context_tokens, context_variation: what running requests hold.
LoadShape = People | Arrivals

"""Deployments ranked at each load, and which of their differences are real.

The rank of one is 1 and how many are surely better: those whose figure is better over the whole
90 % interval of the ratio, in which common errors cancel (`analytic.paired`). All that no other
surely beats share rank 1.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from specsim.analytic.paired import Powers, Side, figure_interval, ratio_interval
from specsim.analytic.system import System
from specsim.analytic.workload import request_s
from specsim.jsonable import Jsonable, picked
from specsim.planning.cost import HOUR_S, MILLION

Ends = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Served(Jsonable):
    """What a deployment does at a load: means, times in seconds. speedup: over the same without
    speculation, None where it was not looked at. reason: why it is left out ('' where it is not),
    kind: of what ('overload', 'slo', ...). slo_open: gates on both sides of which its 90 % interval
    reaches."""

    output_tok_s: float
    ttft_s: float
    tpot_s: float
    request_rate: float
    running: float
    speedup: float | None = None
    reason: str = ""
    kind: str = ""
    slo_open: tuple[str, ...] = ()


@dataclass(frozen=True)
class Contender:
    """One deployment. gpus: of all its replicas. served: by load, in their order."""

    name: str
    system: System
    gpus: int
    output_len: int
    served: tuple[Served, ...]
    price_per_gpu_hour: float | None = None
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, object]:
        return {
            "name": self.name,
            **self.system.summary(
                "model", "gpu", "tp", "weights", "kv_dtype", "engine", "engine_version", "method",
                "draft", "k", "acceptance_length", "acceptance"),
            **picked(self, "gpus price_per_gpu_hour warnings"),
        }


class Objective(NamedTuple):
    """What ranks. power: of TPOT in a closed loop, where throughput follows from it."""

    unit: str
    more_is_better: bool
    power: float
    value: Callable[[Contender, Served], float]


def _cost(one: Contender, at: Served) -> float:
    price = one.price_per_gpu_hour or math.nan
    return price * one.gpus / (at.output_tok_s * HOUR_S) * MILLION


def _whole(one: Contender, at: Served) -> float:
    return request_s(at.ttft_s, at.tpot_s, one.output_len)


OBJECTIVES = {
    "throughput": Objective("tok/s", True, -1, lambda _, at: at.output_tok_s),
    "throughput_per_gpu": Objective(
        "tok/s/GPU", True, -1, lambda one, at: at.output_tok_s / one.gpus),
    "cost": Objective("per 1M tok", False, 1, _cost),
    "tpot": Objective("s", False, 1, lambda _, at: at.tpot_s),
    "ttft": Objective("s", False, 0, lambda _, at: at.ttft_s),
    "e2el": Objective("s", False, 0, _whole),
}


@dataclass(frozen=True, slots=True)
class Ranked(Jsonable):
    """A place. of_best: how good it is as a share of the best one, at most 1. alike: all others
    that it is not told apart from."""

    name: str
    rank: int
    value: float
    interval_90: Ends | None
    of_best: float
    of_best_90: Ends | None
    alike: tuple[str, ...]
    served: Served


@dataclass(frozen=True, slots=True)
class Rejected(Jsonable):
    """What is left out, and why. kind: memory, model, profile, options, slo, overload."""

    name: str
    kind: str
    reason: str


@dataclass(frozen=True, slots=True)
class LoadRanking(Jsonable):
    """One load, best first."""

    load: float
    ranked: tuple[Ranked, ...]
    rejected: tuple[Rejected, ...]


@dataclass(frozen=True)
class ComparisonFigures:
    """rejected: what runs at no load, as it cannot be built. load_unit: clients or requests/s.
    partial: Ctrl-C came before the last deployment."""

    objective: str
    load_unit: str
    slo: Mapping[str, float]
    deployments: tuple[Contender, ...]
    loads: tuple[LoadRanking, ...]
    rejected: tuple[Rejected, ...]
    partial: bool = False
    warnings: tuple[str, ...] = ()

    @property
    def any_ranked(self) -> bool:
        return any(load.ranked for load in self.loads)

    def to_dict(self) -> dict[str, object]:
        goal = OBJECTIVES[self.objective]
        return {
            "kind": "comparison", "objective": self.objective, "unit": goal.unit,
            "more_is_better": goal.more_is_better,
            **picked(self, "load_unit slo deployments loads rejected partial warnings"),
        }


def powers(objective: str, one: Contender, at: Served, closed: bool) -> Powers:
    """The quantities whose errors a figure has. In an open loop that keeps up, what is served is
    what is sent."""
    goal = OBJECTIVES[objective]
    if objective == "ttft":
        return Powers(ttft=1.0)
    if objective == "e2el":
        share = at.ttft_s / _whole(one, at)
        return Powers(1 - share, share)
    return Powers(goal.power) if closed or objective == "tpot" else Powers()


def ranking(
    load: float, place: int, contenders: Sequence[Contender], objective: str, *, closed: bool
) -> LoadRanking:
    """The contenders at the load of that place."""
    goal = OBJECTIVES[objective]
    sign = 1 if goal.more_is_better else -1
    left_out = [Rejected(c.name, c.served[place].kind, c.served[place].reason)
                for c in contenders if c.served[place].reason]
    field = []
    for one in contenders:
        value = 0.0 if one.served[place].reason else goal.value(one, one.served[place])
        if 0 < value < math.inf:
            field.append((value, one))
        elif not one.served[place].reason:  # answers of one token have no time per token
            left_out.append(Rejected(one.name, "options", f"it has no {objective} here"))
    field.sort(key=lambda pair: -sign * pair[0])
    sides = [Side.of(c.system, powers(objective, c, c.served[place], closed)) for _, c in field]
    behind: list[list[int]] = [[] for _ in field]  # of each, those that it surely beats
    ahead = [0] * len(field)
    of_best: list[Ends | None] = []
    for i, (value, _) in enumerate(field):
        for j, (better, _) in enumerate(field[:i]):
            ends = ratio_interval(sides[i], sides[j])
            pair = None
            if ends is not None:
                logs = sorted(sign * (math.log(value / better) + end) for end in ends)
                pair = math.exp(logs[0]), math.exp(logs[1])
            if j == 0:
                of_best.append(pair)
            if pair is not None and pair[1] < 1:
                behind[j].append(i)
                ahead[i] += 1
    names, ranked = [c.name for _, c in field], []
    for i, (value, one) in enumerate(field):
        ends = figure_interval(one.system, sides[i].figure) if any(sides[i].figure) else None
        apart = {*behind[i], i, *(j for j in range(i) if i in behind[j])}
        ranked.append(Ranked(
            one.name, 1 + ahead[i], value,
            None if ends is None else (value * math.exp(ends[0]), value * math.exp(ends[1])),
            (value / field[0][0]) ** sign, of_best[i - 1] if i else None,
            tuple(name for j, name in enumerate(names) if j not in apart), one.served[place],
        ))
    return LoadRanking(load, tuple(ranked), tuple(left_out))

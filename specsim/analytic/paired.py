"""90 % intervals of the ratio of two predictions: what both get wrong alike cancels.

ln(measured / predicted) is a sum of the bias of a class and of effects of who measures, the model,
the engine version, the server (model, GPUs, method) and the case itself, as the mixed model of
public measurements has it. Two deployments that one party runs share the first, and whatever of the
others they have in common; scatter that differs by class leaves the difference. Errors of
acceptance cancel where target and drafter are the same. `catalog/paired_residuals.json` holds the
effects, checked on pairs of sources that were left out (`validation/scripts/paired_intervals.py`).
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple, TypedDict

from specsim.analytic.intervals import log_ends, prediction_class
from specsim.analytic.system import System
from specsim.data import data_table
from specsim.model.catalogue import shapes_key

Ends = tuple[float, float]


class Powers(NamedTuple):
    """What a figure is made of: powers of TPOT and of TTFT."""

    tpot: float = 0.0
    ttft: float = 0.0


TPOT = Powers(1.0)


class Effects(TypedDict):
    """Of one quantity: scale of each effect; ln of the factor on it by part of a class ('' in all);
    mean and covariance of the parts' biases; how many scales an interval's end is away, of cases of
    one server and of others."""

    scales: dict[str, float]
    factors: dict[str, float]
    bias: dict[str, float]
    covariance: dict[str, dict[str, float]]
    scales_to_an_end: dict[str, float]


@dataclass(frozen=True, slots=True)
class Case:
    """What errors belong to. model: the same for all of its shapes, whatever their weight format.
    place: checkpoint, GPU and number of GPUs; drafts: the method, '' for plain decoding, whose
    errors are those of any speculating server beside it."""

    klass: str
    model: object
    version: str
    place: str
    drafts: str

    def shares(self, other: "Case") -> frozenset[str]:
        """Effects that two cases of one party have in common."""
        same = {"source": True, "model": self.model == other.model,
                "version": self.version == other.version,
                "server": self.place == other.place and (
                    self.drafts == other.drafts or not (self.drafts and other.drafts))}
        return frozenset(name for name, alike in same.items() if alike)


def case_of(system: System) -> Case:
    """The case of a deployment."""
    spec, engine = system.spec.name, system.engine
    return Case(
        prediction_class(system), shapes_key(system.spec),
        engine.inherit or f"{engine.name} {engine.version}",
        f"{spec}|{system.profile.name}|{system.parallel.all_gpus}",
        system.setup.method if system.speculative else "",
    )


def spread(known: Effects, a: Case, b: Case, power: float, other: float) -> tuple[float, float]:
    """(middle, scale) of power x y(a) - other x y(b), y = ln(measured / predicted)."""
    parts: dict[str, float] = dict.fromkeys(known["bias"], 0.0)
    logs = [0.0, 0.0]
    for i, (case, weight) in enumerate(((a, power), (b, -other))):
        for part in ("", *case.klass.split("|")):
            if part in parts:
                parts[part] += weight
                logs[i] += known["factors"].get(part, 0.0)
    used = {part: weight for part, weight in parts.items() if weight}
    variance = sum(
        x * y * known["covariance"][p][q] for p, x in used.items() for q, y in used.items()
    )
    shared = a.shares(b)
    for name, scale in known["scales"].items():
        scattered = name in ("source", "server", "case")
        x, y = (
            weight * (math.exp(log) if scattered else 1.0)
            for weight, log in zip((power, other), logs, strict=True)
        )
        variance += scale**2 * ((x - y) ** 2 if name in shared else x * x + y * y)
    middle = sum(weight * known["bias"][part] for part, weight in used.items())
    return middle, math.sqrt(max(0.0, variance))


def effects() -> dict[str, Effects]:
    """By quantity, from the catalogue."""
    found: dict[str, Effects] = data_table("catalog", "paired_residuals.json")["quantities"]
    return found


def figure_interval(system: System, figure: Powers) -> Ends | None:
    """ln of the ends of a figure's own interval over its prediction; None for datasheet bounds."""
    found = [log_ends(system, name, power) for name, power in figure._asdict().items()]
    known = [pair for pair in found if pair is not None]
    if len(known) < len(found):
        return None
    lows, highs = zip(*known, strict=True)
    return -math.hypot(*lows), math.hypot(*highs)


class Side(NamedTuple):
    """A figure of a deployment in a ratio."""

    system: System
    case: Case
    figure: Powers

    @classmethod
    def of(cls, system: System, figure: Powers) -> "Side":
        return cls(system, case_of(system), figure)


def ratio_interval(a: Side, b: Side) -> Ends | None:
    """ln of the ends of the interval of the figure of `a` over that of `b`, over its prediction. Of
    speculation and the same server without, that is the speedup's. None for datasheet bounds."""
    if "datasheet" in (a.system.fidelity, b.system.fidelity):
        return None
    for one, two, sign in ((a, b, 1), (b, a, -1)):
        tpot = one.figure.tpot
        if tpot and one.system.speculative and not two.system.speculative and (
                one.case.place == two.case.place and one.system.plain() == two.system):
            return log_ends(one.system, "speedup", -sign * tpot)
    low, high = _cost(a.case, b.case, a.figure, b.figure)
    fewer, more = _accepted(a.system, b.system, a.figure.tpot, b.figure.tpot)
    return -math.hypot(low, fewer), math.hypot(high, more)


@lru_cache(maxsize=1 << 16)
def _cost(a: Case, b: Case, of_a: Powers, of_b: Powers) -> Ends:
    """ln of the ends with no error of acceptance."""
    middle = variance = 0.0
    kind = "one server" if "server" in a.shares(b) else "others"
    for name, power, other in zip(Powers._fields, of_a, of_b, strict=True):
        known = effects()[name]
        mean, scale = spread(known, a, b, power, other)
        middle += mean
        variance += (known["scales_to_an_end"][kind] * scale) ** 2
    reach = math.sqrt(variance)
    return min(0.0, middle - reach), max(0.0, middle + reach)


def _accepted(a: System, b: System, power: float, other: float) -> Ends:
    """ln of the ends that errors of acceptance alone would cause: tokens per step divide TPOT."""
    one, two = (s.acceptance.log_error_90 if s.speculative and s.acceptance else (0.0, 0.0)
                for s in (a, b))
    if _drafting(a) == _drafting(b):  # both sides miss by as much
        found = [other * y - power * x for x, y in zip(one, two, strict=True)]
        return min(0.0, *found), max(0.0, *found)
    found = [-power * x for x in one] + [other * y for y in two]
    return (-math.hypot(*(x for x in found if x < 0)), math.hypot(*(x for x in found if x > 0)))


def _drafting(system: System) -> tuple[str, str, str]:
    drafter = system.setup.drafter
    return system.spec.name, system.setup.method, drafter.name if drafter else ""

"""What a measurement of one deployment says of another that differs in a few settings.

A prediction misses a server by y = ln(measured / predicted). In u, half widths of the prediction's
own 90 % interval (`intervals`), the misses of one model's deployments are taken as drawn together,

    cov(u, u') = scale^2 exp(-sum over kinds of loss x distance) + noise^2 [the same value]

so that what is known of some gives the expected miss of another and how much of its interval is
left (kriging; Student's t with TAIL degrees of freedom, so that an odd miss leaves more). The
losses are fitted on public pairs: `catalog/carry_over.json`, `validation/scripts/carry_over.py`,
`validation/reports/carry_over.md`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from specsim.analytic.intervals import log_ends
from specsim.analytic.system import System
from specsim.analytic.workload import Workload
from specsim.data import data_table

KINDS = ("gpu", "gpus", "engine", "k", "context", "concurrency")  # what may differ
TAIL = 4.0  # degrees of freedom
# Whose pairs a metric goes by, and the power of it that the metric is.
QUANTITIES = {"tpot_s": ("tpot", 1), "ttft_s": ("ttft", 1), "output_tok_s": ("tpot", -1),
              "speedup": ("speedup", 1)}


@dataclass(frozen=True)
class Setting:
    """A deployment at a load of so many requests in flight."""

    system: System
    workload: Workload
    concurrency: float


@dataclass(frozen=True)
class Seen:
    """A value measured at a setting, and predicted for it."""

    setting: Setting
    measured: float
    predicted: float


@dataclass(frozen=True)
class Carried:
    """A prediction with what measurements moved it to. interval_90: [low, high] that held 90 % of
    public values predicted so. share: of the logarithm of the measurements' misses, the part that
    is taken over. nearest: the measurement that tells most."""

    value: float
    interval_90: tuple[float, float]
    share: float
    nearest: int


@dataclass(frozen=True)
class CarryOver:
    """Of one quantity. scale, noise: in half widths of an interval. loss: by kind, per unit of
    distance. widen: by kind, factor on an interval that makes it hold 90 % of public pairs."""

    scale: float
    noise: float
    loss: Mapping[str, float]
    widen: Mapping[str, float]

    def alike(self, distance: Mapping[str, float]) -> float:
        """Correlation of the lasting parts of two misses."""
        return math.exp(-sum(self.loss[kind] * far for kind, far in distance.items()))


@lru_cache(maxsize=1)
def carry_overs() -> dict[str, CarryOver]:
    """By quantity: 'tpot', 'ttft', 'speedup'."""
    found = data_table("catalog", "carry_over.json")["quantities"]
    return {name: CarryOver(**values) for name, values in found.items()}


def distances(one: Setting, other: Setting) -> dict[str, float]:
    """By kind, how far two settings are apart; kinds in which they agree are left out. 1 for
    another GPU or engine, else logarithms of ratios."""
    a, b, x, y = one.system, other.system, one.workload, other.workload
    found = {
        "gpu": float(a.profile.name != b.profile.name),
        "gpus": _ratio(a.parallel.all_gpus, b.parallel.all_gpus),
        "engine": float((a.engine.name, a.engine.version) != (b.engine.name, b.engine.version)),
        "k": _ratio(a.setup.k + 1, b.setup.k + 1),
        "context": _ratio(x.input_len, y.input_len) + _ratio(x.output_len, y.output_len),
        "concurrency": _ratio(one.concurrency, other.concurrency),
    }
    return {kind: far for kind, far in found.items() if far}


def _ratio(one: float, other: float) -> float:
    return abs(math.log(one / other))


def carried(
    metric: str, target: Setting, predicted: float, seen: Sequence[Seen]
) -> Carried | None:
    """The prediction of a metric (of QUANTITIES) at `target`, moved by what was `seen` elsewhere,
    once or more, of the same model and method. None where predictions of it have no interval."""
    quantity, up = QUANTITIES[metric]
    ends = log_ends(target.system, quantity, up)
    there = [log_ends(item.setting.system, quantity, up) for item in seen]
    if ends is None or None in there:
        return None
    widths = [(high - low) / 2 for low, high in (pair for pair in there if pair)]
    misses = [math.log(item.measured / item.predicted) / width
              for item, width in zip(seen, widths, strict=True)]
    law = carry_overs()[quantity]
    far = [distances(item.setting, target) for item in seen]
    between = [[law.alike(distances(a.setting, b.setting)) for b in seen] for a in seen]
    weights, left = condition(law, [law.alike(d) for d in far], between, misses)
    mine = (ends[1] - ends[0]) / 2
    middle = mine * math.fsum(w * u for w, u in zip(weights, misses, strict=True))
    nearest = max(range(len(seen)), key=lambda i: law.alike(far[i]))
    left *= max((law.widen[kind] for kind in far[nearest]), default=1.0)
    share = math.fsum(w * mine / width for w, width in zip(weights, widths, strict=True))
    low, high = (predicted * math.exp(middle + end * left) for end in ends)
    return Carried(predicted * math.exp(middle), (low, high), share, nearest)


def condition(
    law: CarryOver, alike: Sequence[float], between: Sequence[Sequence[float]],
    misses: Sequence[float],
) -> tuple[list[float], float]:
    """(weight of each miss in the expected one, factor on the interval). alike, between:
    correlations of the lasting parts with the target's, and among themselves."""
    import numpy as np

    lasting, noise = law.scale**2, law.noise**2
    covariance = lasting * np.array(between) + noise * np.eye(len(misses))
    shared = lasting * np.array(alike)
    weights = np.linalg.solve(covariance, shared)
    size = float(np.array(misses) @ np.linalg.solve(covariance, np.array(misses)))
    left = 1 - float(shared @ weights) / (lasting + noise)
    odd = (TAIL + size) / (TAIL + len(misses))
    return weights.tolist(), math.sqrt(max(left, 0.0) * odd)

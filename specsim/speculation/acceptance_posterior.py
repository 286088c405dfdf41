"""The fitted model of acceptance, conditioned on what was measured of one target.

The shared effects' means stand in `catalog/acceptance_model.json`; rows of the target then move
what is its own (target, drafter, data sets, slopes, sources). Normal arithmetic on a few dozen
rows, written out so that predicting needs no numeric package.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

from specsim.data import data_table
from specsim.speculation.acceptance_model import (
    SHARED,
    Condition,
    depth_of,
    effects,
    flat_logit,
    gain_at,
    kind_data,
    tokens_at,
)
from specsim.speculation.acceptance_rows import MeasuredAcceptance

# Effects whose sum stands in the file by kind of drafter and kind of work.
BASE = (
    "group", "kind", "slope_group", "slope_kind",
    "work", "work_group", "work_lookup", "slope_work",
)
# Depth at which a base's level is stated: that of the usual drafts.
REFERENCE_DEPTH = depth_of(3)
QUANTILE_90 = 1.6449
# The rows nearest to the question decide; more of them change nothing and cost time cubed.
_MOST_ROWS = 64

Parts = dict[tuple[str, str], float]


@dataclass(frozen=True, slots=True)
class Base:
    """What a kind of drafter does on a kind of work: level at the reference depth and slope, with
    standard deviations: common to all work, of this work alone, of the slope."""

    level: float
    slope: float
    sd: float
    work_sd: float
    slope_sd: float


@dataclass(frozen=True, slots=True)
class DraftShare:
    """Logit of the share of steps with a draft: a + b z + work, with its residual deviation."""

    a: float
    b: float
    sd: float
    works: dict[str, float]


@dataclass(frozen=True, slots=True)
class FittedAcceptance:
    """The file: variances by effect, bases by kind and work, other shared effects by name and key
    (mean, standard deviation), factors on intervals by kind, and by kind of drafter that skips
    steps the share of steps with a draft: logit = a + b z + (kind of work), with a residual
    deviation."""

    variances: dict[str, float]
    bases: dict[tuple[str, str], Base]
    shared: dict[str, dict[str, tuple[float, float]]]
    widening: dict[str, float]
    draft_share: dict[str, DraftShare]

    def mean(self, c: Condition) -> float:
        """z of a condition before rows of its target are looked at."""
        base = self.bases[c.kind, c.work]
        z = base.level + base.slope * (depth_of(c.k) - REFERENCE_DEPTH)
        for name, key, weight in effects(c):
            if name in self.shared:
                z += weight * self.shared[name].get(key, (0.0, 0.0))[0]
        return z

    def parts(self, c: Condition) -> Parts:
        """Independent standard normals of a condition with their weights: the covariance of two
        conditions is the sum of the products of the weights that they share."""
        base, kind = self.bases[c.kind, c.work], c.kind
        found = {
            ("base", kind): base.sd, ("base_work", f"{kind}|{c.work}"): base.work_sd,
            ("base_slope", kind): base.slope_sd * (depth_of(c.k) - REFERENCE_DEPTH),
        }
        for name, key, weight in effects(c):
            if name in BASE:
                continue
            sd = math.sqrt(self.variances.get(name, 0.0))
            if name in SHARED:
                sd = self.shared[name].get(key, (0.0, sd))[1]
            found[name, key] = weight * sd
        return found

    def source_variance(self, kind: str) -> float:
        """Variance between sources of one drafter, as wide as its intervals are."""
        data = kind_data(kind)
        found = self.variances.get(f"source_{data.sources or data.group}", 0.0)
        return found * self.widening.get(kind, 1.0) ** 2

    def noise(self, z: float, k: int, grade: str = "A") -> float:
        """Variance of one row around its condition."""
        relative = self.variances["noise_mean"] + self.variances["noise_b"] * (grade == "B")
        step = 0.01 * tokens_at(z, k) / gain_at(z, k)
        return self.variances["noise_logit"] + relative * step * step


@cache
def fitted_acceptance() -> FittedAcceptance:
    """The model of `catalog/acceptance_model.json`."""
    file = data_table("catalog", "acceptance_model.json")
    return FittedAcceptance(
        file["variances"],
        {(kind, work): Base(level, slope, one["sd"], work_sd, one["slope_sd"])
         for kind, one in file["bases"].items()
         for work, (level, slope, work_sd) in one["works"].items()},
        {name: {key: (mean, sd) for key, (mean, sd) in members.items()}
         for name, members in file["shared"].items()},
        file["widening"],
        {kind: DraftShare(**share) for kind, share in file["draft_share"].items()},
    )


def _shared(a: Parts, b: Parts) -> float:
    return sum(weight * b[key] for key, weight in a.items() if key in b)


@dataclass(frozen=True, slots=True)
class PredictedAcceptance:
    """z of a condition at k (mean and standard deviation of a new row) and the tokens it means.
    share, work: what tells the share of steps with a draft, if drafts are not always there."""

    z: float
    sd: float
    k: int
    work: str
    share: DraftShare | None = None

    def with_draft(self, quantile: float = 0.0) -> float:
        """Mean tokens of a step that carries a draft."""
        return tokens_at(self.z + quantile * self.sd, self.k)

    def draft_share(self, quantile: float = 0.0) -> float:
        """Share of steps that carry a draft."""
        if self.share is None:
            return 1.0
        logit = self.share.a + self.share.works.get(self.work, 0.0) + quantile * self.share.sd
        logit += self.share.b * (self.z + quantile * self.sd)
        return 1.0 / (1.0 + math.exp(-logit))

    def tokens(self, quantile: float = 0.0) -> float:
        """Mean tokens of a step."""
        return 1.0 + self.draft_share(quantile) * (self.with_draft(quantile) - 1.0)

    def whole_sd(self) -> float:
        """Standard deviation of z that alone would spread the tokens of a step as much as z and
        the share of steps with a draft do together."""
        low, high = (
            flat_logit(1.0 + (self.tokens(side * QUANTILE_90) - 1.0) / self.draft_share(), self.k)
            for side in (-1.0, 1.0)
        )
        return (high - low) / (2.0 * QUANTILE_90)


@dataclass(frozen=True, slots=True)
class AcceptanceSpread:
    """How unsure the curve z(k) of a drafter is: z at depth `pivot` (`depth_of`) with standard
    deviation `level_sd`, and independently of it the slope over depth with `slope_sd`. So what a
    run at one draft length tells carries over to all others. known: draft lengths up to which the
    slope is known."""

    level_sd: float
    slope_sd: float
    pivot: float
    known: int = 0

    def weights(self, k: int) -> tuple[float, float]:
        """Change of z at k for one standard deviation of the level, and of the slope."""
        return self.level_sd, self.slope_sd * (depth_of(k) - self.pivot) if k > self.known else 0.0


def spread_of(
    means: Sequence[tuple[float, float]], covariances: Sequence[tuple[float, float, float]],
    ks: tuple[int, int],
) -> AcceptanceSpread:
    """From z at two draft lengths of each drafter that may be meant: means, and (variance,
    covariance, variance). What the drafters differ in is spread too."""
    count, apart = len(means), depth_of(ks[1]) - depth_of(ks[0])
    centre = [math.fsum(pair[i] for pair in means) / count for i in (0, 1)]

    def total(at: int, i: int, j: int) -> float:
        own = math.fsum(one[at] for one in covariances)
        between = math.fsum((pair[i] - centre[i]) * (pair[j] - centre[j]) for pair in means)
        return (own + between) / count

    first, both, last = total(0, 0, 0), total(1, 0, 1), total(2, 1, 1)
    slope = max(1e-9, (first + last - 2 * both) / apart**2)
    tilt = (both - first) / apart  # covariance of z at the first length with the slope
    level = max(0.0, first - tilt * tilt / slope)
    return AcceptanceSpread(math.sqrt(level), math.sqrt(slope), depth_of(ks[0]) - tilt / slope)


class Posterior:
    """The model after the rows nearest to a condition. rows: observations, of the same target."""

    def __init__(self, rows: Sequence[MeasuredAcceptance], near: Condition) -> None:
        self.model = model = fitted_acceptance()
        wanted = model.parts(near)
        ranked = sorted(
            ((row, model.parts(row.condition)) for row in rows),
            key=lambda pair: -_shared(pair[1], wanted),
        )[:_MOST_ROWS]
        self._parts = [parts for _, parts in ranked]
        self._factor: list[list[float]] = []
        for i, (row, parts) in enumerate(ranked):
            line = [_shared(parts, other) for other in self._parts[:i]]
            own = _shared(parts, parts) + model.noise(row.z, row.condition.k, row.grade)
            own += row.tree_variance
            self._factor.append(self._next_line(line, own + 1e-9))
        misses = [row.z - model.mean(row.condition) for row, _ in ranked]
        self._misses = self._solve(misses)

    def _next_line(self, covariances: list[float], variance: float) -> list[float]:
        line = self._solve(covariances)
        return [*line, math.sqrt(max(1e-12, variance - math.fsum(x * x for x in line)))]

    def _solve(self, right: list[float]) -> list[float]:
        """L^-1 right of the Cholesky factor so far."""
        found: list[float] = []
        for line, value in zip(self._factor, right, strict=True):
            known = sum(a * b for a, b in zip(line, found, strict=False))
            found.append((value - known) / line[-1])
        return found

    def spread(self, condition: Condition, ks: tuple[int, int]) -> tuple[float, float, float]:
        """Variance of z at two draft lengths and, between them, its covariance, without the noise
        of a row."""
        parts = [self.model.parts(replace(condition, k=k)) for k in ks]
        pulls = [self._solve([_shared(one, row) for row in self._parts]) for one in parts]
        widened = self.model.widening.get(condition.kind, 1.0) ** 2
        first, both, last = (
            widened * (_shared(parts[i], parts[j])
                       - math.fsum(a * b for a, b in zip(pulls[i], pulls[j], strict=True)))
            for i, j in ((0, 0), (0, 1), (1, 1))
        )
        return first, both, last

    def at(self, condition: Condition, k: int) -> PredictedAcceptance:
        """A new row of the condition at k."""
        model, c = self.model, replace(condition, k=k)
        parts = model.parts(c)
        pull = self._solve([_shared(parts, row) for row in self._parts])
        z = model.mean(c) + math.fsum(a * b for a, b in zip(pull, self._misses, strict=True))
        variance = _shared(parts, parts) - math.fsum(x * x for x in pull)
        variance = max(variance, 0.0) + model.noise(z, k)
        sd = model.widening.get(c.kind, 1.0) * math.sqrt(variance)
        return PredictedAcceptance(z, sd, k, c.work, model.draft_share.get(c.kind))

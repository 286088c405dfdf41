"""The fit behind fit_engines.py: overheads of engine versions from the rows of all sources.

Unknowns are logarithms of `Overheads` fields, one vector per engine version. A priori those of one
engine scatter about that engine's own, and the engine's about a median that the structure of
engines suggests: x_v = ln median + engine + version, with log-normal spreads for both (`Prior`).

What is observed are ln(predicted / measured). A robust (Student t) loss keeps rows apart that no
overhead explains, and rows are weighted so that sources weigh nearly alike however many rows they
have: rows of one group (set, model, GPU, GPUs, method, version) share errors, and so do groups of
one source, with the correlations SAME_SERVER and SAME_SOURCE.

TPOT of one server, plain and speculative, shares a level of its own, drawn about 0 with LEVEL: what
kernels of that model on that device are off by must not pass for an overhead. Ratios of the two
sides are free of it.

Gauss-Newton with iteratively reweighted least squares. `without` goes on from the full fit with a
source's weight at zero, and with that fit's slopes as long as they are near enough.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from specsim.accuracy.rows import PublishedCase
from specsim.accuracy.score import score_case
from specsim.accuracy.scored import Scored
from specsim.latency.overheads import Overheads

Floats = NDArray[np.float64]
# Correlation of what values of one server are off by, and of what servers of one source are, as the
# mixed model of the residuals has it (residual_model.py: scales of source, server and row).
SAME_SERVER, SAME_SOURCE = 0.85, 0.2
# How far both sides of one server are off together: kernels of that model on that device.
LEVEL = 0.15
TAIL = 4.0  # degrees of freedom of the loss
STEP = 0.03  # of a logarithm, for slopes
ITERATIONS = 12
FEW_STEPS = 5
FAR = 0.1  # of a logarithm: slopes are taken anew


@dataclass(frozen=True)
class Prior:
    """Of one overhead: median in seconds, and the log-normal spreads of an engine about it and of
    a version about its engine."""

    median: float
    engine: float
    version: float = 0.3


@dataclass(frozen=True)
class Observed:
    """One value that counts in the fit. spread: expected scatter of its logarithm."""

    case: int
    score: int  # which of the case's values
    quantity: str
    side: str
    source: str
    group: str
    spread: float


class EngineFit:
    """The rows of some engine versions and what they say about `names`.

    cases: rows, with the version each ran on. base: overheads of every version, which hold what is
    not fitted. observed: the values that count."""

    def __init__(
        self,
        cases: Sequence[tuple[str, PublishedCase]],
        base: Mapping[str, Overheads],
        priors: Mapping[str, Prior],
        observed: Sequence[Observed],
        medians: Mapping[str, Mapping[str, float]] = MappingProxyType({}),
    ) -> None:
        """medians: by version, where the structure of a version says other than `priors`."""
        self.cases, self.base, self.priors, self.observed = cases, base, priors, observed
        self.versions, self.names = sorted(base), list(priors)
        self.prior = np.log([
            medians.get(version, {}).get(n, priors[n].median)
            for version in self.versions for n in self.names
        ])
        self.precision = self._precision()
        self.weight = self._weights()
        self.levels, self.level_precision = self._levels()
        self.sources = sorted({o.source for o in observed})

    def _precision(self) -> Floats:
        """Inverse covariance of the unknowns, versions of one engine sharing its deviation."""
        covariance = np.zeros((self.prior.size, self.prior.size))
        for i, one in enumerate(self.versions):
            for j, other in enumerate(self.versions):
                if one.rsplit("-", 1)[0] != other.rsplit("-", 1)[0]:
                    continue
                for k, name in enumerate(self.names):
                    p = self.priors[name]
                    covariance[i * len(self.names) + k, j * len(self.names) + k] = (
                        p.engine**2 + (p.version**2 if i == j else 0.0)
                    )
        return np.linalg.inv(covariance)

    def _weights(self) -> Floats:
        """So many independent values as a value stands for."""
        kinds = [(o.source, o.quantity, o.side) for o in self.observed]
        size = Counter((kind, o.group) for kind, o in zip(kinds, self.observed, strict=True))
        groups = Counter(kind for kind, _ in size)
        shared = [
            (1 + (size[kind, o.group] - 1) * SAME_SERVER)
            * (1 + (groups[kind] - 1) * SAME_SOURCE)
            for kind, o in zip(kinds, self.observed, strict=True)
        ]
        return np.array([1 / (s * o.spread**2) for s, o in zip(shared, self.observed, strict=True)])

    def _levels(self) -> tuple[Floats, Floats]:
        """(which level a value has, one column per server; the prior's precision of each)."""
        servers = sorted({(o.source, o.group) for o in self.observed if o.quantity == "tpot"})
        column = {server: i for i, server in enumerate(servers)}
        out = np.zeros((len(self.observed), len(servers)))
        for row, o in enumerate(self.observed):
            if o.quantity == "tpot":
                out[row, column[o.source, o.group]] = 1.0
        per_source = Counter(source for source, _ in servers)
        shared = [1 + (per_source[source] - 1) * SAME_SOURCE for source, _ in servers]
        return out, 1 / (np.array(shared) * LEVEL**2)

    def overheads(self, x: Floats) -> dict[str, Overheads]:
        """The vector as overheads by version."""
        rows = np.exp(x).reshape(len(self.versions), len(self.names))
        return {
            version: replace(self.base[version], **dict(zip(self.names, row.tolist(), strict=True)))
            for version, row in zip(self.versions, rows, strict=True)
        }

    def scores(self, x: Floats, which: Sequence[int] | None = None) -> Iterator[list[Scored]]:
        """The values of the rows under overheads `x`."""
        over = self.overheads(x)
        for index in range(len(self.cases)) if which is None else which:
            version, case = self.cases[index]
            yield score_case(replace(case, system=case.system.with_overheads(over[version])))

    def residuals(self, x: Floats) -> Floats:
        """ln(predicted / measured) of the observed values."""
        found = list(self.scores(x))
        return np.array([
            math.log((s := found[o.case][o.score]).predicted / s.measured) for o in self.observed
        ])

    def slopes(self, x: Floats, at: Floats) -> Floats:
        """Derivatives of the residuals `at` x: one name at a time, moved for all versions, which
        have no rows in common."""
        width = len(self.names)
        out = np.zeros((at.size, x.size))
        row = {version: i for i, version in enumerate(self.versions)}
        own = np.array([row[self.cases[o.case][0]] for o in self.observed])
        for k in range(width):
            moved = x.copy()
            moved[k::width] += STEP
            out[np.arange(at.size), own * width + k] = (self.residuals(moved) - at) / STEP
        return out

    def _step(self, x: Floats, r: Floats, slopes: Floats, weight: Floats) -> Floats:
        """Where the linearised problem is least: reweighting until it settles."""
        both = np.hstack([slopes, self.levels])
        precision = np.zeros((both.shape[1], both.shape[1]))
        precision[:x.size, :x.size] = self.precision
        precision[x.size:, x.size:] = np.diag(self.level_precision)
        off = np.concatenate([x - self.prior, np.zeros(self.levels.shape[1])])
        delta = np.zeros(both.shape[1])
        spread = np.array([o.spread for o in self.observed])
        for _ in range(30):
            z = (r + both @ delta) / spread
            w = weight * (TAIL + 1) / (TAIL + z**2)
            normal = both.T @ (w[:, None] * both) + precision
            new = -np.linalg.solve(normal, both.T @ (w * r) + precision @ off)
            settled = np.max(np.abs(new - delta)) < 1e-6
            delta = new
            if settled:
                break
        return delta[: x.size]

    def _cost(self, x: Floats, r: Floats, weight: Floats) -> float:
        spread = np.array([o.spread for o in self.observed])
        level = self._best_levels(r, weight, spread)
        r = r + self.levels @ level
        loss = (TAIL + 1) * spread**2 * np.log1p((r / spread) ** 2 / TAIL)
        off = x - self.prior
        held = level @ (self.level_precision * level)
        return float(weight @ loss + off @ self.precision @ off + held)

    def _best_levels(self, r: Floats, weight: Floats, spread: Floats) -> Floats:
        """The levels that residuals `r` speak for."""
        level = np.zeros(self.levels.shape[1])
        for _ in range(20):
            w = weight * (TAIL + 1) / (TAIL + ((r + self.levels @ level) / spread) ** 2)
            level = -(self.levels.T @ (w * r)) / (self.levels.T @ w + self.level_precision)
        return level

    def fit(self) -> tuple[Floats, Floats, Floats]:
        """(x, residuals, slopes) at the best overheads, from the priors' medians."""
        x = self.prior.copy()
        r = self.residuals(x)
        cost = self._cost(x, r, self.weight)
        slopes = self.slopes(x, r)
        for _ in range(ITERATIONS):
            full = np.clip(self._step(x, r, slopes, self.weight), -1, 1)
            for share in (1.0, 0.5, 0.25, 0.1):
                there = x + share * full
                found = self.residuals(there)
                if (value := self._cost(there, found, self.weight)) < cost:
                    break
            else:
                break
            settled = cost - value < 1e-4 * cost
            x, r, cost = there, found, value
            slopes = self.slopes(x, r)
            if settled:
                break
        return x, r, slopes

    def without(self, source: str, x: Floats, r: Floats, slopes: Floats) -> Floats:
        """The fit that has not seen a source: a few steps from the full fit."""
        weight = self.weight * np.array([o.source != source for o in self.observed])
        best, cost = x, self._cost(x, r, weight)
        for _ in range(FEW_STEPS):
            there = best + np.clip(self._step(best, r, slopes, weight), -1, 1)
            found = self.residuals(there)
            if (value := self._cost(there, found, weight)) >= cost:
                break
            moved = float(np.abs(there - best).max())
            best, r, cost = there, found, value
            if moved < 0.01:
                break
            if moved > FAR:
                slopes = self.slopes(best, r)
        return best


def by_group(cases: Sequence[PublishedCase], name: Callable[[PublishedCase], str]
             ) -> dict[str, list[PublishedCase]]:
    groups: dict[str, list[PublishedCase]] = defaultdict(list)
    for case in cases:
        groups[name(case)].append(case)
    return groups

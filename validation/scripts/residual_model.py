"""A mixed model of what predictions miss by, and the interval it gives for the next source.

For one quantity, y = ln(measured / predicted) of a value is a sum of
    bias      of its class: a common one, and shrunken ones of side, dense or routed, kernels
              measured or assumed, one or several GPUs, and the engine
    effects   of its source, model, engine version and server (group), and of the row itself
each drawn around 0. Scatter differs by class too: the effects of source, server and row are
multiplied by exp of a sum of shrunken class effects. Sources, servers and rows have outliers: their
effects are drawn from Student's t with TAIL degrees of freedom, as a normal of unknown scale.

Rows that share server and class are taken together: their mean and their scatter say the same. All
effects, bias included, are integrated out; scales are those under which the residuals are most
likely, given weak priors (empirical Bayes). A prediction for a new source of a class has the
class's bias, and as variance its uncertainty and that of all effects.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

Floats = NDArray[np.float64]
TAIL = 4.0
ROUNDS = 6  # of reweighting
EFFECTS = ("source", "model", "version", "group")
HEAVY = ("source", "group")  # effects with outliers, besides rows
LOG_SCALE = 0.25  # of a class effect on the logarithm of the scale
# ln of the scale of effects of source, model, version, server, row, and of a class on the bias (the
# common bias has twice that): prior median and spread
START = np.log([0.15, 0.05, 0.05, 0.15, 0.10, 0.10])
ROW, BIAS = 4, 5
START_SPREAD = 0.7


@dataclass(frozen=True)
class Residual:
    """One value: y = ln(measured / predicted), what it belongs to, and its class."""

    y: float
    source: str
    model: str
    version: str
    group: str
    klass: str


@dataclass(frozen=True)
class Spread:
    """Of a class: expected y of a new source, its scale, and how many sources know the class."""

    middle: float
    scale: float
    sources: int
    n: int


class ResidualModel:
    """The model of one quantity's residuals."""

    def __init__(
        self, residuals: Sequence[Residual], near: "ResidualModel | None" = None
    ) -> None:
        """near: a model of nearly the same residuals, from whose scales the search starts."""
        self.residuals = residuals
        self.parts = sorted({part for r in residuals for part in r.klass.split("|")})
        cells: dict[tuple[str, ...], list[float]] = defaultdict(list)
        for r in residuals:
            cells[r.source, r.model, r.version, r.group, r.klass].append(r.y)
        keys = sorted(cells)
        self.y = np.array([np.mean(cells[k]) for k in keys])
        self.count = np.array([len(cells[k]) for k in keys], dtype=float)
        self.within = np.array([np.var(cells[k]) * len(cells[k]) for k in keys])
        self.design = np.array([self._features(k[4]) for k in keys])
        self.same = [
            np.array([[float(a[i] == b[i]) for b in keys] for a in keys])
            for i in range(len(EFFECTS))
        ]
        self.weights = [np.ones(len(keys)) for _ in (*HEAVY, "row")]
        self.at = np.concatenate([START, np.zeros(len(self.parts))])
        if near is not None:
            known = dict(zip(near.parts, near.at[len(START):], strict=True))
            self.at = np.concatenate(
                [near.at[: len(START)], [known.get(part, 0.0) for part in self.parts]]
            )
        self._fit(ROUNDS if near is None else ROUNDS // 2)

    def _features(self, klass: str) -> Floats:
        """A class as a row: the common effect, then one column per part of a class."""
        found = klass.split("|")
        return np.array([2.0, *(float(part in found) for part in self.parts)])

    def _unpack(self, at: Floats, design: Floats) -> tuple[Floats, Floats]:
        """(scale of each effect, factor of the class on those of source, server and row)."""
        scales = np.exp(at[: len(START)])
        return scales, np.exp(design[:, 1:] @ at[len(START):])

    def _covariance(self, at: Floats) -> tuple[Floats, Floats]:
        """(covariance of the cells' means, row variance of each cell)."""
        scales, factor = self._unpack(at, self.design)
        total = scales[BIAS] ** 2 * self.design @ self.design.T
        for i, name in enumerate(EFFECTS):
            part = scales[i] ** 2 * self.same[i]
            if name in HEAVY:
                root = factor / np.sqrt(self.weights[HEAVY.index(name)])
                part = part * np.outer(root, root)
            total += part
        row = (scales[ROW] * factor) ** 2 / self.weights[-1]
        return total + np.diag(row / self.count), row

    def _unlikely(self, at: Floats) -> float:
        """-2 ln of the posterior of the scales."""
        covariance, row = self._covariance(at)
        try:
            lower = np.linalg.cholesky(covariance)
        except np.linalg.LinAlgError:
            return 1e9
        z = np.linalg.solve(lower, self.y)
        found = z @ z + 2 * np.sum(np.log(np.diag(lower)))
        found += float(np.sum((self.count - 1) * np.log(row) + self.within / row))
        off = (at[: len(START)] - START) / START_SPREAD
        return float(found + off @ off + np.sum((at[len(START):] / LOG_SCALE) ** 2))

    def _fit(self, rounds: int) -> None:
        for _ in range(rounds):
            done = minimize(self._unlikely, self.at, method="L-BFGS-B",
                            bounds=[(-6.0, 1.5)] * len(START) + [(-1.5, 1.5)] * len(self.parts),
                            options={"maxiter": 40})
            self.at = done.x
            self._reweigh()

    def _reweigh(self) -> None:
        """The scale of each outlier-prone effect given what it came out as."""
        covariance, row = self._covariance(self.at)
        scales, factor = self._unpack(self.at, self.design)
        pull = np.linalg.solve(covariance, self.y)
        inverse = np.linalg.inv(covariance)
        for h, name in enumerate(HEAVY):
            index = EFFECTS.index(name)
            same, plain = self.same[index], scales[index] * factor
            size = plain / np.sqrt(self.weights[h])
            shared = size[:, None] * same * size[None, :]  # covariance of effect and residuals
            left = size**2 - np.einsum("ij,jk,ki->i", shared, inverse, shared)
            second = ((shared @ pull) ** 2 + np.maximum(left, 0.0)) / plain**2
            self.weights[h] = (TAIL + 1) / (TAIL + same @ second / same.sum(axis=1))
        base = (scales[ROW] * factor) ** 2
        error = (row / self.count) * pull
        left = row / self.count - (row / self.count) ** 2 * np.diag(inverse)
        second = (self.within + self.count * (error**2 + np.maximum(left, 0.0))) / base
        self.weights[-1] = (TAIL + self.count) / (TAIL + second)

    def spread(self, klass: str) -> Spread:
        """Of a class, known or not."""
        covariance, _ = self._covariance(self.at)
        scales, factor = self._unpack(self.at, row := self._features(klass)[None, :])
        shared = scales[BIAS] ** 2 * (row @ self.design.T)[0]
        solved = np.linalg.solve(covariance, shared)
        variance = scales[BIAS] ** 2 * float((row @ row.T)[0, 0]) - float(shared @ solved)
        effects = dict(zip((*EFFECTS, "row"), scales[:BIAS], strict=True))
        variance += sum(
            (size * (factor[0] if name in (*HEAVY, "row") else 1.0)) ** 2
            for name, size in effects.items()
        )
        mine = [r for r in self.residuals if r.klass == klass]
        return Spread(float(solved @ self.y), math.sqrt(variance),
                      len({r.source for r in mine}), len(mine))

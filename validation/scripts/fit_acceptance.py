"""Fit the hierarchical model of acceptance to the catalogue.

    python validation/scripts/fit_acceptance.py

estimates the variance of every effect of `specsim.speculation.acceptance_model` by marginal
likelihood (a normal model that is linear in the effects; one weak prior, log variance around 0.01
with a standard deviation of 3, decides where the rows say nothing), then the shared effects' means
and standard deviations, and writes `catalog/acceptance_model.json`. Chain rows on real prompts
only; a row with per-position rates counts at several draft lengths. Accuracy:
`validation/scripts/check_acceptance.py`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from common import CATALOG, write_json
from numpy.typing import NDArray
from scipy.optimize import minimize

from specsim.speculation.acceptance_catalogue import WORKS, measurements
from specsim.speculation.acceptance_model import (
    SHARED,
    base_effects,
    drafter_kinds,
    effects,
    skips_steps,
)
from specsim.speculation.acceptance_posterior import BASE, QUANTILE_90, REFERENCE_DEPTH
from specsim.speculation.acceptance_rows import MeasuredAcceptance, observations

MODEL = CATALOG / "acceptance_model.json"
PRIOR_LOG_VARIANCE, PRIOR_WIDTH = math.log(0.01), 3.0
NOISE = ("noise_mean", "noise_logit", "noise_b")
# Intervals are widened where left-out rows of a kind miss them, from this many rows on.
FEWEST_ROWS = 20

Matrix = NDArray[np.float64]


@dataclass
class Normal:
    """The rows as one normal vector: its effects, and under given variances its precision."""

    rows: list[MeasuredAcceptance]
    variances: dict[str, float]

    @cached_property
    def parts(self) -> dict[str, Matrix]:
        """Covariance of each effect at variance 1."""
        keys: dict[str, dict[str, list[tuple[int, float]]]] = defaultdict(lambda: defaultdict(list))
        for i, row in enumerate(self.rows):
            for name, key, weight in effects(row.condition):
                keys[name][key].append((i, weight))
        size = len(self.rows)
        found = {}
        for name, members in keys.items():
            matrix = np.zeros((size, size))
            for group in members.values():
                at = [i for i, _ in group]
                weights = np.array([w for _, w in group])
                matrix[np.ix_(at, at)] = np.outer(weights, weights)
            found[name] = matrix
        mean = np.array([row.relative for row in self.rows]) ** 2
        found["noise_mean"] = np.diag(mean)
        found["noise_logit"] = np.eye(size)
        found["noise_b"] = np.diag(mean * [row.grade == "B" for row in self.rows])
        return found

    @cached_property
    def given(self) -> Matrix:
        """Covariance that is not fitted: of chains that were told from trees."""
        return np.diag([1e-6 + row.tree_variance for row in self.rows])

    @cached_property
    def z(self) -> Matrix:
        return np.array([row.z for row in self.rows])

    @cached_property
    def mean(self) -> float:
        return float(self.z.mean())

    @cached_property
    def precision(self) -> Matrix:
        total = self.given.copy()
        for name, part in self.parts.items():
            total += self.variances[name] * part
        return np.asarray(np.linalg.inv(total), dtype=np.float64)

    @cached_property
    def pull(self) -> Matrix:
        return np.asarray(self.precision @ (self.z - self.mean))

    def without(self, at: list[int]) -> tuple[Matrix, Matrix]:
        """Mean and variance of rows `at` given all others (noise of a new row included)."""
        block = np.linalg.inv(self.precision[np.ix_(at, at)])
        return np.asarray(self.z[at] - block @ self.pull[at]), np.diag(block)

    def shared(self) -> dict[str, dict[str, list[float]]]:
        """Mean and standard deviation of the shared effects outside the bases, by name and key."""
        columns: dict[str, dict[str, Matrix]] = defaultdict(dict)
        for i, row in enumerate(self.rows):
            for name, key, weight in effects(row.condition):
                if name in SHARED and name not in BASE:
                    columns[name].setdefault(key, np.zeros(len(self.rows)))[i] = weight
        found: dict[str, dict[str, list[float]]] = {}
        for name, members in columns.items():
            v = self.variances[name]
            found[name] = {
                key: [round(float(v * w @ self.pull), 4),
                      round(math.sqrt(max(0.0, v - v * v * float(w @ self.precision @ w))), 4)]
                for key, w in sorted(members.items())
            }
        return found

    def bases(self) -> dict[str, dict[str, object]]:
        """Level and slope of every kind of drafter on every kind of work, with what of their
        variance is common to a kind's work, and what is each work's own."""
        seen: dict[tuple[str, str], Matrix] = {}
        for i, row in enumerate(self.rows):
            for name, key, weight in effects(row.condition):
                if name in BASE:
                    seen.setdefault((name, key), np.zeros(len(self.rows)))[i] = weight
        found = {}
        for kind in drafter_kinds():
            # Per work two rows: the level at the reference depth, and the slope.
            parts: list[dict[tuple[str, str], float]] = []
            for work in WORKS:
                deep = {(n, k): w for n, k, w in base_effects(kind, work, REFERENCE_DEPTH)}
                flat = {(n, k): w for n, k, w in base_effects(kind, work, 0.0)}
                slope = {(n, k): w for n, k, w in base_effects(kind, work, 1.0)}
                parts += [deep, {key: slope[key] - flat[key] for key in slope}]
            cross = np.array([
                sum((w * self.variances[key[0]] * seen[key] for key, w in one.items()
                     if key in seen and w), np.zeros(len(self.rows)))
                for one in parts
            ])
            before = np.array([
                [sum(w * b.get(key, 0.0) * self.variances[key[0]] for key, w in a.items())
                 for b in parts] for a in parts
            ])
            mean = cross @ self.pull
            after = before - cross @ self.precision @ cross.T
            levels = after[::2, ::2]
            others = levels[~np.eye(len(WORKS), dtype=bool)]
            common = max(0.0, float(np.median(others)))
            found[kind] = {
                "sd": round(math.sqrt(common), 4),
                "slope_sd": round(math.sqrt(float(np.median(np.diag(after)[1::2]))), 4),
                "works": {
                    work: [round(self.mean + float(mean[2 * i]), 4),
                           round(float(mean[2 * i + 1]), 4),
                           round(math.sqrt(max(0.0, float(levels[i, i]) - common)), 4)]
                    for i, work in enumerate(WORKS)
                },
            }
        return found


def fit(rows: list[MeasuredAcceptance]) -> Normal:
    """The variances of largest marginal likelihood."""
    model = Normal(rows, {})
    parts, y = model.parts, model.z - model.mean
    names = list(parts)

    def loss(x: Matrix) -> tuple[float, Matrix]:
        v = np.exp(x)
        total = sum(v[j] * parts[name] for j, name in enumerate(names)) + model.given
        inverse = np.linalg.inv(total)
        pull = inverse @ y
        _, log_determinant = np.linalg.slogdet(total)
        miss = np.outer(pull, pull) - inverse
        slope = np.array(
            [-0.5 * v[j] * float((miss * parts[name]).sum()) for j, name in enumerate(names)]
        )
        away = (x - PRIOR_LOG_VARIANCE) / PRIOR_WIDTH
        value = 0.5 * (float(y @ pull) + log_determinant + float(away @ away))
        return value, slope + away / PRIOR_WIDTH

    start = np.array([0.0 if n in ("noise_mean", "noise_b") else math.log(0.02) for n in names])
    found = minimize(loss, start, jac=True, method="L-BFGS-B",
                     bounds=[(-12.0, 3.0)] * len(names), options={"maxiter": 60})
    model.variances = {n: float(np.exp(x)) for n, x in zip(names, found.x, strict=True)}
    return model


def groups_by(rows: list[MeasuredAcceptance], key: str) -> Iterable[list[int]]:
    """Positions of the rows of each line, drafter or target."""
    found: dict[str, list[int]] = defaultdict(list)
    for i, row in enumerate(rows):
        keys = {name: k for name, k, _ in effects(row.condition)}
        found[row.line if key == "line" else keys[key]].append(i)
    return found.values()


def widening(model: Normal) -> dict[str, float]:
    """Factor on a kind's standard deviation with which 90% of its left-out rows are inside the
    90% interval; kinds of few rows take that of all of these together."""
    ratios: dict[str, list[float]] = defaultdict(list)
    for at in groups_by(model.rows, "line"):
        mean, variance = model.without(at)
        for i, m, v in zip(at, mean, variance, strict=True):
            row = model.rows[i]
            if row.own_k:
                ratios[row.condition.kind].append(abs(row.z - m) / math.sqrt(v))
    few = [r for found in ratios.values() if len(found) < FEWEST_ROWS for r in found]
    return {
        kind: round(max(1.0, float(np.quantile(found if len(found) >= FEWEST_ROWS else few, 0.9))
                        / QUANTILE_90), 3)
        for kind, found in sorted(ratios.items())
    }


def draft_share(model: Normal) -> dict[str, dict[str, object]]:
    """By kind of drafter that skips steps: logit of the share of steps with a draft = a + b z +
    work (drawn to 0 as if by one row without any), and the deviation around it."""
    found: dict[str, dict[str, object]] = {}
    for kind in drafter_kinds():
        rows = [r for r in model.rows if r.own_k and r.condition.kind == kind and skips_steps(kind)]
        if not rows:
            continue
        works = sorted({row.condition.work for row in rows})
        z = np.array([row.z for row in rows])
        share = np.clip([row.draft_share for row in rows], 0.005, 0.995)
        logit = np.log(share / (1.0 - share))
        design = np.column_stack(
            [np.ones_like(z), z, *([row.condition.work == w for row in rows] for w in works)]
        )
        pull = np.diag([0.0, 0.0, *np.ones(len(works))])
        best = np.linalg.solve(design.T @ design + pull, design.T @ logit)
        sd = math.sqrt(float(((logit - design @ best) ** 2).sum()) / (len(rows) - 2))
        found[kind] = {
            "a": round(float(best[0]), 4), "b": round(float(best[1]), 4), "sd": round(sd, 4),
            "works": {w: round(float(x), 4) for w, x in zip(works, best[2:], strict=True)},
        }
    return found


def main() -> None:
    model = fit(observations(measurements()))
    write_json(MODEL, {
        "written_by": "validation/scripts/fit_acceptance.py",
        "rows": len(model.rows),
        "variances": {name: float(f"{v:.4g}") for name, v in model.variances.items()},
        "widening": widening(model),
        "draft_share": draft_share(model),
        "bases": model.bases(),
        "shared": model.shared(),
    })
    for name, v in model.variances.items():
        print(f"{name:20s} {math.sqrt(v):.3f}")


if __name__ == "__main__":
    main()

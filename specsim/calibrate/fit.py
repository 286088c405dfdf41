"""Least squares on log time with priors: values, standard errors, and what the data cannot see.

Minimised over the logarithms x of the parameters, with z = log(predicted / measured) / sd:

    sum over points of 2 (sqrt(1 + z^2) - 1)  +  sum over parameters of ((x - prior) / width)^2

the soft-l1 loss, under which a point that is far off pulls with constant force, and Gaussian
priors. A point's sd is its own noise and what the model itself cannot describe of its kind: the
latter is estimated from the residuals (1.4826 x their median size, beyond the noise), in rounds.

Standard errors are those of the posterior, the inverse of J'J + priors at the solution. A parameter
of which the data tell less than its prior does (its posterior width above SEEN of the prior's) is
one that they cannot see: it goes back to its prior's value, is named, and the rest is fitted again,
blindest first. Pairs that only their combination determines have a correlation near 1 or -1.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

import numpy as np
from numpy.typing import NDArray

from specsim.calibrate.parameters import Parameter
from specsim.errors import CalibrationError

Floats = NDArray[np.float64]
SEEN = math.sqrt(0.5)  # of the prior's width: there the data say as much as the prior
TOLD_APART = 0.9  # correlation above which a pair is named
ROUNDS = 3
LEAST_MODEL_SD = 0.005
_STEP = 1e-4  # of a logarithm, for derivatives


@dataclass(frozen=True, slots=True)
class FitPoint:
    """One point. kind: points whose model error is alike. group: points of one shape, left out
    together. parameters: indices of those its prediction depends on (None: all)."""

    key: str
    kind: str
    group: str
    seconds: float
    noise: float
    tables: tuple[str, ...] = ()


# Predicted seconds, at parameter values, of the observations with these indices.
Predictor = Callable[[Mapping[Parameter, float], Sequence[int]], list[float]]


@dataclass(frozen=True)
class Fit:
    """values: of all parameters, blind ones at their priors. sd: relative standard errors (of a
    blind one: its prior's). blind: not seen by the data. pairs: (name, name, correlation) that the
    data hardly tell apart. errors: predicted / measured - 1 per observation. model_sd: by kind."""

    values: Mapping[Parameter, float]
    sd: Mapping[Parameter, float]
    blind: tuple[Parameter, ...]
    pairs: tuple[tuple[str, str, float], ...]
    errors: tuple[float, ...]
    model_sd: Mapping[str, float]


@dataclass
class FitProblem:
    """Observations, parameters and what predicts them."""

    observations: Sequence[FitPoint]
    parameters: Sequence[Parameter]
    predict: Predictor
    _touch: list[list[int]] = field(init=False)

    def __post_init__(self) -> None:
        if not self.observations:
            raise CalibrationError(
                "no points are left to fit; give records of kernels (parts A to D, F, G)"
            )
        self._log = np.log([o.seconds for o in self.observations])
        self._noise = np.array([o.noise for o in self.observations])
        self._touch = [
            [i for i, o in enumerate(self.observations)
             if not o.tables or any(table in o.tables for table, _ in p.targets)]
            for p in self.parameters
        ]

    # ------------------------------------------------------------------ prediction

    def logs(self, values: Mapping[Parameter, float], which: Sequence[int]) -> Floats:
        return np.log(np.maximum(self.predict(values, which), 1e-12))

    def jacobian(
        self, free: Sequence[Parameter], values: dict[Parameter, float], at: Floats,
        rows: Sequence[int],
    ) -> Floats:
        """d log(predicted) / d log(parameter); a point is asked only about what it depends on."""
        out = np.zeros((len(rows), len(free)))
        place = {row: i for i, row in enumerate(rows)}
        for column, parameter in enumerate(free):
            touched = [i for i in self._touch[self.parameters.index(parameter)] if i in place]
            if not touched:
                continue
            # Away from a bound, so that a clamped value is not stepped over.
            step = _STEP if values[parameter] * math.exp(_STEP) <= parameter.high else -_STEP
            moved = {**values, parameter: values[parameter] * math.exp(step)}
            places = [place[i] for i in touched]
            out[places, column] = (self.logs(moved, touched) - at[places]) / step
        return out

    # ------------------------------------------------------------------ fitting

    def fit(self) -> Fit:
        """Fit to all observations."""
        rows = list(range(len(self.observations)))
        seen = {i for touched in self._touch for i in touched}
        if not seen:
            raise CalibrationError("none of the points depends on a parameter of the fit")
        values = {p: p.start for p in self.parameters}
        blind = tuple(p for p, touched in zip(self.parameters, self._touch, strict=True)
                      if not touched)
        model_sd: Mapping[str, float] = {o.kind: 0.1 for o in self.observations}
        while True:
            free = [p for p in self.parameters if p not in blind]
            for _ in range(ROUNDS):
                values, jacobian, weights = self._solve(free, values, rows, model_sd)
                model_sd = self._model_sd(values, rows)
            ratio = _posterior(free, jacobian, weights)[0]
            worst = max(range(len(free)), key=lambda i: ratio[i], default=None)
            if worst is None or ratio[worst] <= SEEN:
                return self._result(free, values, rows, model_sd, blind)
            blind = (*blind, free[worst])
            values = {**values, free[worst]: free[worst].start}

    def _solve(
        self, free: Sequence[Parameter], values: Mapping[Parameter, float], rows: Sequence[int],
        model_sd: Mapping[str, float],
    ) -> tuple[dict[Parameter, float], Floats, Floats]:
        """(values, Jacobian, weights of the points) at the minimum."""
        from scipy.optimize import least_squares

        sd = self._sd(rows, model_sd)
        width = np.array([p.width for p in free])
        centre = np.log([p.start for p in free])
        fixed = dict(values)

        def at(x: Floats) -> dict[Parameter, float]:
            return {**fixed, **{p: math.exp(v) for p, v in zip(free, x, strict=True)}}

        known: dict[bytes, Floats] = {}  # the last of each
        slopes: dict[bytes, Floats] = {}

        def logs(x: Floats) -> Floats:
            key = x.tobytes()
            if key not in known:
                known.clear()
                known[key] = self.logs(at(x), rows)
            return known[key]

        def bare(x: Floats) -> Floats:
            key = x.tobytes()
            if key not in slopes:
                slopes.clear()
                slopes[key] = self.jacobian(free, at(x), logs(x), rows)
            return slopes[key]

        def residuals(x: Floats) -> Floats:
            z = (logs(x) - self._log[rows]) / sd
            return np.concatenate([_soft(z), (x - centre) / width])

        def jacobian(x: Floats) -> Floats:
            z = (logs(x) - self._log[rows]) / sd
            slope = _soft_slope(z) / sd
            own = bare(x) * slope[:, None]
            return np.concatenate([own, np.diag(1.0 / width)])

        if not free:
            return fixed, np.zeros((len(rows), 0)), 1.0 / sd
        low, high = np.log([p.low for p in free]), np.log([p.high for p in free])
        x0 = np.clip(np.log([values[p] for p in free]), low + 1e-9, high - 1e-9)
        x: Floats = least_squares(
            residuals, x0, jac=jacobian, bounds=(low, high), x_scale="jac", xtol=1e-7, ftol=1e-8,
            max_nfev=60,
        ).x
        z = (logs(x) - self._log[rows]) / sd
        return at(x), bare(x), 1.0 / (sd * (1.0 + z * z) ** 0.25)

    def _sd(self, rows: Sequence[int], model_sd: Mapping[str, float]) -> Floats:
        own = np.array([model_sd[self.observations[i].kind] for i in rows])
        found: Floats = np.hypot(self._noise[rows], own)
        return found

    def _model_sd(
        self, values: Mapping[Parameter, float], rows: Sequence[int]
    ) -> Mapping[str, float]:
        """What the model leaves unexplained, by kind of point, beyond the points' own noise."""
        gaps = self.logs(values, rows) - self._log[rows]
        by_kind: dict[str, list[tuple[float, float]]] = defaultdict(list)
        for i, gap in zip(rows, gaps, strict=True):
            by_kind[self.observations[i].kind].append((abs(float(gap)), self._noise[i]))
        out = {o.kind: LEAST_MODEL_SD for o in self.observations}
        for kind, found in by_kind.items():
            size = 1.4826 * median(gap for gap, _ in found)
            noise = median(noise for _, noise in found)
            out[kind] = max(LEAST_MODEL_SD, math.sqrt(max(0.0, size**2 - noise**2)))
        return out

    def _result(
        self, free: Sequence[Parameter], values: Mapping[Parameter, float], rows: Sequence[int],
        model_sd: Mapping[str, float], blind: tuple[Parameter, ...],
    ) -> Fit:
        here = self.logs(values, rows)
        sd = self._sd(rows, model_sd)
        z = (here - self._log[rows]) / sd
        weights = 1.0 / (sd * (1.0 + z * z) ** 0.25)
        jacobian = self.jacobian(free, dict(values), here, rows)
        ratio, correlation = _posterior(free, jacobian, weights)
        errors = np.exp(here - self._log[rows]) - 1
        pairs = [
            (free[i].name, free[j].name, round(float(correlation[i, j]), 3))
            for i in range(len(free)) for j in range(i)
            if abs(correlation[i, j]) > TOLD_APART
        ]
        widths = {p: p.width for p in blind}
        widths |= {p: float(r) * p.width for p, r in zip(free, ratio, strict=True)}
        return Fit(
            {p: values[p] for p in self.parameters}, {p: widths[p] for p in self.parameters}, blind,
            tuple(sorted(pairs, key=lambda pair: -abs(pair[2]))), tuple(errors.tolist()), model_sd,
        )

    def leave_out(
        self, fit: Fit, tell: Callable[[int, int], None] | None = None
    ) -> dict[str, list[float]]:
        """Errors (predicted / measured - 1) of each group's points, fitted without the group from
        `fit` on, whose blind parameters and model errors are kept."""
        groups: dict[str, list[int]] = defaultdict(list)
        for i, observation in enumerate(self.observations):
            groups[observation.group].append(i)
        out: dict[str, list[float]] = {}
        if len(groups) < 2:
            return out
        free = [p for p in self.parameters if p not in fit.blind]
        for number, (name, left) in enumerate(groups.items()):
            if tell is not None:
                tell(number, len(groups))
            gone = set(left)
            rest = [i for i in range(len(self.observations)) if i not in gone]
            values = self._solve(free, fit.values, rest, fit.model_sd)[0]
            here = self.logs(values, left)
            out[name] = (np.exp(here - self._log[left]) - 1).tolist()
        return out


def _soft(z: Floats) -> Floats:
    """Residuals whose squares are the soft-l1 loss of z."""
    found: Floats = np.sign(z) * np.sqrt(np.maximum(2.0 * (np.sqrt(1.0 + z * z) - 1.0), 0.0))
    return found


def _soft_slope(z: Floats) -> Floats:
    """Derivative of `_soft`: 1 at 0."""
    root = np.sqrt(1.0 + z * z)
    size = np.sqrt(2.0 * (root - 1.0))
    found: Floats = np.where(np.abs(z) < 1e-4, 1.0, np.abs(z) / root / np.maximum(size, 1e-12))
    return found


def _posterior(
    free: Sequence[Parameter], jacobian: Floats, weights: Floats
) -> tuple[Floats, Floats]:
    """(posterior widths over prior widths, correlations) of the free parameters."""
    scaled = jacobian * weights[:, None] * np.array([p.width for p in free])
    # In units of the prior's width the prior's information is the identity.
    _, singular, turned = np.linalg.svd(scaled, full_matrices=True)
    information = np.zeros(len(free))
    information[: len(singular)] = singular**2
    covariance = (turned.T / (1.0 + information)) @ turned
    ratio = np.sqrt(np.diag(covariance))
    return ratio, covariance / np.outer(ratio, ratio)

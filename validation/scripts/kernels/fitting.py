"""Fitting the parameters of one kernel table to measured rows, and scoring them on rows left out.

The product's own scalar functions are fitted (no second, vectorised copy of the model exists):
least squares on log(predicted / measured) with a robust loss, so that a factor counts alike for
a 5 us and a 5 ms kernel and a few broken cells do not pull. Whole shapes are held out.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType

import numpy as np
from kernels.tables import Row, held_out
from numpy.typing import NDArray
from scipy.optimize import least_squares

from specsim.hardware.profile import HardwareProfile, KernelTable
from specsim.roofline.result import KernelTime

Price = Callable[..., KernelTime]


@dataclass(frozen=True)
class Fit:
    """One kernel table to fit.

    free: parameter -> (start, low, high). fixed: parameters that are not fitted.
    bars: median and p90 of the absolute relative error to reach on held-out rows.
    max_rows: training rows used (every shape is kept, its rows are thinned evenly).
    """

    name: str
    source: str
    measured_on: str
    price: Price
    rows: Sequence[Row]
    free: Mapping[str, tuple[float, float, float]]
    fixed: Mapping[str, float] = field(default_factory=dict)
    bars: tuple[float, float] | None = None
    max_rows: int = 2500
    loss_scale: float = 0.05
    note: str = ""
    key: str = ""  # name in the report where it is not the table's
    excluded: Sequence[Row] = ()  # cells left out as artefacts; scored too, for honesty
    refine: bool = False  # keep the table's other parameters as an earlier fit left them

    @property
    def label(self) -> str:
        return self.key or self.name


@dataclass(frozen=True)
class Score:
    """Absolute relative errors and bias (median of predicted / measured - 1) over n rows."""

    n: int
    shapes: int
    median: float
    p90: float
    bias: float

    @classmethod
    def of(cls, ratio: NDArray[np.float64], shapes: int) -> "Score":
        error = np.abs(ratio)
        return cls(
            len(ratio), shapes, float(np.median(error)), float(np.quantile(error, 0.9)),
            float(np.median(ratio)),
        )

    @classmethod
    def none(cls) -> "Score":
        return cls(0, 0, float("nan"), float("nan"), float("nan"))

    def to_dict(self) -> dict[str, float]:
        if not self.n:
            return {"n": 0}
        return {
            "n": self.n,
            "shapes": self.shapes,
            "median_abs_error": round(self.median, 4),
            "p90_abs_error": round(self.p90, 4),
            "bias": round(self.bias, 4),
        }


@dataclass(frozen=True)
class Fitted:
    fit: Fit
    params: Mapping[str, float]
    fitted_rows: Score
    held_out_rows: Score
    at_bound: tuple[str, ...]
    scheme: str  # how rows were held out
    datasheet: Score  # the plain roofline on the same held-out rows
    with_excluded: Score  # held-out rows and the held-out cells among the excluded ones


def with_table(profile: HardwareProfile, name: str, params: Mapping[str, float]) -> HardwareProfile:
    """The profile with one kernel table set."""
    tables = {**profile.kernels, name: KernelTable(name, MappingProxyType(dict(params)), "fit")}
    return replace(profile, kernels=tables)


def predict(
    profile: HardwareProfile, price: Price, rows: Sequence[Row]
) -> NDArray[np.float64]:
    return np.array([price(profile, **row.kwargs).seconds for row in rows])


def relative(
    profile: HardwareProfile, price: Price, rows: Sequence[Row]
) -> NDArray[np.float64]:
    """Predicted / measured - 1."""
    measured = np.array([row.seconds for row in rows], dtype=np.float64)
    return predict(profile, price, rows) / measured - 1.0


def score(profile: HardwareProfile, price: Price, rows: Sequence[Row]) -> Score:
    return Score.of(relative(profile, price, rows), len({row.group for row in rows}))


def run(fit: Fit, profile: HardwareProfile) -> Fitted:
    """Fits on the shapes that are not held out and scores both halves.

    A table of few shapes is scored by leaving out each shape in turn and then fitted on all;
    one with a single shape cannot be held out.
    """
    fixed = dict(fit.fixed)
    if fit.refine:
        earlier = profile.kernels[fit.name].params
        fixed = {name: value for name, value in earlier.items() if name not in fit.free}
    groups = sorted({row.group for row in fit.rows})
    left_out = [group for group in groups if held_out(group)]
    if len(left_out) >= 2 and len(groups) - len(left_out) >= 2:
        train = [row for row in fit.rows if not held_out(row.group)]
        test = [row for row in fit.rows if held_out(row.group)]
        params, at_bound = fit_rows(fit, profile, fixed, train)
        done = with_table(profile, fit.name, params)
        excluded = [row for row in fit.excluded if held_out(row.group)]
        return Fitted(
            fit, params, score(done, fit.price, train), score(done, fit.price, test), at_bound,
            f"{len(left_out)} of {len(groups)} shapes held out",
            score(profile, plain(fit.price), test),
            score(done, fit.price, test + excluded) if excluded else Score.none(),
        )
    params, at_bound = fit_rows(fit, profile, fixed, list(fit.rows))
    done = with_table(profile, fit.name, params)
    inside = score(done, fit.price, fit.rows)
    sheet = score(profile, plain(fit.price), fit.rows)
    if len(groups) == 1:
        return Fitted(
            fit, params, inside, Score.none(), at_bound, "one shape, none held out", sheet,
            Score.none(),
        )
    ratios: list[float] = []
    for group in groups:
        rest = [row for row in fit.rows if row.group != group]
        test = [row for row in fit.rows if row.group == group]
        without, _ = fit_rows(fit, profile, fixed, rest)
        ratios += relative(with_table(profile, fit.name, without), fit.price, test).tolist()
    outside = Score.of(np.array(ratios), len(groups))
    return Fitted(
        fit, params, inside, outside, at_bound, f"each of {len(groups)} shapes left out in turn",
        sheet, Score.none(),
    )


def plain(price: Price) -> Price:
    """The same kernel priced by the datasheet alone."""
    return partial(price, fidelity="datasheet")


def fit_rows(
    fit: Fit, profile: HardwareProfile, fixed: Mapping[str, float], rows: list[Row]
) -> tuple[dict[str, float], tuple[str, ...]]:
    """Parameters that fit these rows, and the names of those that ended at a bound."""
    used = thin(rows, fit.max_rows)
    names = list(fit.free)
    scale = np.array([abs(fit.free[name][0]) or fit.free[name][2] for name in names])
    start = np.array([fit.free[name][0] for name in names]) / scale
    low = np.array([fit.free[name][1] for name in names]) / scale
    high = np.array([fit.free[name][2] for name in names]) / scale
    measured = np.log([row.seconds for row in used])

    def residuals(z: NDArray[np.float64]) -> NDArray[np.float64]:
        params = {**fixed, **dict(zip(names, (z * scale).tolist(), strict=True))}
        return np.log(predict(with_table(profile, fit.name, params), fit.price, used)) - measured

    found = least_squares(
        residuals, start, bounds=(low, high), loss="soft_l1", f_scale=fit.loss_scale,
        diff_step=[2e-3] * len(names), max_nfev=60,
    )
    values = found.x * scale
    params = {**fixed, **{n: rounded(v) for n, v in zip(names, values, strict=True)}}
    width = high - low
    at_bound = tuple(
        name
        for name, z, lo, hi, w in zip(names, found.x, low, high, width, strict=True)
        if min(z - lo, hi - z) < 1e-3 * w
    )
    return params, at_bound


def thin(rows: list[Row], limit: int) -> list[Row]:
    """Every k-th row, so that all shapes stay."""
    step = max(1, -(-len(rows) // limit))
    return rows[::step] if step == 1 else [row for i, row in enumerate(rows) if i % step == 0]


def rounded(value: float) -> float:
    """Four significant digits: more would claim a precision the data cannot give."""
    return float(f"{value:.4g}")

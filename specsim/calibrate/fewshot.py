"""Few-shot calibration: an engine's overheads for one model, from two or three measured points.

Maximum a posteriori, with the priors of `fewshot_priors` (docs/fewshot.md says what is fitted):

    minimise  r' S^-1 r  +  sum over x^2,   r = ln predicted - ln measured
    parameter = profile's value * exp(width * x)

S is the scatter of the measured values: noise of each, and what times at nearby loads miss together
without missing it at far ones. The posterior's covariance is from the Jacobian at the optimum
(Laplace). `acceptance` of points that state none is the logit of accepted / drafted tokens around
an expected value; it is not part of the engine. Times are seconds, rates tokens/s of one replica.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np
from numpy.typing import NDArray

from specsim.analytic.closed import SteadyState, closed_loop
from specsim.analytic.system import System
from specsim.analytic.workload import Workload
from specsim.calibrate.fewshot_priors import PRIORS, Priors
from specsim.errors import CalibrationError
from specsim.latency.engine_profile import EngineProfile
from specsim.latency.overheads import Overheads
from specsim.speculation.acceptance import Acceptance

Floats = NDArray[np.float64]
METRICS = ("tpot_s", "output_tok_s", "ttft_s", "speedup")
SCALES = ("kernel_scale", "drafter_scale", "expert_scale")
MAX_SIGMAS = 5.0  # a parameter is looked for within so many widths of its prior
MOVED = 0.9  # posterior / prior width above which the points said nothing about a parameter


@dataclass(frozen=True)
class FewShotPoint:
    """One measured load. system: as it was served, on the engine profile the fit starts from.
    concurrency: requests in flight, not always whole. measured: of METRICS; speedup is tokens per
    second against the same load without speculation. acceptance_group: '' where the acceptance of
    the system was measured; otherwise it is only expected, and the points of a group share one."""

    name: str
    system: System
    workload: Workload
    concurrency: float
    measured: Mapping[str, float] = field(default_factory=dict)
    acceptance_group: str = ""
    note: str = ""

    @property
    def speculative(self) -> bool:
        return self.system.speculative


@dataclass(frozen=True, slots=True)
class ParameterEstimate:
    """A parameter: in the profile, which is the centre of its prior (before), and fitted.
    sd_before, sd: of its logarithm (of its logit for an acceptance), before and after. moved:
    whether the points narrowed it."""

    name: str
    before: float
    value: float
    sd_before: float
    sd: float

    @property
    def moved(self) -> bool:
        return self.sd < MOVED * self.sd_before


@dataclass(frozen=True, slots=True)
class PointError:
    """One metric of one point: measured, and predicted by the profile before and after the fit.
    sd: of the logarithm of the prediction after it, without the noise of measuring."""

    point: str
    metric: str
    speculative: bool
    measured: float
    before: float
    after: float
    sd: float

    @property
    def error_before(self) -> float:
        return self.before / self.measured - 1

    @property
    def error_after(self) -> float:
        return self.after / self.measured - 1


@dataclass(frozen=True)
class Solution:
    """Where a fit ended. x: of every parameter, in widths of its prior from the profile's value;
    covariance: of x. start: the profile that the fit began from."""

    names: tuple[str, ...]
    x: tuple[float, ...]
    covariance: Floats
    priors: Priors
    start: EngineProfile

    def system(self, point: FewShotPoint, x: Sequence[float] | None = None) -> System:
        """The point's deployment as the fit has it, or as other `x` would."""
        return _at(point, self.start, self.names, self.x if x is None else x, self.priors)


@dataclass(frozen=True)
class FewShotFit:
    """engine: the profile with the fitted numbers. acceptance_rates: accepted / drafted tokens of
    each group of points that did not state an acceptance. unseen: parameters no point can show.
    kept: why the profile was left as it was; empty where it was not."""

    engine: EngineProfile
    estimates: tuple[ParameterEstimate, ...]
    acceptance_rates: Mapping[str, float]
    unseen: tuple[str, ...]
    fitted: tuple[PointError, ...]
    solution: Solution
    kept: str = ""

    @property
    def not_moved(self) -> tuple[str, ...]:
        return tuple(e.name for e in self.estimates if not e.moved)

    def errors(self, points: Sequence[FewShotPoint]) -> tuple[PointError, ...]:
        """Points that were not fitted, predicted before and after."""
        return _errors(self.solution, points)


def predict_point(point: FewShotPoint, system: System) -> dict[str, float]:
    """The point's metrics as predicted for `system`. Between whole numbers of requests in flight
    values are interpolated."""
    low = max(1, math.floor(point.concurrency))
    share = max(0.0, point.concurrency - low)
    out = _whole(point, system, low)
    if share > 1e-9:
        above = _whole(point, system, low + 1)
        out = {key: value + share * (above[key] - value) for key, value in out.items()}
    return out


def _whole(point: FewShotPoint, system: System, concurrency: int) -> dict[str, float]:
    state = closed_loop(system, point.workload, concurrency)
    found = {"tpot_s": state.tpot_s, "output_tok_s": state.output_tok_s, "ttft_s": state.ttft_s}
    if "speedup" in point.measured:
        base: SteadyState = closed_loop(system.plain(), point.workload, concurrency)
        found["speedup"] = state.output_tok_s / base.output_tok_s
    return found


def parameters(
    points: Sequence[FewShotPoint], engine: EngineProfile, priors: Priors
) -> tuple[str, ...]:
    """What the points can show at all, of what the engine has (an overhead of 0 stays 0)."""
    spec = [p for p in points if p.speculative]
    drafted = [p for p in spec if not p.system.setup.drafting.lookup]
    shown = {
        "acceptance": False,
        "spec_step_s": bool(spec), "spec_seq_s": bool(spec),
        "drafter_scale": bool(drafted), "draft_pass_s": bool(drafted),
        "ngram_seq_s": len(drafted) < len(spec),
        "tree_pass_s": any(p.system.setup.tree_topk > 1 for p in spec),
        "expert_scale": any(p.system.spec.has_experts for p in points),
        "mixed_step_s": any(p.concurrency > 1 for p in points),
        "sync_s": any(p.system.parallel.gpus > 1 for p in points),
        "request_s": any("ttft_s" in p.measured for p in points),
    }
    names = [name for name in priors.widths if shown.get(name, True)
             and (name in SCALES or getattr(engine.overheads, name) > 0)]
    groups = dict.fromkeys(p.acceptance_group for p in spec if p.acceptance_group)
    return (*names, *(f"acceptance:{group}" for group in groups))


def fit(
    points: Sequence[FewShotPoint], engine: EngineProfile, priors: Priors = PRIORS
) -> FewShotFit:
    """Maximum a posteriori over all points together, or the profile as it is where that predicts
    the points better than fits to the others do. CalibrationError when nothing is measured."""
    if not any(p.measured for p in points):
        raise CalibrationError(
            "none of the points has a time per token, a throughput or a time to first token; a fit "
            "needs at least one"
        )
    if all(p.system.profile.arch == "cpu" for p in points):
        step_s = min(_step_s(p) for p in points)
        priors = priors.on_cpu(step_s, points[0].system.profile.name)
    solution = _solve(points, engine, priors)
    kept = _no_better(points, engine, priors)
    if kept:
        solution = replace(solution, x=(0.0,) * len(solution.x))
    names, best = solution.names, solution.x
    estimates, rates = [], {}
    for i, name in enumerate(names):
        before, value = _values(name, best[i], points, engine, priors)
        width = priors.width(name)
        if name == "step_s" and priors.host_s:
            width = priors.host_s / max(value, 1e-9)
        sd = width if kept else width * math.sqrt(float(solution.covariance[i, i]))
        estimates.append(ParameterEstimate(name, before, value, width, sd))
        if name.startswith("acceptance:"):
            rates[name.split(":", 1)[1]] = value
    known = {n.split(":")[0] for n in names}
    shown = [f.name for f in fields(Overheads) if getattr(engine.overheads, f.name) > 0]
    unseen = tuple(n for n in (*SCALES, *shown) if n not in known)
    return FewShotFit(
        engine_at(engine, names, best, priors), tuple(estimates), rates, unseen,
        _errors(solution, points), solution, kept,
    )


def _solve(points: Sequence[FewShotPoint], engine: EngineProfile, priors: Priors) -> Solution:
    from scipy.optimize import least_squares

    names = parameters(points, engine, priors)
    measured = [(metric, math.log(p.concurrency)) for p in points for metric in p.measured]
    whiten = np.linalg.inv(np.linalg.cholesky(np.array(priors.scatter(measured))))

    def cost(x: Floats) -> Floats:
        values = x.tolist()
        out = [term for p in points for term in _misses(p, _at(p, engine, names, values, priors))]
        return np.concatenate([whiten @ np.array(out), x])

    done = least_squares(
        cost, np.zeros(len(names)), bounds=(-MAX_SIGMAS, MAX_SIGMAS), x_scale=1.0, max_nfev=60,
    )
    slopes = np.asarray(done.jac)
    best: list[float] = done.x.tolist()
    return Solution(names, tuple(best), np.linalg.inv(slopes.T @ slopes), priors, engine)


def _no_better(points: Sequence[FewShotPoint], engine: EngineProfile, priors: Priors) -> str:
    """Why the profile is kept: loads, each predicted by a fit to the others, are missed by at
    least as much as the profile misses them. '' where fits do better, or nothing can tell: a load
    beyond all others of its side shows what going on from them costs, not whether a fit is right.
    """
    sides: dict[bool, dict[float, list[FewShotPoint]]] = {False: {}, True: {}}
    for point in points:
        if point.measured:
            sides[point.speculative].setdefault(point.concurrency, []).append(point)
    between = [
        found[load] for found in sides.values() for load in sorted(found)[1:-1]
    ]
    before, after = [], []
    for left in between:
        others = _solve([p for p in points if p not in left], engine, priors)
        for p in left:
            before += [abs(miss) for miss in _misses(p, p.system)]
            after += [abs(miss) for miss in _misses(p, others.system(p))]
    if sum(after) < sum(before) or not before:
        return ""
    was, found = sum(before) / len(before), sum(after) / len(after)
    return (
        f"loads between others, each predicted by a fit to the others, are off by {found:.1%} on "
        f"average, and by {was:.1%} without a fit: the points do not bear one another out, so the "
        "profile was left as it is"
    )


def _step_s(point: FewShotPoint) -> float:
    """Seconds of a decoding step of the point."""
    system = point.system
    return closed_loop(system, point.workload, max(1, math.floor(point.concurrency))).step_s


CALIBRATED = "calibration"  # source of a profile that a calibration wrote


def engine_at(
    engine: EngineProfile, names: Sequence[str], x: Sequence[float], priors: Priors
) -> EngineProfile:
    """The engine with parameters moved by `x` prior widths, within what a profile may hold."""
    over, scales = {}, {}
    for name, step in zip(names, x, strict=True):
        if name in SCALES:
            moved = getattr(engine, name) * math.exp(priors.width(name) * float(step))
            scales[name] = min(20.0, max(0.05, moved))
        elif name == "step_s" and priors.host_s:
            moved = engine.overheads.step_s + priors.host_s * math.sinh(step)
            over[name] = min(0.999, max(0.0, moved))
        elif not name.startswith("acceptance:"):
            moved = getattr(engine.overheads, name) * math.exp(priors.width(name) * float(step))
            over[name] = min(0.999, moved)
    return replace(engine, overheads=replace(engine.overheads, **over), **scales)


def on_engine(system: System, engine: EngineProfile) -> System:
    """The system with the overheads and factors of `engine`; priced kernels are shared."""
    return system.with_overheads(
        engine.overheads, **{name: getattr(engine, name) for name in SCALES}
    )


def moved_rate(rate: float, shift: float) -> float:
    """A rate moved by `shift` on the logit scale."""
    rate = min(1 - 1e-6, max(1e-6, rate))
    return 1 / (1 + math.exp(-(math.log(rate / (1 - rate)) + shift)))


def _expected_rate(system: System) -> float:
    found = system.acceptance
    return (found.expected_tokens(system.setup.k) - 1) / system.setup.k if found else 0.0


def _at(
    point: FewShotPoint, engine: EngineProfile, names: Sequence[str], x: Sequence[float],
    priors: Priors,
) -> System:
    """The point's system with parameters moved by `x` prior widths."""
    moved = engine_at(engine, names, x, priors)
    system = on_engine(point.system, moved)
    group = f"acceptance:{point.acceptance_group}"
    if point.acceptance_group and group in names:
        shift = priors.width("acceptance") * float(x[list(names).index(group)])
        rate = moved_rate(_expected_rate(point.system), shift)
        old = point.system.acceptance
        share = old.draft_probability if old is not None else 1.0
        fresh = Acceptance.from_mean_rate(rate, system.setup.k, source="calibrated")
        system = system.with_(acceptance=replace(fresh, draft_probability=share))
    return system


def _misses(point: FewShotPoint, system: System) -> list[float]:
    """ln predicted - ln measured of each metric."""
    found = predict_point(point, system)
    return [math.log(found[metric]) - math.log(value) for metric, value in point.measured.items()]


def _values(
    name: str, x: float, points: Sequence[FewShotPoint], engine: EngineProfile, priors: Priors
) -> tuple[float, float]:
    """(in the profile, after) of a parameter in its own unit."""
    if name.startswith("acceptance:"):
        group = name.split(":", 1)[1]
        rate = next(_expected_rate(p.system) for p in points if p.acceptance_group == group)
        return rate, moved_rate(rate, priors.width(name) * x)
    before, after = (
        float(getattr(at if name in SCALES else at.overheads, name))
        for at in (engine, engine_at(engine, (name,), (x,), priors))
    )
    return before, after


def _errors(solution: Solution, points: Sequence[FewShotPoint]) -> tuple[PointError, ...]:
    x, step = solution.x, 1e-3
    out = []
    for point in points:
        before = predict_point(point, point.system)
        after = predict_point(point, solution.system(point))
        slopes: dict[str, list[float]] = {metric: [] for metric in point.measured}
        for i in range(len(x)):
            near = (*x[:i], x[i] + step, *x[i + 1 :])
            shifted = predict_point(point, solution.system(point, near))
            for metric, found in slopes.items():
                found.append(math.log(shifted[metric] / after[metric]) / step)
        for metric, value in point.measured.items():
            slope = np.array(slopes[metric])
            sd = math.sqrt(max(0.0, float(slope @ solution.covariance @ slope)))
            out.append(
                PointError(point.name, metric, point.speculative, value, before[metric],
                           after[metric], sd)
            )
    return tuple(out)

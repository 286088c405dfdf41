"""How far servers differ from their engine's profile: the widths of the few-shot priors.

Every public row that can be predicted says by how much a prediction missed, and how that miss
depends on each parameter of the engine. Rows of one server (set, model, GPU, GPUs, method) share
their parameters; servers differ. With residuals y = ln measured - ln predicted and slopes J of one
server's rows,

    y ~ t_4( 0, J diag(width^2) J' + diag(noise^2) + shared^2 exp(-|ln c - ln c'| / reach) )

(the last term between times at the loads c and c'), and the numbers chosen are those under which
all servers together are most likely (a t distribution with four degrees of freedom, so that one odd
server does not set a width). Hyperpriors hold what the rows hardly see: a width near 0.5
(log-normal, 0.8 wide, at most 1); noise and shared scatter near 5% (0.5 wide); the reach near one
decade of load (0.5 wide). The width of 'acceptance' is the scatter of the catalogue's measurements
around the answer it gives for their model and method.

`without` gives the engine profiles as they come out when one set is left out of the
general fit (fit_engines.py), so that a set can be judged that took part in it.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import fit_engines as general
import numpy as np
from common import LOSO, read_json
from scipy.optimize import minimize

from specsim.accuracy.lookups import source_of
from specsim.accuracy.rows import PublishedCase
from specsim.accuracy.score import read_rows, score_rows
from specsim.analytic.system import System
from specsim.calibrate.fewshot import FewShotPoint, engine_at, on_engine, parameters, predict_point
from specsim.calibrate.fewshot_priors import PRIORS, TIMES, Priors
from specsim.errors import SpecSimError
from specsim.latency.engine import list_engines
from specsim.latency.engine_profile import EngineProfile
from specsim.speculation.acceptance_catalogue import WORKS, measurements
from specsim.speculation.resolve import AcceptanceQuery, resolve

HYPER = (math.log(0.5), 0.8)
NOISE_HYPER = (math.log(0.05), 0.5)
REACH_HYPER = (math.log(math.log(10.0)), 0.5)
# Of a width or noise. Beyond a factor of e, residuals taken as linear in a parameter mean nothing.
LIMITS = (math.log(0.005), 0.0)
FREEDOM = 4.0
NOISES = ("tpot_s", "ttft_s", "speedup")
FITTED = [name for name in PRIORS.widths if name != "acceptance"]
ONE = Priors(dict.fromkeys(PRIORS.widths, 1.0), dict.fromkeys(PRIORS.noise, 1.0))


def points_of(case: PublishedCase) -> list[FewShotPoint]:
    """Both sides of a row whose acceptance is known (or that has none)."""
    out = []
    measured = dict(case.measured)
    sides = [("baseline", case.system.plain())]
    if case.acceptance_length is not None:
        sides.append(("spec", case.system))
    for side, system in sides:
        found = {}
        if f"{side}_tpot_s" in measured:
            found["tpot_s"] = measured[f"{side}_tpot_s"]
        elif f"{side}_output_tok_s" in measured and (
            case.lengths_stated or case.concurrency == 1
        ):
            found["output_tok_s"] = measured[f"{side}_output_tok_s"]
        if "ttft_s" in measured and (side == "spec" or not case.system.speculative):
            found["ttft_s"] = measured["ttft_s"]
        if side == "spec" and not found and "speedup" in measured:
            found["speedup"] = measured["speedup"]
        if found:
            name = f"{case.row_id} {side}"
            out.append(FewShotPoint(name, system, case.workload, case.concurrency, found))
    return out


@dataclass(frozen=True)
class Observed:
    """Residuals of one server's points, their slopes over FITTED, the index in NOISES of each, and
    how far apart in ln(concurrency) they were measured (infinite where one is not a time)."""

    residuals: Any
    slopes: Any
    kinds: Any
    apart: Any


def slopes(points: Sequence[FewShotPoint]) -> Observed:
    """Of one server's points."""
    y, rows, kinds, loads = [], [], [], []
    for point in points:
        engine = point.system.engine
        names = parameters([point], engine, ONE)
        base = predict_point(point, point.system)
        moved = {}
        for name in names:
            at = engine_at(engine, (name,), (1e-3,), ONE)
            moved[name] = predict_point(point, on_engine(point.system, at))
        for metric, value in point.measured.items():
            if not base[metric] > 0:  # one output token has no time per token
                continue
            y.append(math.log(value / base[metric]))
            rows.append([
                math.log(moved[n][metric] / base[metric]) / 1e-3 if n in moved else 0.0
                for n in FITTED
            ])
            kinds.append(NOISES.index("tpot_s" if metric == "output_tok_s" else metric))
            # A rate is the inverse of a time: turned round, both miss alike.
            loads.append(math.log(point.concurrency) if metric in TIMES else math.nan)
            if TIMES.get(metric) == -1:
                y[-1], rows[-1] = -y[-1], [-value for value in rows[-1]]
    apart = np.abs(np.subtract.outer(loads, loads))
    return Observed(
        np.array(y), np.array(rows), np.array(kinds), np.where(np.isnan(apart), math.inf, apart)
    )


def all_cases() -> dict[str, list[PublishedCase]]:
    """Rows of the public files by server."""
    groups: dict[str, list[PublishedCase]] = defaultdict(list)
    for name in general.FILES:
        for case in score_rows(read_rows(name)).cases:
            groups[general.group_of(case)].append(case)
    return groups


def observed(
    groups: Mapping[str, Sequence[PublishedCase]]
) -> dict[str, Observed]:
    """Residuals and slopes of up to ten rows of every server."""
    out = {}
    for name, cases in groups.items():
        step = max(1, len(cases) // general.ROWS_PER_GROUP)
        some = list(cases)[::step][: general.ROWS_PER_GROUP]
        points = [point for case in some for point in points_of(case)]
        found = slopes(points)
        if found.residuals.size:
            out[name] = found
    return out


def widths(servers: Iterable[Observed]) -> Priors:
    """Widths and scatter under which the residuals of these servers are most likely."""
    data, count = list(servers), len(FITTED)
    kinds = len(NOISES)
    means = np.array([HYPER[0]] * count + [NOISE_HYPER[0]] * (kinds + 1) + [REACH_HYPER[0]])
    spreads = np.array([HYPER[1]] * count + [NOISE_HYPER[1]] * (kinds + 1) + [REACH_HYPER[1]])

    def loss(x: Any) -> tuple[float, Any]:
        """The negative log likelihood with the hyperpriors', and its slopes."""
        spread, noise = np.exp(2 * x[:count]), np.exp(2 * x[count:-2])
        shared, reach = math.exp(2 * x[-2]), math.exp(x[-1])
        total, found = 0.0, np.zeros_like(x)
        for server in data:
            y, jac, kind, apart = (
                server.residuals, server.slopes, server.kinds, server.apart)
            alike = shared * np.exp(-apart / reach)
            cov = (jac * spread) @ jac.T + np.diag(noise[kind]) + alike
            inverse = np.linalg.inv(cov)
            z = inverse @ y
            size = float(y @ z)
            total += np.linalg.slogdet(cov)[1] / 2
            total += (FREEDOM + len(y)) / 2 * math.log1p(size / FREEDOM)
            # d loss = sum of (inverse - weight z z') * d cov / 2
            pull = inverse - (FREEDOM + len(y)) / (FREEDOM + size) * np.outer(z, z)
            found[:count] += spread * np.einsum("ji,jk,ki->i", jac, pull, jac)
            np.add.at(found, count + kind, noise[kind] * np.diag(pull))
            found[-2] += (pull * alike).sum()
            bounded = np.where(np.isinf(apart), 0.0, apart)
            found[-1] += (pull * alike * bounded).sum() / reach / 2
        hyper = (x - means) / spreads
        return float(total + hyper @ hyper / 2), found + hyper / spreads

    limits = [LIMITS] * (count + kinds + 1) + [(math.log(0.1), math.log(20.0))]
    done = minimize(loss, means, jac=True, method="L-BFGS-B", bounds=limits)
    values = np.exp(done.x).tolist()
    noise = dict(zip(NOISES, values[count:-2], strict=True))
    noise["output_tok_s"] = noise["tpot_s"]
    spread = dict(zip(FITTED, values[:count], strict=True))
    return Priors(
        {**spread, "acceptance": acceptance_width()}, noise, values[-2], values[-1],
    )


def acceptance_width() -> float:
    """Root mean square of logit(measured) - logit(the catalogue's answer), over data sets."""
    found = []
    for line in measurements():
        if line.tree_topk != 1 or line.work not in WORKS:
            continue
        try:
            expected = resolve(AcceptanceQuery(line.model, line.method), line.k)
        except SpecSimError:
            continue
        if expected.level != "measured" or line.work == "chat":
            continue
        rates = [(length - 1) / line.k for length in
                 (line.acceptance_length, expected.acceptance.expected_tokens(line.k))]
        if all(0.01 < rate < 0.99 for rate in rates):
            logits = [math.log(rate / (1 - rate)) for rate in rates]
            found.append(logits[0] - logits[1])
    return math.sqrt(sum(value * value for value in found) / len(found))


def without(set_id: str) -> dict[str, EngineProfile]:
    """Engine profiles by 'name-version', as fit_engines.py fitted them without the source of a set.
    What ships, when the set took no part in that fit."""
    shipped = {f"{p.name}-{p.version}": p for p in list_engines()}
    left = read_json(LOSO)["without"].get(source_of(set_id), {})
    return {
        key: replace(p, overheads=replace(p.overheads, **left.get(key, {})))
        for key, p in shipped.items()
    }


def placed(system: System, engines: Mapping[str, EngineProfile]) -> System:
    """The system on other engine profiles."""
    return replace(system, engine=engines[f"{system.engine.name}-{system.engine.version}"])

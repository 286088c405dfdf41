"""How far servers differ from their engine's profile: the widths of the few-shot priors.

Every public row that can be predicted says by how much a prediction missed, and how that miss
depends on each parameter of the engine. Rows of one server (set, model, GPU, GPUs, method) share
their parameters; servers differ. With residuals y = ln measured - ln predicted and slopes J of one
server's rows,

    y ~ t_4( J centre, J diag(width^2) J' + diag(noise^2) )

and the centres, widths and noises chosen are those under which all servers together are most
likely (a t distribution with four degrees of freedom, so that one odd server does not set a
width). Hyperpriors hold what the rows hardly see: a centre (logarithm of a factor on the profile's
value) near 0, 0.5 wide; a width near 0.5 (log-normal, 0.8 wide, at most 1); a noise near 5 % (0.5
wide). The width of 'acceptance' is the scatter of the catalogue's measurements around the answer
it gives for their model and method.

`without` gives the engine profiles as they come out when one set is left out of the
general fit (fit_engines.py), so that a set can be judged that took part in it.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import fit_engines as general
import numpy as np
from common import LOSO, read_json
from scipy.optimize import minimize

from specsim.accuracy.rows import PublishedCase
from specsim.accuracy.score import read_rows, score_rows
from specsim.accuracy.sources import source_of
from specsim.analytic.system import System
from specsim.calibrate.fewshot import FewShotPoint, engine_at, on_engine, parameters, predict_point
from specsim.calibrate.fewshot_priors import PRIORS, Priors
from specsim.errors import SpecSimError
from specsim.latency.engine import list_engines
from specsim.latency.engine_profile import EngineProfile
from specsim.speculation.acceptance_catalogue import lookup, measurements

CENTRE_HYPER = 0.5
HYPER = (math.log(0.5), 0.8)
NOISE_HYPER = (math.log(0.05), 0.5)
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


def slopes(points: Sequence[FewShotPoint]) -> tuple[Any, Any, list[str]]:
    """(y, J over FITTED, metrics) of one server's points."""
    y, rows, kinds = [], [], []
    for point in points:
        engine = point.system.engine
        names = parameters([point], engine, ONE)
        base = predict_point(point, point.system)
        moved = {}
        for name in names:
            at = engine_at(engine, (name,), (1e-3,), ONE)
            moved[name] = predict_point(point, on_engine(point.system, at))
        for metric, value in point.measured.items():
            y.append(math.log(value / base[metric]))
            rows.append([
                math.log(moved[n][metric] / base[metric]) / 1e-3 if n in moved else 0.0
                for n in FITTED
            ])
            kinds.append("tpot_s" if metric == "output_tok_s" else metric)
    return np.array(y), np.array(rows), kinds


def all_cases() -> dict[str, list[PublishedCase]]:
    """Rows of the public files by server."""
    groups: dict[str, list[PublishedCase]] = defaultdict(list)
    for name in general.FILES:
        for case in score_rows(read_rows(name)).cases:
            groups[general.group_of(case)].append(case)
    return groups


def observed(
    groups: Mapping[str, Sequence[PublishedCase]]
) -> dict[str, tuple[Any, Any, list[str]]]:
    """Residuals and slopes of up to ten rows of every server."""
    out = {}
    for name, cases in groups.items():
        step = max(1, len(cases) // general.ROWS_PER_GROUP)
        some = list(cases)[::step][: general.ROWS_PER_GROUP]
        points = [point for case in some for point in points_of(case)]
        if points:
            out[name] = slopes(points)
    return out


def widths(servers: Iterable[tuple[Any, Any, list[str]]]) -> Priors:
    """Widths and noises under which the residuals of these servers are most likely."""
    data = [
        (y, jac, np.array([NOISES.index(kind) for kind in kinds])) for y, jac, kinds in servers
    ]
    count = len(FITTED)

    def loss(x: Any) -> float:
        centre, log_width, log_noise = np.split(x, [count, 2 * count])
        spread, noise = np.exp(2 * log_width), np.exp(2 * log_noise)
        total = 0.0
        for y, jac, kind in data:
            cov = (jac * spread) @ jac.T + np.diag(noise[kind])
            chol = np.linalg.cholesky(cov)
            z = np.linalg.solve(chol, y - jac @ centre)
            total += np.log(np.diag(chol)).sum()
            total += (FREEDOM + len(y)) / 2 * math.log1p(float(z @ z) / FREEDOM)
        hyper = (
            *(centre / CENTRE_HYPER), *((log_width - HYPER[0]) / HYPER[1]),
            *((log_noise - NOISE_HYPER[0]) / NOISE_HYPER[1]),
        )
        return float(total + sum(value * value for value in hyper) / 2)

    start = np.concatenate([
        np.zeros(count), np.full(count, HYPER[0]), np.full(len(NOISES), NOISE_HYPER[0])
    ])
    limits = [(-2.0, 2.0)] * count + [LIMITS] * (count + len(NOISES))
    done = minimize(loss, start, method="L-BFGS-B", bounds=limits)
    centre, log_width, log_noise = np.split(done.x, [count, 2 * count])
    noise = dict(zip(NOISES, np.exp(log_noise).tolist(), strict=True))
    noise["output_tok_s"] = noise["tpot_s"]
    spread = dict(zip(FITTED, np.exp(log_width).tolist(), strict=True))
    return Priors(
        {**spread, "acceptance": acceptance_width()}, noise,
        dict(zip(FITTED, np.exp(centre).tolist(), strict=True)),
    )


def acceptance_width() -> float:
    """Root mean square of logit(measured) - logit(the catalogue's answer), over data sets."""
    found = []
    for line in measurements():
        if line.tree_topk > 1 or line.kind == "random" or not line.k:
            continue
        try:
            match = lookup(line.model, line.method, k=line.k)
        except SpecSimError:
            continue
        if match is None or match.dataset == line.dataset:
            continue
        rates = [(length - 1) / line.k for length in
                 (line.acceptance_length, match.at(line.k).expected_tokens(line.k))]
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

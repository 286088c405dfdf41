"""How far settings of one server miss apart: `settings` of `catalog/fewshot_priors.json`.

Each sweep of `plan_sweeps` with all its runs told is one draw of a multivariate t distribution with
the covariance of `calibrate.beliefs`: causes with the widths of the few-shot priors, and scatter
of a setting alone (own), of draft lengths alike (length), of a drafter (drafter). The three are
chosen under which the sweeps are most likely; a sweep counts one over the root of its source's
sweeps. Hyperprior of each: log-normal around 5%, 0.5 wide, as of the other noises.
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from multiprocessing import Pool
from typing import Any

import numpy as np
from fewshot_priors import FREEDOM, NOISE_HYPER
from plan_sweeps import PlanSweep, forgotten, seen_of, settings_of
from scipy.optimize import minimize

from specsim.calibrate.beliefs import Beliefs
from specsim.calibrate.fewshot_priors import PRIORS

PARTS = ("own", "length", "drafter")


@dataclass(frozen=True)
class Told:
    """A sweep with all runs told. surprise: what was read less what was expected; rest: its
    covariance without the three parts, each of which adds its square times one of `parts`."""

    source: str
    surprise: Any
    rest: Any
    parts: Any


def told(sweep: PlanSweep) -> Told:
    with forgotten(sweep.source):
        settings = settings_of(sweep)
    beliefs = Beliefs(settings)
    seen = [seen_of(sweep, settings, i) for i in range(len(settings))
            if not (sweep.metric == "speedup" and not settings[i].k)]
    joint = beliefs.prior_at(beliefs.most_likely(seen))
    places, values = beliefs.reads(seen)
    at = np.ix_(places, places)
    parts = []
    for name in PARTS:
        one = {part: float(part == name) for part in PARTS}
        alone = Beliefs(settings, replace(PRIORS, settings=one, shared=0.0)).scatter()
        wide = np.zeros_like(joint.covariance)
        wide[: len(settings), : len(settings)] = alone
        parts.append(wide[at])
    rest = joint.covariance[at] + np.diag(joint.noise[places])
    rest -= sum(PRIORS.settings[name] ** 2 * part for name, part in zip(PARTS, parts, strict=True))
    return Told(sweep.source, np.array(values) - joint.mean[places], rest, parts)


def fitted(sweeps: Sequence[Told]) -> Mapping[str, float]:
    """The three under which these sweeps are most likely."""
    counts = Counter(s.source for s in sweeps)

    def loss(x: Any) -> float:
        squares, total = np.exp(2 * x), 0.0
        for s in sweeps:
            cover = s.rest + sum(square * part for square, part in zip(squares, s.parts,
                                                                        strict=True))
            root = np.linalg.cholesky(cover)
            size = float(np.sum(np.linalg.solve(root, s.surprise) ** 2))
            value = float(np.log(np.diag(root)).sum())
            value += (FREEDOM + len(s.surprise)) / 2 * math.log1p(size / FREEDOM)
            total += value / math.sqrt(counts[s.source])
        return total + float(np.sum(((x - NOISE_HYPER[0]) / NOISE_HYPER[1]) ** 2)) / 2

    done = minimize(loss, np.full(len(PARTS), NOISE_HYPER[0]), method="Nelder-Mead",
                    options={"xatol": 0.01, "fatol": 0.01})
    return {name: round(float(math.exp(v)), 4) for name, v in zip(PARTS, done.x, strict=True)}


def by_source(
    sweeps: Sequence[PlanSweep], jobs: int, progress: Callable[[str], None]
) -> dict[str, Mapping[str, float]]:
    """The three from all sweeps ('') and without each source."""
    found: list[Told] = []
    with Pool(jobs) as pool:
        for one in pool.imap(told, sweeps):
            found.append(one)
            progress(f"{len(found)} of {len(sweeps)} sweeps told")
    out = {"": fitted(found)}
    for source in dict.fromkeys(s.source for s in sweeps):
        out[source] = fitted([s for s in found if s.source != source])
        progress(f"without {source}")
    return out

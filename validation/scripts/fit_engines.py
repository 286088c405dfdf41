"""Fits engine overheads on part of the public measurements.

    python validation/scripts/fit_engines.py [--dry]

takes a few minutes; --dry writes nothing.
It rewrites the [overheads] numbers of `engines/*.toml` and `validation/reports/ledger.json`.

What is fitted: per engine profile the wall seconds of `specsim.latency.engine.Overheads` that its
rows can see. Kernel efficiencies come from operator tables alone, the choice of experts from
captures of routers (fit_routing.py); nothing is fitted per model, per GPU or per row.

Which rows: groups of (set, model, GPU, GPUs, method). Per engine profile and side (plain or
speculative) the groups on Hopper devices, whose kernels were measured, are ordered by a hash of
their name and the first three in ten, at least one of two, go to the fit; all others are judged.
Rows of the MindRouter cluster are never fitted. The ledger lists every group on both sides.
"""

import hashlib
import math
import re
import sys
from collections import defaultdict
from dataclasses import replace

import numpy as np
from common import ENGINES, LEDGER, PUBLISHED, SILICON, write_json, write_text
from scipy.optimize import least_squares

from specsim.accuracy.rows import PublishedCase
from specsim.accuracy.score import read_rows, score_case, score_rows
from specsim.analytic.system import System
from specsim.latency.engine import list_engines
from specsim.latency.engine_profile import EngineProfile, Overheads

FILES = (PUBLISHED, SILICON)
NEVER_FITTED = ("MRBLOG", "MR27", "MR122")
# Experts streamed whole, and how far clients move together, were inferred from these: they count as
# fitted, although no number was.
INFERRED_FROM = ("Qwen3-235B-A22B-FP8|vllm", "Llama-3.1-8B-Instruct|sglang")
FIT_SHARE = 0.3
ROWS_PER_GROUP = 10  # a large group must not outvote the others
SPREAD = 0.10  # expected relative scatter of one measurement against a right model
# Prior median and log-normal scale of each overhead: they hold what the rows cannot see near
# what the structure of an engine suggests (a scheduler pass, a graph launch, a kernel gap).
PRIORS: dict[str, tuple[float, float]] = {
    "step_s": (0.5e-3, 0.6),
    "seq_s": (10e-6, 0.7),
    "layer_s": (3e-6, 0.7),
    "sync_s": (3e-6, 0.8),
    "spec_step_s": (0.8e-3, 0.6),
    "spec_seq_s": (8e-6, 0.7),
    "draft_pass_s": (0.15e-3, 0.6),
    "tree_pass_s": (0.15e-3, 0.8),
    "mixed_step_s": (0.5e-3, 0.7),
    "request_s": (10e-3, 0.7),
}
SPECULATIVE = ("spec", "draft", "tree")
# Fewer groups than this could not tell an overhead of the engine from a peculiarity of one model.
MIN_SPECULATIVE_GROUPS = 2
# TTFT depends on the load generator as much as on the server: it is heard, but softly.
WEIGHT = {"tpot": 1.0, "step_cost_ratio": 1.0, "ttft": 0.2}


def group_of(case: PublishedCase) -> str:
    """Name of the group a case is dealt with: fitted and judged rows never share one."""
    system = case.system
    return "|".join(
        (case.set_id, system.spec.name, system.profile.name, str(system.parallel.gpus),
         system.setup.method)
    )


def engine_key(system: System) -> str:
    return f"{system.engine.name}-{system.engine.version}"


def deal(groups: dict[str, list[PublishedCase]]) -> set[str]:
    """The groups that are fitted."""
    pools: dict[tuple[str, bool], list[str]] = defaultdict(list)
    for name, cases in groups.items():
        system = cases[0].system
        if name.split("|", maxsplit=1)[0] in NEVER_FITTED or system.profile.arch != "hopper":
            continue
        pools[engine_key(system), system.speculative].append(name)
    chosen: set[str] = set()
    for names in pools.values():
        if len(names) < 2:
            continue
        names.sort(key=lambda name: hashlib.sha256(name.encode()).digest())
        chosen.update(names[: math.ceil(FIT_SHARE * len(names))])
    return chosen


def weighted(cases: list[PublishedCase], overheads: dict[str, Overheads]) -> np.ndarray:
    """Residuals in units of their spread; every group weighs the same, however many its rows."""
    by_group: dict[str, list[PublishedCase]] = defaultdict(list)
    for case in cases:
        by_group[group_of(case)].append(case)
    parts = []
    for group in by_group.values():
        found = residuals(group, overheads) / SPREAD
        parts.append(found * math.sqrt(ROWS_PER_GROUP / 2 / max(1, len(found))))
    return np.concatenate(parts)


def residuals(cases: list[PublishedCase], overheads: dict[str, Overheads]) -> np.ndarray:
    """ln(predicted / measured) of TPOT on both sides and of r, with these overheads."""
    out: list[float] = []
    for case in cases:
        over = overheads[engine_key(case.system)]
        scores = score_case(replace(case, system=case.system.with_overheads(over)))
        out += [
            math.log(s.predicted / s.measured) * WEIGHT[s.quantity]
            for s in scores
            if s.quantity in WEIGHT
        ]
    return np.array(out)


def inherit_speculative(
    profiles: dict[str, EngineProfile], overheads: dict[str, Overheads], rows: list[PublishedCase]
) -> None:
    """A profile with too few speculative groups takes those overheads from its engine's other
    version, where that one has enough: the work is the same, only its overlap may differ."""
    known = knows_speculation(rows)
    for key, profile in profiles.items():
        if key in known:
            continue
        for other, sibling in profiles.items():
            if sibling.name == profile.name and other in known:
                taken = {n: getattr(overheads[other], n) for n in PRIORS
                         if n.startswith(SPECULATIVE)}
                overheads[key] = replace(overheads[key], **taken)


def fit_overheads(profile: EngineProfile, rows: list[PublishedCase], start: Overheads) -> Overheads:
    """Overheads of one engine profile from its fitted rows."""
    names = [n for n in PRIORS if profile.mixed_steps or n != "mixed_step_s"]
    if f"{profile.name}-{profile.version}" not in knows_speculation(rows):
        names = [n for n in names if not n.startswith(SPECULATIVE)]
    if not any(c.system.setup.tree_topk > 1 for c in rows):
        names = [n for n in names if n != "tree_pass_s"]
    prior = np.log([PRIORS[n][0] for n in names])
    scale = np.array([PRIORS[n][1] for n in names])
    key = f"{profile.name}-{profile.version}"

    def cost(x: np.ndarray) -> np.ndarray:
        over = replace(start, **dict(zip(names, np.exp(x).tolist(), strict=True)))
        return np.concatenate([weighted(rows, {key: over}), (x - prior) / scale])

    done = least_squares(cost, prior, loss="cauchy", diff_step=0.05, max_nfev=12)
    return replace(start, **dict(zip(names, np.exp(done.x).tolist(), strict=True)))


def knows_speculation(rows: list[PublishedCase]) -> set[str]:
    """Engine profiles with enough speculative groups among these rows."""
    groups: dict[str, set[str]] = defaultdict(set)
    for case in rows:
        if case.system.speculative:
            groups[engine_key(case.system)].add(group_of(case))
    return {key for key, names in groups.items() if len(names) >= MIN_SPECULATIVE_GROUPS}


def main() -> None:
    groups: dict[str, list[PublishedCase]] = defaultdict(list)
    for name in FILES:
        for case in score_rows(read_rows(name)).cases:
            groups[group_of(case)].append(case)
    chosen = deal(groups)
    rows: list[PublishedCase] = []
    for name in sorted(chosen):
        step = max(1, len(groups[name]) // ROWS_PER_GROUP)
        rows += groups[name][::step][:ROWS_PER_GROUP]
    profiles = {f"{p.name}-{p.version}": p for p in list_engines()}
    overheads = {key: profile.overheads for key, profile in profiles.items()}
    seen = {key: [c for c in rows if engine_key(c.system) == key] for key in profiles}
    for key, profile in profiles.items():
        if len(seen[key]) >= 6:
            overheads[key] = fit_overheads(profile, seen[key], overheads[key])
    inherit_speculative(profiles, overheads, rows)
    results = {}
    for key in profiles:
        mine = seen[key]
        if len(mine) < 6:
            print(f"{key}: {len(mine)} fitted rows, overheads left as they are")
            continue
        results[key] = {n: getattr(overheads[key], n) for n in PRIORS}
        error = np.median(np.abs(residuals(mine, overheads)))
        shown = ", ".join(f"{n} {v * 1e3:.4f} ms" for n, v in results[key].items())
        print(f"{key}: {len(mine)} rows, median error {error:.3f}: {shown}")
    if "--dry" in sys.argv:
        return
    for key, values in results.items():
        write_engine(key, values, len(seen[key]))
    chosen |= {name for name in groups if name.startswith(INFERRED_FROM)}
    ledger = {
        "fitted": {g: len(groups[g]) for g in sorted(chosen)},
        "judged": {g: len(groups[g]) for g in sorted(groups) if g not in chosen},
        "overheads": results,
    }
    write_json(LEDGER, ledger)


def write_engine(key: str, values: dict[str, float], rows: int) -> None:
    """Puts fitted numbers into the engine's TOML, keeping its layout and comments."""
    name, version = key.split("-", 1)
    for path in sorted(ENGINES.glob("*.toml")):
        text = path.read_text(encoding="utf-8")
        if f'name = "{name}"' not in text or f'version = "{version}"' not in text:
            continue
        for field, value in values.items():
            text = re.sub(rf"(?m)^{field} = .*$", f"{field} = {value:.3e}", text)
        source = (
            f'overheads = "{", ".join(values)}: fitted on {rows} public rows by '
            "validation/scripts/fit_engines.py (groups in validation/reports/ledger.json); "
            'the others assumed"'
        )
        if re.search(r"(?m)^overheads = ", text):
            text = re.sub(r"(?m)^overheads = .*$", source, text)
        else:
            text = text.rstrip("\n") + "\n" + source + "\n"
        write_text(path, text)


if __name__ == "__main__":
    main()

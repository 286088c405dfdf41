"""Fits the overheads of the engine profiles on part of the public measurements.

Run from the checkout: `python validation/fit_engines.py` (about two minutes). It rewrites the
[overheads] numbers of `engines/*.toml` and `validation/ledger.json`.

What is fitted: per engine profile the wall seconds of `specsim.latency.engine.Overheads` that its
rows can see, and one number for all routed models, the expert overlap of neighbouring tokens.
What is not: kernel efficiencies (those come from operator tables alone) and anything per model,
per GPU or per row.

Which rows: groups of (set, model, GPU, GPUs, method) are dealt by a hash of their name, three in
ten to the fit, the rest to be judged. Rows of the MindRouter cluster are never fitted. The ledger
lists every group on both sides.
"""

import hashlib
import json
import re
import sys
from collections import defaultdict
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
from scipy.optimize import least_squares

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from specsim.analytic.system import System  # noqa: E402
from specsim.latency.engine import Overheads, list_engines  # noqa: E402
from specsim.validate.rows import Case  # noqa: E402
from specsim.validate.score import read_rows, score_case, score_rows  # noqa: E402

FILES = ("published/published_measurements.csv", "data/e2e_silicon_h200.csv")
NEVER_FITTED = ("MRBLOG", "MR27", "MR122")
FIT_SHARE = 0.3
# Parameters by engine side; prior mean and scale (log-normal) keep what the data cannot see
# near what the engine's structure suggests.
PRIORS: dict[str, tuple[float, float]] = {
    "step_s": (0.6e-3, 1.0),
    "seq_s": (5e-6, 0.7),
    "layer_s": (3e-6, 0.7),
    "spec_step_s": (0.8e-3, 0.8),
    "spec_seq_s": (8e-6, 0.7),
    "draft_pass_s": (0.15e-3, 0.8),
    "mixed_step_s": (0.5e-3, 0.7),
}


def group_of(case: Case) -> str:
    """Name of the group a case is dealt with: fitted and judged rows never share one."""
    system = case.system
    return "|".join(
        (case.set_id, system.spec.name, system.profile.name, str(system.parallel.gpus),
         system.setup.method)
    )


def fitted(group: str) -> bool:
    if group.split("|", maxsplit=1)[0] in NEVER_FITTED:
        return False
    return hashlib.sha256(group.encode()).digest()[0] / 256 < FIT_SHARE


def engine_key(system: System) -> str:
    return f"{system.engine.name}-{system.engine.version}"


def residuals(cases: list[Case], overheads: dict[str, Overheads]) -> np.ndarray:
    """ln(predicted / measured) of TPOT on both sides and of r, with known overheads."""
    out: list[float] = []
    for case in cases:
        over = overheads[engine_key(case.system)]
        scores, _ = score_case(replace(case, system=case.system.with_overheads(over)))
        out += [
            float(np.log(s.predicted / s.measured))
            for s in scores
            if s.quantity in ("tpot", "step_cost_ratio")
        ]
    return np.array(out)


def main() -> None:
    cases: list[Case] = []
    for name in FILES:
        cases += score_rows(read_rows(ROOT / "validation" / name)).cases
    groups: dict[str, list[Case]] = defaultdict(list)
    for case in cases:
        groups[group_of(case)].append(case)
    fit_groups = sorted(g for g in groups if fitted(g))
    judged = sorted(g for g in groups if not fitted(g))
    by_engine: dict[str, list[Case]] = defaultdict(list)
    for group in fit_groups:
        # A large group must not outvote the others: at most 12 rows of each, evenly spaced.
        rows = groups[group]
        step = max(1, len(rows) // 12)
        by_engine[engine_key(rows[0].system)] += rows[::step][:12]
    results: dict[str, dict[str, float]] = {}
    for profile in list_engines():
        key = f"{profile.name}-{profile.version}"
        rows = by_engine.get(key, [])
        if len(rows) < 6:
            print(f"{key}: {len(rows)} fitted rows, overheads left as they are")
            continue
        names = [n for n in PRIORS if profile.mixed_steps or n != "mixed_step_s"]
        if not any(c.system.speculative for c in rows):
            names = [n for n in names if not n.startswith(("spec", "draft"))]
        prior = np.log([PRIORS[n][0] for n in names])
        scale = np.array([PRIORS[n][1] for n in names])

        def cost(x: np.ndarray, rows=rows, names=names, prior=prior, scale=scale, profile=profile,
                 key=key) -> np.ndarray:
            over = replace(profile.overheads, **dict(zip(names, np.exp(x).tolist(), strict=True)))
            found = residuals(rows, {key: over}) / 0.10
            return np.concatenate([found, (x - prior) / scale])

        done = least_squares(cost, prior, loss="soft_l1", f_scale=1.0, diff_step=0.05, max_nfev=12)
        values = dict(zip(names, np.exp(done.x).tolist(), strict=True))
        results[key] = values
        before = residuals(rows, {key: profile.overheads})
        after = residuals(rows, {key: replace(profile.overheads, **values)})
        print(f"{key}: {len(rows)} rows, median error {np.median(np.abs(before)):.3f} -> "
              f"{np.median(np.abs(after)):.3f}", {n: f"{v * 1e3:.4f} ms" for n, v in values.items()})
        if "--dry" not in sys.argv:
            write_engine(key, values, len(rows))
    ledger = {
        "fitted": {g: len(groups[g]) for g in fit_groups},
        "judged": {g: len(groups[g]) for g in judged},
        "overheads": results,
    }
    if "--dry" not in sys.argv:
        path = ROOT / "validation" / "ledger.json"
        path.write_text(json.dumps(ledger, indent=1) + "\n", encoding="utf-8")


def write_engine(key: str, values: dict[str, float], rows: int) -> None:
    """Puts fitted numbers into the engine's TOML, keeping its layout and comments."""
    name, version = key.split("-", 1)
    for path in sorted((ROOT / "engines").glob("*.toml")):
        text = path.read_text(encoding="utf-8")
        if f'name = "{name}"' not in text or f'version = "{version}"' not in text:
            continue
        for field, value in values.items():
            text = re.sub(rf"(?m)^{field} = .*$", f"{field} = {value:.3e}", text)
        source = (f'overheads = "fitted on {rows} public rows by validation/fit_engines.py '
                  f'(ledger.json): {", ".join(values)}; the others are assumed"')
        if re.search(r"(?m)^overheads = ", text):
            text = re.sub(r"(?m)^overheads = .*$", source, text)
        else:
            text = text.rstrip("\n") + "\n" + source + "\n"
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    assert asdict(Overheads())  # the names above must exist
    main()

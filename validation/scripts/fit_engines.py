"""Fits engine overheads on the public measurements of all sources, and leaves each source out once.

    python validation/scripts/fit_engines.py [--dry]

takes seven minutes of one core; --dry writes nothing and prints the same. It rewrites
    engines/*.toml                    the fitted [overheads] numbers: the fit on all sources
    validation/reports/loso.json      per source the overheads of a fit that has not seen it, and
                                      every judged value with its prediction under both
    validation/reports/ledger.json    groups of rows in the fit and outside of it

What is fitted: the wall seconds of `specsim.latency.engine_profile.Overheads` that PRIORS names,
one set per engine version, versions drawn to their engine and engines to the prior (`engine_fit`).
To fit another field, give it a line there. Nothing is fitted per model, per GPU, per set or row;
kernel efficiencies come from operator tables alone, the choice of experts from captures of routers
(fit_routing.py).

Which rows: all that can be predicted, but those of NEVER_FITTED; speculative sides only where the
acceptance length is stated. An engine with fewer than LEAST_SOURCES sources stays as it is, and so
does an overhead that no row of its engine sees. Host times of lookups are such: rows with lookups
state no acceptance. They were timed on the engines' own code (engines/*.toml), so that
`crossover_loads.py` judges them by rows that served for nothing.
"""

import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
from common import (
    ENGINES,
    LEDGER,
    LOSO,
    PUBLISHED,
    PUBLISHED_2,
    SILICON,
    write_json,
    write_lines_json,
    write_text,
)
from engine_fit import EngineFit, Floats, Observed, Prior, by_group

from specsim.accuracy.lookups import source_of
from specsim.accuracy.rows import PublishedCase
from specsim.accuracy.score import read_rows, score_case, score_rows
from specsim.accuracy.scored import Scored, by_source
from specsim.analytic.system import System
from specsim.latency.engine import list_engines
from specsim.latency.overheads import Overheads

FILES = (PUBLISHED, PUBLISHED_2, SILICON)
NEVER_FITTED = ("mindrouter",)
LEAST_SOURCES = 2
ROWS_PER_GROUP = 10  # of a server, where a script looks at some
# Medians: what an engine's structure suggests (a scheduler pass, a graph launch, a kernel gap).
PRIORS: dict[str, Prior] = {
    "step_s": Prior(0.5e-3, 0.6),
    "seq_s": Prior(10e-6, 0.7),
    "layer_s": Prior(3e-6, 0.7),
    # In engines an unfused sum with its norm took 3.7 us more than both kernels (sglang #7621).
    "sync_s": Prior(4e-6, 0.4),
    "spec_step_s": Prior(0.5e-3, 0.6),
    "spec_seq_s": Prior(8e-6, 0.7),
    "draft_pass_s": Prior(0.15e-3, 0.6),
    # SGLang 0.5.6, fast_topk: a radix search over the vocabulary (15 small kernels) instead of one
    # maximum, another over the branches, a second call of attention with its merge.
    "tree_pass_s": Prior(60e-6, 0.5),
    "tree_layer_s": Prior(10e-6, 0.6),
    "wide_layer_s": Prior(3e-6, 0.6),
    "host_pass_s": Prior(0.7e-3, 0.3),
    "lockstep_s": Prior(0.7e-3, 0.5),
    "mixed_step_s": Prior(0.5e-3, 0.7),
    "request_s": Prior(10e-3, 0.7),
    "prompt_op_s": Prior(104e-6, 0.35),  # validation/scripts/prompt_ops.py
}
# Where measurements outside of the fit know more: stages on H100 below saturation, whose clients
# are known (data/e2e), put a request of vLLM near 10 ms.
KNOWN = {"vllm": {"request_s": Prior(10e-3, 0.2)}}
# Of the half millisecond, 0.43 are scheduling, state and inputs (vLLM issue 42131), which a step
# that is planned ahead hides.
PLANNED_AHEAD = {"step_s": 0.2e-3}
# Expected scatter of ln(predicted / measured) of a right model. TPOT has the LEVEL of its server
# besides; with it, as r without one, it scatters by 0.21, the scales of the mixed model together
# (residual_model.py: source, model, version, server and row). TTFT depends on the load generator as
# much as on the server.
SPREAD = {"tpot": 0.15, "step_cost_ratio": 0.21, "ttft": 0.6}
COLUMNS = ("row", "set", "source", "quantity", "side", "class", "model", "version", "group",
           "measured", "in_sample", "predicted")


def group_of(case: PublishedCase) -> str:
    """Name of the group of a row: one server of one set."""
    system = case.system
    return "|".join(
        (case.set_id, system.spec.name, system.profile.name, str(system.parallel.gpus),
         system.setup.method)
    )


def engine_key(system: System) -> str:
    """The engine file that the overheads stand in."""
    engine = system.engine
    return engine.inherit.replace(" ", "-") or f"{engine.name}-{engine.version}"


def all_cases() -> list[PublishedCase]:
    """Every row of the public files that can be predicted."""
    return [case for name in FILES for case in score_rows(read_rows(name)).cases]


def observed(cases: list[tuple[str, PublishedCase]]) -> list[Observed]:
    """The values of rows that count in a fit."""
    out = []
    for index, (_, case) in enumerate(cases):
        source = source_of(case.set_id)
        if source in NEVER_FITTED:
            continue
        for position, s in enumerate(score_case(case)):
            # Where nobody measured the kernels, what they are off by would pass for overheads;
            # Hopper devices run those of the H200 (within 3%, check_transfer.py).
            known = "|assumed" not in s.klass or case.system.profile.arch == "hopper"
            if s.quantity in SPREAD and known:
                out.append(Observed(
                    index, position, s.quantity, s.side, source, group_of(case), SPREAD[s.quantity]
                ))
    return out


def engine_fits(cases: list[PublishedCase]) -> dict[str, EngineFit]:
    """By engine, those with rows of enough sources."""
    versions: dict[str, dict[str, Overheads]] = defaultdict(dict)
    ahead: set[str] = set()
    for profile in list_engines():
        if not profile.inherit:
            version = f"{profile.name}-{profile.version}"
            versions[profile.name][version] = profile.overheads
            if profile.scheduler.async_scheduling:
                ahead.add(version)
    fits = {}
    for engine, base in versions.items():
        mine = [(engine_key(c.system), c) for c in cases if c.system.engine.name == engine]
        values = observed(mine)
        if len({o.source for o in values}) >= LEAST_SOURCES:
            eager = any(overheads.prompt_op_s for overheads in base.values())
            priors = {n: p for n, p in PRIORS.items() if eager or n != "prompt_op_s"}
            fits[engine] = EngineFit(
                mine, base, priors | KNOWN.get(engine, {}), values,
                {version: PLANNED_AHEAD for version in base if version in ahead},
            )
    return fits


def told(fit: EngineFit, x: Floats, slopes: Floats) -> str:
    """Overheads in ms with their posterior spreads (in log): of the prior's where rows say
    nothing."""
    normal = slopes.T @ (fit.weight[:, None] * slopes) + fit.precision
    spread = np.sqrt(np.diag(np.linalg.inv(normal)))
    width = len(fit.names)
    return "\n".join(
        f"  {version}: " + ", ".join(
            f"{name} {np.exp(x[i * width + k]) * 1e3:.4f} (+-{spread[i * width + k]:.2f})"
            for k, name in enumerate(fit.names)
        ) for i, version in enumerate(fit.versions)
    )


def main() -> None:
    cases = all_cases()
    rows: list[list[object]] = []
    constants: dict[str, dict[str, float]] = {}
    left_out: dict[str, dict[str, dict[str, float]]] = defaultdict(dict)
    fits = engine_fits(cases)
    for engine, fit in fits.items():
        x, r, slopes = fit.fit()
        print(f"{engine}: {len(fit.observed)} values of {len(fit.sources)} sources, median error "
              f"{np.median(np.abs(r)):.3f}\n{told(fit, x, slopes)}", flush=True)
        at = {source: fit.without(source, x, r, slopes) for source in fit.sources}
        for source, there in at.items():
            left_out[source].update(named(fit, there, slopes))
        constants.update(named(fit, x, slopes))
        rows += judged_rows(fit, x, at)
    seen = {id(case) for fit in fits.values() for _, case in fit.cases}
    others = [case for case in cases if id(case) not in seen]
    for case in others:
        rows += [value_row(case, s, s.predicted, s.predicted) for s in score_case(case)]
    summary(rows)
    if "--dry" in sys.argv:
        return
    for key, values in constants.items():
        fit = fits[key.rsplit("-", 1)[0]]
        write_engine(key, values, len(fit.observed), len(fit.sources))
    kept = {"overheads": constants, "without": {name: left_out[name] for name in sorted(left_out)},
            "columns": COLUMNS, "values": rows}
    write_lines_json(LOSO, kept, 2)
    groups = by_group(cases, group_of)
    outside = {
        name for name, some in groups.items()
        if source_of(some[0].set_id) in NEVER_FITTED or id(some[0]) not in seen
    }
    write_json(LEDGER, {
        "fitted": {g: len(groups[g]) for g in sorted(groups) if g not in outside},
        "judged": {g: len(groups[g]) for g in sorted(outside)},
        "overheads": constants,
    })


def named(fit: EngineFit, x: Floats, slopes: Floats) -> dict[str, dict[str, float]]:
    """By version the overheads that some row of the engine sees."""
    width = len(fit.names)
    seen = [name for k, name in enumerate(fit.names) if np.abs(slopes[:, k::width]).max() > 1e-9]
    return {
        version: {name: float(f"{getattr(over, name):.3e}") for name in seen}
        for version, over in fit.overheads(x).items()
    }


def judged_rows(fit: EngineFit, x: Floats, at: dict[str, Floats]) -> list[list[object]]:
    """Every value of the rows under the full fit and under that which has not seen its source."""
    out = []
    full = list(fit.scores(x))
    sources = [source_of(case.set_id) for _, case in fit.cases]
    for source in sorted(set(sources)):
        which = [i for i, name in enumerate(sources) if name == source]
        found = fit.scores(at.get(source, x), which)
        for i, scores in zip(which, found, strict=True):
            out += [value_row(fit.cases[i][1], new, old.predicted, new.predicted)
                    for old, new in zip(full[i], scores, strict=True)]
    return out


def value_row(case: PublishedCase, s: Scored, in_sample: float, predicted: float) -> list[object]:
    """One line of COLUMNS. predicted: without the row's source."""
    return [s.row_id, s.set_id, s.source, s.quantity, s.side, s.klass, case.system.spec.name,
            engine_key(case.system), group_of(case), *(float(f"{v:.6g}") for v in
            (s.measured, in_sample, predicted))]


def scored(rows: Sequence[Sequence[object]], column: str) -> list[Scored]:
    """The values as `validate published` judges them; predicted as in that column."""
    place = {name: i for i, name in enumerate(COLUMNS)}
    names = ("row", "set", "quantity", "side", "class", column, "measured")
    return [Scored(*(row[place[name]] for name in names)) for row in rows]  # type: ignore[arg-type]


def summary(rows: list[list[object]]) -> None:
    for column, words in (("predicted", "source left out"), ("in_sample", "in sample")):
        print(words)
        for kind, found in by_source(scored(rows, column)).items():
            print(f"  {kind:17s} median of {found['sources']} source medians "
                  f"{found['median_of_medians']:.3f}; worst {found['worst_source']} "
                  f"{found['worst_median']:.3f}")


def write_engine(key: str, values: dict[str, float], rows: int, sources: int) -> None:
    """Puts fitted numbers into the engine's TOML, keeping its layout and comments; a field that the
    file leaves to the default is added."""
    name, version = key.rsplit("-", 1)
    for path in sorted(ENGINES.glob("*.toml")):
        text = path.read_text(encoding="utf-8")
        engine = tomllib.loads(text)["engine"]
        if (engine["name"], engine["version"]) != (name, version):
            continue
        if "[overheads]" not in text:
            text = text.replace("[sources]", "[overheads]\n\n[sources]")
        head, rest = text.split("[overheads]\n", 1)
        table, mark, tail = rest.partition("\n[")
        for field, value in values.items():
            line = f"{field} = {value:.3e}"
            if re.search(rf"(?m)^{field} = ", table):
                table = re.sub(rf"(?m)^{field} = .*$", line, table)
            else:
                table = f"{line}\n{table}"
        source = (
            f'overheads = "{", ".join(values)}: fitted on {rows} public values of {sources} '
            "sources, all versions of the engine together, by validation/scripts/fit_engines.py; "
            'the others assumed"'
        )
        text = f"{head}[overheads]\n{table}{mark}{tail}"
        if re.search(r"(?m)^overheads = ", text):
            text = re.sub(r"(?m)^overheads = .*$", source, text)
        else:
            text = text.rstrip("\n") + "\n" + source + "\n"
        write_text(path, text)


if __name__ == "__main__":
    main()

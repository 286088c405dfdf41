"""How well the model of acceptance predicts what it has not seen.

    python validation/scripts/check_acceptance.py

takes the variances of `catalog/acceptance_model.json`, leaves rows of the catalogue out, predicts
them from the rest (exactly: the normal model's own left-out means), prints and writes
`validation/reports/acceptance.md`:

* each row from all others, and through `Posterior`, the way the product answers;
* every drafter, then every target, left out whole, with its data set known or its kind of work
  alone (data set, maker, temperature and thinking not stated);
* every source left out whole: the median of the sources' medians;
* trees of drafters of which no chain was measured, the drafter left out;
* draft lengths 1 to 8 of a curve from its k = 3 alone and from k = 1 to 3, its drafter's other rows
  left out.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np
from common import REPORTS, table, write_text
from fit_acceptance import MODEL, Normal, groups_by
from told_chains import tree_tokens

from specsim.speculation.acceptance_catalogue import MeasuredPoint, measurements
from specsim.speculation.acceptance_model import effects, skips_steps, tokens_at
from specsim.speculation.acceptance_posterior import (
    QUANTILE_90,
    Posterior,
    fitted_acceptance,
)
from specsim.speculation.acceptance_rows import MeasuredAcceptance, observations
from specsim.speculation.names import normalise_model

REPORT = REPORTS / "acceptance.md"
# (relative error, whether the 90% interval holds it), by kind of drafter.
Misses = dict[str, list[tuple[float, bool]]]


def judged(row: MeasuredAcceptance, z: float, sd: float) -> tuple[float, bool]:
    """Tokens of a step with a draft against a prediction."""
    k = row.condition.k
    low, high = (tokens_at(z + side * QUANTILE_90 * sd, k) for side in (-1.0, 1.0))
    return tokens_at(z, k) / row.tokens - 1.0, low - 1e-9 <= row.tokens <= high + 1e-9


def left_out(model: Normal, groups: Iterable[list[int]]) -> Misses:
    """Every row at its own k, its whole group unknown."""
    found: Misses = defaultdict(list)
    widening = fitted_acceptance().widening
    for at in groups:
        mean, variance = model.without(at)
        for i, z, v in zip(at, mean, variance, strict=True):
            row = model.rows[i]
            if row.own_k:
                kind = row.condition.kind
                found[kind].append(judged(row, z, widening.get(kind, 1.0) * math.sqrt(v)))
    return found


def by_source(model: Normal) -> list[list[str]]:
    """Rows of a table: every source left out whole, by kind of drafter."""
    sources: dict[str, list[int]] = defaultdict(list)
    for i, row in enumerate(model.rows):
        sources[row.condition.source].append(i)
    found: dict[str, list[list[tuple[float, bool]]]] = defaultdict(list)
    for at in sources.values():
        for kind, misses in left_out(model, [at]).items():
            found[kind].append(misses)
    body = []
    for kind, groups in sorted(found.items(), key=lambda item: -sum(map(len, item[1]))):
        medians = [float(np.median(np.abs([e for e, _ in misses]))) for misses in groups]
        held = [inside for misses in groups for _, inside in misses]
        body.append([kind, str(len(groups)), str(len(held)), f"{np.median(medians):.1%}",
                     f"{max(medians):.1%}", f"{np.mean(held):.0%}"])
    return body


def trees(model: Normal) -> list[list[str]]:
    """Rows of a table: tokens per step of trees from the chain that is predicted where their
    drafter is left out whole, as measured and as predicted with the bounds of the 90% interval."""
    widening, body = fitted_acceptance().widening, []
    points = {p.rows[0]: p for p in measurements() if p.chain_length}
    for at in groups_by(model.rows, "drafter"):
        mean, variance = model.without(at)
        for i, z, v in zip(at, mean, variance, strict=True):
            row = model.rows[i]
            if not row.tree:
                continue
            point, c = points[row.line.split(" k=")[0]], row.condition
            sd = widening.get(c.kind, 1.0) * math.sqrt(v + row.tree_variance)
            low, middle, high = (
                _of_tree(point, tokens_at(z + side * QUANTILE_90 * sd, c.k)) for side in (-1, 0, 1)
            )
            body.append([
                f"{c.target}, {c.kind}", f"{point.acceptance_length:g}",
                f"{middle:.2f} ({low:.2f} to {high:.2f})",
            ])
    return sorted(body)


def _of_tree(point: MeasuredPoint, tokens: float) -> float:
    """Tokens of the tree of a point, of a chain that yields `tokens` at its depth."""
    shape = (point.k, point.tree_topk, point.num_draft_tokens)
    return tree_tokens(tokens, point.method, shape, "static tree" in point.note)


def by_product(model: Normal) -> Misses:
    """Every row from the others of its target, as the product predicts tokens per step."""
    of_target: dict[str, list[MeasuredAcceptance]] = defaultdict(list)
    for row in model.rows:
        of_target[normalise_model(row.condition.target)].append(row)
    found: Misses = defaultdict(list)
    for row in model.rows:
        if not row.own_k:
            continue
        c = row.condition
        rest = [r for r in of_target[normalise_model(c.target)] if r.line != row.line]
        made = Posterior(rest, c).at(c, c.k)
        share = row.draft_share if skips_steps(c.kind) else 1.0
        true = 1.0 + share * (row.tokens - 1.0)
        inside = made.tokens(-QUANTILE_90) <= true <= made.tokens(QUANTILE_90)
        found[c.kind].append((made.tokens() / true - 1.0, inside))
    return found


def work_alone(model: Normal) -> Misses:
    """Every row from its kind of drafter, target's size and kind of work, its target left out."""
    unknown = [replace(row, condition=replace(
        row.condition, dataset="", draft="a new drafter", temperature=None, thinking=None,
        language="", source="a new source",
    )) for row in model.rows]
    # The covariance of the stripped question with every row, from the effects that they share.
    names = [
        {(n, key): w for n, key, w in effects(row.condition)} for row in model.rows
    ]
    found: Misses = defaultdict(list)
    for at in groups_by(model.rows, "target"):
        own = set(at)
        block = model.precision[np.ix_(at, at)]
        for i in at:
            row = model.rows[i]
            if not row.own_k:
                continue
            asked = {(n, key): w for n, key, w in effects(unknown[i].condition)}
            cover = np.array([
                0.0 if j in own else sum(
                    model.variances[key[0]] * w * names[j].get(key, 0.0)
                    for key, w in asked.items() if key[0] in model.variances
                ) for j in range(len(names))
            ])
            # Precision without the target's rows, by block elimination.
            moved = model.precision @ cover
            moved -= model.precision[:, at] @ np.linalg.solve(block, moved[at])
            moved[at] = 0.0
            z = model.mean + float(moved @ (model.z - model.mean))
            variance = sum(model.variances.get(n, 0.0) * w * w for (n, _), w in asked.items())
            variance += model.variances["noise_logit"] - float(moved @ cover)
            found[row.condition.kind].append(judged(row, z, math.sqrt(max(variance, 1e-6))))
    return found


def curves(model: Normal, keep: Callable[[int], bool]) -> list[tuple[int, float, bool, bool]]:
    """(k, error, inside, whether the row told positions) of every curve through k = 3 whose
    drafter is known at the lengths `keep` alone."""
    drafters: dict[str, list[int]] = defaultdict(list)
    runs: dict[str, list[int]] = defaultdict(list)
    for i, row in enumerate(model.rows):
        keys = {name: key for name, key, _ in effects(row.condition)}
        drafters[keys["drafter"]].append(i)
        runs[f"{keys['drafter']}#{keys['slope_curve']}"].append(i)
    found = []
    for name, run in runs.items():
        if len({model.rows[i].condition.k for i in run}) < 3 or not any(
            model.rows[i].condition.k == 3 for i in run
        ):
            continue
        kept = {i for i in run if keep(model.rows[i].condition.k)}
        at = [i for i in drafters[name.split("#")[0]] if i not in kept]
        if not at:
            continue
        mean, variance = model.without(at)
        for i, z, v in zip(at, mean, variance, strict=True):
            row = model.rows[i]
            if i in run and row.condition.k <= 8:
                error, inside = judged(row, z, math.sqrt(v))
                detailed = any(not model.rows[j].own_k for j in run)
                found.append((row.condition.k, error, inside, detailed))
    return found


def summary(found: Misses) -> list[list[str]]:
    """Rows of a table: kind, rows, median and 90th percentile of the error, bias, coverage."""
    everything = [miss for misses in found.values() for miss in misses]
    ordered = sorted(found.items(), key=lambda item: -len(item[1]))
    return [
        [name, str(len(misses)), f"{np.median(np.abs([e for e, _ in misses])):.1%}",
         f"{np.quantile(np.abs([e for e, _ in misses]), 0.9):.1%}",
         f"{np.median([e for e, _ in misses]):+.1%}", f"{np.mean([i for _, i in misses]):.0%}"]
        for name, misses in [("all", everything), *ordered]
    ]


def main() -> None:
    rows = observations(measurements())
    model = Normal(rows, json.loads(MODEL.read_text(encoding="utf-8"))["variances"])
    lines = [
        "# Acceptance predicted where it was left out", "",
        "Written by `validation/scripts/check_acceptance.py` from the rows of",
        "`catalog/acceptance.csv` (chains on real text). Error: predicted over measured tokens of",
        "a step with a draft, less 1; held: share of rows inside the 90% interval.",
    ]
    header = ("kind of drafter", "rows", "median", "p90", "bias", "held")
    for title, found in (
        ("Each row from all others", left_out(model, groups_by(rows, "line"))),
        ("Each row, as the product answers (tokens of all steps)", by_product(model)),
        ("Each drafter left out whole", left_out(model, groups_by(rows, "drafter"))),
        ("Each target left out whole", left_out(model, groups_by(rows, "target"))),
        ("Each target left out, kind of drafter, size and work alone known", work_alone(model)),
    ):
        lines += ["", f"## {title}", "", *table(header, summary(found))]
    lines += ["", "## Each source left out whole", "", *table(
        ("kind of drafter", "sources", "rows", "median of source medians", "worst", "held"),
        by_source(model),
    )]
    lines += ["", "## Tokens per step of trees, their drafter left out whole", "", *table(
        ("target and kind", "measured", "predicted"), trees(model),
    )]
    lines += ["", "## Draft lengths 1 to 8 of a curve", ""]
    body = []
    for title, keep in (("k = 3", (3,)), ("k = 1 to 3", (1, 2, 3))):
        every = curves(model, lambda k, keep=keep: k in keep)  # type: ignore[misc]
        for kind, some in (("curves by k", False), ("per-position rows", True)):
            part = [(e, i) for _, e, i, detailed in every if detailed == some]
            errors = np.abs([e for e, _ in part])
            body.append([title, kind, str(len(part)), f"{np.median(errors):.1%}",
                         f"{np.quantile(errors, 0.9):.1%}", f"{errors.max():.1%}",
                         f"{np.mean([i for _, i in part]):.0%}"])
    lines += table(("known", "of", "points", "median", "p90", "worst", "held"), body)
    text = "\n".join(lines) + "\n"
    write_text(REPORT, text)
    print(text)


if __name__ == "__main__":
    main()

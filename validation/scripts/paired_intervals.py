"""Intervals of the ratio of two predictions, from the mixed model of residuals.

    python validation/scripts/paired_intervals.py

(a minute) writes catalog/paired_residuals.json, which `specsim.analytic.paired` reads, and
validation/reports/paired.md: every source is left out of the mixed model, and its pairs at one load
are held against the intervals. How many scales make 90% is the least number at which they hold
90% of the pairs, half by pair and half by source: one number for pairs of one server, one for
others. With fewer sources than LEAST_SOURCES it is that of single predictions
(catalog/residuals.json).
"""

import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from common import (
    CATALOG,
    LOSO,
    PUBLISHED,
    PUBLISHED_2,
    REPORTS,
    read_csv,
    read_json,
    write_lines_json,
    write_text,
)
from common import table as table_lines
from residual_intervals import LEAST_SOURCES, QUANTILES, least, residuals, shares
from residual_model import BIAS, EFFECTS, START, Residual, ResidualModel

from specsim.analytic.paired import Case, Effects, spread
from specsim.model.catalogue import find_model, shapes_key

QUANTITIES = ("tpot", "ttft")
GROUPS = ("one server", "others")
SAME = 0.03  # measured ratios within it of 1 have no order
LOAD = ("batch_or_concurrency", "isl", "osl", "dataset", "request_rate", "cached_tokens")


def place(a: Case, b: Case) -> bool:
    return a.place == b.place


KINDS = {
    "speculation against none, one server": lambda a, b: place(a, b) and a.drafts != b.drafts
    and not (a.drafts and b.drafts),
    "draft lengths or formats of one method": lambda a, b: place(a, b) and a.drafts == b.drafts,
    "methods, one model and GPU": place,
    "formats, one model and GPU": lambda a, b: a.model == b.model
    and a.place.split("|")[2:] == b.place.split("|")[2:],
    "GPUs, one model": lambda a, b: a.model == b.model,
    "models": lambda a, b: True,
}


@dataclass(frozen=True)
class Pair:
    """Two measurements of one source at one load. y: ln of measured over predicted ratio; ratio: ln
    of the measured one. middle, scale: expected by a model without the source; apart: the scales
    of both for themselves. group: one of GROUPS."""

    source: str
    kind: str
    y: float
    ratio: float
    middle: float
    scale: float
    apart: float
    group: str

    def ends(self, quantile: float) -> tuple[float, float]:
        reach = quantile * self.scale
        return min(0.0, self.middle - reach), max(0.0, self.middle + reach)

    def inside(self, quantile: float) -> bool:
        low, high = self.ends(quantile)
        return low <= self.y <= high

    def told(self, low: float, high: float) -> int:
        """1 or -1: the order that an interval around the predicted ratio tells; 0: none."""
        predicted = self.ratio - self.y
        return 1 if predicted + low > 0 else -1 if predicted + high < 0 else 0


def case(residual: Residual) -> Case:
    """As `specsim.analytic.paired` has it of a deployment."""
    *where, method = residual.group.split("|")
    plain = residual.klass.startswith("plain") or method == "none"
    shapes = shapes_key(find_model(residual.model))
    return Case(residual.klass, shapes, residual.version, "|".join(where),
                "" if plain else method)


def effects_of(model: ResidualModel, quantiles: dict[str, float]) -> Effects:
    """The fitted model as the package reads it."""
    covariance, _ = model._covariance(model.at)
    scales = np.exp(model.at[: len(START)])
    prior = scales[BIAS] ** 2
    shared = prior * model.design
    solved = np.linalg.solve(covariance, shared)
    mean, left = solved.T @ model.y, prior * np.eye(shared.shape[1]) - shared.T @ solved
    names = ["", *model.parts]
    size = np.array([2.0, *[1.0] * len(model.parts)])  # the common effect counts twice
    mean, left = mean * size, left * np.outer(size, size)
    short = dict(zip(EFFECTS, ("source", "model", "version", "server"), strict=True))
    return {
        "scales": {short.get(name, "case"): round(float(s), 5)
                   for name, s in zip((*EFFECTS, "row"), scales, strict=False)},
        "factors": dict(zip(model.parts, map(_short, model.at[len(START):]), strict=True)),
        "bias": dict(zip(names, map(_short, mean), strict=True)),
        "covariance": {name: dict(zip(names, map(_short, row), strict=True))
                       for name, row in zip(names, left, strict=True)},
        "scales_to_an_end": quantiles,
    }


def _short(value: float) -> float:
    return float(f"{value:.6g}")


def loads() -> dict[tuple[str, str], tuple[str, ...]]:
    """What rows of a set must have in common to be compared, by (set, row)."""
    found = {}
    for name in (PUBLISHED, PUBLISHED_2):
        for row in read_csv(name):
            found[row["set_id"], row["id"]] = tuple(row.get(key) or "" for key in LOAD)
    return found


def pairs(quantity: str) -> Iterator[Pair]:
    """Of all sources that have any, each with a model that has not seen it."""
    kept, known = read_json(LOSO), loads()
    rows = [dict(zip(kept["columns"], row, strict=True)) for row in kept["values"]]
    rows = [row for row in rows if row["quantity"] == quantity]
    values = residuals(quantity)
    whole = ResidualModel(values)
    groups: dict[str, dict[Any, list[tuple[Residual, float]]]] = defaultdict(
        lambda: defaultdict(list))
    for residual, row in zip(values, rows, strict=True):
        load = known.get((row["set"], row["row"]))
        if load is not None:
            groups[residual.source][load].append((residual, math.log(row["measured"])))
    for source, by_load in sorted(groups.items()):
        if all(len(group) < 2 for group in by_load.values()):
            continue
        model = ResidualModel([r for r in values if r.source != source], near=whole)
        fitted = effects_of(model, {})
        alone = {klass: model.spread(klass).scale
                 for klass in {r.klass for group in by_load.values() for r, _ in group}}
        for group in by_load.values():
            for (one, first), (two, second) in combinations(group, 2):
                a, b = case(one), case(two)
                kind = next(name for name, holds in KINDS.items() if holds(a, b))
                middle, scale = spread(fitted, a, b, 1.0, 1.0)
                yield Pair(source, kind, one.y - two.y, first - second, middle, scale,
                           math.hypot(alone[one.klass], alone[two.klass]),
                           GROUPS["server" not in a.shares(b)])


def quantiles_of(found: Sequence[Pair], single: float) -> dict[str, float]:
    return {name: quantile_of([p for p in found if p.group == name], single) for name in GROUPS}


def quantile_of(found: Sequence[Pair], single: float) -> float:
    if len({pair.source for pair in found}) < LEAST_SOURCES:
        return single
    return round(least(QUANTILES, lambda x: ((p.source, p.inside(x)) for p in found)), 2)


def order(
    found: Sequence[Pair], ends: Callable[[Pair], tuple[float, float]]
) -> tuple[str, str]:
    """(share of pairs whose order is told, share of these that is the measured one), the median
    over sources of either; pairs that measure alike within SAME left out."""
    told, right = defaultdict(list), defaultdict(list)
    for pair in found:
        if abs(pair.ratio) <= math.log(1 + SAME):
            continue
        said = pair.told(*ends(pair))
        told[pair.source].append(said != 0)
        if said:
            right[pair.source].append((said > 0) == (pair.ratio > 0))
    return (
        _median_share(told), f"{_median_share(right)} ({sum(map(sum, right.values()))} of "
                             f"{sum(map(len, right.values()))})",
    )


def _median_share(parts: dict[str, list[bool]]) -> str:
    return f"{statistics.median(statistics.fmean(p) for p in parts.values()):.0%}" if parts else "-"


def rows_of(
    quantity: str, found: Sequence[Pair], used: dict[str, float]
) -> list[list[str]]:
    """Per kind of pair: coverage, widths, orders."""
    out = []
    for kind in ("all", *KINDS):
        mine = [p for p in found if kind in ("all", p.kind)]
        if not mine:
            continue
        by_pair, by_source, n, sources = shares(
            (p.source, p.inside(used[p.group])) for p in mine)
        told, right = order(mine, lambda p: p.ends(used[p.group]))
        apart, _ = order(mine, lambda p: (-used[p.group] * p.apart, used[p.group] * p.apart))
        out.append([
            quantity, kind, f"{by_pair:.0%}", str(n), f"{by_source:.0%}", str(sources),
            *(f"x{math.exp(statistics.median(used[p.group] * getattr(p, name) for p in mine)):.2f}"
              for name in ("scale", "apart")),
            told, apart, right,
        ])
    return out


def main() -> None:
    single = read_json(CATALOG / "residuals.json")["scales_to_an_end"]
    tables, rows, worst = {}, [], []
    for quantity in QUANTITIES:
        found = list(pairs(quantity))
        used = quantiles_of(found, max(single[quantity].values()))
        tables[quantity] = effects_of(ResidualModel(residuals(quantity)), used)
        rows += rows_of(quantity, found, used)
        by_source = defaultdict(list)
        for pair in found:
            by_source[pair.source].append(pair.inside(used[pair.group]))
        worst += [[quantity, name, f"{statistics.fmean(hits):.0%}", str(len(hits))]
                  for name, hits in sorted(by_source.items())]
    source = (
        "validation/scripts/paired_intervals.py: effects of the mixed model of "
        "ln(measured / predicted) of fits without their source"
    )
    write_lines_json(
        CATALOG / "paired_residuals.json", {"source": source, "quantities": tables}, 4)
    scales = "; ".join(
        f"{name} " + ", ".join(f"{value:g} ({group})" for group, value in
                               table["scales_to_an_end"].items()) for name, table in tables.items())
    heads = ["quantity", "pairs that differ in", "inside, of pairs", "pairs", "of sources",
             "sources", "factor to an end", "were errors independent", "order told",
             "were errors independent", "of these right"]
    lines = [
        "# Intervals of differences", "",
        "Written by `python validation/scripts/paired_intervals.py`. Two rows of one source at one "
        "load (clients, lengths, data set, rate, cached tokens) are a pair; what was predicted of "
        "them, and the mixed model that gives the interval of their ratio, have not seen the "
        f"source. Scales to an end of an interval: {scales}. Order: of the pairs whose measured "
        f"ratio is beyond {SAME:.0%}, the share of which the interval says who is better, and how "
        "often that is right (medians over sources; pairs in brackets). A quantity with fewer than "
        f"{LEAST_SOURCES} sources has the scales of single predictions.", "",
        *table_lines(heads, rows, left=True), "", "## By source", "",
        *table_lines(["quantity", "source", "inside", "pairs"], worst, left=True), "",
    ]
    write_text(REPORTS / "paired.md", "\n".join(lines))
    sys.stdout.write("\n".join(lines[4:]) + "\n")


if __name__ == "__main__":
    main()

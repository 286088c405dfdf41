"""From the kept predictions of fits that had not seen their source to 90% intervals by class.

`residual_model` says where the next source of a class is expected and with what scale; an interval
is its middle -+ so many scales, drawn out to hold the prediction itself. How many scales make 90%
is read from sources that the residual model has not seen either: each source is left out of it
in turn, and the number is the least one at which the intervals hold 90% of their values, half
by value and half by source (QUANTILES: a normal's to Student's t with few degrees of freedom);
one for plain and one for speculative values, where LEAST_SOURCES have them.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from common import LOSO, read_json
from residual_model import Residual, ResidualModel, Spread

from specsim.latency.engine import list_engines

QUANTITIES = ("step_cost_ratio", "speedup", "tpot", "ttft")
QUANTILES = [1.28 + 0.02 * i for i in range(87)]  # normal at 80% to t with 3 degrees at 95%
AIM = 0.9
LEAST_SOURCES = 5


@dataclass(frozen=True)
class LeftOut:
    """A value and what a residual model without its source expects."""

    residual: Residual
    expected: Spread

    def inside(self, quantile: float) -> bool:
        low, high = ends(self.expected, quantile)
        return low <= self.residual.y <= high


def ends(expected: Spread, quantile: float) -> tuple[float, float]:
    """Of the interval of ln(measured / predicted). It holds 0: the prediction stands as it is, and
    a bias of its class shows in how far the interval goes to that side."""
    reach = quantile * expected.scale
    return min(expected.middle - reach, 0.0), max(expected.middle + reach, 0.0)


def residuals(quantity: str) -> list[Residual]:
    """Of every judged value, its prediction made without its source."""
    kept = read_json(LOSO)
    rows = [dict(zip(kept["columns"], row, strict=True)) for row in kept["values"]]
    return [
        Residual(
            math.log(r["measured"] / r["predicted"]), r["source"], r["model"], r["version"],
            r["group"], r["class"],
        )
        for r in rows if r["quantity"] == quantity
    ]


def left_out(values: Sequence[Residual], whole: ResidualModel) -> list[LeftOut]:
    out = []
    for source in sorted({r.source for r in values}):
        model = ResidualModel([r for r in values if r.source != source], near=whole)
        mine = [r for r in values if r.source == source]
        known = {klass: model.spread(klass) for klass in {r.klass for r in mine}}
        out += [LeftOut(r, known[r.klass]) for r in mine]
    return out


def shares(hits: Iterable[tuple[str, bool]]) -> tuple[float, float, int, int]:
    """Of (source, inside): share of values, mean share of sources, values, sources."""
    parts: dict[str, list[bool]] = defaultdict(list)
    for source, hit in hits:
        parts[source].append(hit)
    every = [hit for part in parts.values() for hit in part]
    return (
        statistics.fmean(every), statistics.fmean(statistics.fmean(p) for p in parts.values()),
        len(every), len(parts),
    )


def side_of(klass: str) -> str:
    return klass.split("|", 1)[0]


def quantiles(found: Sequence[LeftOut]) -> dict[str, float]:
    """Scales to an end of an interval, by side."""
    out = {}
    for side in ("plain", "speculative"):
        mine = [f for f in found if side_of(f.residual.klass) == side]
        enough = len({f.residual.source for f in mine}) >= LEAST_SOURCES
        out[side] = round(_quantile(mine if enough else found), 2)
    return out


def _quantile(found: Sequence[LeftOut]) -> float:
    return least(QUANTILES, lambda x: ((f.residual.source, f.inside(x)) for f in found))


def least(
    rising: Sequence[float], hits: Callable[[float], Iterable[tuple[str, bool]]]
) -> float:
    """The first with which AIM of (source, inside) are inside, half by value and half by source;
    the last where none does."""
    return next((value for value in rising if sum(shares(hits(value))[:2]) / 2 >= AIM), rising[-1])


def class_table(
    model: ResidualModel, quantity: str, used: dict[str, float]
) -> dict[str, Any]:
    """class -> ends of its interval, sources and values that it has, for every class there is."""
    engines = sorted({p.name for p in list_engines()} & {r.klass.split("|")[2]
                                                         for r in model.residuals})
    sides = ["speculative"] if quantity in ("speedup", "step_cost_ratio") else [
        "plain", "speculative"]
    out = {}
    for parts in product(sides, ("dense", "moe"), [*engines, "other"], ("measured", "assumed"),
                         ("one", "several")):
        klass = "|".join(parts)
        found = model.spread(klass)
        low, high = ends(found, used[side_of(klass)])
        out[klass] = {"low": round(low, 4), "high": round(high, 4), "sources": found.sources,
                      "n": found.n}
    return out


def coverage_rows(
    quantity: str, found: Sequence[LeftOut], used: dict[str, float]
) -> list[list[str]]:
    """Per part of a class: share inside the intervals made without the source."""
    parts: dict[str, list[tuple[str, bool]]] = defaultdict(list)
    for f in found:
        for part in ("all", *f.residual.klass.split("|")):
            hit = f.inside(used[side_of(f.residual.klass)])
            parts[part].append((f.residual.source, hit))
    rows = []
    for part, hits in sorted(parts.items()):
        by_value, by_source, values, sources = shares(hits)
        rows.append([quantity, part, f"{by_value:.0%}", str(values), f"{by_source:.0%}",
                     str(sources)])
    return rows


def intervals() -> tuple[dict[str, Any], list[list[str]]]:
    """(the document of catalog/residuals.json, rows of the table of coverage)."""
    tables, used, rows = {}, {}, []
    for quantity in QUANTITIES:
        values = residuals(quantity)
        model = ResidualModel(values)
        found = left_out(values, model)
        used[quantity] = quantiles(found)
        tables[quantity] = class_table(model, quantity, used[quantity])
        rows += coverage_rows(quantity, found, used[quantity])
    source = (
        "validation/scripts/make_report.py: ends of the 90% interval of ln(measured / predicted) "
        "of a further source, from a mixed model of the residuals of fits without their source"
    )
    return {"source": source, "scales_to_an_end": used, "quantities": tables}, rows

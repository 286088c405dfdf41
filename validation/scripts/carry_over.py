"""How much of what a prediction misses by is carried over to another GPU, size, engine, draft
length, context or load: fits `specsim/analytic/carry_over.py` and judges it, source left out.

    python validation/scripts/carry_over.py           # three minutes
    python validation/scripts/carry_over.py --dry     # prints, writes nothing

It writes catalog/carry_over.json, reports/carry_over.md with reports/carry_over.json, and the
picture docs/howto/from-measured.svg. Values are those of `reports/loso.json`: what public rows
measured, and predictions of fits that had not seen their source; their intervals too are of a
residual model without the source.

A group is what one source measured of a model in one weight format by one method. Its misses are
drawn together as the module says; scale, noise and losses are those under which all groups are most
likely (Student's t, so that an odd group does not set them), with weak priors: that of a loss is
LOSS for TPOT, and TPOT's for the other quantities, some of whose kinds no public pair shows.

Judged are pairs of a group that differ in one kind (of a GPU also with the number of GPUs), each
value predicted from one other, under a law fitted without their source. A speculative target is
given the acceptance of the value it is predicted from, carried to its draft length: its own is not
known where something is really asked. `naive` is the rule of thumb: times by the memory rate (TTFT:
the arithmetic peak) of another GPU, divided by the number of GPUs, TTFT by the prompt's length,
else as measured. `in full` is measured times predicted here over predicted there.
"""

import math
import random
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise, product
from typing import Any

import fit_engines as engines
import numpy as np
from common import (
    CATALOG,
    LOSO,
    PUBLISHED,
    PUBLISHED_2,
    REPORTS,
    ROOT,
    read_csv,
    read_json,
    table,
    write_json,
    write_text,
)
from fewshot_priors import placed, without
from residual_intervals import ends, least, left_out, quantiles, shares, side_of
from residual_intervals import residuals as residuals_of
from residual_model import ResidualModel
from scipy.optimize import minimize

from specsim.accuracy.rows import PublishedCase
from specsim.accuracy.score import score_case
from specsim.analytic.carry_over import KINDS, TAIL, CarryOver, Setting, condition, distances
from specsim.calibrate.fewshot import FewShotPoint, fit
from specsim.errors import SpecSimError
from specsim.report.plots import Panel, Picture, Series
from specsim.report.plots_file import write_picture

Floats = Any
PICTURE = ROOT / "docs" / "howto" / "from-measured.svg"
QUANTITIES = ("tpot", "ttft", "speedup")
START, SPREAD = (math.log(0.4), math.log(0.05)), (0.7, 0.5)  # of ln scale and ln noise
LOSS, LOSS_SPREAD = 0.3, 1.0  # median, and log-normal spread
LARGEST = 40  # values of a group that a fit looks at
FEW = 3  # sources, below which a kind's factor is no less than that of all kinds
FACTORS = [0.5 + 0.05 * i for i in range(111)]
SAMPLED = 5  # pairs of a source and kind that are also calibrated
PLANS = ("plain", "naive", "in full", "carried")


@dataclass(frozen=True)
class Value:
    """A judged value. low, high: ends of the interval of y without its source. case: its row on
    engines fitted without it."""

    source: str
    side: str
    measured: float
    predicted: float
    low: float
    high: float
    setting: Setting
    case: PublishedCase
    text: str  # data set

    @property
    def half(self) -> float:
        return (self.high - self.low) / 2

    @property
    def u(self) -> float:
        return math.log(self.measured / self.predicted) / self.half


@dataclass(frozen=True)
class Group:
    source: str
    values: tuple[Value, ...]
    apart: Floats  # kinds x values x values

    @property
    def u(self) -> Floats:
        return np.array([v.u for v in self.values])

    def thinned(self) -> "Group":
        step = math.ceil(len(self.values) / LARGEST)
        return Group(self.source, self.values[::step], self.apart[:, ::step, ::step])


@dataclass(frozen=True)
class Pair:
    """A value predicted from another, in logarithms: what was measured over what each way says.
    reach, width: of the interval by a factor of 1, towards the side on which the value lies, and
    from end to end. far: distance in its kind."""

    source: str
    kind: str
    miss: Mapping[str, float]
    reach: float
    width: float
    far: float

    def inside(self, factor: float) -> bool:
        return abs(self.miss["carried"]) <= self.reach * factor


# --- values -----------------------------------------------------------------------------------


def cases() -> dict[tuple[str, str], PublishedCase]:
    """Rows by set and id, on engines fitted without their source."""
    known: dict[str, Any] = {}
    out = {}
    for case in engines.all_cases():
        profiles = known.setdefault(case.set_id, without(case.set_id))
        out[case.set_id, case.row_id] = replace(case, system=placed(case.system, profiles))
    return out


def groups_of(quantity: str, rows: Mapping[tuple[str, str], PublishedCase]) -> list[Group]:
    kept = read_json(LOSO)
    lines = [dict(zip(kept["columns"], row, strict=True)) for row in kept["values"]]
    lines = [line for line in lines if line["quantity"] == quantity]
    known = residuals_of(quantity)  # of the same lines in their order
    place = {id(residual): i for i, residual in enumerate(known)}
    expected = left_out(known, ResidualModel(known))
    used = quantiles(expected)
    texts = {(row["set_id"], row["id"]): row["dataset"] for name in (PUBLISHED, PUBLISHED_2)
             for row in read_csv(name)}
    parts: dict[Any, dict[Any, Value]] = defaultdict(dict)
    for item in expected:
        line = lines[place[id(item.residual)]]
        low, high = ends(item.expected, used[side_of(line["class"])])
        case = rows[line["set"], line["row"]]
        system = case.system if line["side"] == "speculative" else case.system.plain()
        value = Value(
            line["source"], line["side"], line["measured"], line["predicted"], low, high,
            Setting(system, case.workload, case.concurrency), case,
            texts.get((line["set"], line["row"]), ""),
        )
        what = (value.measured, *distances_key(value))  # plain values stand in many rows
        parts[group_key(value)].setdefault(what, value)
    return [grouped(list(part.values())) for part in parts.values()]


def group_key(value: Value) -> tuple[object, ...]:
    system, parallel, setup = value.setting.system, value.setting.system.parallel, None
    if system.speculative:
        setup = (system.setup.method, system.setup.tree_topk, str(system.setup.drafter),
                 value.text)
    return (value.source, system.spec.name, system.spec.weights, system.kv_dtype, setup,
            parallel.ep > 1, parallel.attention_dp > 1, value.case.pure_decode,
            value.case.forward_only)


def distances_key(value: Value) -> tuple[object, ...]:
    s = value.setting
    return (s.system.profile.name, s.system.parallel, s.system.engine.name, s.system.engine.version,
            s.system.setup.k if s.system.speculative else 0, s.workload.input_len,
            s.workload.output_len, s.concurrency)


def grouped(values: Sequence[Value]) -> Group:
    found = [[distances(a.setting, b.setting) for b in values] for a in values]
    apart = np.array([[[d.get(kind, 0.0) for d in row] for row in found] for kind in KINDS])
    return Group(values[0].source, tuple(values), apart)


# --- the law ----------------------------------------------------------------------------------


def fitted(
    groups: Sequence[Group], prior: Mapping[str, float], start: CarryOver | None = None
) -> CarryOver:
    """The most likely law of the groups. prior: median of each loss."""
    medians = np.array([*START, *(math.log(prior[kind]) for kind in KINDS)])
    spreads = np.array([*SPREAD, *(LOSS_SPREAD for _ in KINDS)])

    def unlikely(x: Floats) -> tuple[float, Floats]:
        """Negative logarithm of the posterior, and its slopes."""
        lasting, noise, losses = math.exp(2 * x[0]), math.exp(2 * x[1]), np.exp(x[2:])
        total, slopes = 0.0, np.zeros_like(x)
        for group in groups:
            u = group.u
            shared = lasting * np.exp(-np.tensordot(losses, group.apart, 1))
            covariance = shared + noise * np.eye(len(u))
            inverse = np.linalg.inv(covariance)
            z = inverse @ u
            size = float(u @ z)
            total += np.linalg.slogdet(covariance)[1] / 2
            total += (TAIL + len(u)) / 2 * math.log1p(size / TAIL)
            pull = (inverse - (TAIL + len(u)) / (TAIL + size) * np.outer(z, z)) / 2
            slopes[0] += 2 * (pull * shared).sum()
            slopes[1] += 2 * noise * np.trace(pull)
            slopes[2:] -= losses * np.einsum("ij,kij->k", pull * shared, group.apart)
        off = (x - medians) / spreads
        return float(total + off @ off / 2), slopes + off / spreads

    at = medians
    if start is not None:
        at = np.log([start.scale, start.noise, *(start.loss[kind] for kind in KINDS)])
    limits = [(-5.0, 1.0)] * 2 + [(-6.0, 2.0)] * len(KINDS)
    done = minimize(unlikely, at, jac=True, method="L-BFGS-B", bounds=limits)
    scale, noise, *losses = (float(value) for value in np.exp(done.x))
    return CarryOver(scale, noise, dict(zip(KINDS, losses, strict=True)), {})


# --- pairs ------------------------------------------------------------------------------------


def kind_of(distance: Mapping[str, float]) -> str | None:
    """The one kind in which a pair differs; a GPU may come with another number of them."""
    if set(distance) in ({"gpu"}, {"gpu", "gpus"}):
        return "gpu"
    return next(iter(distance)) if len(distance) == 1 else None


def asked(one: Value, other: Value, quantity: str, cache: dict[Any, float]) -> float | None:
    """What is predicted of `other` with the acceptance of `one`; None where it has none such."""
    accepted = one.setting.system.acceptance
    if other.side == "plain" or accepted is None:
        return other.predicted
    system = other.case.system
    given = accepted.at(system.setup.k)
    key = id(other), given.unconditional
    if key not in cache:
        case = replace(other.case, system=system.with_(acceptance=given))
        cache[key] = next(
            (s.predicted for s in score_case(case)
             if (s.quantity, s.side) == (quantity, other.side)), math.nan
        )
    return cache[key]


def naive(one: Value, other: Value, quantity: str) -> float:
    """The rule of thumb: a factor on what was measured."""
    if quantity == "speedup":
        return 1.0
    a, b = one.setting, other.setting
    gpus = a.system.parallel.all_gpus / b.system.parallel.all_gpus
    if quantity == "tpot":
        return gpus * a.system.profile.mem_bytes_per_s / b.system.profile.mem_bytes_per_s
    return gpus * peak(a) / peak(b) * b.workload.input_len / a.workload.input_len


def peak(setting: Setting) -> float:
    return setting.system.profile.flops["bf16"]


def pairs(group: Group, quantity: str, law: CarryOver) -> Iterator[Pair]:
    cache: dict[Any, float] = {}
    for one in group.values:
        for other in group.values:
            distance = distances(one.setting, other.setting)
            kind = kind_of(distance)
            if kind is None:
                continue
            try:
                here = asked(one, other, quantity, cache)
            except SpecSimError:
                continue
            if here is None or math.isnan(here):
                continue
            weights, left = condition(law, [law.alike(distance)], [[1.0]], [one.u])
            middle = weights[0] * one.u * other.half
            says = {
                "plain": here, "naive": one.measured * naive(one, other, quantity),
                "in full": one.measured * here / one.predicted, "carried": here * math.exp(middle),
            }
            miss = {way: math.log(other.measured / value) for way, value in says.items()}
            end = other.high if miss["carried"] > 0 else -other.low
            yield Pair(group.source, kind, miss, end * left, 2 * other.half * left, distance[kind])


def together(group: Group, law: CarryOver) -> Iterator[Pair]:
    """A value predicted from all of its server at other loads ('all'), and from the one of them
    that tells most ('nearest')."""
    for i, other in enumerate(group.values):
        far = [distances(v.setting, other.setting) for v in group.values]
        seen = [j for j, d in enumerate(far) if set(d) == {"concurrency"}]
        if len(seen) < 2:
            continue
        alike = [law.alike(far[j]) for j in seen]
        between = [[law.alike(distances(group.values[a].setting, group.values[b].setting))
                    for b in seen] for a in seen]
        u = [float(group.u[j]) for j in seen]
        weights, left = condition(law, alike, between, u)
        best = alike.index(max(alike))
        (one,), _ = condition(law, [alike[best]], [[1.0]], [u[best]])
        says = {"nearest": one * u[best], "all": float(np.dot(weights, u)), "plain": 0.0}
        miss = {way: (float(group.u[i]) - value) * other.half for way, value in says.items()}
        end = other.high if miss["all"] > 0 else -other.low
        yield Pair(group.source, "several loads", miss, end * left, 2 * other.half * left, 0.0)


def widening(found: Sequence[Pair]) -> dict[str, float]:
    """By kind, the least factor with which the intervals hold AIM of the pairs, half by value and
    half by source; where few sources show a kind no less than that of all pairs."""
    every = factor(found)
    out = {}
    for kind in KINDS:
        mine = [pair for pair in found if pair.kind == kind]
        own = factor(mine) if mine else every
        out[kind] = own if len({p.source for p in mine}) >= FEW else max(own, every)
    return {kind: round(value, 2) for kind, value in out.items()}


def factor(found: Sequence[Pair]) -> float:
    return least(FACTORS, lambda x: ((p.source, p.inside(x)) for p in found))


@dataclass
class Judged:
    """A quantity: the law of all sources, and the pairs under laws without their source."""

    quantity: str
    law: CarryOver
    pairs: list[Pair]
    joint: list[Pair]

    def kinds(self) -> list[str]:
        return [kind for kind in KINDS if any(p.kind == kind for p in self.pairs)]

    def of(self, kind: str) -> list[Pair]:
        return [p for p in self.pairs if kind in (p.kind, "all")]

    def width(self, kind: str) -> float:
        return math.exp(statistics.median(
            pair.width * self.law.widen[pair.kind] for pair in self.of(kind)))

    def covered(self, kind: str) -> dict[str, float]:
        """Shares inside: with the factors of all sources, and with those of the other sources."""
        hits, unseen = [], []
        for source in sorted({p.source for p in self.of(kind)}):
            others = widening([p for p in self.pairs if p.source != source])
            for pair in self.of(kind):
                if pair.source == source:
                    hits.append((source, pair.inside(self.law.widen[pair.kind])))
                    unseen.append((source, pair.inside(others[pair.kind])))
        return dict(zip(("by value", "by source", "unseen by value", "unseen by source"),
                        (*shares(hits)[:2], *shares(unseen)[:2]), strict=True))


def judged(quantity: str, groups: Sequence[Group], prior: Mapping[str, float]) -> Judged:
    some = [group.thinned() for group in groups]
    law = fitted(some, prior)
    found: list[Pair] = []
    joint: list[Pair] = []
    for source in sorted({g.source for g in groups if len(g.values) > 1}):
        blind = fitted([g for g in some if g.source != source], prior, law)
        for group in groups:
            if group.source == source:
                found += pairs(group, quantity, blind)
                joint += together(group, blind)
    return Judged(quantity, replace(law, widen=widening(found)), found, joint)


def size(miss: float) -> float:
    return abs(math.expm1(-miss))


def source_medians(found: Sequence[Pair], way: str) -> dict[str, float]:
    parts: dict[str, list[float]] = defaultdict(list)
    for pair in found:
        parts[pair.source].append(size(pair.miss[way]))
    return {source: statistics.median(values) for source, values in sorted(parts.items())}


# --- report -----------------------------------------------------------------------------------


def document(found: Sequence[Judged]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for item in found:
        kinds = {}
        for kind in ("all", *item.kinds()):
            mine = item.of(kind)
            medians = {way: source_medians(mine, way) for way in PLANS}
            kinds[kind] = {
                "pairs": len(mine), "sources": len(medians["plain"]),
                "median_of_source_medians": {
                    way: statistics.median(values.values()) for way, values in medians.items()},
                "covered": item.covered(kind), "width": item.width(kind),
                "source_medians": medians,
            }
        ways = {way: source_medians(item.joint, way) for way in ("plain", "nearest", "all")}
        widen = item.law.widen["concurrency"]
        by_value, by_source, *_ = shares((p.source, abs(p.miss["all"]) <= p.reach * widen)
                                         for p in item.joint)
        out[item.quantity] = {"law": asdict(item.law), "kinds": kinds, "several_loads": {
            "values": len(item.joint), "sources": len(ways["all"]),
            **{way: statistics.median(by.values()) for way, by in ways.items()},
            "by_value": by_value, "by_source": by_source,
        }}
    return out


def main() -> None:
    rows = cases()
    found: list[Judged] = []
    prior: Mapping[str, float] = dict.fromkeys(KINDS, LOSS)
    groups: list[Group] = []
    for quantity in QUANTITIES:
        mine = groups_of(quantity, rows)
        groups = groups or mine  # of TPOT
        found.append(judged(quantity, mine, prior))
        prior = found[0].law.loss
    data = document(found)
    few = beside_calibration(found[0], groups)
    lines = text(data, few)
    print("\n".join(lines))
    if "--dry" in sys.argv:
        return
    write_picture(picture(found[0]), str(PICTURE))
    write_json(REPORTS / "carry_over.json", {"quantities": data, "beside_calibration": few})
    write_text(REPORTS / "carry_over.md", "\n".join(lines) + "\n")
    write_json(CATALOG / "carry_over.json", {
        "source": "validation/scripts/carry_over.py, from pairs of public measurements",
        "quantities": {item.quantity: rounded(asdict(item.law)) for item in found},
    })


def picture(found: Judged) -> Picture:
    """Median error of TPOT over how far two settings are apart."""
    panels = []
    for kind, label in (("concurrency", "ratio of the clients"), ("context", "ratio of the tokens"),
                        ("k", "ratio of the draft lengths + 1"), ("gpus", "ratio of the GPUs")):
        bins = [(low, high) for low, high in pairwise(EDGES)
                if any(low <= p.far < high for p in found.of(kind))]
        series = []
        for hue, (way, name) in enumerate(WAYS.items()):
            y = [statistics.median(source_medians(
                [p for p in found.of(kind) if low <= p.far < high], way).values()) * 100
                for low, high in bins]
            series.append(Series(name, [math.exp((low + high) / 2) for low, high in bins], y, hue))
        panels.append(Panel(f"TPOT by {in_words(kind)}", label, "median error, %", tuple(series),
                            log_x=True, from_zero=True))
    return Picture("One measurement carried over, on sources left out", tuple(panels))


def rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: rounded(inner) for name, inner in value.items()}
    return round(value, 4)


NAMES = {"tpot": "TPOT", "ttft": "TTFT", "speedup": "speedup"}


def text(data: Mapping[str, Any], few: Mapping[str, Any]) -> list[str]:
    whole = {name: item["kinds"]["all"]["median_of_source_medians"] for name, item in data.items()}
    return [
        "# What a measurement says of another system",
        "",
        "Written by `python validation/scripts/carry_over.py` (all numbers: carry_over.json); "
        "the script says what is fitted and judged, `specsim/analytic/carry_over.py` the model. "
        "Medians over sources of the median error of each source's pairs; every pair is predicted "
        "under a law, overheads and intervals that have not seen its source.",
        "",
        *(f"* {NAMES[name]}: {item['carried']:.1%} with the measurement, {item['plain']:.1%} "
          f"without, {item['naive']:.1%} by rule of thumb, {item['in full']:.1%} where the whole "
          "miss is carried over." for name, item in whole.items()),
        "",
        *table(("quantity", "what differs", "sources", "pairs", *PLANS), [
            [NAMES[name], in_words(kind), str(k["sources"]), str(k["pairs"]),
             *(f"{k['median_of_source_medians'][way]:.1%}" for way in PLANS)]
            for name, item in data.items() for kind, k in item["kinds"].items()]),
        "",
        *reading(data),
        "",
        "## Coverage of the 90% intervals",
        "",
        "Share of pairs inside, every value and every source weighing alike: with the shipped "
        "factor of each kind, which is the least one that holds 90% (half by value, half by "
        "source) under laws that have not seen the source, and with a factor of the other "
        f"sources alone. Where fewer than {FEW} sources show a kind, its factor is no less than "
        "that of all pairs. Width: factor between the ends of the middle interval.",
        "",
        *table(("quantity", "what differs", "by value", "by source", "unseen by value",
                "unseen by source", "factor", "width"), [
            [NAMES[name], in_words(kind), *(f"{v:.0%}" for v in k["covered"].values()),
             f"{item['law']['widen'].get(kind, math.nan):.2f}".replace("nan", ""),
             f"{k['width']:.2f}"]
            for name, item in data.items() for kind, k in item["kinds"].items()]),
        "",
        "## Several measurements together",
        "",
        "Values with two or more of their server at other loads: carried over from the one that "
        "tells most, and from all.",
        "",
        *table(("quantity", "sources", "values", "plain", "nearest", "all", "by value",
                "by source"), [
            [NAMES[name], str(k["sources"]), str(k["values"]),
             *(f"{k[way]:.1%}" for way in ("plain", "nearest", "all")),
             *(f"{k[way]:.0%}" for way in ("by_value", "by_source"))]
            for name, item in data.items() for k in (item["several_loads"],)]),
        "",
        "## The law",
        "",
        "Correlation of the lasting parts of two misses that differ by so much, all else equal.",
        "",
        *table(("what differs", *NAMES.values()), [
            [label, *(f"{math.exp(-item['law']['loss'][kind] * far):.2f}"
                      for item in data.values())]
            for kind, far, label in STEPS]),
        "",
        "## Beside a calibration",
        "",
        "TPOT of up to five pairs of each source and kind (seeded), predicted as above, and by a "
        "few-shot fit of the engine's overheads to the one value (`specsim calibrate --from`), "
        "whose priors have seen all sources. A fit to one value has to say which overhead it is "
        "that errs; carrying the miss over does not.",
        "",
        *table(("what differs", "sources", "predicted", "calibrated", "carried"), [
            [in_words(kind), str(item["sources"]),
             *(f"{item[way]:.1%}" for way in ("predicted", "calibrated", "carried"))]
            for kind, item in few.items()]),
    ]


WAYS = {"plain": "prediction alone", "carried": "carried over"}
EDGES = [math.log(2) * (i - 0.5) for i in range(12)]  # about ratios of 1, 2, 4, ...
STEPS = [("gpu", 1.0, "another GPU"), ("gpus", math.log(2), "twice the GPUs"),
         ("engine", 1.0, "another engine or version"), ("k", math.log(2), "k = 3 for 1"),
         ("context", math.log(4), "prompts four times as long"),
         ("concurrency", math.log(4), "four times the load")]


WORDS = {"gpu": "the GPU", "gpus": "the number of GPUs", "engine": "the engine or its version",
         "k": "the draft length", "context": "the lengths", "concurrency": "the load"}


def in_words(kind: str) -> str:
    return WORDS.get(kind, kind)


def reading(data: Mapping[str, Any]) -> list[str]:
    """Where carrying over does not help, or few have measured."""
    worse, few = [], []
    for name, item in data.items():
        for kind in KINDS:
            found = item["kinds"].get(kind)
            label = f"{NAMES[name]} by {in_words(kind)}"
            if found is None:
                few.append(f"{label} (none)")
                continue
            if found["sources"] < FEW:
                few.append(f"{label} ({found['sources']})")
            medians = found["median_of_source_medians"]
            if medians["carried"] > medians["plain"]:
                worse.append(f"{label} ({medians['plain']:.1%}, then {medians['carried']:.1%})")
    return [
        f"* Further off than the prediction alone: {'; '.join(worse) or 'nothing'}.",
        f"* Fewer than {FEW} sources: {'; '.join(few) or 'nothing'}. What no pair shows is taken "
        "from TPOT's law, with the factor of all pairs.",
        "* No source has measured two versions of one engine alike; the pairs of the engine are of "
        "two engines, and a version is taken to change as much.",
    ]


# --- beside a calibration -----------------------------------------------------------------------


def beside_calibration(judged_: Judged, groups: Sequence[Group]) -> dict[str, Any]:
    """Median of source medians for some pairs, with a few-shot fit to the one value."""
    draw, some = random.Random(0), [group.thinned() for group in groups]
    chosen: dict[tuple[str, str], list[tuple[Value, Value]]] = defaultdict(list)
    for group in groups:
        for one, other in product(group.values, repeat=2):
            kind = kind_of(distances(one.setting, other.setting))
            if kind in ("k", "context", "concurrency") and not (
                    one.case.pure_decode or one.case.forward_only):
                chosen[kind, group.source].append((one, other))
    found: dict[str, dict[str, dict[str, list[float]]]] = defaultdict(lambda: defaultdict(dict))
    for (kind, source), mine in sorted(chosen.items()):
        law = fitted([g for g in some if g.source != source], dict.fromkeys(KINDS, LOSS),
                     judged_.law)
        for one, other in draw.sample(mine, min(SAMPLED, len(mine))):
            for way, miss in calibrated(one, other, law).items():
                found[kind][way].setdefault(source, []).append(miss)
    return {
        kind: {"sources": len(ways["carried"]), **{
            way: statistics.median(statistics.median(m) for m in by.values())
            for way, by in ways.items()}}
        for kind, ways in found.items()
    }


def calibrated(one: Value, other: Value, law: CarryOver) -> dict[str, float]:
    """Errors of TPOT of `other`: predicted, after a fit to `one`, and with its miss carried."""
    a, b = one.setting, other.setting
    system = b.system
    if a.system.acceptance is not None:
        system = system.with_(acceptance=a.system.acceptance.at(system.setup.k))
    seen = FewShotPoint("one", a.system, a.workload, a.concurrency, {"tpot_s": one.measured})
    held = FewShotPoint("other", system, b.workload, b.concurrency, {"tpot_s": other.measured})
    (error,) = fit([seen], a.system.engine).errors([held])
    weights, _ = condition(law, [law.alike(distances(a, b))], [[1.0]], [one.u])
    moved = error.before * math.exp(weights[0] * one.u * other.half)
    return {"predicted": abs(error.error_before), "calibrated": abs(error.error_after),
            "carried": abs(moved / other.measured - 1)}


if __name__ == "__main__":
    main()

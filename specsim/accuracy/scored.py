"""Judged values and what they add up to: errors per set and source, signs, coverage.

Relative error of a value is predicted / measured - 1. A source is who measured
(`accuracy.sources`): its rows share habits, so a figure that is to hold for the next source is a
median over the medians of sources, with the worst source of WORST_FROM values or more beside it.
"""

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypedDict

from specsim.accuracy.lookups import source_of
from specsim.accuracy.rows import PublishedCase
from specsim.analytic.intervals import interval_for
from specsim.jsonable import picked
from specsim.summary import error_summary

QUANTITIES = ("step_cost_ratio", "speedup", "tpot", "ttft")
# What per-source figures are given of: name -> quantity and side ('' for either).
KINDS = {
    "step_cost_ratio": ("step_cost_ratio", ""),
    "speedup": ("speedup", ""),
    "tpot_plain": ("tpot", "plain"),
    "tpot_speculative": ("tpot", "speculative"),
    "ttft": ("ttft", ""),
}
MARGIN = 0.03  # gains within it of 1 are no gain either way
CLEAR = 0.05  # gains and losses beyond it are counted apart
WORST_FROM = 5


@dataclass(frozen=True)
class Scored:
    """One judged quantity of one row. quantity: one of QUANTITIES."""

    row_id: str
    set_id: str
    quantity: str
    side: str  # 'plain' or 'speculative'
    klass: str
    predicted: float
    measured: float

    @property
    def error(self) -> float:
        return self.predicted / self.measured - 1

    @property
    def source(self) -> str:
        return source_of(self.set_id)

    @cached_property
    def interval(self) -> tuple[float, float]:
        """90 % interval of the prediction."""
        return interval_for(self.quantity, self.klass, self.predicted)

    @property
    def inside(self) -> bool:
        """Whether the interval holds the measurement."""
        return self.interval[0] <= self.measured <= self.interval[1]

    @property
    def sign_right(self) -> bool | None:
        """Whether gain or loss is predicted; None for what is no speedup, or none beyond MARGIN."""
        if self.quantity != "speedup" or abs(self.measured - 1) <= MARGIN:
            return None
        return (self.predicted > 1) == (self.measured > 1)

    def to_dict(self) -> dict[str, object]:
        low, high = self.interval
        return {**picked(self, "row=row_id set=set_id source quantity side class=klass predicted "
                               "measured error"), "low_90": low, "high_90": high}


class QuantityErrors(TypedDict):
    """Of one quantity; None where no row has it."""

    median_abs_error: float | None
    p90_abs_error: float | None
    bias: float | None
    n: int


def errors_of(errors: Sequence[float]) -> QuantityErrors:
    found = error_summary(errors)
    if found is None:
        return {"median_abs_error": None, "p90_abs_error": None, "bias": None, "n": 0}
    return {
        "median_abs_error": found["median_abs_error"], "p90_abs_error": found["p90_abs_error"],
        "bias": found["bias"], "n": found["count"],
    }


@dataclass
class ScoreReport:
    """All scores of a file. rows: rows read; predicted: rows with at least one score."""

    rows: int = 0
    predicted: int = 0
    scores: list[Scored] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    cases: list[PublishedCase] = field(default_factory=list)

    def over(self, limit: float) -> tuple[str, ...]:
        """Quantities whose median error is above the limit."""
        medians = {
            name: errors_of([s.error for s in self.scores if s.quantity == name])[
                "median_abs_error"
            ]
            for name in QUANTITIES
        }
        return tuple(name for name, median in medians.items() if (median or 0.0) > limit)

    def to_dict(self) -> dict[str, object]:
        sets = _by(self.scores, lambda s: s.set_id)
        return {
            "kind": "published",
            "rows": self.rows,
            "overall": _summary(self.scores),
            "sources": by_source(self.scores),
            "signs": signs(self.scores),
            "coverage": coverage(self.scores),
            "sets": {name: _summary(sets[name]) for name in sorted(sets)},
            "skipped": dict(self.skipped.most_common()),
        }


def _by(scores: Iterable[Scored], key: Callable[[Scored], str]) -> dict[str, list[Scored]]:
    parts: dict[str, list[Scored]] = {}
    for score in scores:
        parts.setdefault(key(score), []).append(score)
    return parts


def _summary(scores: Sequence[Scored]) -> dict[str, object]:
    """The document of a set: a `QuantityErrors` of each of QUANTITIES between counts and shares."""
    inside = [s.inside for s in scores]
    right = [s.sign_right for s in scores if s.sign_right is not None]
    return {
        "n": len({(s.set_id, s.row_id) for s in scores}),
        **{name: errors_of([s.error for s in scores if s.quantity == name]) for name in QUANTITIES},
        "sign_right": sum(right) / len(right) if right else None,
        "sign_n": len(right),
        "interval_coverage": sum(inside) / len(inside) if inside else None,
    }


def kind_of(scores: Iterable[Scored], kind: str) -> list[Scored]:
    """The values of one of KINDS."""
    quantity, side = KINDS[kind]
    return [s for s in scores if s.quantity == quantity and side in ("", s.side)]


def source_medians(scores: Iterable[Scored], kind: str, least: int = 1) -> dict[str, float]:
    """Median size of the error of each source with at least so many values of one of KINDS."""
    parts = _by(kind_of(scores, kind), lambda s: s.source)
    return {
        name: statistics.median(abs(s.error) for s in parts[name])
        for name in sorted(parts) if len(parts[name]) >= least
    }


def by_source(scores: Sequence[Scored]) -> dict[str, dict[str, object]]:
    """Per kind of value: the median of the sources' median errors, how many sources, the source
    of WORST_FROM values or more with the largest (None: no such source), and all medians."""
    out: dict[str, dict[str, object]] = {}
    for kind in KINDS:
        medians = source_medians(scores, kind)
        large = source_medians(scores, kind, WORST_FROM)
        worst = max(large, key=lambda name: large[name], default=None)
        out[kind] = {
            "median_of_medians": statistics.median(medians.values()) if medians else None,
            "sources": len(medians),
            "worst_source": worst,
            "worst_median": None if worst is None else large[worst],
            "medians": medians,
        }
    return out


def signs(scores: Iterable[Scored]) -> dict[str, dict[str, float | int | None]]:
    """Of measured gains, and of losses, beyond CLEAR: how many, and the share predicted as such."""
    found = {
        "gains": [s.predicted > 1 for s in scores
                  if s.quantity == "speedup" and s.measured > 1 + CLEAR],
        "losses": [s.predicted < 1 for s in scores
                   if s.quantity == "speedup" and s.measured < 1 - CLEAR],
    }
    return {
        name: {"right": sum(hits) / len(hits) if hits else None, "n": len(hits)}
        for name, hits in found.items()
    }


def coverage(scores: Sequence[Scored]) -> dict[str, dict[str, dict[str, float | int]]]:
    """Per kind and part of a class ('all', 'plain', 'moe', 'vllm', 'several'...): the share of
    values that lie in their interval, every value and every source weighing alike."""
    out: dict[str, dict[str, dict[str, float | int]]] = {}
    for kind in KINDS:
        parts: dict[str, list[Scored]] = {}
        for score in kind_of(scores, kind):
            for part in ("all", *score.klass.split("|")):
                parts.setdefault(part, []).append(score)
        out[kind] = {name: _shares(part) for name, part in sorted(parts.items())}
    return out


def _shares(scores: Sequence[Scored]) -> dict[str, float | int]:
    sources = [
        statistics.fmean(s.inside for s in part)
        for part in _by(scores, lambda s: s.source).values()
    ]
    return {
        "inside": statistics.fmean(s.inside for s in scores), "n": len(scores),
        "inside_by_source": statistics.fmean(sources), "sources": len(sources),
    }

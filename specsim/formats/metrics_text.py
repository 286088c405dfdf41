"""A server's /metrics in Prometheus text, as counters, gauges and histograms by family name.

Counter families are named without their `_total`, as the exposition format defines them.
A counter only means something between two moments: `difference` subtracts an earlier snapshot
of the same server. Parsing is prometheus-client's; text that was pasted
without its TYPE lines is sorted by the suffixes of the names.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import TypeVar

from specsim.errors import FormatError

Labels = Mapping[str, str]
T = TypeVar("T")
Families = Mapping[str, list[tuple[Labels, T]]]
# Ranks of one engine that repeat each other's figures; only the first of them is counted.
_RANKS = ("tp_rank", "pp_rank", "moe_ep_rank")


@dataclass(frozen=True)
class Histogram:
    """A cumulative histogram: `buckets` are (upper bound, observations up to it), ascending."""

    count: float
    sum: float
    buckets: tuple[tuple[float, float], ...] = ()

    @property
    def mean(self) -> float | None:
        return self.sum / self.count if self.count > 0 else None

    def quantile(self, percent: float) -> float | None:
        """Estimate by linear interpolation inside a bucket, as Prometheus does; None when empty.

        Observations beyond the last finite bound are only known to be larger: that bound is
        returned for them.
        """
        if self.count <= 0 or not self.buckets:
            return None
        rank = self.count * percent / 100
        below, lower = 0.0, 0.0
        for bound, seen in self.buckets:
            if seen >= rank:
                if not math.isfinite(bound):
                    return lower
                inside = seen - below
                return bound if inside <= 0 else lower + (bound - lower) * (rank - below) / inside
            below, lower = seen, bound if math.isfinite(bound) else lower
        return lower

    def plus(self, other: "Histogram") -> "Histogram":
        """The sum of two engines' histograms; buckets are kept when their bounds agree."""
        return Histogram(self.count + other.count, self.sum + other.sum, _join(self, other, 1.0))

    def minus(self, other: "Histogram") -> "Histogram":
        return Histogram(self.count - other.count, self.sum - other.sum, _join(self, other, -1.0))


def _join(one: Histogram, two: Histogram, sign: float) -> tuple[tuple[float, float], ...]:
    if [bound for bound, _ in one.buckets] != [bound for bound, _ in two.buckets]:
        return ()
    return tuple(
        (bound, seen + sign * more)
        for (bound, seen), (_, more) in zip(one.buckets, two.buckets, strict=True)
    )


@dataclass(frozen=True)
class Snapshot:
    """One scrape, or the difference of two (`delta`). Gauges of a difference are the later ones;
    `gauges` is "mean" where a tool scraped all through a run and averaged them.
    """

    origin: str
    counters: Families[float]
    gauge_values: Families[float]
    histograms: Families[Histogram]
    delta: bool = False
    gauges: str = "instant"
    duration_s: float | None = None

    def names(self) -> list[str]:
        return sorted({*self.counters, *self.gauge_values, *self.histograms})

    def counter(self, *names: str) -> float | None:
        """Sum over all label sets of the first family that exists."""
        found = _first(self.counters, names)
        return math.fsum(found) if found else None

    def counter_by(self, name: str, label: str) -> dict[str, float]:
        """A counter's sums by the values of one label."""
        out: dict[str, float] = {}
        for labels, value in _first_ranks(self.counters.get(name, ())):
            out[labels.get(label, "")] = out.get(labels.get(label, ""), 0.0) + value
        return out

    def gauge(self, *names: str, mean: bool = False) -> float | None:
        """Sum (or mean) over all label sets of the first family that exists."""
        found = _first(self.gauge_values, names)
        return math.fsum(found) / (len(found) if mean else 1) if found else None

    def histogram(self, *names: str) -> Histogram | None:
        """All label sets of the first family that exists, added up."""
        found = _first(self.histograms, names)
        return reduce(Histogram.plus, found) if found else None

    def label(self, name: str) -> list[str]:
        """The values that a label has anywhere, sorted."""
        seen: set[str] = set()
        for family in (self.counters, self.gauge_values, self.histograms):
            for items in family.values():
                seen.update(labels[name] for labels, _ in items if name in labels)
        return sorted(seen)


def _first(families: Families[T], names: Iterable[str]) -> list[T]:
    """What the label sets of the first family hold that exists."""
    for name in names:
        if found := _first_ranks(families.get(name, ())):
            return [value for _, value in found]
    return []


def _first_ranks(items: Iterable[tuple[Labels, T]]) -> list[tuple[Labels, T]]:
    kept: dict[tuple[tuple[str, str], ...], tuple[Labels, T]] = {}
    for labels, value in items:
        key = tuple(sorted((k, v) for k, v in labels.items() if k not in _RANKS))
        kept.setdefault(key, (labels, value))
    return list(kept.values())


def parse_metrics(text: str, origin: str) -> Snapshot:
    """Parse Prometheus text; FormatError when it is none."""
    from prometheus_client.parser import text_string_to_metric_families

    counters: dict[str, list[tuple[Labels, float]]] = {}
    gauges: dict[str, list[tuple[Labels, float]]] = {}
    parts: dict[tuple[str, tuple[tuple[str, str], ...]], Histogram] = {}
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                value = float(sample.value)
                name, kind = _family(family.name, family.type, sample.name)
                labels = dict(sample.labels)
                if kind == "skip" or not abs(value) < 1e300:
                    continue
                if kind == "counter":
                    counters.setdefault(name, []).append((labels, value))
                elif kind == "gauge":
                    gauges.setdefault(name, []).append((labels, value))
                else:
                    bound = labels.pop("le", None)
                    key = (name, _key(labels))
                    known = parts.get(key, Histogram(0.0, 0.0))
                    parts[key] = _with_sample(known, kind, bound, value)
    except Exception as error:
        # The parser is a third party's and the text anybody's: whatever it trips over is a fault
        # of the text.
        reason = " ".join(str(error).split())[:120] or type(error).__name__
        raise FormatError(
            f"{origin}: not Prometheus text ({ascii(reason)[1:-1]}); the body of GET /metrics is "
            "expected"
        ) from None
    histograms: dict[str, list[tuple[Labels, Histogram]]] = {}
    for (name, labels_key), item in parts.items():
        histograms.setdefault(name, []).append((dict(labels_key), item))
    return Snapshot(origin, counters, gauges, histograms)


def difference(before: Snapshot, after: Snapshot) -> Snapshot:
    """What happened between two scrapes of one server; FormatError if time ran backwards.

    A label set that appears only in the later scrape counts from zero, as a server creates
    counters when it first uses them.
    """
    counters: dict[str, list[tuple[Labels, float]]] = {}
    for name, labels, value, earlier in _pairs(after.counters, before.counters):
        if value < (earlier or 0.0):
            raise _backwards(before, after, name, earlier or 0.0, value)
        counters.setdefault(name, []).append((labels, value - (earlier or 0.0)))
    histograms: dict[str, list[tuple[Labels, Histogram]]] = {}
    for name, labels, item, old in _pairs(after.histograms, before.histograms):
        if old is not None and item.count < old.count:
            raise _backwards(before, after, name, old.count, item.count)
        gained = item if old is None else item.minus(old)
        histograms.setdefault(name, []).append((labels, gained))
    return Snapshot(
        f"{before.origin} -> {after.origin}", counters, after.gauge_values, histograms, delta=True,
        gauges=after.gauges,
    )


def _pairs(
    after: Families[T], before: Families[T]
) -> Iterator[tuple[str, Labels, T, T | None]]:
    """(family, labels, what it holds now, what it held before or None) of every label set."""
    for name, items in after.items():
        earlier = {_key(labels): value for labels, value in before.get(name, ())}
        for labels, value in items:
            yield name, labels, value, earlier.get(_key(labels))


def _backwards(
    before: Snapshot, after: Snapshot, name: str, first: float, second: float
) -> FormatError:
    return FormatError(
        f"{name} falls from {first:g} in {before.origin} to {second:g} in {after.origin}; counters "
        "only grow, so the two are swapped, from different servers, or the server was restarted "
        "between them"
    )


def _key(labels: Labels) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(labels.items()))


def _family(family: str, kind: str, sample: str) -> tuple[str, str]:
    """Name and kind of a sample; text without TYPE lines is told apart by its suffixes."""
    if sample.endswith("_created"):
        return family, "skip"
    if kind == "counter":
        return family.removesuffix("_total"), "counter"
    if kind == "gauge":
        return family, "gauge"
    for suffix in ("_bucket", "_sum", "_count"):
        if sample.endswith(suffix):
            return sample.removesuffix(suffix), suffix
    if kind == "histogram":
        return family, "skip"
    if sample.endswith("_total"):
        return sample.removesuffix("_total"), "counter"
    return sample, "gauge"


def _with_sample(
    part: Histogram, suffix: str, bound: str | None, value: float
) -> Histogram:
    """A histogram with one more of its samples."""
    if suffix == "_sum":
        return replace(part, sum=value)
    if suffix == "_count":
        return replace(part, count=value)
    buckets = part.buckets if bound is None else (*part.buckets, (float(bound), value))
    return replace(part, buckets=tuple(sorted(buckets)))

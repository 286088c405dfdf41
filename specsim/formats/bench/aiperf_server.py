"""AIPerf's server_metrics_export.json (schema 1.1): /metrics scraped all through the run.

Counters and histograms are already differences over the measured phase; gauges are averages of
many scrapes. Several endpoints are several servers and are added up.
"""

import math
from dataclasses import replace

from specsim.formats.bench.document import Document
from specsim.formats.bench.fields import Fields
from specsim.formats.bench.record import BenchRun
from specsim.formats.bench.server_metrics import run_of
from specsim.formats.metrics_text import Histogram, Labels, Snapshot

NAME = "aiperf server metrics"


def matches(document: Document) -> bool:
    first = document.records[0] if document.records else None
    return (
        isinstance(first, dict)
        and isinstance(first.get("metrics"), dict)
        and ("metrics_phase" in first or "aiperf_version" in first)
    )


def read(document: Document) -> list[BenchRun]:
    runs = []
    for item in document.objects():
        run = run_of(_snapshot(item, document.origin))
        runs.append(
            replace(
                run,
                format=NAME,
                format_version=item.text("aiperf_version"),
                date=item.child("summary").text("start_time"),
            )
        )
    return runs


def _snapshot(item: Fields, origin: str) -> Snapshot:
    counters: dict[str, list[tuple[Labels, float]]] = {}
    gauges: dict[str, list[tuple[Labels, float]]] = {}
    histograms: dict[str, list[tuple[Labels, Histogram]]] = {}
    metrics = item.child("metrics")
    for name in metrics.data:
        family = metrics.child(name)
        kind = family.text("type")
        for series in family.children("series"):
            labels = _labels(series)
            stats = series.child("stats")
            if kind == "counter":
                value = stats.number("total")
                if value is not None:
                    counters.setdefault(name, []).append((labels, value))
            elif kind == "gauge":
                value = stats.number("avg", minimum=None)
                if value is not None:
                    gauges.setdefault(name, []).append((labels, value))
            elif kind == "histogram":
                histograms.setdefault(name, []).append((labels, _histogram(stats)))
    return Snapshot(
        origin, counters, gauges, histograms, delta=True, gauges="mean", duration_s=_length(item)
    )


def _labels(series: Fields) -> Labels:
    labels = {
        key: value for key, value in series.child("labels").data.items() if isinstance(value, str)
    }
    endpoint = series.text("endpoint_url")
    return {**labels, "endpoint_url": endpoint} if endpoint else labels


def _histogram(stats: Fields) -> Histogram:
    buckets = stats.child("buckets")
    seen = []
    for key in buckets.data:
        try:
            bound = math.inf if key == "+Inf" else float(key)
        except ValueError:
            raise buckets.error(key, key, "a bucket's upper bound as key") from None
        count = buckets.number(key)
        if count is not None and not math.isnan(bound):
            seen.append((bound, count))
    return Histogram(
        stats.number("count") or 0.0, stats.number("sum", minimum=None) or 0.0, tuple(sorted(seen))
    )


def _length(item: Fields) -> float | None:
    """Length of the measured phase in seconds."""
    phases = item.child("summary").child("phase_time_ranges")
    phase = phases.child(item.text("metrics_phase") or "profiling")
    start, end = phase.stamp("start_ns"), phase.stamp("end_ns")
    return (end - start) * 1e-9 if start is not None and end is not None and end > start else None

"""AIPerf's server_metrics_export.json (schema 1.1): /metrics scraped all through the run.

Counters and histograms are already differences over the measured phase; gauges are averages of
many scrapes. Several endpoints are several servers and are added up.
"""

import math
from dataclasses import replace
from typing import Annotated

from pydantic import AfterValidator

from specsim.checked import Broken
from specsim.formats.bench.document import ResultFile
from specsim.formats.bench.fields import Foreign, Number, Signed, Stamp, Text, key, part, parts
from specsim.formats.bench.record import BenchRun
from specsim.formats.bench.server_metrics import run_of
from specsim.formats.metrics_text import Histogram, Labels, Snapshot

NAME = "aiperf server metrics"


def _bounds(buckets: dict[str, Number]) -> dict[str, Number]:
    for bound in buckets:
        try:
            float(bound)
        except ValueError:
            raise Broken("a bucket's upper bound as key", bound, bound) from None
    return buckets


class SeriesStats(Foreign):
    """Figures of one series: `total` of a counter, `avg` of a gauge, the rest of a histogram."""

    total: Number = None
    avg: Signed = None
    count: Number = None
    sum: Signed = None
    buckets: Annotated[dict[str, Number], AfterValidator(_bounds)] = part(dict)

    def histogram(self) -> Histogram:
        seen = ((float(bound), count) for bound, count in self.buckets.items())
        known = sorted((b, n) for b, n in seen if n is not None and not math.isnan(b))
        return Histogram(self.count or 0.0, self.sum or 0.0, tuple(known))


class MetricSeries(Foreign):
    labels: dict[str, object] = part(dict)
    endpoint_url: Text = None
    stats: SeriesStats = part(SeriesStats)

    def all_labels(self) -> Labels:
        labels = {name: text for name, text in self.labels.items() if isinstance(text, str)}
        return labels | ({"endpoint_url": self.endpoint_url} if self.endpoint_url else {})


class MetricFamily(Foreign):
    type: Text = None
    series: list[MetricSeries] = parts()


class PhaseRange(Foreign):
    start_ns: Stamp = None
    end_ns: Stamp = None


class ServerExport(Foreign):
    metrics: dict[str, MetricFamily]
    format_version: Text = key("aiperf_version")
    date: Text = key("summary.start_time")
    metrics_phase: Text = None
    ranges: dict[str, PhaseRange] = part(dict, "summary.phase_time_ranges")

    def length_s(self) -> float | None:
        """Length of the measured phase."""
        phase = self.ranges.get(self.metrics_phase or "profiling", PhaseRange())
        start, end = phase.start_ns, phase.end_ns
        if start is None or end is None or end <= start:
            return None
        return (end - start) * 1e-9

    def snapshot(self, origin: str) -> Snapshot:
        counters: dict[str, list[tuple[Labels, float]]] = {}
        gauges: dict[str, list[tuple[Labels, float]]] = {}
        histograms: dict[str, list[tuple[Labels, Histogram]]] = {}
        for name, family in self.metrics.items():
            for series in family.series:
                labels, stats = series.all_labels(), series.stats
                if family.type == "counter" and stats.total is not None:
                    counters.setdefault(name, []).append((labels, stats.total))
                elif family.type == "gauge" and stats.avg is not None:
                    gauges.setdefault(name, []).append((labels, stats.avg))
                elif family.type == "histogram":
                    histograms.setdefault(name, []).append((labels, stats.histogram()))
        return Snapshot(
            origin, counters, gauges, histograms, delta=True, gauges="mean",
            duration_s=self.length_s(),
        )


def matches(document: ResultFile) -> bool:
    first = document.first
    return isinstance(first.get("metrics"), dict) and (
        "metrics_phase" in first or "aiperf_version" in first
    )


def read(document: ResultFile) -> list[BenchRun]:
    return [
        replace(
            run_of(item.snapshot(document.origin)), format=NAME, format_version=item.format_version,
            date=item.date,
        )
        for _, item in document.read(ServerExport)
    ]

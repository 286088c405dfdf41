"""What aiperf and genai-perf have in common: results as a table of named metrics with units.

Both write {"request_latency": {"unit": "ms", "avg": .., "p50": .., "std": ..}, ...} with the same
names. Their inter_token_latency is (latency - ttft) / (output tokens - 1), which is TPOT; the
gap between chunks is aiperf's inter_chunk_latency. The value of a single-valued metric is "avg".
"""

import re
from dataclasses import replace

from specsim.errors import FormatError
from specsim.formats.bench.fields import Fields
from specsim.formats.bench.record import BenchRun, Load, Stat

_SECONDS = {
    "s": 1.0,
    "sec": 1.0,
    "seconds": 1.0,
    "ms": 1e-3,
    "milliseconds": 1e-3,
    "us": 1e-6,
    "ns": 1e-9,
    "nanoseconds": 1e-9,
}
_PERCENTILE = re.compile(r"p(\d{1,2}(?:\.\d{1,3})?)")


class MetricTable:
    """Access to such a table with its units checked."""

    def __init__(self, fields: Fields) -> None:
        self.fields = fields

    def time(self, name: str) -> Stat | None:
        """Statistics in seconds; FormatError for a unit that is no time."""
        item = self.fields.child(name)
        if not item.data:
            return None
        unit = item.text("unit")
        scale = _SECONDS.get((unit or "ms").lower())
        if scale is None:
            raise item.error("unit", unit, f"a unit of time ({', '.join(sorted(_SECONDS))})")
        mean = item.number("avg", scale)
        if mean is None:
            return None
        found = {}
        for key in item.data:
            if _PERCENTILE.fullmatch(key):
                value = item.number(key, scale)
                if value is not None:
                    found[key] = value
        return Stat(mean, found.get("p50"), item.number("std", scale), found, item.count("count"))

    def value(self, name: str) -> float | None:
        """The mean of a metric, or its only value."""
        return self.fields.child(name).number("avg")

    def whole(self, name: str) -> int | None:
        """A single value that counts something."""
        value = self.value(name)
        return None if value is None else round(value)

    def total(self, name: str, count: int | None) -> int | None:
        """The sum over requests: reported, or mean times their number."""
        item = self.fields.child(name)
        value = item.number("sum")
        if value is None:
            mean = item.number("avg")
            value = mean * count if mean is not None and count is not None else None
        return None if value is None else round(value)


def looks_like(record: object) -> bool:
    """Whether a JSON object is such a table (takes any JSON value)."""
    if not isinstance(record, dict):
        return False
    latency = record.get("request_latency")
    return isinstance(latency, dict) and "unit" in latency and "avg" in latency


def run_of(table: MetricTable, source: str, name: str, load: Load) -> BenchRun:
    """The part of a run that both tools state alike."""
    completed = table.whole("request_count")
    input_total = table.total("input_sequence_length", completed)
    output_total = table.total("output_sequence_length", completed)
    rate, latency = table.value("request_throughput"), table.time("request_latency")
    duration = table.time("benchmark_duration")
    length = duration.mean if duration is not None else None
    if length is None and rate and completed:
        length = completed / rate
    busy = table.value("effective_concurrency")
    if busy is None and latency is not None and latency.mean and completed and length:
        busy = latency.mean * completed / length
    if rate is not None and completed and length:
        rate = completed / length  # the same, without the rounding of a CSV
    output_rate = table.value("output_token_throughput")
    if output_total and length:
        output_rate = output_total / length
    return BenchRun(
        source=source,
        format=name,
        load=load,
        completed=completed,
        duration_s=length,
        input_tokens=input_total,
        output_tokens=output_total,
        input_tokens_mean=table.value("input_sequence_length"),
        output_tokens_mean=table.value("output_sequence_length"),
        output_tok_s=output_rate,
        request_rate_achieved=rate,
        concurrency_mean=busy,
        ttft_s=table.time("time_to_first_token"),
        tpot_s=table.time("inter_token_latency"),
        itl_s=table.time("inter_chunk_latency"),
        e2el_s=latency,
        warnings=(
            f"{name}'s inter_token_latency is TPOT here; the gap between chunks is "
            + (
                "its inter_chunk_latency"
                if table.fields.has("inter_chunk_latency")
                else "not in the file"
            ),
        ),
    )


def streamed(run: BenchRun, source: str) -> BenchRun:
    """Refuse a result without any latency, which is none of a language model's."""
    if run.e2el_s is None:
        raise FormatError(f"{source}: request_latency has no avg; a finished run is expected")
    return (
        replace(run, warnings=run.warnings)
        if run.ttft_s
        else replace(
            run, warnings=(*run.warnings, "the answers were not streamed: no TTFT, TPOT or ITL")
        )
    )

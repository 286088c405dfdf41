"""What aiperf and genai-perf have in common: results as a table of named metrics with units.

Both write {"request_latency": {"unit": "ms", "avg": .., "p50": .., "std": ..}, ...} with the same
names. Their inter_token_latency is (latency - ttft) / (output tokens - 1), which is TPOT; the
gap between chunks is aiperf's inter_chunk_latency. The value of a single-valued metric is "avg".
"""

from dataclasses import replace

from specsim.errors import FormatError
from specsim.formats.bench.fields import Foreign, Number, as_mapping, key, part, stated
from specsim.formats.bench.record import BenchLoad, BenchRun
from specsim.formats.bench.shapes import MetricSpread, TimeSpread
from specsim.formats.bench.stats import in_flight, rounded


class MetricTable(Foreign):
    """The metrics of a run."""

    e2el_s: TimeSpread = part(TimeSpread, "request_latency")
    ttft_s: TimeSpread = part(TimeSpread, "time_to_first_token")
    tpot_s: TimeSpread = part(TimeSpread, "inter_token_latency")
    itl_s: TimeSpread | None = key("inter_chunk_latency")
    benchmark_duration: TimeSpread = part(TimeSpread)
    input_sequence_length: MetricSpread = part(MetricSpread)
    output_sequence_length: MetricSpread = part(MetricSpread)
    request_count: Number = key("request_count.avg")
    request_rate_achieved: Number = key("request_throughput.avg")
    output_tok_s: Number = key("output_token_throughput.avg")
    concurrency_mean: Number = key("effective_concurrency.avg")


def _total(item: MetricSpread, count: int | None) -> int | None:
    """The sum over requests: reported, or mean times their number."""
    if item.total is None and item.mean is not None and count is not None:
        return round(item.mean * count)
    return rounded(item.total)


def looks_like(record: object) -> bool:
    """Whether a JSON object is such a table (takes any JSON value)."""
    latency = as_mapping(as_mapping(record).get("request_latency"))
    return "unit" in latency and "avg" in latency


def run_of(table: MetricTable, source: str, name: str, load: BenchLoad) -> BenchRun:
    """The part of a run that both tools state alike. FormatError for a result without any
    latency, which is none of a language model's."""
    completed = rounded(table.request_count)
    inputs, outputs = table.input_sequence_length, table.output_sequence_length
    output_total = _total(outputs, completed)
    found = stated(table)
    rate, latency, duration = (
        found["request_rate_achieved"], found["e2el_s"], table.benchmark_duration.normal())
    if latency is None:
        raise FormatError(f"{source}: request_latency has no avg; a finished run is expected")
    length = duration.mean if duration is not None else None
    if length is None and rate and completed:
        length = completed / rate
    if found["concurrency_mean"] is None:
        found["concurrency_mean"] = in_flight(latency, completed, length)
    if rate is not None and completed and length:
        found["request_rate_achieved"] = completed / length  # without the rounding of a CSV
    if output_total and length:
        found["output_tok_s"] = output_total / length
    run = BenchRun(
        source=source, format=name, load=load, completed=completed, duration_s=length,
        input_tokens=_total(inputs, completed), output_tokens=output_total,
        input_tokens_mean=inputs.mean, output_tokens_mean=outputs.mean, **found,
        warnings=(
            f"{name}'s inter_token_latency is TPOT here; the gap between chunks is "
            + ("its inter_chunk_latency" if table.itl_s is not None else "not in the file"),
        ),
    )
    if run.ttft_s:
        return run
    lost = "the answers were not streamed: no TTFT, TPOT or ITL"
    return replace(run, warnings=(*run.warnings, lost))

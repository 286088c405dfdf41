"""What aiperf and genai-perf have in common: results as a table of named metrics with units.

Both write {"request_latency": {"unit": "ms", "avg": .., "p50": .., "std": ..}, ...} with the same
names. Their inter_token_latency is (latency - ttft) / (output tokens - 1), which is TPOT; the
gap between chunks is aiperf's inter_chunk_latency. The value of a single-valued metric is "avg".
"""

from dataclasses import replace
from typing import Annotated, ClassVar

from pydantic import AfterValidator

from specsim.checked import Broken
from specsim.errors import FormatError
from specsim.formats.bench.fields import Foreign, Number, Text, as_mapping, key, part
from specsim.formats.bench.record import BenchLoad, BenchRun, Stat
from specsim.formats.bench.shapes import FOLLOWS, NOT_TIMES, OTHER_FIGURES, MetricSpread
from specsim.formats.bench.stats import in_flight, rounded

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


def _time_unit(unit: str | None) -> str | None:
    if unit is not None and unit.lower() not in _SECONDS:
        raise Broken(f"a unit of time ({', '.join(sorted(_SECONDS))})")
    return unit


class TimeMetric(MetricSpread):
    """A quantity in a unit of time."""

    unit: Annotated[Text, AfterValidator(_time_unit)] = None

    def seconds(self) -> Stat | None:
        return self.stat(_SECONDS[(self.unit or "ms").lower()])


# Metrics of these tools that are left out, and why
METRICS = {
    "(?:total_)?(?:output_token_count|output_tokens|isl|osl|input_tokens)|(?:total_)?usage_.*"
    "|.*throughput(?:_per_user)?|decode_duration|time_to_second_token|effective_.*|active_.*"
    "|tokens_in_flight|request_error_rate|(?:min_request|max_response)_timestamp": FOLLOWS,
    "time_to_first_output_token|(?:total_)?reasoning_token(?:_count|s)|.*thinking_efficiency":
        "splits thinking from answer; a step does not",
    "(?:total_)?spec_decode_.*": "means over requests; the counts are read",
    "osl_mismatch_.*|requested_osl|overall_usage_.*|usage_discrepancy_count": "checks of the tool",
    "error_.*|total_error_isl|good.*|context_overflow_count": "of failed or judged requests",
    "http_req_.*|network_.*|credit_.*|stream_.*_latency|replay_.*": "the client and the network",
    "image_.*|num_images|video_.*|audio_.*|rtfx": NOT_TIMES,
}


class MetricTable(Foreign):
    """The metrics of a run."""

    passed_over: ClassVar = {**METRICS, OTHER_FIGURES: "only the mean is read"}

    request_latency: TimeMetric = part(TimeMetric)
    time_to_first_token: TimeMetric = part(TimeMetric)
    inter_token_latency: TimeMetric = part(TimeMetric)
    inter_chunk_latency: TimeMetric | None = None
    benchmark_duration: TimeMetric = part(TimeMetric)
    input_sequence_length: MetricSpread = part(MetricSpread)
    output_sequence_length: MetricSpread = part(MetricSpread)
    request_count: Number = key("request_count.avg")
    request_throughput: Number = key("request_throughput.avg")
    output_token_throughput: Number = key("output_token_throughput.avg")
    effective_concurrency: Number = key("effective_concurrency.avg")


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
    input_total = _total(table.input_sequence_length, completed)
    output_total = _total(table.output_sequence_length, completed)
    rate, latency = table.request_throughput, table.request_latency.seconds()
    if latency is None:
        raise FormatError(f"{source}: request_latency has no avg; a finished run is expected")
    duration = table.benchmark_duration.seconds()
    length = duration.mean if duration is not None else None
    if length is None and rate and completed:
        length = completed / rate
    busy = table.effective_concurrency
    if busy is None:
        busy = in_flight(latency, completed, length)
    if rate is not None and completed and length:
        rate = completed / length  # the same, without the rounding of a CSV
    output_rate = table.output_token_throughput
    if output_total and length:
        output_rate = output_total / length
    gaps = table.inter_chunk_latency
    run = BenchRun(
        source=source,
        format=name,
        load=load,
        completed=completed,
        duration_s=length,
        input_tokens=input_total,
        output_tokens=output_total,
        input_tokens_mean=table.input_sequence_length.mean,
        output_tokens_mean=table.output_sequence_length.mean,
        output_tok_s=output_rate,
        request_rate_achieved=rate,
        concurrency_mean=busy,
        ttft_s=table.time_to_first_token.seconds(),
        tpot_s=table.inter_token_latency.seconds(),
        itl_s=gaps.seconds() if gaps is not None else None,
        e2el_s=latency,
        warnings=(
            f"{name}'s inter_token_latency is TPOT here; the gap between chunks is "
            + ("its inter_chunk_latency" if gaps is not None else "not in the file"),
        ),
    )
    if run.ttft_s:
        return run
    lost = "the answers were not streamed: no TTFT, TPOT or ITL"
    return replace(run, warnings=(*run.warnings, lost))

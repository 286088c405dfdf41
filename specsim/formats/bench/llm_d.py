"""llm-d's benchmark report, versions 0.1 and 0.2: YAML or JSON, one stage of a load a file.

It restates another tool's figures under its own names, so what they mean depends on that tool:

    guidellm          inter_token_latency is TPOT; its time_per_output_token contains the TTFT
    inference-perf    inter_token_latency is per token; only its mean says something
    vllm-benchmark    TPOT, and gaps between chunks

Every figure carries its unit (s, ms, s/token, ms/token).
"""

import re
from typing import ClassVar

from specsim.errors import FormatError
from specsim.formats.bench.document import ResultFile
from specsim.formats.bench.fields import (
    Count,
    Foreign,
    Number,
    Text,
    as_mapping,
    key,
    part,
    parts,
    read_as,
    stated,
)
from specsim.formats.bench.record import BenchLoad, BenchRun, ServerArgs, Stat
from specsim.formats.bench.shapes import MetricSpread, TimeSpread
from specsim.formats.bench.stats import in_flight, with_derived
from specsim.formats.bench.unread import unread, with_note
from specsim.formats.server_yaml import MAX_YAML, documents

NAME = "llm-d report"
_OLD, _NEW = "metrics", "results.request_performance.aggregate"
_ISO = re.compile(r"PT(?:(\d{1,4})H)?(?:(\d{1,4})M)?(?:(\d{1,6}(?:\.\d{1,9})?)S)?")


def _both(name: str) -> tuple[str, str]:
    """Where a figure stands in the new version and in the old one."""
    return f"{_NEW}.{name}", f"{_OLD}.{name}"


class Latency(TimeSpread):
    usual: ClassVar = "s"


def _latency(name: str) -> Latency:
    found: Latency = part(Latency, *_both(f"latency.{name}"))
    return found


class StackPart(Foreign):
    """One component of the served stack."""

    model: Text = key("standardized.model.name")
    tp: Count = key("standardized.parallelism.tp", "standardized.accelerator.parallelism.tp")


class LlmdReport(Foreign):
    version: object = None
    model: Text = key("scenario.model.name")
    stack: list[StackPart] = parts("scenario.stack")
    tool: Text = key("scenario.load.standardized.tool", "scenario.load.name")
    concurrency: Count = key("scenario.load.standardized.concurrency")
    rate: Number = key("scenario.load.standardized.rate_qps")
    duration: object = key("run.time.duration", "metrics.time.duration")
    total: Count = key(*_both("requests.total"))
    failed: Count = key(*_both("requests.failures"))
    input_length: MetricSpread = part(MetricSpread, *_both("requests.input_length"))
    output_length: MetricSpread = part(MetricSpread, *_both("requests.output_length"))
    ttft_s: Latency = _latency("time_to_first_token")
    tpot_s: Latency = _latency("time_per_output_token")
    itl_s: Latency = _latency("inter_token_latency")
    e2el_s: Latency = _latency("request_latency")
    output_tok_s: Number = key(
        f"{_NEW}.throughput.output_token_rate.mean", f"{_OLD}.throughput.output_tokens_per_sec")
    request_rate_achieved: Number = key(
        f"{_NEW}.throughput.request_rate.mean", f"{_OLD}.throughput.requests_per_sec")


def _is_report(record: object) -> bool:
    found = as_mapping(record)
    performance = as_mapping(as_mapping(found.get("results")).get("request_performance"))
    old = as_mapping(found.get("metrics"))
    return "scenario" in found and ("latency" in old or "aggregate" in performance)


def matches(document: ResultFile) -> bool:
    if document.is_json:
        return _is_report(document.first)
    text = document.text
    if len(text) > MAX_YAML or not re.search(r"^(?:metrics|results):", text, re.MULTILINE):
        return False
    try:
        return any(_is_report(value) for value in documents(text, document.origin))
    except FormatError:
        return re.search(r"^scenario:", text, re.MULTILINE) is not None


def read(document: ResultFile) -> list[BenchRun]:
    records = document.records or tuple(documents(document.text, document.origin))
    where = f"{document.origin}: "
    return [
        _noted(_run(read_as(LlmdReport, record, where), document.origin), record, document.is_json)
        for record in records
    ]


def _noted(run: BenchRun, record: object, json: bool) -> BenchRun:
    return run if json else with_note(run, unread(LlmdReport, [record]))


def _run(item: LlmdReport, origin: str) -> BenchRun:
    tool, found = (item.tool or "").lower(), stated(item)
    itl, rate = found["itl_s"], item.request_rate_achieved
    if not tool.startswith("vllm"):
        found["itl_s"] = None
    if tool.startswith("guidellm"):
        found["tpot_s"] = itl
    completed = None if item.total is None else max(0, item.total - (item.failed or 0))
    length = _length_s(item.duration)
    if length is None and completed and rate:
        length = completed / rate
    parts_of = [found for found in item.stack if found.model]
    found["model"] = item.model or (parts_of[0].model if parts_of else None)
    closed = item.concurrency is not None
    return with_derived(BenchRun(
        source=origin, format=NAME, **found,
        format_version=str(item.version)[:20] if item.version is not None else None,
        load=BenchLoad(
            float("inf") if closed else item.rate, item.concurrency, num_prompts=item.total
        ),
        completed=completed, duration_s=length,
        input_tokens_mean=item.input_length.measured,
        output_tokens_mean=item.output_length.measured,
        concurrency_mean=in_flight(found["e2el_s"], completed, length),
        itl_per_token_s=itl and Stat(itl.mean) if tool.startswith("inference-perf") else None,
        server_args=ServerArgs(tp=next((p.tp for p in item.stack if p.tp), None)),
        metadata={"tool": tool[:80]} if tool else {},
        warnings=() if tool else (
            "the report does not name its tool: its inter-token latency was left out",),
    ))


def _length_s(value: object) -> float | None:
    """Seconds of a number, or of a duration as ISO 8601 has it (PT1M2.5S)."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value) if 0 < value < 1e9 else None
    found = _ISO.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return None
    hours, minutes, seconds = (float(part or 0) for part in found.groups())
    return hours * 3600 + minutes * 60 + seconds or None

"""NVIDIA GenAI-Perf 0.0.16: profile_export_genai_perf.json, and the raw profile_export.json of
perf_analyzer beneath it. Names and their meaning as in `metric_table`.

The summary has no gap between chunks. The raw file has the time of every response in
nanoseconds but no token counts (the tool tokenizes the texts itself), so it gives TTFT, chunk
gaps and latency, not TPOT. Empty responses at the end, such as [DONE], are not tokens.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

from specsim.formats.bench.document import Document
from specsim.formats.bench.fields import Fields
from specsim.formats.bench.metric_table import MetricTable, looks_like, run_of, streamed
from specsim.formats.bench.record import BenchRun, Load, RequestRow
from specsim.formats.bench.stats import total, with_step_yield

NAME = "genai-perf"


def matches(document: Document) -> bool:
    first = document.records[0] if document.records else None
    return looks_like(first) and isinstance(first, dict) and "aiperf_version" not in first


def read(document: Document) -> list[BenchRun]:
    runs = []
    for item in document.objects():
        config = item.child("input_config")
        names = config.items("model_names") or config.items("model") or []
        run = streamed(
            run_of(MetricTable(item), document.origin, NAME, _load(config)), document.origin
        )
        model = names[0][:500] if names and isinstance(names[0], str) else None
        runs.append(with_step_yield(replace(run, model=model)))
    return runs


def _load(config: Fields) -> Load:
    """Load from the stimulus; older versions kept it at the top of the arguments."""
    stimulus = config.child("perf_analyzer").child("stimulus")
    if not stimulus.data:
        stimulus = config
    concurrency, rate = stimulus.count("concurrency"), stimulus.number("request_rate")
    if rate is None and concurrency is not None:
        rate = float("inf")
    return Load(request_rate=rate, max_concurrency=concurrency)


def matches_raw(document: Document) -> bool:
    first = document.records[0] if document.records else None
    if not isinstance(first, dict):
        return False
    parts = first.get("experiments")
    return (
        isinstance(parts, list)
        and bool(parts)
        and isinstance(parts[0], dict)
        and ("requests" in parts[0])
    )


def read_raw(document: Document) -> list[BenchRun]:
    runs = []
    for item in document.objects():
        for part in item.children("experiments"):
            runs.append(_experiment(part, document.origin, item.text("version")))
    return runs


def _experiment(part: Fields, origin: str, version: str | None) -> BenchRun:
    stimulus = part.child("experiment")
    mode, value = stimulus.text("mode"), stimulus.number("value")
    load = Load()
    if mode == "concurrency" and value is not None:
        load = Load(float("inf"), round(value), pattern=mode)
    elif mode == "request_rate":
        load = Load(value, pattern=mode)
    requests = part.children("requests")
    first = min((request.stamp("timestamp") or 0 for request in requests), default=0)
    rows = [_row(request, first) for request in requests]
    sums = total(rows, part.where)
    run = BenchRun(
        source=origin,
        format="genai-perf raw",
        format_version=version,
        load=replace(load, num_prompts=len(rows)),
        completed=sums.completed,
        failed=sums.failed,
        duration_s=sums.span_s,
        request_rate_achieved=sums.completed / sums.span_s if sums.span_s else None,
        concurrency_mean=sums.concurrency_mean,
        ttft_s=sums.ttft_s,
        itl_s=sums.itl_s,
        e2el_s=sums.e2el_s,
        requests=tuple(rows),
        warnings=(
            "the raw export has times of responses but no token counts: no TPOT and no "
            "token throughput; profile_export_genai_perf.json has them",
        ),
    )
    return with_step_yield(run)


def _row(request: Fields, first: int) -> RequestRow:
    sent = request.stamp("timestamp")
    if sent is None:
        raise request.error("timestamp", None, "the time of sending in nanoseconds")
    times = list(request.stamps("response_timestamps") or ())
    outputs = request.items("response_outputs")
    if outputs is not None:
        if len(outputs) != len(times):
            raise request.error(
                "response_outputs", outputs, f"a list of {len(times)}, like response_timestamps"
            )
        while outputs and not _has_text(outputs[-1]):
            outputs, times = outputs[:-1], times[:-1]
    for before, after in pairwise((sent, *times)):
        if after < before:
            raise request.error(
                "response_timestamps", after, f"a time not before the one preceding it ({before})"
            )
    arrival = (sent - first) * 1e-9
    if not times:
        return RequestRow(arrival, None, None, None, None, success=False)
    return RequestRow(
        arrival_s=arrival,
        input_tokens=None,
        output_tokens=None,
        ttft_s=(times[0] - sent) * 1e-9,
        e2el_s=(times[-1] - sent) * 1e-9,
        itls_s=tuple((after - before) * 1e-9 for before, after in pairwise(times)),
    )


def _has_text(output: Any) -> bool:
    """Whether a response carries text: not empty, not [DONE], not a chunk without choices."""
    response = output.get("response") if isinstance(output, Mapping) else None
    if not isinstance(response, str):
        return response is not None
    body = response.strip().removeprefix("data:").strip()
    if not body or body.startswith("[DONE]"):
        return False
    try:
        parsed = json.loads(body.split("\n\n")[0])
    except (ValueError, RecursionError):
        return True
    return not (isinstance(parsed, Mapping) and parsed.get("choices") == [])

"""ray-project/llmperf: NAME_summary.json (flattened) and NAME_individual_responses.json.

Its inter_token_latency_s is the sum of all gaps, the first one being the TTFT, divided by the
output tokens: it contains the TTFT and is not TPOT. TPOT is computed here from latency, TTFT and
output tokens; exactly per request from the individual responses, as a ratio of means from the
summary. Output tokens are counted by the client with a Llama tokenizer, whatever the model.
(The package called `llmperf` on the package index is another project.)
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from specsim.formats.bench.document import ResultFile
from specsim.formats.bench.fields import (
    Count,
    Foreign,
    Number,
    Text,
    figure,
    key,
    percentiles,
    read_as,
    stated,
)
from specsim.formats.bench.record import BenchLoad, BenchRun, RequestRow, Stat
from specsim.formats.bench.stats import of_rows, tpot_of_means

NAME = "llmperf"
_NOT_TPOT = (
    "llmperf's inter-token latency contains the TTFT; TPOT was computed from latency, TTFT and "
    "output tokens"
)


class LlmperfSummary(Foreign):
    """Times by name (`results_ttft_s_mean`, ...) are read with `_stat`."""

    by_name: ClassVar = (r"results_(?:ttft_s|end_to_end_latency_s)_\w+",)

    format_version: Text = key("version")
    model: Text = None
    label: Text = key("name")
    completed: Count = key("results_num_completed_requests")
    failed: Count = key("results_number_errors")
    input_tokens_mean: Number = key("results_number_input_tokens_mean")
    output_tokens_mean: Number = key("results_number_output_tokens_mean")
    output_tok_s: Number = key("results_mean_output_throughput_token_per_s")
    per_minute: Number = key("results_num_completed_requests_per_min")
    num_concurrent_requests: Count = None
    results_num_requests_started: Count = None


class LlmperfResponse(Foreign):
    error_code: object = None
    input_tokens: Count = key("number_input_tokens")
    output_tokens: Count = key("number_output_tokens")
    ttft_s: Number = None
    e2el_s: Number = key("end_to_end_latency_s")

    def row(self) -> RequestRow:
        row = RequestRow(None, **stated(self, RequestRow))
        good = self.error_code is None
        return row if good else replace(row, ttft_s=None, e2el_s=None, success=False)


def matches(document: ResultFile) -> bool:
    return "results_ttft_s_mean" in document.first


def read(document: ResultFile) -> list[BenchRun]:
    return [_run(raw, where, document.origin) for where, raw in document.objects()]


def _run(raw: Mapping[str, object], where: str, origin: str) -> BenchRun:
    item = read_as(LlmperfSummary, raw, where)
    completed, inputs, outputs = item.completed, item.input_tokens_mean, item.output_tokens_mean
    rate = item.per_minute / 60 if item.per_minute is not None else None
    ttft, e2el = _stat(raw, "ttft_s", where), _stat(raw, "end_to_end_latency_s", where)
    tpot = tpot_of_means(e2el, ttft, outputs)
    busy = e2el.mean * rate if e2el is not None and e2el.mean is not None and rate else None
    return BenchRun(
        source=origin, format=NAME, **stated(item),
        load=BenchLoad(
            float("inf"), item.num_concurrent_requests,
            num_prompts=item.results_num_requests_started,
        ),
        duration_s=completed / rate if completed and rate else None,
        input_tokens=round(inputs * completed) if inputs is not None and completed else None,
        output_tokens=round(outputs * completed) if outputs is not None and completed else None,
        request_rate_achieved=rate, concurrency_mean=busy, ttft_s=ttft,
        tpot_s=Stat(tpot, basis="derived") if tpot else None, e2el_s=e2el,
        warnings=(_NOT_TPOT + " (a ratio of means; the individual responses make it exact)",),
    )


def _stat(raw: Mapping[str, object], name: str, where: str) -> Stat | None:
    mean = figure(raw, f"results_{name}_mean", where)
    if mean is None:
        return None
    found = percentiles(raw, re.compile(rf"results_{name}_quantiles_p(\d{{1,2}})"), where)
    return Stat(mean, found.get("p50"), figure(raw, f"results_{name}_stddev", where), found)


def matches_responses(document: ResultFile) -> bool:
    return document.array and "end_to_end_latency_s" in document.first


def read_responses(document: ResultFile) -> list[BenchRun]:
    run = BenchRun(
        source=document.origin,
        format="llmperf responses",
        warnings=(
            _NOT_TPOT,
            "individual responses say neither when requests were sent nor "
            "the load: no throughput",
        ),
    )
    rows = [item.row() for _, item in document.read(LlmperfResponse)]
    return [of_rows(run, rows, f"{document.origin}: ")]

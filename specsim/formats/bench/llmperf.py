"""ray-project/llmperf: NAME_summary.json (flattened) and NAME_individual_responses.json.

Its inter_token_latency_s is the sum of all gaps, the first one being the TTFT, divided by the
output tokens: it contains the TTFT and is not TPOT. TPOT is computed here from latency, TTFT and
output tokens; exactly per request from the individual responses, as a ratio of means from the
summary. Output tokens are counted by the client with a Llama tokenizer, whatever the model.
(The package called `llmperf` on the package index is another project.)
"""

import re
from dataclasses import replace

from specsim.formats.bench.document import Document
from specsim.formats.bench.fields import Fields
from specsim.formats.bench.record import BenchRun, Load, RequestRow, Stat
from specsim.formats.bench.stats import per_request, total

NAME = "llmperf"
_QUANTILE = re.compile(r"results_(\w+?)_quantiles_p(\d{1,2})")
_NOT_TPOT = (
    "llmperf's inter-token latency contains the TTFT; TPOT was computed from latency, TTFT and "
    "output tokens"
)


def matches(document: Document) -> bool:
    first = document.records[0] if document.records else None
    return isinstance(first, dict) and "results_ttft_s_mean" in first


def read(document: Document) -> list[BenchRun]:
    return [_run(item, document.origin) for item in document.objects()]


def _run(item: Fields, origin: str) -> BenchRun:
    completed = item.count("results_num_completed_requests")
    started = item.count("results_num_requests_started")
    failed = item.count("results_number_errors")
    per_minute = item.number("results_num_completed_requests_per_min")
    rate = per_minute / 60 if per_minute is not None else None
    ttft, e2el = _stat(item, "ttft_s"), _stat(item, "end_to_end_latency_s")
    inputs = item.number("results_number_input_tokens_mean")
    outputs = item.number("results_number_output_tokens_mean")
    tpot = None
    if ttft is not None and e2el is not None and outputs is not None and outputs > 1:
        span = (e2el.mean or 0.0) - (ttft.mean or 0.0)
        tpot = Stat(span / (outputs - 1), basis="derived") if span > 0 else None
    duration = completed / rate if completed and rate else None
    busy = None
    if e2el is not None and e2el.mean is not None and rate:
        busy = e2el.mean * rate
    return BenchRun(
        source=origin,
        format=NAME,
        format_version=item.text("version"),
        model=item.text("model"),
        label=item.text("name"),
        load=Load(float("inf"), item.count("num_concurrent_requests"), num_prompts=started),
        completed=completed,
        failed=failed,
        duration_s=duration,
        input_tokens=round(inputs * completed) if inputs is not None and completed else None,
        output_tokens=round(outputs * completed) if outputs is not None and completed else None,
        input_tokens_mean=inputs,
        output_tokens_mean=outputs,
        output_tok_s=item.number("results_mean_output_throughput_token_per_s"),
        request_rate_achieved=rate,
        concurrency_mean=busy,
        ttft_s=ttft,
        tpot_s=tpot,
        e2el_s=e2el,
        warnings=(_NOT_TPOT + " (a ratio of means; the individual responses make it exact)",),
    )


def _stat(item: Fields, name: str) -> Stat | None:
    mean = item.number(f"results_{name}_mean")
    if mean is None:
        return None
    found = {}
    for key in item.data:
        match = _QUANTILE.fullmatch(key)
        if match and match[1] == name:
            value = item.number(key)
            if value is not None:
                found[f"p{match[2]}"] = value
    return Stat(mean, found.get("p50"), item.number(f"results_{name}_stddev"), found)


def matches_responses(document: Document) -> bool:
    first = document.records[0] if document.records else None
    return document.array and isinstance(first, dict) and "end_to_end_latency_s" in first


def read_responses(document: Document) -> list[BenchRun]:
    rows = tuple(_row(item) for item in document.objects())
    sums = total(rows, f"{document.origin}: ")
    return [
        BenchRun(
            source=document.origin,
            format="llmperf responses",
            load=Load(num_prompts=len(rows)),
            completed=sums.completed,
            failed=sums.failed,
            input_tokens=sums.input_tokens,
            output_tokens=sums.output_tokens,
            input_tokens_mean=per_request(sums.input_tokens, sums.completed),
            output_tokens_mean=per_request(sums.output_tokens, sums.completed),
            ttft_s=sums.ttft_s,
            tpot_s=sums.tpot_s,
            e2el_s=sums.e2el_s,
            requests=rows,
            warnings=(
                _NOT_TPOT,
                "individual responses say neither when requests were sent nor "
                "the load: no throughput",
            ),
        )
    ]


def _row(item: Fields) -> RequestRow:
    good = item.data.get("error_code") is None
    row = RequestRow(
        arrival_s=None,
        input_tokens=item.count("number_input_tokens"),
        output_tokens=item.count("number_output_tokens"),
        ttft_s=item.number("ttft_s"),
        e2el_s=item.number("end_to_end_latency_s"),
        success=good,
    )
    return row if good else replace(row, ttft_s=None, e2el_s=None)

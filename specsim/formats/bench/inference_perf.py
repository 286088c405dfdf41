"""kubernetes-sigs/inference-perf 0.7 lifecycle reports: summary_, stage_N_ and per_request_.

Times are seconds. TPOT is (last - first token) / (output tokens - 1) as in `record`. All tokens
of a chunk get the chunk's time, so its inter-token latency is a list with zeros inside chunks:
its mean is per token, its percentiles say nothing; only the mean is kept. The median stands
under "median", not "p50".

The double count: versions before the fix of issue 564 tokenized each chunk with a
begin-of-sequence token added, so a chunk of one token counted as two and TPOT and ITL came out
at about half. Such a file contradicts itself, because latency and TTFT do not depend on token
counts: (mean latency - mean TTFT) / (mean output tokens - 1) is then far above the stated TPOT.
When it is, that ratio is used instead and a warning says so. Its output_len is a client-side
count as well; the server's own count (output_tokens) is preferred where newer files have it.
"""

from dataclasses import replace
from itertools import pairwise

from specsim.errors import FormatError
from specsim.formats.bench.document import ResultFile
from specsim.formats.bench.fields import Count, Foreign, Number, Numbers, key, part, stated
from specsim.formats.bench.record import BenchLoad, BenchRun, RequestRow, Stat
from specsim.formats.bench.shapes import MetricSpread
from specsim.formats.bench.stats import in_flight, of_rows, rounded, tpot_of_means, with_derived

NAME = "inference-perf"
DOUBLE_COUNT = 1.3  # stated TPOT too small by this factor: tokens were counted more than once


class Successes(Foreign):
    count: Count = None
    e2el_s: MetricSpread = part(MetricSpread, "latency.request_latency")
    ttft_s: MetricSpread = part(MetricSpread, "latency.time_to_first_token")
    tpot_s: MetricSpread = part(MetricSpread, "latency.time_per_output_token")
    inter_token_latency: Number = key("latency.inter_token_latency.mean")
    request_rate_achieved: Number = key("throughput.requests_per_sec")
    output_tokens_per_sec: Number = key("throughput.output_tokens_per_sec")
    # token counts of the server, where it told them, and of the client
    prompt_tokens: MetricSpread = part(MetricSpread)
    of_server: MetricSpread | None = key("output_tokens")
    prompt_len: Number = key("prompt_len.mean")
    output_len: Number = key("output_len.mean")


class LifecycleReport(Foreign):
    successes: Successes
    failed: Count = key("failures.count")
    benchmark_time_seconds: Number = None
    sent: Count = key("load_summary.count")
    requested_rate: Number = key("load_summary.requested_rate")
    concurrency: Count = key("load_summary.concurrency")


def matches(document: ResultFile) -> bool:
    first = document.first
    return (
        not document.array
        and "load_summary" in first
        and isinstance(first.get("successes"), dict)
    )


def read(document: ResultFile) -> list[BenchRun]:
    return [_run(item, document.origin) for _, item in document.read(LifecycleReport)]


def _run(item: LifecycleReport, origin: str) -> BenchRun:
    good = item.successes
    completed, found = good.count, stated(good)
    ttft, e2el, tpot = found["ttft_s"], found["e2el_s"], found["tpot_s"]
    per_token = None if good.inter_token_latency is None else Stat(good.inter_token_latency)
    of_server = good.of_server or MetricSpread()
    input_mean = good.prompt_tokens.mean if good.prompt_tokens.mean is not None else good.prompt_len
    output_mean = of_server.mean if of_server.mean is not None else good.output_len
    warnings: list[str] = []
    counted = good.output_len
    if output_mean and counted is not None and abs(counted / output_mean - 1) > 0.02:
        warnings.append(
            f"the client counted {counted:.4g} output tokens per request and the server "
            f"{output_mean:.4g}; the server's count was used"
        )
    elif output_mean and good.of_server is None:
        warnings.append(
            "output lengths are the client's own count of tokens; if the server was made to "
            "produce a fixed length, that length is the right one"
        )
    expected = tpot_of_means(e2el, ttft, output_mean)
    if tpot is not None and tpot.mean and expected and expected / tpot.mean > DOUBLE_COUNT:
        warnings.append(
            f"the file states a TPOT of {tpot.mean:.4g} s, but its latency, TTFT and output length "
            f"make {expected:.4g} s: its tokens were counted more than once (inference-perf issue "
            "564), so the ratio of these means was used and its ITL left out"
        )
        found["tpot_s"], per_token = Stat(expected, basis="derived"), None
    elif tpot is None and expected:
        found["tpot_s"] = Stat(expected, basis="derived")
        warnings.append("TPOT is (mean latency - mean TTFT) / (mean output tokens - 1)")
    duration, rate = item.benchmark_time_seconds, good.request_rate_achieved
    if not duration:
        duration = completed / rate if completed and rate else None
    output_total = _sum(of_server.total, output_mean, completed)
    output_rate = output_total / duration if output_total and duration else None
    closed = item.concurrency is not None
    return with_derived(BenchRun(
        source=origin, format=NAME, **found,
        load=BenchLoad(
            float("inf") if closed else item.requested_rate, item.concurrency,
            num_prompts=item.sent,
        ),
        completed=completed, failed=item.failed, duration_s=duration,
        input_tokens=_sum(good.prompt_tokens.total, input_mean, completed),
        output_tokens=output_total, input_tokens_mean=input_mean, output_tokens_mean=output_mean,
        output_tok_s=output_rate or good.output_tokens_per_sec,
        concurrency_mean=in_flight(e2el, completed, duration), itl_per_token_s=per_token,
        warnings=tuple(warnings),
    ))


def _sum(total: float | None, mean: float | None, completed: int | None) -> int | None:
    if total is None and mean is not None and completed is not None:
        total = mean * completed
    return rounded(total)


class LifecycleRequest(Foreign):
    """One entry of per_request_lifecycle_metrics.json. Token counts stand in several places; the
    server's own come first."""

    start_time: Number = None
    end_time: Number = None
    error: object = None
    output_token_times: Numbers = key("info.response_metrics.output_token_times")
    ttft: Number = key("computed_metrics.time_to_first_token")
    input_tokens: Count = key(
        "info.response_metrics.server_usage.prompt_tokens",
        "info.response_metrics.server_usage.input_tokens", "info.request_metrics.text.input_tokens",
        "info.input_tokens", "computed_metrics.input_tokens",
    )
    output_tokens: Count = key(
        "info.response_metrics.server_usage.completion_tokens",
        "info.response_metrics.server_usage.output_tokens", "info.response_metrics.output_tokens",
        "info.output_tokens", "computed_metrics.output_tokens",
    )

    @property
    def counted_twice(self) -> bool:
        """More token times than tokens."""
        return bool(self.output_tokens and len(self._times) > self.output_tokens + 1)

    @property
    def _times(self) -> tuple[float, ...]:
        return self.output_token_times or ()

    def row(self, start: float, end: float) -> RequestRow:
        chunks = sorted(set(self._times))  # all tokens of a chunk carry its time
        good = self.error is None
        return RequestRow(
            start, **stated(self, RequestRow),
            ttft_s=(max(0.0, chunks[0] - start) if chunks else self.ttft) if good else None,
            e2el_s=end - start if good else None,
            itls_s=tuple(b - a for a, b in pairwise(chunks)) if good else (),
            decode_s=chunks[-1] - chunks[0] if len(chunks) > 1 else None,
            success=good,
        )


def matches_requests(document: ResultFile) -> bool:
    first = document.first
    return (
        document.array
        and {"start_time", "end_time", "error"} <= set(first)
        and ("info" in first or "computed_metrics" in first)
    )


def read_requests(document: ResultFile) -> list[BenchRun]:
    """per_request_lifecycle_metrics.json: TPOT from the clock and the server's token count."""
    rows, ends = [], []
    doubled = 0
    for where, item in document.read(LifecycleRequest):
        start, end = item.start_time, item.end_time
        if start is None or end is None or end < start:
            raise FormatError(
                f"{where}end_time is {end} and start_time {start}; both are clock readings "
                "in seconds, the end not before the start"
            )
        rows.append(item.row(start, end))
        ends.append(end)
        doubled += item.counted_twice
    first = min(row.arrival_s or 0.0 for row in rows)
    warnings = ["per-request records say nothing about the load"]
    if doubled:
        warnings.append(
            f"{doubled} of {len(rows)} requests list more token times than they have tokens "
            "(inference-perf issue 564); TPOT here is decode time / (output tokens - 1)"
        )
    run = BenchRun(
        source=document.origin, format="inference-perf requests", duration_s=max(ends) - first,
        warnings=tuple(warnings),
    )
    rows = [replace(row, arrival_s=(row.arrival_s or 0.0) - first) for row in rows]
    return [of_rows(run, rows, f"{document.origin}: ")]

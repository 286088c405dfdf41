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
from specsim.formats.bench.document import Document
from specsim.formats.bench.fields import Fields
from specsim.formats.bench.record import BenchRun, Load, RequestRow, Stat
from specsim.formats.bench.stats import per_request, total, with_step_yield

NAME = "inference-perf"
DOUBLE_COUNT = 1.3  # stated TPOT too small by this factor: tokens were counted more than once


def matches(document: Document) -> bool:
    first = document.records[0] if document.records else None
    return (
        not document.array
        and isinstance(first, dict)
        and "load_summary" in first
        and isinstance(first.get("successes"), dict)
    )


def read(document: Document) -> list[BenchRun]:
    return [_run(item, document.origin) for item in document.objects()]


def _run(item: Fields, origin: str) -> BenchRun:
    good, sent = item.child("successes"), item.child("load_summary")
    latency, rates = good.child("latency"), good.child("throughput")
    completed, failed = good.count("count"), item.child("failures").count("count")
    ttft, e2el = _stat(latency, "time_to_first_token"), _stat(latency, "request_latency")
    tpot, per_token = _stat(latency, "time_per_output_token"), _mean_only(latency)
    input_mean = _tokens(good, "prompt_tokens", "prompt_len")
    output_mean = _tokens(good, "output_tokens", "output_len")
    warnings: list[str] = []
    counted = good.child("output_len").number("mean")
    if output_mean and counted is not None and abs(counted / output_mean - 1) > 0.02:
        warnings.append(
            f"the client counted {counted:.4g} output tokens per request and the server "
            f"{output_mean:.4g}; the server's count was used"
        )
    elif output_mean and not good.has("output_tokens"):
        warnings.append(
            "output lengths are the client's own count of tokens; if the server was made to "
            "produce a fixed length, that length is the right one"
        )
    expected = _ratio_of_means(e2el, ttft, output_mean)
    if tpot is not None and tpot.mean and expected and expected / tpot.mean > DOUBLE_COUNT:
        warnings.append(
            f"the file states a TPOT of {tpot.mean:.4g} s, but its latency, TTFT and output length "
            f"make {expected:.4g} s: its tokens were counted more than once (inference-perf issue "
            "564), so the ratio of these means was used and its ITL left out"
        )
        tpot, per_token = Stat(expected, basis="derived"), None
    elif tpot is None and expected:
        tpot = Stat(expected, basis="derived")
        warnings.append("TPOT is (mean latency - mean TTFT) / (mean output tokens - 1)")
    duration = item.number("benchmark_time_seconds")
    rate = rates.number("requests_per_sec")
    if not duration:
        duration = completed / rate if completed and rate else None
    output_total = _sum(good, "output_tokens", output_mean, completed)
    busy = (
        e2el.mean * completed / duration if e2el and e2el.mean and completed and duration else None
    )
    requested = sent.number("requested_rate")
    concurrency = sent.count("concurrency")
    run = BenchRun(
        source=origin,
        format=NAME,
        load=Load(
            request_rate=float("inf") if concurrency is not None else requested,
            max_concurrency=concurrency,
            num_prompts=sent.count("count"),
        ),
        completed=completed,
        failed=failed,
        duration_s=duration,
        input_tokens=_sum(good, "prompt_tokens", input_mean, completed),
        output_tokens=output_total,
        input_tokens_mean=input_mean,
        output_tokens_mean=output_mean,
        output_tok_s=output_total / duration
        if output_total and duration
        else rates.number("output_tokens_per_sec"),
        request_rate_achieved=rate,
        concurrency_mean=busy,
        ttft_s=ttft,
        tpot_s=tpot,
        itl_per_token_s=per_token,
        e2el_s=e2el,
        warnings=tuple(warnings),
    )
    return with_step_yield(run)


def _stat(latency: Fields, name: str) -> Stat | None:
    item = latency.child(name)
    mean = item.number("mean")
    if mean is None:
        return None
    found = {}
    for key in item.data:
        if key[:1] == "p" and key[1:].replace(".", "", 1).isdigit() and key.isascii():
            value = item.number(key)
            if value is not None:
                found[key] = value
    median = item.number("median")
    if median is not None:
        found["p50"] = median
    return Stat(mean, median, None, found)


def _mean_only(latency: Fields) -> Stat | None:
    mean = latency.child("inter_token_latency").number("mean")
    return None if mean is None else Stat(mean)


def _tokens(good: Fields, server: str, client: str) -> float | None:
    value = good.child(server).number("mean")
    return value if value is not None else good.child(client).number("mean")


def _sum(good: Fields, server: str, mean: float | None, completed: int | None) -> int | None:
    value = good.child(server).number("total")
    if value is None and mean is not None and completed is not None:
        value = mean * completed
    return None if value is None else round(value)


def _ratio_of_means(e2el: Stat | None, ttft: Stat | None, tokens: float | None) -> float | None:
    if e2el is None or ttft is None or e2el.mean is None or ttft.mean is None:
        return None
    if tokens is None or tokens <= 1 or e2el.mean <= ttft.mean:
        return None
    return (e2el.mean - ttft.mean) / (tokens - 1)


def matches_requests(document: Document) -> bool:
    first = document.records[0] if document.records else None
    return (
        document.array
        and isinstance(first, dict)
        and {"start_time", "end_time", "error"} <= set(first)
        and ("info" in first or "computed_metrics" in first)
    )


def read_requests(document: Document) -> list[BenchRun]:
    """per_request_lifecycle_metrics.json: TPOT from the clock and the server's token count."""
    rows, starts, spans = [], [], []
    doubled = 0
    for item in document.objects():
        start, end = item.number("start_time"), item.number("end_time")
        if start is None or end is None or end < start:
            raise FormatError(
                f"{item.where}end_time is {end} and start_time {start}; both are clock readings "
                "in seconds, the end not before the start"
            )
        row, marks = _row(item, start)
        doubled += marks
        rows.append(row)
        starts.append(start)
        spans.append(end)
    rows = [
        replace(row, arrival_s=start - min(starts)) for row, start in zip(rows, starts, strict=True)
    ]
    duration = max(spans) - min(starts)
    sums = total(rows, f"{document.origin}: ", duration)
    warnings = ["per-request records say nothing about the load"]
    if doubled:
        warnings.append(
            f"{doubled} of {len(rows)} requests list more token times than they have tokens "
            "(inference-perf issue 564); TPOT here is decode time / (output tokens - 1)"
        )
    run = BenchRun(
        source=document.origin,
        format="inference-perf requests",
        load=Load(num_prompts=len(rows)),
        completed=sums.completed,
        failed=sums.failed,
        duration_s=duration,
        input_tokens=sums.input_tokens,
        output_tokens=sums.output_tokens,
        input_tokens_mean=per_request(sums.input_tokens, sums.completed),
        output_tokens_mean=per_request(sums.output_tokens, sums.completed),
        output_tok_s=sums.output_tokens / duration if sums.output_tokens and duration else None,
        request_rate_achieved=sums.completed / duration if duration else None,
        concurrency_mean=sums.concurrency_mean,
        ttft_s=sums.ttft_s,
        tpot_s=sums.tpot_s,
        itl_s=sums.itl_s,
        e2el_s=sums.e2el_s,
        tokens_per_step=sums.tokens_per_step,
        tokens_per_step_basis="chunks" if sums.tokens_per_step is not None else None,
        requests=tuple(rows),
        warnings=tuple(warnings),
    )
    return [with_step_yield(run)]


def _row(item: Fields, start: float) -> tuple[RequestRow, bool]:
    """One request, and whether its token times are more than its tokens."""
    end = item.number("end_time") or start
    info = item.child("info")
    response, request = info.child("response_metrics"), info.child("request_metrics")
    computed, usage = item.child("computed_metrics"), response.child("server_usage")
    times = response.numbers("output_token_times") or ()
    tokens = usage.first(usage.count, "completion_tokens", "output_tokens")
    for holder in (response, info, computed):
        tokens = holder.count("output_tokens") if tokens is None else tokens
    inputs = usage.first(usage.count, "prompt_tokens", "input_tokens")
    for holder in (request.child("text"), info, computed):
        inputs = holder.count("input_tokens") if inputs is None else inputs
    chunks = sorted(set(times))  # all tokens of a chunk carry its time
    good = item.data.get("error") is None
    row = RequestRow(
        arrival_s=None,
        input_tokens=inputs,
        output_tokens=tokens,
        ttft_s=max(0.0, chunks[0] - start)
        if chunks and good
        else (computed.number("time_to_first_token") if good else None),
        e2el_s=end - start if good else None,
        itls_s=tuple(b - a for a, b in pairwise(chunks)) if good else (),
        decode_s=chunks[-1] - chunks[0] if len(chunks) > 1 else None,
        success=good,
    )
    return row, bool(tokens and len(times) > tokens + 1)

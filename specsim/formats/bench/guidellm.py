"""GuideLLM reports (`--output kind=json`), schema version 2 of 0.8.1; older ones as far as alike.

One file holds a list of benchmarks, one per load point. Its names differ from `record`:
  * guidellm's "time per output token" is (last token - request start) / output tokens and so
    contains the TTFT; it is not read.
  * guidellm's "inter-token latency" is (last - first token) / (tokens - 1): TPOT. Its mean over
    a run weighs each request by its tokens; with per-request details the plain mean over
    requests is computed here.
  * iter_tokens_per_iteration is the tokens per chunk without the first one: tokens per step.
No list of gaps between chunks is kept, so `itl_s` is a ratio: TPOT times tokens per step.
`request_latency` ends when the response is closed, a little after the last token.
"""

from collections.abc import Sequence
from dataclasses import replace

from specsim.formats.bench.document import Document
from specsim.formats.bench.fields import Fields
from specsim.formats.bench.record import Acceptance, BenchRun, Load, RequestRow, ServerArgs, Stat
from specsim.formats.bench.stats import acceptance_from_counts, survival, total, with_step_yield

NAME = "guidellm"
_RATES = {"constant", "poisson", "async"}


def matches(document: Document) -> bool:
    first = document.records[0] if document.records else None
    if document.array or not isinstance(first, dict):
        return False
    points = first.get("benchmarks")
    if not isinstance(points, list) or not points:
        return False
    return isinstance(points[0], dict) and isinstance(points[0].get("metrics"), dict)


def read(document: Document) -> list[BenchRun]:
    runs = []
    for item in document.objects():
        version = item.child("metadata").text("guidellm_version")
        backend = item.child("config").child("spec").child("backend")
        for point in item.children("benchmarks"):
            run = _run(point, document.origin)
            model = backend.text("model") or point.child("config").child("backend").text("model")
            runs.append(replace(run, format_version=version, model=model))
    return runs


def _run(point: Fields, origin: str) -> BenchRun:
    metrics = point.child("metrics")
    details = point.child("requests")
    good = details.children("successful")
    rows = _rows(good)
    totals = metrics.child("request_totals")
    if not totals.data:
        totals = point.child("request_totals")
    completed = totals.count("successful")
    completed = len(rows) if completed is None else completed
    failed = totals.count("errored")
    duration = point.number("duration")
    sums = total(rows, point.where, duration) if len(rows) == completed and rows else None
    tpot = _stat(metrics, "inter_token_latency_ms", 1e-3)
    ttft = _stat(metrics, "time_to_first_token_ms", 1e-3)
    e2el = _stat(metrics, "request_latency", 1.0)
    warnings = [
        "guidellm's inter-token latency is TPOT here; its own time per output token contains the "
        "TTFT and was not used"
    ]
    if sums is not None:
        ttft, tpot = sums.ttft_s or ttft, sums.tpot_s or tpot
        e2el = sums.e2el_s or e2el
    elif tpot is not None:
        warnings.append("the mean TPOT weighs requests by their tokens (no per-request details)")
    step_tokens = _step_tokens(good)
    if step_tokens is None:
        pooled = _stat(metrics, "iter_tokens_per_iteration", 1.0)
        step_tokens = pooled.mean if pooled is not None and pooled.mean else None
    itl = None
    if step_tokens and tpot is not None and tpot.mean:
        itl = Stat(mean=_pooled_tpot(rows, tpot.mean) * step_tokens, basis="derived")
    tokens_in = _stat(metrics, "prompt_token_count", 1.0)
    tokens_out = _stat(metrics, "output_token_count", 1.0)
    input_total = _total(metrics, "prompt_token_count")
    output_total = _total(metrics, "output_token_count")
    busy = _stat(metrics, "request_concurrency", 1.0)
    rate = _stat(metrics, "requests_per_second", 1.0)
    acceptance, k = _acceptance(good)
    run = BenchRun(
        source=origin,
        format=NAME,
        engine="vllm" if acceptance is not None else None,
        load=_load(point, completed, failed),
        completed=completed,
        failed=failed,
        duration_s=duration,
        input_tokens=input_total,
        output_tokens=output_total,
        input_tokens_mean=tokens_in.mean if tokens_in is not None else None,
        output_tokens_mean=tokens_out.mean if tokens_out is not None else None,
        output_tok_s=_throughput(metrics, output_total, duration),
        request_rate_achieved=rate.mean if rate is not None else None,
        concurrency_mean=busy.mean if busy is not None else None,
        ttft_s=ttft,
        tpot_s=tpot,
        itl_s=itl,
        e2el_s=e2el,
        acceptance=acceptance,
        tokens_per_step=step_tokens,
        tokens_per_step_basis="chunks" if step_tokens is not None else None,
        server_args=ServerArgs(num_speculative_tokens=k),
        requests=rows,
        warnings=tuple(warnings),
    )
    return with_step_yield(run)


def _load(point: Fields, completed: int, failed: int | None) -> Load:
    """Load of one benchmark's strategy, which moved between versions."""
    config = point.child("config")
    strategy = config.child("strategy")
    for holder in ("args", "scheduler"):
        if not strategy.data:
            strategy = point.child(holder).child("strategy")
    kind = strategy.text("type_")
    streams = strategy.count("streams")
    if streams is None:
        streams = strategy.count("max_concurrency")
    made = completed + (failed or 0)
    if kind == "synchronous":
        return Load(float("inf"), 1, None, made, kind)
    if kind in _RATES:
        burstiness = float("inf") if kind == "constant" else 1.0
        return Load(
            strategy.number("rate"), strategy.count("max_concurrency"), burstiness, made, kind
        )
    if kind in ("concurrent", "throughput"):
        return Load(float("inf"), streams, None, made, kind)
    return Load(None, streams, None, made, kind)


def _stat(metrics: Fields, name: str, scale: float) -> Stat | None:
    """Statistics over successful requests; None when the tool had nothing to count."""
    item = metrics.child(name).child("successful")
    mean = item.number("mean", scale)
    count = item.count("count")
    if mean is None or count == 0:
        return None
    found = {}
    spread = item.child("percentiles")
    for key in spread.data:
        digits = key[1:]
        if key[:1] == "p" and digits.isascii() and digits.isdigit() and len(digits) <= 4:
            value = spread.number(key, scale)
            if value is not None:
                found[
                    "p99.9" if key == "p999" else "p0.1" if key == "p001" else f"p{int(digits)}"
                ] = value
    return Stat(mean, item.number("median", scale), item.number("std_dev", scale), found, count)


def _total(metrics: Fields, name: str) -> int | None:
    value = metrics.child(name).child("successful").number("total_sum")
    return None if value is None else round(value)


def _throughput(metrics: Fields, output_tokens: int | None, duration: float | None) -> float | None:
    if output_tokens and duration:
        return output_tokens / duration
    stat = _stat(metrics, "output_tokens_per_second", 1.0)
    return stat.mean if stat is not None else None


def _rows(requests: Sequence[Fields]) -> tuple[RequestRow, ...]:
    starts = [request.number("request_start_time") for request in requests]
    known = [start for start in starts if start is not None]
    rows = []
    for request, start in zip(requests, starts, strict=True):
        tokens = request.count("output_tokens")
        gap = request.number("inter_token_latency_ms", 1e-3)
        span = gap * (tokens - 1) if gap is not None and tokens and tokens > 1 else None
        rows.append(
            RequestRow(
                arrival_s=start - min(known) if start is not None else None,
                input_tokens=request.count("prompt_tokens"),
                output_tokens=tokens,
                ttft_s=request.number("time_to_first_token_ms", 1e-3),
                e2el_s=request.number("request_latency"),
                decode_s=span,
            )
        )
    return tuple(rows)


def _pooled_tpot(rows: Sequence[RequestRow], mean: float) -> float:
    """Decode time per token over all tokens: what a chunk's tokens have to be multiplied by."""
    spans = [(row.decode_s, (row.output_tokens or 1) - 1) for row in rows if row.decode_s]
    tokens = sum(count for _, count in spans)
    return sum(span or 0.0 for span, _ in spans) / tokens if tokens else mean


def _step_tokens(requests: Sequence[Fields]) -> float | None:
    """Tokens per chunk after the first, pooled over requests."""
    tokens = chunks = 0
    for request in requests:
        made = request.count("output_tokens")
        seen = request.child("info").child("timings").count("token_iterations")
        if made is not None and seen is not None and made > 1 and seen > 1:
            tokens += made - 1
            chunks += seen - 1
    return tokens / chunks if chunks else None


def _acceptance(requests: Sequence[Fields]) -> tuple[Acceptance | None, int | None]:
    """vLLM's per-request speculative metrics, summed; also k where they tell it."""
    drafts = proposed = accepted = 0
    histogram: list[int] = []
    k = None
    for request in requests:
        spec = request.child("response_metrics").child("speculative_decoding")
        drafts += spec.count("num_spec_steps") or 0
        proposed += spec.count("num_draft_tokens") or 0
        accepted += spec.count("num_accepted_draft_tokens") or 0
        counts = spec.counts("acceptance_histogram") or ()
        histogram += [0] * (len(counts) - len(histogram))
        for position, count in enumerate(counts):
            histogram[position] += count
        k = spec.count("num_spec_tokens") or k
    found = acceptance_from_counts(drafts, proposed, accepted, survival(histogram))
    return found, k

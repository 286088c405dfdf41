"""GuideLLM reports of versions 0.1 to 0.8 (`--output kind=json`, before that --output-path).

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

from specsim.formats.bench.document import ResultFile
from specsim.formats.bench.fields import (
    Count,
    Foreign,
    Millis,
    Number,
    Numbers,
    Text,
    as_mapping,
    key,
    part,
    parts,
    stated,
)
from specsim.formats.bench.record import BenchLoad, BenchRun, RequestRow, ServerArgs, Stat
from specsim.formats.bench.shapes import (
    DraftCounts,
    MetricSpread,
    pooled,
)
from specsim.formats.bench.stats import of_rows, rounded, total, with_derived

NAME = "guidellm"
_RATES = {"constant", "poisson", "async"}


class OfSuccessful(MetricSpread):
    """Statistics over successful requests."""

    percentiles: dict[str, Number] = part(dict)

    def _percentiles(self) -> dict[str, float]:
        named = {"p999": "p99.9", "p001": "p0.1"}
        return {
            named.get(name, f"p{int(name[1:])}"): value
            for name, value in self.percentiles.items()
            if value is not None and self.is_percentile(name) and name[1:].isdigit()
        }


class MillisOfSuccessful(OfSuccessful):
    def normal(self) -> Stat | None:
        return self.stat(1e-3)


class GuidellmMetrics(Foreign):
    ttft_s: MillisOfSuccessful = part(MillisOfSuccessful, "time_to_first_token_ms.successful")
    tpot_s: MillisOfSuccessful = part(MillisOfSuccessful, "inter_token_latency_ms.successful")
    e2el_s: OfSuccessful = part(OfSuccessful, "request_latency.successful")
    tokens_per_iteration: OfSuccessful = part(OfSuccessful, "iter_tokens_per_iteration.successful")
    prompt_tokens: OfSuccessful = part(OfSuccessful, "prompt_token_count.successful")
    made: OfSuccessful = part(OfSuccessful, "output_token_count.successful")
    token_rate: OfSuccessful = part(OfSuccessful, "output_tokens_per_second.successful")
    concurrency: OfSuccessful = part(OfSuccessful, "request_concurrency.successful")
    requests_per_second: OfSuccessful = part(OfSuccessful, "requests_per_second.successful")
    completed: Count = key("request_totals.successful")
    failed: Count = key("request_totals.errored")


class GuidellmRequest(Foreign):
    """One successful request."""

    request_start_time: Number = key("request_start_time", "start_time")
    input_tokens: Count = key("prompt_tokens")
    output_tokens: Count = None
    ttft_s: Millis = key("time_to_first_token_ms")
    tpot_s: Millis = key("inter_token_latency_ms")
    e2el_s: Number = key("request_latency")
    token_iterations: Count = key("info.timings.token_iterations")
    drafts: DraftCounts = part(DraftCounts, "response_metrics.speculative_decoding")

    def row(self, first: float) -> RequestRow:
        """`first`: when the first request of the run was sent, on the same clock."""
        tokens, gap, start = self.output_tokens, self.tpot_s, self.request_start_time
        return RequestRow(
            start - first if start is not None else None, **stated(self, RequestRow),
            decode_s=gap * (tokens - 1) if gap is not None and tokens and tokens > 1 else None,
        )


class GuidellmStrategy(Foreign):
    type_: Text = None
    streams: Count = None
    max_concurrency: Count = None
    rate: Number = None

    def load(self, made: int) -> BenchLoad:
        """made: requests that were sent."""
        kind = self.type_
        streams = self.max_concurrency if self.streams is None else self.streams
        if kind == "synchronous":
            return BenchLoad(float("inf"), 1, None, made, kind)
        if kind in _RATES:
            burstiness = float("inf") if kind == "constant" else 1.0
            return BenchLoad(self.rate, self.max_concurrency, burstiness, made, kind)
        closed = kind in ("concurrent", "throughput")
        return BenchLoad(float("inf") if closed else None, streams, None, made, kind)


class GuidellmPoint(Foreign):
    """One load point. Its strategy and totals moved between versions."""

    metrics: GuidellmMetrics = part(GuidellmMetrics)
    requests: list[GuidellmRequest] = parts("requests.successful")
    duration: Number = None
    successful: Count = key("request_totals.successful")
    errored: Count = key("request_totals.errored")
    model: Text = key("config.backend.model", "worker.backend_model")
    strategy: GuidellmStrategy = part(
        GuidellmStrategy, "config.strategy", "args.strategy", "scheduler.strategy"
    )

    def rows(self) -> list[RequestRow]:
        starts = [r.request_start_time for r in self.requests if r.request_start_time is not None]
        return [request.row(min(starts, default=0.0)) for request in self.requests]


class GuidellmReport(Foreign):
    version: Text = key("metadata.guidellm_version")
    model: Text = key("config.spec.backend.model", "args.model")
    benchmarks: list[GuidellmPoint] = parts()


def matches(document: ResultFile) -> bool:
    points = document.first.get("benchmarks")
    if document.array or not isinstance(points, list) or not points:
        return False
    return isinstance(as_mapping(points[0]).get("metrics"), dict)


def read(document: ResultFile) -> list[BenchRun]:
    return [
        replace(
            _run(point, document.origin, f"{where}benchmarks[{number}]."),
            format_version=item.version, model=item.model or point.model,
        )
        for where, item in document.read(GuidellmReport)
        for number, point in enumerate(item.benchmarks)
    ]


def _run(point: GuidellmPoint, origin: str, where: str) -> BenchRun:
    metrics, duration, rows = point.metrics, point.duration, point.rows()
    found = stated(metrics)
    completed = point.successful if metrics.completed is None else metrics.completed
    completed = len(rows) if completed is None else completed
    failed = point.errored if metrics.failed is None else metrics.failed
    found |= {"completed": completed, "failed": failed}
    sums = total(rows, where, duration) if len(rows) == completed and rows else None
    warnings = [
        "guidellm's inter-token latency is TPOT here; its own time per output token contains the "
        "TTFT and was not used"
    ]
    if sums is not None:
        found |= {name: stat for name in ("ttft_s", "tpot_s", "e2el_s")
                  if (stat := getattr(sums, name)) is not None}
    elif found["tpot_s"] is not None:
        warnings.append("the mean TPOT weighs requests by their tokens (no per-request details)")
    step_tokens = _step_tokens(point.requests) or metrics.tokens_per_iteration.measured or None
    itl, tpot = None, found["tpot_s"]
    if step_tokens and tpot is not None and tpot.mean:
        itl = Stat(mean=_pooled_tpot(rows, tpot.mean) * step_tokens, basis="derived")
    output_total = rounded(metrics.made.total)
    throughput = metrics.token_rate.measured
    if output_total and duration:
        throughput = output_total / duration
    drafts = pooled(request.drafts for request in point.requests)
    acceptance = drafts.acceptance(origin)
    return with_derived(BenchRun(
        source=origin, format=NAME, **found, itl_s=itl, acceptance=acceptance,
        engine="vllm" if acceptance is not None else None,
        load=point.strategy.load(completed + (failed or 0)), duration_s=duration,
        input_tokens=rounded(metrics.prompt_tokens.total), output_tokens=output_total,
        input_tokens_mean=metrics.prompt_tokens.measured,
        output_tokens_mean=metrics.made.measured, output_tok_s=throughput,
        request_rate_achieved=metrics.requests_per_second.measured,
        concurrency_mean=metrics.concurrency.measured, tokens_per_step=step_tokens,
        tokens_per_step_basis="chunks" if step_tokens is not None else None,
        server_args=ServerArgs(num_speculative_tokens=drafts.num_spec_tokens),
        requests=tuple(rows), warnings=tuple(warnings),
    ))


def _pooled_tpot(rows: Sequence[RequestRow], mean: float) -> float:
    """Decode time per token over all tokens: what a chunk's tokens have to be multiplied by."""
    spans = [(row.decode_s, (row.output_tokens or 1) - 1) for row in rows if row.decode_s]
    tokens = sum(count for _, count in spans)
    return sum(span or 0.0 for span, _ in spans) / tokens if tokens else mean


def _step_tokens(requests: Sequence[GuidellmRequest]) -> float | None:
    """Tokens per chunk after the first, pooled over requests."""
    tokens = chunks = 0
    for request in requests:
        made, seen = request.output_tokens, request.token_iterations
        if made is not None and seen is not None and made > 1 and seen > 1:
            tokens += made - 1
            chunks += seen - 1
    return tokens / chunks if chunks else None


class FirstRequest(Foreign):
    """One successful request of version 0.1, whose reports hold the requests themselves and no
    statistics. Every chunk was counted as one token unless the server told otherwise."""

    start_time: Number = None
    end_time: Number = None
    input_tokens: Count = key("prompt_token_count")
    output_tokens: Count = key("output_token_count")
    ttft_s: Number = key("first_token_time")
    gaps_s: Numbers = key("decode_times.data")

    def row(self, first: float) -> RequestRow:
        """first: when the first request of the run was sent, on the same clock."""
        gaps = self.gaps_s or ()
        return RequestRow(
            None if self.start_time is None else self.start_time - first,
            **stated(self, RequestRow),
            # the end of the stream comes a little after the last token
            e2el_s=None if self.ttft_s is None else self.ttft_s + sum(gaps),
            itls_s=gaps, success=self.ttft_s is not None,
        )


class FirstPoint(Foreign):
    """One load point."""

    mode: Text = None
    rate: Number = None
    results: list[FirstRequest] = parts()
    errors: list[object] = parts()

    def load(self) -> BenchLoad:
        if self.mode == "synchronous":
            return BenchLoad(float("inf"), 1, pattern=self.mode)
        if self.mode == "throughput":
            return BenchLoad(float("inf"), pattern=self.mode)
        return BenchLoad(self.rate, pattern=self.mode)


class FirstReport(Foreign):
    model: Text = key("args.model")
    benchmarks: list[FirstPoint] = parts()


def matches_first(document: ResultFile) -> bool:
    points = document.first.get("benchmarks")
    first = as_mapping(points[0]) if isinstance(points, list) and points else {}
    return "results" in first and "concurrencies" in first


def read_first(document: ResultFile) -> list[BenchRun]:
    return [
        _first_run(point, item.model, document.origin, f"{where}benchmarks[{number}].")
        for where, item in document.read(FirstReport)
        for number, point in enumerate(item.benchmarks)
    ]


def _first_run(point: FirstPoint, model: str | None, origin: str, where: str) -> BenchRun:
    starts = [item.start_time for item in point.results if item.start_time is not None]
    rows = [item.row(min(starts, default=0.0)) for item in point.results]
    run = of_rows(
        BenchRun(source=origin, format=NAME, format_version="0.1", model=model, load=point.load()),
        rows, where,
    )
    sent = len(rows) + len(point.errors)
    return replace(
        run, failed=(run.failed or 0) + len(point.errors), load=replace(run.load, num_prompts=sent)
    )

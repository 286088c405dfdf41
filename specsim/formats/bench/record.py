"""The normal form of a benchmark result, whichever tool wrote it.

Times are seconds; rates are per second for the whole server, all its GPUs together. Tools use
the same names for different things, so each name has one meaning here and the reader of a format
moves the numbers where they belong (and says so in `warnings`):

    ttft_s              request sent -> first token seen by the client
    e2el_s              request sent -> last token
    tpot_s              (last token - first token) / (output tokens - 1) of one request;
                        statistics over requests, each request once; requests of one token left out
    itl_s               gap between two chunks of one stream. A chunk is what one engine step gave
                        the request: 1 token without speculation, 1 to k + 1 with it
    itl_per_token_s     such gaps divided by their tokens, each token counted once
    tokens_per_step     (output tokens - 1) / (chunks - 1), pooled over requests: what a step
                        yields on average. Equals the acceptance length only when every step
                        carried a draft
    acceptance_length   tokens per step that carried a draft, bonus token included, 1 to k + 1
    acceptance_rate     accepted draft tokens / proposed draft tokens, 0 to 1
    per_position[i]     share of drafts whose first i + 1 tokens were all accepted (unconditional),
                        of the positions that were drafted; from single steps, of the drafts
                        that were long enough
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass


@dataclass(frozen=True)
class Stat:
    """Statistics of one quantity. `percentiles` maps "p99" to a value.

    basis: "reported" by the tool; "requests": computed here from the file's own per-request
    data; "buckets": estimated from a histogram's buckets; "derived": a ratio of means.
    """

    mean: float | None
    median: float | None = None
    std: float | None = None
    percentiles: Mapping[str, float] = field(default_factory=dict)
    count: int | None = None
    basis: str = "reported"

    @property
    def typical(self) -> float | None:
        """The mean, or the median where the file has no mean."""
        return self.median if self.mean is None else self.mean


@dataclass(frozen=True)
class BenchLoad:
    """How requests were sent. A rate of infinity means "as soon as allowed"."""

    request_rate: float | None = None  # requests per second; inf: all at once or closed loop
    max_concurrency: int | None = None
    burstiness: float | None = None  # shape of the gamma gaps: 1 Poisson, inf constant
    num_prompts: int | None = None
    pattern: str | None = None  # the tool's own word for it, where it has one

    @property
    def kind(self) -> str:
        """ "open" (a rate), "closed" (clients that wait), "burst" (all at once) or "unknown"."""
        rate = self.request_rate
        if rate is not None and math.isfinite(rate):
            return "open"
        if self.max_concurrency is not None:
            return "closed"
        return "burst" if rate is not None else "unknown"


@dataclass(frozen=True)
class BenchAcceptance:
    """Acceptance of draft tokens, and over what it was counted.

    scope: "run" (counters before and after, or sums over the run's requests), "since server
    start" (a lifetime average, other traffic included), "log intervals" or "gauge" (the last
    logging interval of the server). undrafted_positions: configured ones beyond `per_position`
    that were never drafted (a table by batch size below num_speculative_tokens).
    """

    acceptance_length: float | None = None
    acceptance_rate: float | None = None
    per_position: tuple[float, ...] = ()
    num_drafts: int | None = None
    draft_tokens: int | None = None
    accepted_tokens: int | None = None
    scope: str = "run"
    undrafted_positions: int = 0


@dataclass(frozen=True)
class ServerArgs:
    """What a file tells about the server's configuration; None where it does not."""

    num_speculative_tokens: int | None = None
    method: str | None = None
    draft_model: str | None = None
    tp: int | None = None
    dp: int | None = None
    max_num_seqs: int | None = None
    other: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ServerSide:
    """What the server's own metrics say. Gauges are means where a tool scraped them repeatedly,
    otherwise the value at the moment of the scrape (`gauges` tells which: "mean" or "instant").
    """

    running: float | None = None
    waiting: float | None = None
    kv_cache_usage: float | None = None  # 0 to 1
    gauges: str = "instant"
    preemptions: int | None = None
    prefix_cache_hit_rate: float | None = None
    queue_s: Stat | None = None
    prefill_s: Stat | None = None
    decode_s: Stat | None = None
    iteration_tokens: Stat | None = None  # tokens scheduled per engine step
    generation_tok_s: float | None = None  # the engine's own figure


@dataclass(frozen=True)
class RequestRow:
    """One request. `itls_s` are gaps between chunks; token counts are None where unknown.
    chunk_tokens: tokens of every chunk, the first included; () where nobody counted them."""

    arrival_s: float | None  # sent, counted from the first request of the run
    input_tokens: int | None
    output_tokens: int | None
    ttft_s: float | None
    e2el_s: float | None
    itls_s: tuple[float, ...] = ()
    decode_s: float | None = None  # last token - first token, where it is not e2el - ttft
    success: bool = True
    chunk_tokens: tuple[int, ...] = ()

    @property
    def tpot_s(self) -> float | None:
        """(last token - first token) / (output tokens - 1); None for a single token."""
        if self.output_tokens is None or self.output_tokens < 2:
            return None
        span = self.decode_s
        if span is None:
            if self.e2el_s is None or self.ttft_s is None:
                return None
            span = self.e2el_s - self.ttft_s
        return span / (self.output_tokens - 1)


@dataclass(frozen=True)
class BenchRun:
    """One benchmark run (one load point) in the normal form."""

    source: str  # the file it came from
    format: str  # e.g. "vllm bench serve"
    format_version: str | None = None
    engine: str | None = None
    engine_version: str | None = None
    model: str | None = None
    label: str | None = None
    date: str | None = None
    load: BenchLoad = field(default_factory=BenchLoad)
    completed: int | None = None
    failed: int | None = None
    duration_s: float | None = None
    input_tokens: int | None = None  # of all completed requests
    output_tokens: int | None = None
    input_tokens_mean: float | None = None
    output_tokens_mean: float | None = None
    output_tok_s: float | None = None
    request_rate_achieved: float | None = None  # completed requests per second
    concurrency_mean: float | None = None  # requests in flight, averaged over the run
    ttft_s: Stat | None = None
    tpot_s: Stat | None = None
    itl_s: Stat | None = None
    itl_per_token_s: Stat | None = None
    e2el_s: Stat | None = None
    acceptance: BenchAcceptance | None = None
    tokens_per_step: float | None = None
    tokens_per_step_basis: str | None = None  # "chunks", "counters" or "ratio of means"
    draft_share: float | None = None  # share of decode steps that carried a draft
    server_args: ServerArgs = field(default_factory=ServerArgs)
    server: ServerSide | None = None
    requests: tuple[RequestRow, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def to_dict(self, requests: bool = True) -> dict[str, object]:
        """Plain JSON values; infinities become "inf". `requests=False` leaves the rows out."""
        out: dict[str, object] = {}
        for item in fields(self):
            if item.name == "requests" and not requests:
                continue
            out[item.name] = _plain(getattr(self, item.name))
        load = out["load"]
        if isinstance(load, dict):
            load["kind"] = self.load.kind
        return out


def _plain(value: object) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        return {item.name: _plain(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        if math.isnan(value):
            return None
        return "inf" if value > 0 else "-inf"
    return value

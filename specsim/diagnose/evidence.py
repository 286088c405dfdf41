"""Evidence: the measured side of a diagnosis, from any imported run.

Times are seconds, token counts per request. A figure is None when the source does not hold it;
rules then keep silent or say what is missing. `step_s` is the mean time between two outputs of a
stream, which is one engine step of a decoding request, prompts of others in it included; `running`
the mean number of sequences in a step. Where several ways lead to the batch, the one closest to
the steps is taken (`running_from` says which):

    steps       outputs / engine steps (vLLM counts both), idle time and single moments left out
    streams     time that streams were decoding / length of the run
    in flight   requests in flight on average, their wait for admission included
    gauge       num_requests_running: its mean over scrapes, or one moment
    clients     the clients of a closed loop
"""

from dataclasses import dataclass, fields

from specsim.calibrate.fewshot_bench import ONE_TOKEN
from specsim.formats.bench.record import BenchRun, Stat
from specsim.jsonable import taken

FULL = 0.9  # of the cache: the next burst waits or preempts
FEW_DRAFTS = 100  # shares from fewer drafts are off by some percent


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was measured. `live`: from a scrape, so gauges are of now."""

    source: str
    format: str = ""
    engine: str | None = None
    model: str | None = None
    live: bool = False
    method: str | None = None
    num_speculative_tokens: int | None = None
    running: float | None = None
    running_from: str | None = None
    waiting: float | None = None
    kv_cache_usage: float | None = None
    preemptions: int | None = None
    prefix_cache_hit_rate: float | None = None
    max_num_seqs: int | None = None
    tokens_per_step: float | None = None
    acceptance_length: float | None = None
    acceptance_rate: float | None = None
    per_position: tuple[float, ...] = ()
    undrafted_positions: int = 0
    num_drafts: int | None = None
    draft_share: float | None = None
    step_s: float | None = None
    step_p50_s: float | None = None
    step_p99_s: float | None = None
    step_from: str | None = None
    steps_counted: int | None = None
    tpot_s: float | None = None
    ttft_s: float | None = None
    queue_s: float | None = None
    prefill_s: float | None = None
    output_tok_s: float | None = None
    input_len: float | None = None
    output_len: float | None = None
    output_tokens: int | None = None
    completed: int | None = None
    failed: int | None = None
    counted_since_start: bool = False
    warnings: tuple[str, ...] = ()

    @property
    def speculates(self) -> bool | None:
        """Whether drafts were verified; None when the source cannot tell."""
        if self.acceptance_length is not None or self.acceptance_rate is not None:
            return True
        if self.tokens_per_step is not None:
            return self.tokens_per_step > ONE_TOKEN
        return None

    def length_at(self, k: int) -> float | None:
        """The acceptance length with k drafts: as counted, else by the rate."""
        if self.acceptance_length is None and self.acceptance_rate is not None:
            return 1 + k * self.acceptance_rate
        return self.acceptance_length

    @property
    def yield_per_step(self) -> float | None:
        """Tokens per step, or the acceptance length where every step drafts as far as known."""
        return self.tokens_per_step or self.acceptance_length

    def cache_full(self, fits: int) -> bool:
        """Whether memory limits the batch. fits: requests of this length that are said to fit."""
        if self.preemptions or (self.kv_cache_usage or 0.0) >= FULL:
            return True
        return self.kv_cache_usage is None and 0 < FULL * fits <= (self.running or 0.0)

    @property
    def drafted_k(self) -> int | None:
        """Tokens that most drafts had: a table by batch size may keep them below what is
        configured, and below the longest that were seen."""
        seen = [k for k in (self.num_speculative_tokens, len(self.per_position)) if k]
        return min(seen) if seen else None

    @property
    def mean_drafted(self) -> float | None:
        """Tokens per draft; None where length and rate of acceptance do not tell it."""
        if not self.acceptance_rate or not self.acceptance_length:
            return None
        return (self.acceptance_length - 1) / self.acceptance_rate

    def to_dict(self) -> dict[str, object]:
        """Plain JSON values, without what is unknown."""
        out: dict[str, object] = {}
        for item in fields(self):
            value = getattr(self, item.name)
            if value in (None, (), "") or (item.name == "undrafted_positions" and not value):
                continue
            out[item.name] = list(value) if isinstance(value, tuple) else value
        return out


def evidence_of(run: BenchRun, live: bool = False) -> Evidence:
    """The evidence in an imported run (benchmark file, /metrics pair, log lines)."""
    server, acceptance = run.server, run.acceptance
    running, origin = _running(run)
    step, step_from = _step(run)
    return Evidence(
        **taken(run, "source format engine model tokens_per_step draft_share output_tok_s "
                     "input_len=input_tokens_mean output_len=output_tokens_mean output_tokens "
                     "completed failed warnings tpot_s=tpot_s.typical ttft_s=ttft_s.typical"),
        **taken(run.server_args, "method num_speculative_tokens max_num_seqs"),
        **taken(server, "waiting kv_cache_usage preemptions prefix_cache_hit_rate "
                        "queue_s=queue_s.mean prefill_s=prefill_s.mean"),
        **taken(acceptance, "acceptance_length acceptance_rate num_drafts"),
        **taken(step, "step_s=mean step_p50_s=median steps_counted=count"),
        step_p99_s=step.percentiles.get("p99") if step else None,
        per_position=acceptance.per_position if acceptance else (),
        undrafted_positions=acceptance.undrafted_positions if acceptance else 0,
        live=live,
        running=running,
        running_from=origin,
        step_from=step_from,
        counted_since_start=acceptance is not None and acceptance.scope == "since server start",
    )


def _step(run: BenchRun) -> tuple[Stat | None, str | None]:
    """Time between outputs of a stream: measured chunk by chunk, or TPOT times tokens per step."""
    if run.itl_s is not None and run.itl_s.mean:
        words = {"requests": "gaps between chunks", "buckets": "inter_token_latency_seconds",
                 "derived": "per-token gaps times tokens per step"}
        return run.itl_s, words.get(run.itl_s.basis, "ITL as reported")
    tokens = run.tokens_per_step
    if tokens is None and run.acceptance is not None and run.draft_share is None:
        tokens = run.acceptance.acceptance_length
    if run.tpot_s is not None and run.tpot_s.typical and tokens:
        return Stat(run.tpot_s.typical * tokens, basis="derived"), "TPOT times tokens per step"
    return None, None


def _running(run: BenchRun) -> tuple[float | None, str | None]:
    gaps, firsts, server = run.itl_s, run.ttft_s, run.server
    steps = server.iteration_tokens if server is not None else None
    if steps is not None and steps.count and gaps is not None and gaps.count:
        first = firsts.count if firsts is not None and firsts.count else 0
        return (gaps.count + first) / steps.count, "steps"
    if gaps is not None and gaps.count and gaps.mean and run.duration_s:
        return gaps.count * gaps.mean / run.duration_s, "streams"
    if run.concurrency_mean:
        return run.concurrency_mean, "in flight"
    if server is not None and server.running:
        return server.running, "gauge"
    if run.load.kind == "closed" and run.load.max_concurrency:
        return float(run.load.max_concurrency), "clients"
    return None, None

"""Counters, gauges and histograms under vLLM's names, with vLLM's meanings and bucket limits.

Names, labels (model_name, engine) and buckets are those of vLLM 0.32's /metrics (Apache-2.0).
What the numbers mean:

- spec_decode_num_drafts counts verify steps of a request that had at least one draft; steps in
  which the drafter proposed nothing are not counted. Acceptance length, bonus token included:
  1 + accepted / drafts.
- spec_decode_num_accepted_tokens_per_pos{position=i} counts steps whose drafts 0..i were all
  accepted. Drafts accepted beyond a stop token or length limit are counted, as in vLLM.
- inter_token_latency_seconds is the time between two outputs of a request, that is per verify
  step; request_time_per_output_token_seconds is per token (answers of one token have none).
- Requests that a client gave up count in request_success{finished_reason="abort"} and in no
  time histogram. Prompt tokens count when the prompt is done.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from specsim.vllm_files import BUCKETS, length_buckets

FINISH_REASONS = ("stop", "length", "abort", "error")
_LABELS = ("model_name", "engine")

_HISTOGRAMS = {
    "time_to_first_token_seconds": "Time from arrival to the first token.",
    "inter_token_latency_seconds": "Time between two outputs of a request.",
    "request_time_per_output_token_seconds": "Decode time per token after the first.",
    "e2e_request_latency_seconds": "Time from arrival to the end.",
    "request_queue_time_seconds": "Time waiting for a slot.",
    "request_inference_time_seconds": "Time from slot to last token.",
    "request_prefill_time_seconds": "Time from slot to first token.",
    "request_decode_time_seconds": "Time from first to last token.",
    "iteration_tokens_total": "Prompt and generated tokens of an engine step.",
}


@dataclass(frozen=True, slots=True)
class RequestTimes:
    """A request's life in seconds on the engine's clock, and its sizes in tokens."""

    arrival_s: float
    admitted_s: float
    first_token_s: float
    last_token_s: float
    num_prompt_tokens: int
    num_generation_tokens: int
    max_tokens: int


class ServeMetrics:
    """All metrics of one engine, in a registry of their own.

    running, waiting, cache_usage: read when /metrics is asked for. k: draft positions. lock: held
    while a step is recorded and while the text is made, so that a scrape never sees half a step.
    """

    def __init__(
        self, model_name: str, k: int, max_model_len: int, *, running: Callable[[], float],
        waiting: Callable[[], float], cache_usage: Callable[[], float],
    ) -> None:
        self.lock = threading.Lock()
        self.registry = CollectorRegistry()
        self._values = (model_name, "0")
        self.num_drafts = self._counter("spec_decode_num_drafts", "Verify steps with a draft.")
        self.num_draft_tokens = self._counter("spec_decode_num_draft_tokens", "Drafted tokens.")
        self.num_accepted = self._counter("spec_decode_num_accepted_tokens", "Accepted drafts.")
        per_pos = Counter(
            "vllm:spec_decode_num_accepted_tokens_per_pos",
            "Verify steps whose drafts were accepted up to a position.",
            (*_LABELS, "position"), registry=self.registry,
        )
        self.per_position = [per_pos.labels(*self._values, str(i)) for i in range(k)]
        self.prompt_tokens = self._counter("prompt_tokens", "Prompt tokens processed.")
        self.generation_tokens = self._counter("generation_tokens", "Tokens generated.")
        # This engine reserves a request's cache at admission and shares no prefixes: always 0.
        for name, text in (("num_preemptions", "Preempted requests."),
                           ("prefix_cache_queries", "Tokens looked up in a prefix cache."),
                           ("prefix_cache_hits", "Tokens found in a prefix cache."),
                           ("prompt_tokens_cached", "Prompt tokens found in a prefix cache.")):
            self._counter(name, text)
        self.refused = self._counter("admission_rejections", "Requests refused with 429.")
        success = Counter("vllm:request_success", "Finished requests by reason.",
                          (*_LABELS, "finished_reason"), registry=self.registry)
        self._finished = {reason: success.labels(*self._values, reason)
                          for reason in FINISH_REASONS}
        self._gauge("num_requests_running", "Requests that have a slot.", running)
        self._gauge("num_requests_waiting", "Requests that wait for a slot.", waiting)
        by_reason = Gauge("vllm:num_requests_waiting_by_reason", "Waiting requests by reason.",
                          (*_LABELS, "reason"), registry=self.registry)
        by_reason.labels(*self._values, "capacity").set_function(waiting)
        by_reason.labels(*self._values, "deferred").set(0)
        self._gauge("kv_cache_usage_perc", "Share of the cache in use, 0 to 1.", cache_usage)
        lengths = length_buckets(max_model_len)
        self._histograms = {
            name: self._histogram(name, text, BUCKETS[name])
            for name, text in _HISTOGRAMS.items()
        } | {
            name: self._histogram(name, text, lengths)
            for name, text in (
                ("request_prompt_tokens", "Prompt tokens of a request."),
                ("request_generation_tokens", "Generated tokens of a request."),
                ("request_params_max_tokens", "max_tokens of a request."),
            )
        }

    def _counter(self, name: str, text: str) -> Counter:
        counter = Counter(f"vllm:{name}", text, _LABELS, registry=self.registry)
        return counter.labels(*self._values)

    def _gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        gauge = Gauge(f"vllm:{name}", text, _LABELS, registry=self.registry)
        gauge.labels(*self._values).set_function(read)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        histogram = Histogram(f"vllm:{name}", text, _LABELS, registry=self.registry,
                              buckets=buckets)
        return histogram.labels(*self._values)

    def observe(self, name: str, value: float) -> None:
        self._histograms[name].observe(value)

    def drafted(self, proposed: int, accepted: int) -> None:
        """One verify step of one request; a step without drafts is none."""
        if not proposed:
            return
        self.num_drafts.inc()
        self.num_draft_tokens.inc(proposed)
        self.num_accepted.inc(accepted)
        for position in self.per_position[:accepted]:
            position.inc()

    def finished(self, reason: str, times: RequestTimes | None = None) -> None:
        """The end of a request. times: of one that ran to its end."""
        self._finished[reason].inc()
        if times is None:
            return
        t, n = times, times.num_generation_tokens
        decode = t.last_token_s - t.first_token_s
        self.observe("e2e_request_latency_seconds", t.last_token_s - t.arrival_s)
        self.observe("request_queue_time_seconds", t.admitted_s - t.arrival_s)
        self.observe("request_prefill_time_seconds", t.first_token_s - t.admitted_s)
        self.observe("request_decode_time_seconds", decode)
        self.observe("request_inference_time_seconds", t.last_token_s - t.admitted_s)
        if n > 1:
            self.observe("request_time_per_output_token_seconds", decode / (n - 1))
        self.observe("request_prompt_tokens", t.num_prompt_tokens)
        self.observe("request_generation_tokens", n)
        self.observe("request_params_max_tokens", t.max_tokens)

    def text(self) -> bytes:
        """Prometheus' text format."""
        with self.lock:
            return generate_latest(self.registry)

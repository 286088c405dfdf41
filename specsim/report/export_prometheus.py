"""A simulated run as Prometheus text under vLLM's metric names (vLLM 0.32's names and buckets,
Apache-2.0); docs/formats.md says what is counted. Counts are those of requests: verify steps of a
request with a draft, one inter-token observation per chunk after the first. Times in seconds."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.registry import Collector

from specsim.report.export_vllm_bench import ChunkTimes, position_rates
from specsim.sim.figures import value_at
from specsim.sim.request import FINISHED, UNFINISHED, RequestRecord
from specsim.sim.result import SimulationFigures
from specsim.sim.run import SimResult
from specsim.version import __version__
from specsim.vllm_files import BUCKETS, length_buckets

LENGTHS = length_buckets(5e6)
_ENDED = {  # finished_reason -> how requests end here
    "stop": (), "abort": ("timeout",), "error": ("failed", "rejected"), "length": (FINISHED,),
}
Sample = tuple[str, Mapping[str, object], float]


def prometheus_text(simulation: SimulationFigures) -> str:
    """The first run with speculation. UsageError when it kept no steps (keep_trace)."""
    result, inputs = simulation.comparison.first, simulation.inputs
    page = _Page(str(inputs["model"]))
    page.add("specsim_simulation_info", "gauge", "Simulated, not measured.", ("", {
        "version": __version__, "gpu": inputs["gpu"], "tp": inputs["tp"],
        "engine_simulated": inputs["engine"], "method": inputs["method"], "k": inputs["k"],
        "seed": simulation.seed,
    }, 1))
    records = list(result.records)
    started = [r for r in records if r.scheduled_s is not None]
    _speculation(page, simulation, started)
    prompts = sum(r.prompt_tokens for r in started)
    cached = sum(r.cached_tokens for r in started)
    for name, text, value in (
        ("prompt_tokens", "Prompt tokens processed.",
         sum(r.prompt_tokens for r in started if r.first_token_s is not None)),
        ("prompt_tokens_cached", "Prompt tokens found in the prefix cache.", cached),
        ("prefix_cache_queries", "Tokens looked up in the prefix cache.", prompts),
        ("prefix_cache_hits", "Tokens found in the prefix cache.", cached),
        ("generation_tokens", "Tokens generated.", sum(r.output_tokens for r in started)),
        ("num_preemptions", "Preempted requests.", sum(r.preemptions for r in started)),
    ):
        page.add(f"vllm:{name}", "counter", text, ("_total", {}, value))
    page.add("vllm:request_success", "counter", "Requests by how they ended.", *(
        ("_total", {"finished_reason": reason}, sum(r.status in words for r in records))
        for reason, words in _ENDED.items()
    ))
    figures = result.summary()
    for name, text, key in (
        ("num_requests_running", "Mean requests in a step.", "running_mean"),
        ("num_requests_waiting", "Mean requests waiting.", "waiting_mean"),
        ("kv_cache_usage_perc", "Mean share of the cache in use.", "kv_usage_mean"),
    ):
        page.add(f"vllm:{name}", "gauge", text, ("", {}, value_at(figures, key) or 0.0))
    for name, text, values in _histograms(result):
        known = [float(value) for value in values if value is not None]
        page.histogram(f"vllm:{name}", text, BUCKETS.get(name, LENGTHS), known)
    page.add("specsim_unfinished_requests", "gauge", "Requests still open when the run ended.",
             ("", {}, sum(r.status == UNFINISHED for r in records)))
    return page.text()


def _histograms(result: SimResult) -> list[tuple[str, str, Sequence[float | None]]]:
    """(name, text, observed values)."""
    records = list(result.records)
    done = [r for r in records if r.status == FINISHED]
    chunks = ChunkTimes(result)
    return [
        ("time_to_first_token_seconds", "Time from arrival to the first token.",
         [r.ttft_s for r in records]),
        ("inter_token_latency_seconds", "Time between two outputs of a request (per step).",
         [gap for r in done for gap in chunks.gaps(r)]),
        ("request_time_per_output_token_seconds", "Decode time per token after the first.",
         [r.tpot_s for r in done]),
        ("e2e_request_latency_seconds", "Time from arrival to the end.", [r.e2el_s for r in done]),
        ("request_queue_time_seconds", "Time until the first tokens are scheduled.",
         [r.queue_s for r in done]),
        ("request_prefill_time_seconds", "Time from there to the first token.",
         [_gap(r.scheduled_s, r.first_token_s) for r in done]),
        ("request_decode_time_seconds", "Time from first to last token.",
         [_gap(r.first_token_s, r.last_token_s) for r in done]),
        ("request_inference_time_seconds", "Time from the first schedule to the last token.",
         [_gap(r.scheduled_s, r.last_token_s) for r in done]),
        ("request_prompt_tokens", "Prompt tokens of a request.", [r.prompt_tokens for r in done]),
        ("request_generation_tokens", "Generated tokens of a request.",
         [r.output_tokens for r in done]),
        ("iteration_tokens_total", "Prompt and generated tokens of an engine step.",
         [tokens for replica in result.cluster.replicas
          for log in replica.stats.trace for tokens in (log.new + log.out).tolist()]),
    ]


def _gap(start: float | None, end: float | None) -> float | None:
    return end - start if start is not None and end is not None else None


def _speculation(
    page: "_Page", simulation: SimulationFigures, started: Sequence[RequestRecord]
) -> None:
    if not simulation.deployment.system.speculative:
        return
    drafts = sum(r.verify_steps for r in started)
    drafted = sum(r.drafted_tokens for r in started)
    accepted = sum(r.accepted_tokens for r in started)
    for name, text, value in (
        ("num_drafts", "Verify steps with a draft.", drafts),
        ("num_draft_tokens", "Drafted tokens.", drafted),
        ("num_accepted_tokens", "Accepted drafts.", accepted),
    ):
        page.add(f"vllm:spec_decode_{name}", "counter", text, ("_total", {}, value))
    rates = position_rates(simulation, accepted / drafts, drafted, drafts) if drafts else []
    if rates:
        page.add(
            "vllm:spec_decode_num_accepted_tokens_per_pos", "counter",
            "Verify steps accepted up to a position (the input's shape at the run's total).",
            *(("_total", {"position": i}, round(rate * drafts)) for i, rate in enumerate(rates)),
        )


class _Page(Collector):
    """Metrics of one engine."""

    def __init__(self, model: str) -> None:
        self._labels = {"engine": "0", "model_name": model, "simulated": "true"}
        self._metrics: list[Metric] = []

    def add(self, name: str, kind: str, text: str, *samples: Sample) -> None:
        """A metric with samples of (what follows its name, further labels, value)."""
        metric = Metric(name, text, kind)
        for ending, labels, value in samples:
            shown = {key: str(label) for key, label in {**self._labels, **labels}.items()}
            metric.add_sample(name + ending, shown, value)
        self._metrics.append(metric)

    def histogram(
        self, name: str, text: str, buckets: Sequence[float], values: Sequence[float]
    ) -> None:
        ordered = np.sort(np.asarray(values, dtype=np.float64))
        counts = np.searchsorted(ordered, [*buckets, math.inf], side="right").tolist()
        self.add(
            name, "histogram", text,
            *(("_bucket", {"le": str(float(bound)).replace("inf", "+Inf")}, count)
              for bound, count in zip((*buckets, math.inf), counts, strict=True)),
            ("_count", {}, len(ordered)), ("_sum", {}, math.fsum(ordered)),
        )

    def collect(self) -> list[Metric]:
        return self._metrics

    def text(self) -> str:
        registry = CollectorRegistry()
        registry.register(self)
        return generate_latest(registry).decode()

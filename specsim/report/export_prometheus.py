"""A simulated run as Prometheus text under vLLM's metric names (vLLM 0.32's names and buckets,
Apache-2.0), so that dashboards, and `specsim import`, read it as they read a server's /metrics.

Every sample carries the label simulated="true"; `specsim_simulation_info` says of what. Counters
cover the whole run from its start, warm-up included, as a server's do; gauges are means over the
measured time. Counts are those of requests: verify steps of a request with a draft, one
inter-token observation per chunk after the first. Counts by position are the input's shape at the
run's own number of accepted tokens. Times in seconds.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from specsim import __version__
from specsim.report.export_chunks import ChunkTimes
from specsim.report.export_vllm_bench import position_rates
from specsim.sim.request import FINISHED, UNFINISHED
from specsim.sim.result import Simulation

TTFT = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5,
        10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0)
PER_TOKEN = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5,
             10.0, 20.0, 40.0, 80.0)
REQUEST = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0,
           120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0)
ITERATION = (1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0,
             16384.0)
LENGTHS = tuple(float(m * 10**e) for e in range(7) for m in (1, 2, 5))


def prometheus_text(simulation: Simulation) -> str:
    """The first run with speculation. UsageError when it kept no steps (keep_trace)."""
    result, inputs = simulation.comparison.first, simulation.inputs()
    page = _Page(inputs["model"])
    page.info(inputs, simulation.seed)
    records = list(result.records)
    started = [r for r in records if r.scheduled_s is not None]
    _speculation(page, simulation, started)
    page.counter("prompt_tokens", "Prompt tokens processed.",
                 sum(r.prompt_tokens for r in started if r.first_token_s is not None))
    page.counter("prompt_tokens_cached", "Prompt tokens found in the prefix cache.",
                 sum(r.cached_tokens for r in started))
    page.counter("prefix_cache_queries", "Tokens looked up in the prefix cache.",
                 sum(r.prompt_tokens for r in started))
    page.counter("prefix_cache_hits", "Tokens found in the prefix cache.",
                 sum(r.cached_tokens for r in started))
    page.counter("generation_tokens", "Tokens generated.", sum(r.output_tokens for r in started))
    page.counter("num_preemptions", "Preempted requests.", sum(r.preemptions for r in started))
    ended = {"stop": 0, "abort": 0, "error": 0,
             "length": sum(r.status == FINISHED for r in records)}
    ended["abort"] = sum(r.status == "timeout" for r in records)
    ended["error"] = sum(r.status in ("failed", "rejected") for r in records)
    page.counter_by("request_success", "Requests by how they ended.", "finished_reason", ended)
    figures = result.summary()
    page.gauge("num_requests_running", "Mean requests in a step.", figures["running_mean"])
    page.gauge("num_requests_waiting", "Mean requests waiting.", figures["waiting_mean"])
    page.gauge("kv_cache_usage_perc", "Mean share of the cache in use.", figures["kv_usage_mean"])
    done = [r for r in records if r.status == FINISHED]
    chunks = ChunkTimes(result)
    times: list[tuple[str, str, tuple[float, ...], list[float | None]]] = [
        ("time_to_first_token_seconds", "Time from arrival to the first token.", TTFT,
         [r.ttft_s for r in records]),
        ("inter_token_latency_seconds", "Time between two outputs of a request (per step).",
         PER_TOKEN, [gap for r in done for gap in chunks.gaps(r)]),
        ("request_time_per_output_token_seconds", "Decode time per token after the first.",
         PER_TOKEN, [r.tpot_s for r in done]),
        ("e2e_request_latency_seconds", "Time from arrival to the end.", REQUEST,
         [r.e2el_s for r in done]),
        ("request_queue_time_seconds", "Time until the first tokens are scheduled.", REQUEST,
         [r.queue_s for r in done]),
        ("request_prefill_time_seconds", "Time from there to the first token.", REQUEST,
         [_gap(r.scheduled_s, r.first_token_s) for r in done]),
        ("request_decode_time_seconds", "Time from first to last token.", REQUEST,
         [_gap(r.first_token_s, r.last_token_s) for r in done]),
        ("request_inference_time_seconds", "Time from the first schedule to the last token.",
         REQUEST, [_gap(r.scheduled_s, r.last_token_s) for r in done]),
        ("request_prompt_tokens", "Prompt tokens of a request.", LENGTHS,
         [float(r.prompt_tokens) for r in done]),
        ("request_generation_tokens", "Generated tokens of a request.", LENGTHS,
         [float(r.output_tokens) for r in done]),
        ("iteration_tokens_total", "Prompt and generated tokens of an engine step.", ITERATION,
         [float(tokens) for replica in result.cluster.replicas
          for log in replica.stats.trace for tokens in (log.new + log.out).tolist()]),
    ]
    for name, text, buckets, values in times:
        page.histogram(name, text, buckets, [value for value in values if value is not None])
    unfinished = sum(r.status == UNFINISHED for r in records)
    page.extra("specsim_unfinished_requests", "Requests still open when the run ended.", unfinished)
    return page.text()


def _gap(start: float | None, end: float | None) -> float | None:
    return end - start if start is not None and end is not None else None


def _speculation(page: "_Page", simulation: Simulation, started: Sequence[Any]) -> None:
    drafts = sum(r.verify_steps for r in started)
    drafted = sum(r.drafted_tokens for r in started)
    accepted = sum(r.accepted_tokens for r in started)
    if not simulation.deployment.system.speculative:
        return
    page.counter("spec_decode_num_drafts", "Verify steps with a draft.", drafts)
    page.counter("spec_decode_num_draft_tokens", "Drafted tokens.", drafted)
    page.counter("spec_decode_num_accepted_tokens", "Accepted drafts.", accepted)
    rates = position_rates(simulation, accepted / drafts, drafted, drafts) if drafts else []
    if rates:
        page.counter_by(
            "spec_decode_num_accepted_tokens_per_pos",
            "Verify steps accepted up to a position (the input's shape at the run's total).",
            "position", {str(i): round(rate * drafts) for i, rate in enumerate(rates)},
        )


class _Page:
    """Lines of the exposition format."""

    def __init__(self, model: str) -> None:
        self._labels = f'engine="0",model_name="{_escaped(model)}",simulated="true"'
        self._lines: list[str] = []

    def info(self, inputs: dict[str, Any], seed: int) -> None:
        labels = ",".join(
            f'{name}="{_escaped(str(value))}"' for name, value in (
                ("version", __version__), ("gpu", inputs["gpu"]), ("tp", inputs["tp"]),
                ("engine_simulated", inputs["engine"]), ("method", inputs["method"]),
                ("k", inputs["k"]), ("seed", seed),
            )
        )
        self._head("specsim_simulation_info", "gauge", "Simulated, not measured.")
        self._lines.append(f"specsim_simulation_info{{{self._labels},{labels}}} 1")

    def _head(self, name: str, kind: str, text: str) -> None:
        self._lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]

    def counter(self, name: str, text: str, value: float) -> None:
        self._head(f"vllm:{name}_total", "counter", text)
        self._lines.append(f"vllm:{name}_total{{{self._labels}}} {_number(value)}")

    def counter_by(self, name: str, text: str, label: str, values: dict[str, int]) -> None:
        self._head(f"vllm:{name}_total", "counter", text)
        for key, value in values.items():
            labels = f'{self._labels},{label}="{_escaped(key)}"'
            self._lines.append(f"vllm:{name}_total{{{labels}}} {_number(value)}")

    def gauge(self, name: str, text: str, value: float) -> None:
        self._head(f"vllm:{name}", "gauge", text)
        self._lines.append(f"vllm:{name}{{{self._labels}}} {_number(value)}")

    def extra(self, name: str, text: str, value: float) -> None:
        self._head(name, "gauge", text)
        self._lines.append(f"{name}{{{self._labels}}} {_number(value)}")

    def histogram(self, name: str, text: str, buckets: Iterable[float], values: Sequence[float]
                  ) -> None:
        full = f"vllm:{name}"
        self._head(full, "histogram", text)
        ordered = np.sort(np.asarray(values, dtype=np.float64))
        for bound in (*buckets, math.inf):
            count = int(np.searchsorted(ordered, bound, side="right"))
            le = "+Inf" if math.isinf(bound) else _number(bound)
            self._lines.append(f'{full}_bucket{{{self._labels},le="{le}"}} {_number(count)}')
        self._lines.append(f"{full}_count{{{self._labels}}} {_number(len(ordered))}")
        self._lines.append(f"{full}_sum{{{self._labels}}} {_number(float(math.fsum(ordered)))}")

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"


def _number(value: float) -> str:
    return repr(float(value))


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")

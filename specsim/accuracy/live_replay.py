"""The simulation of what was sent to a server: the same requests, the same times or clients.

A `MeasuredLoad` is one load as it was measured, a benchmark run in the normal form. Its requests
are simulated with their real lengths: an open loop at the times they were really sent, a closed
loop with its clients. A result file without single requests is simulated with its mean lengths and
the times its tool draws.

Acceptance is the measured one: step by step where the tokens of every chunk are known (a chunk of
n tokens is a step that accepted n - 1 drafts, so steps without a draft are in it), else by
position with the share of steps that carried a draft. How steps are priced is left to `StepCost`,
so that a measured ingredient can be put in place of a predicted one (`Swap`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from specsim.analytic.system import System
from specsim.errors import FormatError
from specsim.formats.bench.record import BenchRun, RequestRow, Stat
from specsim.latency.shape import StepCost, StepShape
from specsim.sim.acceptance import Recorded
from specsim.sim.arrivals import bench_serve_times
from specsim.sim.build import Deployment
from specsim.sim.figures import value_at
from specsim.sim.loads import ClosedLoop, LimitedOpenLoop, Load, OpenLoop
from specsim.sim.records import Records
from specsim.sim.request import FINISHED, Request
from specsim.sim.run import SimResult, simulate

MAX_REQUESTS = 200_000
Figures = dict[str, float]


@dataclass(frozen=True)
class MeasuredLoad:
    """One measured load. contents: a number per finished request in the order of sending, equal
    where prompts were equal; () where unknown."""

    name: str
    run: BenchRun
    contents: tuple[int, ...] = ()

    @property
    def rows(self) -> tuple[RequestRow, ...]:
        """Finished requests in the order of sending."""
        good = [r for r in self.run.requests if r.success and r.output_tokens]
        if any(r.arrival_s is None for r in good):
            return tuple(good)
        order = sorted(range(len(good)), key=lambda i: good[i].arrival_s or 0.0)
        return tuple(good[i] for i in order)


@dataclass(frozen=True, slots=True)
class Swap:
    """Measured ingredients in place of predicted ones. step_scale, step_add_s: of decode steps;
    prefill_scale: what prompts add to a step; request_s: per request before it is scheduled."""

    step_scale: float = 1.0
    step_add_s: float = 0.0
    prefill_scale: float = 1.0
    request_s: float | None = None


@dataclass(frozen=True)
class SwappedCost:
    """A step cost with a `Swap` applied."""

    cost: StepCost
    swap: Swap

    def seconds(self, shape: StepShape) -> float:
        swap = self.swap
        whole = self.cost.seconds(shape)
        if not shape.prefill:
            return max(0.0, swap.step_scale * whole + swap.step_add_s)
        decode = 0.0
        if shape.decode_seqs:
            decode = self.cost.seconds(replace(shape, prefill=()))
        decode_s = swap.step_scale * decode + swap.step_add_s if shape.decode_seqs else 0.0
        return max(0.0, decode_s + swap.prefill_scale * (whole - decode))


@dataclass(frozen=True)
class Replay:
    """Figures of one simulated point, by metric. exact_acceptance: steps were replayed."""

    figures: Figures
    system: System
    exact_acceptance: bool


def replayed_steps(point: MeasuredLoad, k: int) -> Recorded | None:
    """Accepted drafts of every step of every request; None where chunks were not counted.

    A chunk of more than k + 1 tokens held several steps that the server sent together."""
    chunks = [row.chunk_tokens for row in point.rows]
    if k < 1 or not chunks or not all(chunks):
        return None
    sequences = []
    for tokens in chunks:
        steps: list[int] = []
        for count in tokens[1:]:
            left = count
            while left > k + 1:
                steps.append(k)
                left -= k + 1
            if left > 0:
                steps.append(left - 1)
        sequences.append(steps or [0])
    return Recorded(sequences, k=k)


def requests_of(point: MeasuredLoad) -> list[Request]:
    """The requests as they were sent. FormatError where a file says too little."""
    rows = point.rows
    if rows:
        contents = point.contents if len(point.contents) == len(rows) else ()
        out = []
        for i, row in enumerate(rows):
            prompt = max(1, row.input_tokens or 1)
            spans = ((contents[i], prompt),) if contents else ()
            out.append(Request(row.arrival_s or 0.0, prompt, row.output_tokens or 1, spans))
        return out
    run = point.run
    count = run.completed or run.load.num_prompts
    if not count or run.input_tokens_mean is None or run.output_tokens_mean is None:
        raise FormatError(
            f"{run.source}: the number and the lengths of the requests are not in it; give a "
            "result with totals or with details"
        )
    if count > MAX_REQUESTS:
        raise FormatError(f"{run.source}: {count} requests; at most {MAX_REQUESTS} are simulated")
    times = planned_times(run, count)
    prompt, output = max(1, round(run.input_tokens_mean)), max(1, round(run.output_tokens_mean))
    return [Request(time_s, prompt, output) for time_s in times]


def planned_times(run: BenchRun, count: int) -> list[float]:
    """Send times of the run's client: those that `vllm bench serve` draws for a rate."""
    rate = run.load.request_rate
    if rate is None or math.isinf(rate):
        return [0.0] * count
    return [float(t) for t in bench_serve_times(count, rate, burstiness=run.load.burstiness or 1.0)]


def load_of(point: MeasuredLoad, requests: Sequence[Request]) -> Load:
    """The load of a point. FormatError where the file does not say what it was."""
    load, rows = point.run.load, point.rows
    if load.kind == "closed":
        assert load.max_concurrency is not None
        return ClosedLoop(list(requests), load.max_concurrency)
    if load.kind == "open" and load.max_concurrency and len(requests) == load.num_prompts:
        # The client held requests back: what it planned, and its limit, are what is simulated.
        times = planned_times(point.run, len(requests))
        held = [r._replace(arrival_s=t) for r, t in zip(requests, times, strict=True)]
        return LimitedOpenLoop(held, load.max_concurrency)
    timed = bool(rows) and all(row.arrival_s is not None for row in rows)
    if load.kind == "unknown" and not timed:
        raise FormatError(
            f"{point.run.source}: neither a rate nor a concurrency is in it, so its load cannot be "
            "repeated"
        )
    return OpenLoop(sorted(requests, key=lambda r: r.arrival_s))


def predict(
    point: MeasuredLoad, system: System, *, swap: Swap | None = None, replay: bool = True,
    prefix_caching: bool | None = None, seeds: int = 1,
) -> Replay:
    """Simulate a point on a system. replay: use the recorded steps where there are any. seeds:
    runs, whose figures are averaged (drawn acceptance differs from run to run)."""
    requests = requests_of(point)
    recorded = replayed_steps(point, system.setup.k) if replay and system.speculative else None
    settings: dict[str, object] = {} if recorded is None else {"recorded": recorded}
    swap = swap or Swap()
    if swap.request_s is not None:
        settings["request_overhead_s"] = swap.request_s
    deployment = Deployment(system, prefix_caching=prefix_caching, settings=tuple(settings.items()))
    cost: StepCost = deployment.cost
    if swap.step_scale != 1.0 or swap.step_add_s or swap.prefill_scale != 1.0:
        cost = SwappedCost(cost, swap)
    runs = []
    drawn = system.speculative and recorded is None
    for seed in range(seeds if drawn else 1):
        result = simulate(deployment.config, load_of(point, requests), cost, seed)
        runs.append(figures_of_simulation(result))
    means = {
        name: sum(run[name] for run in runs) / len(runs)
        for name in runs[0] if all(name in run for run in runs)
    }
    return Replay(means, system, recorded is not None)


def _prefill_mean(records: Records) -> float:
    """Mean time from being scheduled to the first token."""
    spans = records.times("first_token_s") - records.times("scheduled_s")
    spans = spans[~np.isnan(spans)]
    return float(spans.mean()) if len(spans) else 0.0


_TIMES = ("ttft_s", "tpot_s", "itl_s", "e2el_s")


def figures_of_simulation(result: SimResult) -> Figures:
    """Metrics of a simulated run under the names of `figures_of_run`."""
    summary = result.summary()
    out: Figures = {}
    for name in _TIMES:
        for stat in ("mean", "p50", "p95", "p99"):
            value = value_at(summary, f"{name}.{stat}")
            if value is not None:
                out[f"{name[:-2]}_{stat}_s"] = value
    out["queue_mean_s"] = value_at(summary, "queue_s.mean") or 0.0
    for name, key in (("output_tok_s", "output_tok_s"), ("requests_per_s", "request_rate"),
                      ("running_mean", "running_mean"), ("waiting_mean", "waiting_mean")):
        out[name] = value_at(summary, key) or 0.0
    out["open_requests_mean"] = out["running_mean"] + out["waiting_mean"]
    records = result.records
    chunks, tokens = (int(records.ints(name).sum()) for name in ("chunks", "output_tokens"))
    done = int(records.status(FINISHED).sum())
    if chunks > done:
        out["tokens_per_step"] = (tokens - done) / (chunks - done)
    out["prefill_mean_s"] = _prefill_mean(records)
    out["prefix_hit_rate"] = value_at(summary, "prefix_hit_rate") or 0.0
    return out


def figures_of_run(run: BenchRun) -> Figures:
    """Metrics of a measured run: times and rates as the client saw them; running and waiting are
    the server's gauges averaged over the run (only where they were sampled)."""
    out: Figures = {}
    for name in _TIMES:
        stat: Stat | None = getattr(run, name)
        if stat is None or stat.basis == "derived":
            continue
        values = {"mean": stat.mean, "p50": stat.median, **dict(stat.percentiles)}
        for key in ("mean", "p50", "p95", "p99"):
            value = values.get(key)
            if value is not None and value > 0:
                out[f"{name[:-2]}_{key}_s"] = value
    for key, value in (("output_tok_s", run.output_tok_s),
                       ("requests_per_s", run.request_rate_achieved),
                       ("open_requests_mean", run.concurrency_mean)):
        if value:
            out[key] = value
    if run.tokens_per_step and run.tokens_per_step_basis in ("chunks", "counters"):
        out["tokens_per_step"] = run.tokens_per_step
    server = run.server
    if server is not None:
        if server.gauges == "mean":
            for key, value in (("running_mean", server.running), ("waiting_mean", server.waiting)):
                if value is not None:
                    out[key] = value
        if server.queue_s is not None and server.queue_s.mean is not None:
            out["queue_mean_s"] = server.queue_s.mean
        if server.prefill_s is not None and server.prefill_s.mean:
            out["prefill_mean_s"] = server.prefill_s.mean
        if server.prefix_cache_hit_rate is not None:
            out["prefix_hit_rate"] = server.prefix_cache_hit_rate
    return out

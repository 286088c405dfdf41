"""The figures of a run, from its records and its step log.

What each figure is stands in `figures`. There are two populations. Latencies, counts and the error
rate are of the requests sent after the warm-up. Rates are of what happens in the measured time,
from there to the end: request rate and goodput of the requests that finish in it, whenever they
were sent (what a server does in a steady state, without the ramp of those sent first), token rates
of the tokens given out in it, time averages of its seconds. Requests without a first token when
the run ends are censored observations (`distributions`), not dropped.

Latencies of people who chat are `completed` ones, as a load test of people records them: of the
turns that are complete inside the measured time. Near capacity a run ends in its worst minute, and
the two ways differ by how much of it they see.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

from specsim.sim import distributions, slo
from specsim.sim.cluster import Cluster
from specsim.sim.distributions import LogHistogram
from specsim.sim.figures import (
    LATENCY_STATISTICS,
    STREAM_STATISTICS,
    Distribution,
    EnergyFigures,
    Figures,
    Latencies,
    PoolLoad,
    RequestCounts,
    percents,
)
from specsim.sim.records import Records
from specsim.sim.replica import Replica
from specsim.sim.request import FAILED, FINISHED, REJECTED, STATUSES, TIMEOUT, UNFINISHED
from specsim.sim.stationarity import trend_figures
from specsim.sim.steplog import Timeline

LATENCY_PERCENTS = percents(LATENCY_STATISTICS)
STREAM_PERCENTS = percents(STREAM_STATISTICS)
# Summed over the requests that were scheduled.
COUNTS = (
    "prompt_tokens", "cached_tokens", "output_tokens", "chunks", "verify_steps", "drafted_tokens",
    "accepted_tokens",
)
Floats = NDArray[np.float64]

@dataclass(frozen=True, slots=True)
class Window:
    """The measured part of the run, seconds."""

    start_s: float
    end_s: float
    tokens: int  # given out inside it

    @property
    def seconds(self) -> float:
        return max(0.0, self.end_s - self.start_s)


def summarise(
    cluster: Cluster, window: Window, *, partial: bool, completed: bool = False
) -> Figures:
    """All figures of a run as plain types; the keys of `specsim simulate --json`."""
    config = cluster.config
    parts = _from_records(cluster.records, window, slo.request_limits(config.slo), completed)
    totals, counts, latencies = parts.sums, parts.status, parts.latencies
    gaps = LogHistogram()
    for replica in cluster.replicas:
        gaps.merge(replica.stats.itl)
    inside = max(0, totals["output_tokens"] - totals["chunks"])
    stats = [replica.stats for replica in cluster.replicas]
    running_area, kv_area = sum(s.running_area for s in stats), sum(s.kv_area for s in stats)
    blocks = sum(replica.run.config.most_kv_blocks for replica in cluster.replicas)
    verify = totals["verify_steps"]
    measured = sum(counts.values())
    seconds = window.seconds

    def per_second(amount: float) -> float:
        return amount / seconds if seconds > 0 else 0.0

    out = Figures(
        ttft_s=latencies["ttft_s"],
        tpot_s=latencies["tpot_s"],
        itl_s=gaps.summary(LATENCY_PERCENTS),
        itl_per_token_s=gaps.summary(LATENCY_PERCENTS, zeros=inside),
        e2el_s=latencies["e2el_s"],
        queue_s=latencies["queue_s"],
        stream_tok_s=latencies["stream_tok_s"],
        output_tok_s=per_second(window.tokens),
        request_rate=per_second(parts.finished_in_window),
        goodput=per_second(parts.good),
        running_mean=per_second(running_area),
        running_max=sum(s.running_max for s in stats),
        waiting_mean=per_second(sum(s.waiting_area for s in stats)),
        waiting_max=sum(replica.core.waiting_max for replica in cluster.replicas),
        gateway_queue_max=cluster.queue_max,
        kv_usage_max=max(replica.kv_usage_max for replica in cluster.replicas),
        kv_usage_mean=per_second(kv_area) / blocks,
        preemptions=sum(replica.core.preemptions for replica in cluster.replicas),
        prefix_hit_rate=_ratio(totals["cached_tokens"], totals["prompt_tokens"]),
        acceptance_length=1.0 + totals["accepted_tokens"] / verify if verify else None,
        acceptance_rate=_ratio(totals["accepted_tokens"], totals["drafted_tokens"]),
        tokens_per_chunk=_ratio(totals["output_tokens"], totals["chunks"]),
        steps=sum(s.steps for s in stats),
        mean_batch=_ratio(running_area, sum(s.busy_s for s in stats)),
        time_share=_time_share(cluster, seconds),
        energy=_energy(cluster, window),
        requests=cast(
            RequestCounts, {"measured": measured, **counts, "arrived": cluster.counters.arrived}
        ),
        error_rate=_ratio(counts[REJECTED] + counts[TIMEOUT] + counts[FAILED], measured) or 0.0,
        stall_rate=_ratio(parts.stalled, measured) or 0.0,
        window_s=[window.start_s, window.end_s],
        partial=partial,
        cost_surface=cluster.surface.error(),
        slo=None,
        trend=trend_figures(
            merged_timeline(cluster), cluster.records, window.start_s, window.end_s,
            config.rules.block_size,
        ),
    )
    if config.prefill is not None:
        out["transfer_s"] = _distribution(
            np.array(cluster.transfers_s), np.empty(0), LATENCY_PERCENTS
        )
        first = config.prefill.n_replicas
        out["pools"] = {
            name: _pool_load(some, seconds)
            for name, some in (
                ("prefill", cluster.replicas[:first]), ("decode", cluster.replicas[first:])
            )
        }
    if config.slo:
        out["slo"] = slo.judge(config.slo, out)
    else:
        del out["goodput"]
    return out


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _pool_load(replicas: Sequence[Replica], seconds: float) -> PoolLoad:
    """How busy the replicas of one kind are."""
    each_s = max(seconds, 1e-12)
    return PoolLoad(
        replicas=float(len(replicas)),
        busy=sum(replica.stats.busy_s for replica in replicas) / len(replicas) / each_s,
        running_mean=sum(replica.stats.running_area for replica in replicas) / each_s,
        kv_usage_max=max(replica.kv_usage_max for replica in replicas),
    )


def _time_share(cluster: Cluster, seconds: float) -> dict[str, float]:
    """Shares of the window, averaged over replicas, by what the engine was doing."""
    total = seconds * len(cluster.replicas)
    if total <= 0:
        return {}
    shares: dict[str, float] = {}
    busy = 0.0
    for replica in cluster.replicas:
        busy += replica.stats.busy_s
        for name, part in replica.stats.time_parts(replica.run.surface).items():
            shares[name] = shares.get(name, 0.0) + part / total
    shares["idle"] = max(0.0, 1.0 - busy / total)
    return shares


def _energy(cluster: Cluster, window: Window) -> EnergyFigures | None:
    found = [
        replica.stats.joules(replica.run.surface, window.seconds) for replica in cluster.replicas
    ]
    known = [pair for pair in found if pair is not None]
    if len(known) < len(found) or window.seconds <= 0:
        return None
    total, idle = (sum(values) for values in zip(*known, strict=True))
    return EnergyFigures(
        power_w=total / window.seconds, joules_per_output_token=_ratio(total, window.tokens),
        idle_share=idle / total,
    )


def _distribution(observed: Floats, censored: Floats, percents: tuple[float, ...]) -> Distribution:
    out: dict[str, float | None] = {"mean": distributions.mean(observed, censored)}
    for percent in percents:
        out[f"p{percent:g}"] = distributions.percentile(observed, censored, percent)
    if len(censored):
        out["censored"] = len(censored)
    return cast(Distribution, out)


@dataclass(frozen=True, slots=True)
class _Parts:
    """What the records alone tell."""

    latencies: Latencies
    sums: dict[str, int]
    status: dict[str, int]
    stalled: int
    finished_in_window: int
    good: int


def _from_records(
    records: Records, window: Window, limits: dict[str, float], completed: bool
) -> _Parts:
    """completed: latencies are of the requests that are complete inside the window."""
    arrival, end = records.times("arrival_s"), records.times("end_s")
    measured = arrival >= window.start_s
    first, last = records.times("first_token_s"), records.times("last_token_s")
    tokens = records.ints("output_tokens")
    finished = records.status(FINISHED)
    ended = finished & (end >= window.start_s)
    with np.errstate(divide="ignore", invalid="ignore"):
        gap = np.where(tokens > 1, (last - first) / (tokens - 1), math.nan)
    since_arrival = {
        "ttft": first - arrival, "queue": records.times("scheduled_s") - arrival,
        "e2el": end - arrival,
    }
    queued = measured & ~np.isnan(since_arrival["queue"])
    # A client that gave up has waited that long; one whose request still waits, until the end.
    waited = np.where(np.isnan(end), window.end_s, end) - arrival
    open_ended = measured & (records.status(UNFINISHED) | records.status(TIMEOUT))
    if completed:
        done = ended & (end <= window.end_s)
        several = done & (last > first)
        open_ended = np.zeros_like(done)
    else:
        done = several = measured & finished
    whole: dict[str, Distribution] = {}
    for name, values in since_arrival.items():
        reached = measured & ~np.isnan(values)
        observed = done if completed or name == "e2el" else reached
        waiting = open_ended if name == "e2el" else open_ended & ~reached
        whole[name] = _distribution(values[observed], waited[waiting], LATENCY_PERCENTS)
    pace, none = gap[several & (tokens > 1)], np.empty(0)
    latencies = Latencies(
        ttft_s=whole["ttft"], tpot_s=_distribution(pace, none, LATENCY_PERCENTS),
        e2el_s=whole["e2el"], queue_s=whole["queue"],
        stream_tok_s=_distribution(1.0 / pace[pace > 0], none, STREAM_PERCENTS),
    )
    good = ended.copy()
    limited = {**since_arrival, "tpot": gap}
    for metric, limit in limits.items():
        if metric == "stream_tok_s":
            good &= ~(1.0 / np.maximum(gap, 1e-300) < limit)
        else:
            good &= ~(limited[metric] > limit)
    return _Parts(
        latencies, sums={name: int(records.ints(name)[queued].sum()) for name in COUNTS},
        status={name: int((measured & records.status(name)).sum()) for name in STATUSES},
        stalled=int((measured & (records.ints("stalls") > 0)).sum()),
        finished_in_window=int(ended.sum()), good=int(good.sum()),
    )


def merged_timeline(cluster: Cluster) -> Timeline:
    """Queue, batch, cache and tokens over time, all replicas together."""
    merged = cluster.replicas[0].stats.timeline
    for replica in cluster.replicas[1:]:
        merged = merged.merge(replica.stats.timeline)
    return merged

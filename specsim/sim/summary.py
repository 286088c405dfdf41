"""The figures of a run, from its records and its step log.

Definitions:

* TTFT: arrival at the client's side to first token. Requests still without one when the run ends
  are censored observations (`survival`), not dropped.
* TPOT, per request: (last token - first token) / (output tokens - 1).
* ITL, per chunk: gaps between the pieces a client receives; under speculation a piece holds 1 to
  k + 1 tokens. ITL per token also counts the 0 s gaps inside a piece.
* E2EL: arrival to last token. stream_tok_s: 1 / TPOT per request.
* Measured are requests sent after the warm-up; rates and time averages are over the time from
  there to the end.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specsim.sim import slo, survival
from specsim.sim.cluster import Cluster
from specsim.sim.histogram import LogHistogram
from specsim.sim.records import Records
from specsim.sim.request import FAILED, FINISHED, REJECTED, STATUSES, TIMEOUT, UNFINISHED
from specsim.sim.steplog import Timeline

LATENCY_PERCENTS = (50.0, 90.0, 95.0, 99.0)
STREAM_PERCENTS = (10.0, 50.0, 90.0)
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


def summarise(cluster: Cluster, window: Window, *, partial: bool) -> dict[str, Any]:
    """All figures of a run as plain types; the keys of `specsim simulate --json`."""
    config = cluster.config
    parts = _from_records(cluster.records, window, slo.request_limits(config.slo))
    totals: dict[str, int] = parts.pop("sums")
    gaps = LogHistogram()
    for replica in cluster.replicas:
        gaps.merge(replica.stats.itl)
    out: dict[str, Any] = {name: parts[name] for name in ("ttft_s", "tpot_s")}
    out["itl_s"] = gaps.summary(LATENCY_PERCENTS)
    inside = max(0, totals["output_tokens"] - totals["chunks"])
    out["itl_per_token_s"] = gaps.summary(LATENCY_PERCENTS, zeros=inside)
    for name in ("e2el_s", "queue_s", "stream_tok_s"):
        out[name] = parts[name]
    seconds = window.seconds
    out["output_tok_s"] = window.tokens / seconds if seconds > 0 else 0.0
    out["request_rate"] = parts["finished_in_window"] / seconds if seconds > 0 else 0.0
    if config.slo:
        out["goodput"] = parts["good"] / seconds if seconds > 0 else 0.0
    stats = [replica.stats for replica in cluster.replicas]
    out["running_mean"] = sum(s.running_area for s in stats) / seconds if seconds > 0 else 0.0
    out["running_max"] = max(s.running_max for s in stats)
    out["waiting_mean"] = sum(s.waiting_area for s in stats) / seconds if seconds > 0 else 0.0
    out["waiting_max"] = max(replica.waiting_max for replica in cluster.replicas)
    out["gateway_queue_max"] = cluster.queue_max
    out["kv_usage_max"] = max(replica.kv_usage_max for replica in cluster.replicas)
    blocks = config.num_kv_blocks * config.n_replicas
    kv_area = sum(s.kv_area for s in stats)
    out["kv_usage_mean"] = kv_area / seconds / blocks if seconds > 0 else 0.0
    out["preemptions"] = sum(replica.preemptions for replica in cluster.replicas)
    out["prefix_hit_rate"] = _ratio(totals["cached_tokens"], totals["prompt_tokens"])
    verify = totals["verify_steps"]
    out["acceptance_length"] = 1.0 + totals["accepted_tokens"] / verify if verify else None
    out["acceptance_rate"] = _ratio(totals["accepted_tokens"], totals["drafted_tokens"])
    out["tokens_per_chunk"] = _ratio(totals["output_tokens"], totals["chunks"])
    out["steps"] = sum(s.steps for s in stats)
    out["mean_batch"] = _ratio(
        sum(s.running_area for s in stats), sum(s.busy_s for s in stats)
    )
    out["time_share"] = _time_share(cluster, seconds)
    counts = parts["status"]
    measured = sum(counts.values())
    out["requests"] = {"measured": measured, **counts, "arrived": cluster.counters.arrived}
    out["error_rate"] = _ratio(counts[REJECTED] + counts[TIMEOUT] + counts[FAILED], measured) or 0.0
    out["stall_rate"] = _ratio(parts["stalled"], measured) or 0.0
    out["window_s"] = [window.start_s, window.end_s]
    out["partial"] = partial
    out["cost_surface"] = cluster.surface.error()
    out["slo"] = slo.judge(config.slo, out) if config.slo else None
    return out


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _time_share(cluster: Cluster, seconds: float) -> dict[str, float]:
    """Shares of the window, averaged over replicas, by what the engine was doing."""
    total = seconds * len(cluster.replicas)
    if total <= 0:
        return {}
    shares: dict[str, float] = {}
    busy = 0.0
    for replica in cluster.replicas:
        busy += replica.stats.busy_s
        for name, part in replica.stats.time_parts(replica.surface).items():
            shares[name] = shares.get(name, 0.0) + part / total
    shares["idle"] = max(0.0, 1.0 - busy / total)
    return shares


def _distribution(
    observed: Floats, censored: Floats, percents: tuple[float, ...]
) -> dict[str, Any]:
    out: dict[str, Any] = {"mean": survival.mean(observed, censored)}
    for percent in percents:
        out[f"p{percent:g}"] = survival.percentile(observed, censored, percent)
    if len(censored):
        out["censored"] = len(censored)
    return out


def _from_records(records: Records, window: Window, limits: dict[str, float]) -> dict[str, Any]:
    arrival = records.times("arrival_s")
    measured = arrival >= window.start_s
    first, last = records.times("first_token_s"), records.times("last_token_s")
    end, scheduled = records.times("end_s"), records.times("scheduled_s")
    tokens = records.ints("output_tokens")
    finished = records.status(FINISHED)
    # A client that gave up has waited that long; one whose request still waits, until the end.
    waited = np.where(np.isnan(end), window.end_s, end) - arrival
    open_ended = measured & (records.status(UNFINISHED) | records.status(TIMEOUT))
    none = np.empty(0)
    started = measured & ~np.isnan(first)
    ttft = _distribution(
        (first - arrival)[started], waited[open_ended & np.isnan(first)], LATENCY_PERCENTS
    )
    done = measured & finished
    e2el = _distribution((end - arrival)[done], waited[open_ended], LATENCY_PERCENTS)
    several = done & (tokens > 1)
    per_token = (last - first)[several] / (tokens[several] - 1)
    with np.errstate(divide="ignore"):
        rate = 1.0 / per_token[per_token > 0]
    queued = measured & ~np.isnan(scheduled)
    queue = _distribution(
        (scheduled - arrival)[queued], waited[open_ended & np.isnan(scheduled)], LATENCY_PERCENTS
    )
    good = done.copy()
    if limits:
        tpot = np.full(len(arrival), math.nan)
        tpot[several] = per_token
        stream = np.full(len(arrival), math.nan)
        stream[several] = 1.0 / np.maximum(per_token, 1e-300)
        values = {"ttft": first - arrival, "e2el": end - arrival, "tpot": tpot}
        values["queue"] = scheduled - arrival
        for metric, limit in limits.items():
            if metric == "stream_tok_s":
                good &= ~(stream < limit)
            else:
                good &= ~(values[metric] > limit)
    return {
        "ttft_s": ttft,
        "tpot_s": _distribution(per_token, none, LATENCY_PERCENTS),
        "e2el_s": e2el,
        "queue_s": queue,
        "stream_tok_s": _distribution(rate, none, STREAM_PERCENTS),
        "sums": {name: int(records.ints(name)[queued].sum()) for name in COUNTS},
        "status": {name: int((measured & records.status(name)).sum()) for name in STATUSES},
        "stalled": int((measured & (records.ints("stalls") > 0)).sum()),
        "finished_in_window": int((finished & (end >= window.start_s)).sum()),
        "good": int(good.sum()),
    }


def merged_timeline(cluster: Cluster) -> Timeline:
    """Queue, batch, cache and tokens over time, all replicas together."""
    merged = cluster.replicas[0].stats.timeline
    for replica in cluster.replicas[1:]:
        merged = merged.merge(replica.stats.timeline)
    return merged

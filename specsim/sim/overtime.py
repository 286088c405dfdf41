"""A run over time in at most 120 points: queue, batch, cache, tokens and TTFT, for files and plots.

Each point is the mean over an interval of equal width (of TTFT: percentiles of the requests sent in
it). Times are seconds of simulated time; the last interval ends with the last step.
"""

import math

import numpy as np
from numpy.typing import NDArray

from specsim.sim.run import SimResult
from specsim.sim.steplog import Timeline
from specsim.sim.summary import merged_timeline

MOST_POINTS = 120
DIGITS = 5  # significant figures: nobody reads more from a curve


OverTime = dict[str, float | list[float] | list[float | None]]


def over_time(result: SimResult) -> OverTime:
    """The `timeline` of `specsim simulate --json`.

    width_s: of the intervals. t_s: their starts. running, waiting: mean requests in steps and in
    the engines' queues, all replicas. kv_usage: share of the cache blocks held by requests.
    output_tok_s: tokens given out per second. busy: share of the time in which a step ran.
    ttft_p50_s, ttft_p95_s: of the requests sent in the interval that got a token, else None.
    """
    merged = merged_timeline(result.cluster)
    cells = Timeline.FIELDS
    area, width = merged.area, merged.width_s
    count = math.ceil(merged.end_s / width) if merged.end_s > 0 else 0
    area = area[:, :count]
    while count > MOST_POINTS:
        if count % 2:
            area = np.concatenate([area, np.zeros((len(cells), 1))], axis=1)
        area = area[:, ::2] + area[:, 1::2]
        width *= 2
        count = area.shape[1]
    starts = np.arange(count) * width
    spans = np.minimum(starts + width, merged.end_s) - starts
    levels = dict(zip(cells, area / np.maximum(spans, 1e-12), strict=True))
    replicas = result.cluster.replicas
    blocks = sum(replica.run.config.most_kv_blocks for replica in replicas)
    out: OverTime = {
        "width_s": width,
        "t_s": _short(starts),
        "running": _short(levels["running"]),
        "waiting": _short(levels["waiting"]),
        "kv_usage": _short(levels["kv_blocks"] / blocks),
        "output_tok_s": _short(levels["tokens"]),
        "busy": _short(levels["busy"] / len(replicas)),
    }
    arrival = result.records.times("arrival_s")
    ttft = result.records.times("first_token_s") - arrival
    place = np.minimum((arrival / width).astype(np.int64), count - 1)
    for percent in (50, 95):
        values: list[float | None] = [None] * count
        for i in range(count):
            inside = ttft[(place == i) & ~np.isnan(ttft)]
            if len(inside):
                values[i] = _rounded(float(np.percentile(inside, percent)))
        out[f"ttft_p{percent}_s"] = values
    return out


def _short(values: NDArray[np.floating]) -> list[float]:
    return [_rounded(float(value)) for value in values]


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")

"""Time of the fused routed experts of a mixture-of-experts layer (gate+up, activation, down).

Memory: the weights of every expert that at least one token chose, read once: their number comes
with the call, or is that of the kernel benchmark (`distinct_experts`). Arithmetic: rows of one
expert are padded to the tile of its product, so many experts with few rows each cost more than
their FLOP. The passes between the two products (gather, activation, weighted sum) stream the
activations of every assignment, local or not (TensorRT-LLM: local ones), unless rows are sent to
their own experts alone:

    time = floor + smooth max(weights / bandwidth, tiles, padded FLOP / peak) + activations / bw

Under expert parallelism all ranks wait for the busiest one, so its experts and rows are priced.
The router, the shared expert and any all-to-all are other ops.

Parameters: floor_s, sort_s (per doubling of the assignments), mem_frac, peak_frac, p, tile_s (a
wave of weight tiles), tile_rows (largest row tile), act_frac (bandwidth share of the passes
between), routing_shape (see `distinct_experts`), rank_skew and rank_power (under unequal
popularity the busiest rank has 1 + rank_skew sqrt(ln ranks) / local_experts^rank_power times the
mean rows), expert_s (preparing one local expert), act_away (share of the other ranks' assignments
that the passes between stream as well; 1 where a table does not say), crowded (slowdown of the
weight stream once there are more tokens than experts and an untuned kernel changes its tiles),
unaligned (slowdown where `inter` is not a multiple of 16: kernels then load element by element).
"""

from math import ceil, log, log2, sqrt

from specsim.errors import UsageError
from specsim.ops.shapes import Experts
from specsim.roofline.device import (
    CALIBRATED,
    Device,
    Pricing,
    compute_peak,
    family,
    foreign,
    params,
    stored_bytes,
    untiled,
)
from specsim.roofline.gemm import cache_hits
from specsim.roofline.kernels import prices
from specsim.roofline.result import KernelTime, datasheet_time, labelled, smooth_max

DISTRIBUTIONS = ("power_law", "uniform", "balanced")
TILE_COLUMNS = 128


def distinct_experts(
    tokens: float,
    top_k: float,
    experts: float,
    distribution: str = "uniform",
    routing_shape: float = 1.5,
) -> float:
    """Experts that `tokens` tokens choose in a benchmark of the kernel, each top_k of them.

    'uniform': independent, equally popular: E (1 - (1 - k/E)^T).
    'power_law': unequal popularity. If popularity is gamma distributed with shape s and mean 1,
    an expert with lambda expected visits is missed with probability (1 + lambda/s)^-s; here
    lambda = -T ln(1 - k/E), so that s -> infinity is the uniform case.
    'balanced': round robin, min(E, k T).
    """
    if distribution == "balanced":
        return min(float(experts), top_k * tokens)
    if top_k >= experts:
        return float(experts)
    if distribution == "uniform":
        found = experts * (1.0 - (1.0 - top_k / experts) ** tokens)
    elif distribution == "power_law":
        visits = -tokens * log(1.0 - top_k / experts)
        found = experts * (1.0 - (1.0 + visits / routing_shape) ** -routing_shape)
    else:
        raise UsageError(
            f"routing distribution '{distribution}' is not known; "
            f"use one of {', '.join(DISTRIBUTIONS)}"
        )
    # One whole token never needs fewer than its own k.
    return float(max(found, min(1.0, tokens) * top_k))


@prices(Experts)
def moe(device: Device, on: Experts, how: Pricing = CALIBRATED) -> KernelTime:
    """Seconds of the routed experts of one layer."""
    tokens, hidden, inter, top_k, experts, fmt = on[:6]
    distribution = on.distribution
    t = params(device, moe_table(device, fmt), how.engine)
    local = on.local_experts or experts
    ranks = experts / local
    active = on.distinct or distinct_experts(
        tokens, top_k, experts, distribution, t["routing_shape"]
    )
    rows = tokens * top_k
    matrices = 3.0 if on.gated else 2.0
    # Per assignment: input and output of both products, the activation between, the sum.
    act = rows * 2.0 * (3.0 * hidden + (matrices + 1.0) * inter)
    if ranks > 1.0:
        active = busiest_rank(active, local, ranks)
        rows /= ranks
        if distribution == "power_law":
            rows *= 1.0 + t["rank_skew"] * sqrt(log(ranks)) * local ** -t["rank_power"]
        rows = max(rows, active) if tokens >= 1.0 else rows
        away = 0.0 if on.sent else t.get("act_away", 1.0)
        act *= away + (1.0 - away) * rows / (tokens * top_k)
    per_expert = matrices * hidden * inter
    stored = active * per_expert * (on.bytes_per_weight or stored_bytes(fmt))
    flops = 2.0 * rows * per_expert
    peak = compute_peak(device, fmt)
    bandwidth = device.mem_bytes_per_s
    if how.datasheet:
        return datasheet_time((stored + act) / bandwidth, flops / peak)
    if how.rotated_copies:
        warm = cache_hits(stored * how.rotated_copies, device.l2_bytes)
        stored *= 1.0 - 0.5 * warm
    mem_s = stored / (bandwidth * t["mem_frac"])
    if tokens > experts:
        mem_s *= t["crowded"]
    each = rows / active
    tile = min(t["tile_rows"], max(16.0, 2.0 ** ceil(log2(each)))) if each > 16.0 else 16.0
    if untiled(device):
        padded = each
    elif distribution == "balanced":
        padded = ceil(each / tile) * tile
    else:
        padded = max(tile, each + 0.5 * tile)
    compute_s = 2.0 * active * padded * per_expert / (peak * t["peak_frac"])
    columns = (matrices - 1.0) * ceil(inter / TILE_COLUMNS) + ceil(hidden / TILE_COLUMNS)
    tiles_s = 0.0 if foreign(device) else active * columns / device.sms * t["tile_s"]
    work_s = smooth_max(smooth_max(mem_s, tiles_s, t["p"]), compute_s, t["p"])
    if inter % 16:
        work_s *= t["unaligned"]
    act_s = act / (bandwidth * t["act_frac"])
    # Sorting tokens by expert takes more passes the more there are.
    floor_s = t["floor_s"] + t["sort_s"] * log2(1.0 + tokens * top_k)
    floor_s += t.get("expert_s", 0.0) * local
    return labelled(floor_s + work_s + act_s, mem_s + act_s, compute_s, floor_s)


# Where engines run weight-only MXFP4 experts through Marlin as they do int4 (kernel names in
# validation/data/other_gpus/moe.csv.gz); elsewhere through Triton (Hopper, AMD) or TensorRT-LLM's
# kernels (Blackwell), which have a table of their own.
_MARLIN_MXFP4 = ("turing", "ampere", "ada", "blackwell-consumer")


def moe_table(device: Device, fmt: str) -> str:
    """Kernel table of an expert format."""
    kernels = family(device, fmt)
    own = kernels == "weight_only" and fmt == "mxfp4" and device.arch not in _MARLIN_MXFP4
    return "moe.mxfp4" if own else f"moe.{kernels}"


def busiest_rank(active: float, local: float, ranks: float) -> float:
    """Expected distinct experts on the busiest of `ranks` ranks of `local` experts each, when
    `active` are used in all: the mean plus the largest of `ranks` normal deviations."""
    mean = active / ranks
    spread = sqrt(2.0 * mean * max(0.0, 1.0 - mean / local) * log(ranks))
    return min(local, active, mean + spread)

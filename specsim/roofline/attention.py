"""Time of grouped-query attention: decode and verify (few queries per sequence, long cache)
and prefill (many queries).

Decode: one block of threads per (sequence, KV head, 128 query rows) reads the cache of that
head once, for all query heads of the group and all q_len queries of a verify step; few blocks
split the cache over idle SMs where that saves more than joining the parts costs. The write of the
new K and V is part of the call. So

    time = floor + cold start + split + smooth max(bytes / bandwidth, (waves - 1) * tile_s)

No kernel was measured with q_len > 1: that verify costs about one decode follows from the packing
of the group's queries into one block of up to 128 rows (FlashAttention 3, FlashInfer, XQA);
`kv_read_amplification` prices kernels that do not pack.

Prefill: tiles of 128 queries; the arithmetic of all tiles spread over the SMs, or the longest
tile alone, whichever is longer, plus the start of every further wave.

Parameters, decode: floor_s, cold_s (cache not in L2), mem_frac, wide_power (bandwidth falls as
(head_dim / 128)^-wide_power above 128: FP8 values are transposed on the fly), tile_s and
tile_power (cost of a wave of blocks, grows as (head_dim / 128)^tile_power), tail (1: waves are
whole), split_s, max_splits (of one sequence's cache), sm_frac (bandwidth of one block against an
equal share of the device's), block_s (serial cost of a block), p, peak_frac; for benchmarks of
warm caches l2_frac (of the L2 size that holds a cache) and l2_traffic (time of a byte from L2
against one from memory); untiled 1: no rows are padded (a CPU's loops).
small_flops, small_flops_one (for one query): calls of up to so many FLOP run on one core in a loop
of their own that reads and then computes: small_floor_s, small_mem_frac and small_frac of the
device's rates (a CPU decoder's native kernel).
Prefill: floor_s, mem_frac, peak_frac, wide_frac (the same for head_dim above 128), narrow_frac (up
to 64, where the softmax takes as long beside half the products; without it peak_frac), chain_gain
(speed of one tile alone against its share of a full device), tile_s, sag and sag_s (clock loss
per doubling beyond sag_s seconds of arithmetic), p.
"""

from math import ceil, log2
from typing import NamedTuple

from specsim.ops.shapes import AttentionDecode, AttentionPrefill
from specsim.ops.spread import causal_keys
from specsim.roofline.device import (
    CALIBRATED,
    Device,
    Params,
    Pricing,
    compute_peak,
    foreign,
    params,
)
from specsim.roofline.gemm import cache_hits
from specsim.roofline.kernels import prices
from specsim.roofline.result import KernelTime, datasheet_time, labelled, smooth_max, without_launch
from specsim.units import DTYPE_BYTES

ROWS_PER_BLOCK = 128
SPLIT_TOKENS = 128  # a split reads at least one block of keys


@prices(AttentionDecode)
def attn_decode(
    device: Device, shape: AttentionDecode, how: Pricing = CALIBRATED
) -> KernelTime:
    """Seconds of one call for all decoding sequences."""
    seqs, q_len, heads, kv_heads, head_dim, ctx = shape[:6]
    element = DTYPE_BYTES[shape.fmt]
    row_bytes = 2.0 * kv_heads * head_dim * element
    read = seqs * (ctx + q_len) * row_bytes
    other = seqs * q_len * (row_bytes + heads * head_dim * 4.0)  # new K and V, queries, outputs
    flops = 4.0 * seqs * q_len * (ctx + 0.5 * (q_len + 1)) * heads * head_dim
    peak = compute_peak(device, "bf16")
    bandwidth = device.mem_bytes_per_s
    if how.datasheet:
        return datasheet_time((read + other) / bandwidth, flops / peak)
    t = params(device, _decode_table(element, head_dim), how.engine)
    read *= shape.kv_read_amplification
    most = t.get("small_flops_one" if q_len == 1 else "small_flops", 0.0)
    if 4.0 * seqs * q_len * (ctx + q_len) * heads * head_dim <= most:
        floor_s = t["small_floor_s"]
        compute_s = flops / (peak * t["small_frac"])
        mem_s = (read + other) / (bandwidth * t["small_mem_frac"])
        return labelled(floor_s + compute_s + mem_s, mem_s, compute_s, floor_s)
    mem_frac, tile_s = t["mem_frac"], t["tile_s"]
    if head_dim > 128:
        wide = head_dim / 128.0
        if t["wide_power"]:
            mem_frac *= wide ** -t["wide_power"]
        tile_s *= wide ** t["tile_power"]
    floor_s = t["floor_s"]
    cache_bytes = device.l2_bytes * t["l2_frac"]
    # Seen only where a cache outgrows the L2 in a benchmark; taken to grow up to there.
    cold_s = t["cold_s"] * min(1.0, read / cache_bytes)
    if how.rotated_copies:
        warm = cache_hits(read * how.rotated_copies, cache_bytes)
        cold_s *= 1.0 - warm
        read *= 1.0 - warm * (1.0 - t["l2_traffic"])
    mem_s = (read + other) / (bandwidth * mem_frac)
    # Blocks are padded to 64 rows of query heads of one group.
    group_rows = q_len * heads / kv_heads
    untiled = bool(t.get("untiled", 0.0))  # a CPU's loops multiply no idle rows
    padded = group_rows if untiled else ceil(group_rows / 64) * 64
    compute_s = flops / peak / t["peak_frac"] * (padded / group_rows)
    blocks = seqs * kv_heads * ceil(group_rows / ROWS_PER_BLOCK)
    floor_s += cold_s + t["block_s"] * blocks
    waves = blocks / device.sms
    # A block draws no more than its SM's share of the bandwidth; its first keys are in the floor.
    token_s = row_bytes / kv_heads * device.sms / (bandwidth * t["sm_frac"])
    tokens = ctx + q_len  # one block's, in order
    chain_s = max(0.0, tokens - SPLIT_TOKENS) * token_s
    work_s = smooth_max(max(mem_s, chain_s), compute_s, 4.0)
    splits = min(1.0 / waves, tokens / SPLIT_TOKENS, t["max_splits"])
    if splits > 1.0:
        # Kernels split where that saves more than the second pass, which joins the parts, costs.
        chain_s = (tokens / splits - SPLIT_TOKENS) * token_s
        split_s = smooth_max(max(mem_s, chain_s), compute_s, 4.0) + t["split_s"]
        if split_s < work_s:
            floor_s += t["split_s"]
            work_s = split_s - t["split_s"]
    if waves > 1.0 and not foreign(device):
        extra = waves + t["tail"] * (ceil(waves) - waves) - 1.0
        work_s = smooth_max(work_s, extra * tile_s, t["p"])
    return labelled(floor_s + work_s, mem_s, compute_s, floor_s)


def _decode_table(element: float, head_dim: int) -> str:
    if element == 1.0:
        return "attn_decode.fp8"
    if head_dim > 256:
        return "attn_decode.bf16.hd512"
    return "attn_decode.bf16"


@prices(AttentionPrefill)
def attn_prefill(
    device: Device, shape: AttentionPrefill, how: Pricing = CALIBRATED
) -> KernelTime:
    """Seconds of one call for `seqs` prompt chunks of one shape."""
    new, cached, heads, kv_heads, head_dim, window, kv_fmt, seqs, _ = shape
    if window and new + cached > window:
        kv_tokens = min(cached, window) + new
        longest = min(window + ROWS_PER_BLOCK, cached + new)
    else:
        kv_tokens = longest = cached + new
    pairs = new * causal_keys(cached, new, window)
    flops = 4.0 * seqs * pairs * heads * head_dim
    # K and V read, the new ones written; queries read, outputs written.
    row_bytes = 2.0 * kv_heads * head_dim * DTYPE_BYTES[kv_fmt]
    moved = seqs * ((kv_tokens + new) * row_bytes + new * heads * head_dim * 4.0)
    peak = compute_peak(device, "bf16")
    bandwidth = device.mem_bytes_per_s
    if how.datasheet:
        return datasheet_time(moved / bandwidth, flops / peak)
    name = "attn_prefill.fp8" if DTYPE_BYTES[kv_fmt] == 1.0 else "attn_prefill"
    if head_dim > 256:
        name = "attn_prefill.hd512"
    t = params(device, name, how.engine)
    frac = t["peak_frac"] if head_dim <= 128 else t["wide_frac"]
    if head_dim <= 64:
        frac = t.get("narrow_frac", frac)
    work = PrefillWork(new, longest, pairs, flops, moved, heads, head_dim, seqs)
    return prefill_time(device, t, work, frac, shared_launch=shape.shared_launch)


class PrefillWork(NamedTuple):
    """`seqs` chunks of `new` queries that see `pairs` keys in all and `longest` at most."""

    new: float
    longest: float
    pairs: float
    flops: float
    moved_bytes: float
    heads: float
    head_dim: float
    seqs: float


def prefill_time(
    device: Device, t: Params, work: PrefillWork, peak_frac: float, *, shared_launch: bool = False
) -> KernelTime:
    """Seconds of prefill attention, without its launch where another op pays that."""
    new, longest, pairs, flops, moved, heads, head_dim, seqs = work
    peak = compute_peak(device, "bf16")
    ideal_s = flops / peak
    # Blocks on the diagonal are computed whole.
    block = min(new, ROWS_PER_BLOCK)
    compute_s = ideal_s * (1.0 + 0.5 * block * new / pairs) / peak_frac
    if ideal_s > t["sag_s"] > 0.0:
        compute_s *= 1.0 + t["sag"] * log2(ideal_s / t["sag_s"])
    chain_s = 4.0 * block * longest * head_dim * device.sms / (peak * peak_frac * t["chain_gain"])
    p = t["p"]
    work_s = smooth_max(compute_s, chain_s, p)
    waves = seqs * heads * ceil(new / ROWS_PER_BLOCK) / device.sms
    if waves > 1.0 and not foreign(device):
        work_s += (waves - 1.0) * t["tile_s"]
    mem_s = moved / (device.mem_bytes_per_s * t["mem_frac"])
    floor_s = t["floor_s"]
    found = labelled(floor_s + smooth_max(work_s, mem_s, p), mem_s, compute_s, floor_s)
    return without_launch(found) if shared_launch else found

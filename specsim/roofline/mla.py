"""Time of multi-head latent attention kernels (DeepSeek-V2 and later).

Decode is absorbed: every query head attends to one latent of kv_lora_rank + rope_dim numbers
per token, read once for all heads and all queries of a step. Its rows (heads x q_len) are padded
to 64, so 16 heads with 4 queries cost what 64 heads cost; arithmetic binds soon after. Queries that
choose what they attend to are sequences of one token to the kernel, each with its own heads padded
to 64 (SGLang 0.5.23, dsa_backend.py, for FlashAttention-3, FlashMLA and TensorRT-LLM's kernel);
what neighbours have both chosen, the later ones find in the L2 cache. Prefill is expanded to
ordinary heads.

Parameters, decode: floor_s, cold_s, mem_frac, peak_frac (of the 16-bit peak, whatever the cache
dtype), tile_s (a wave of sequences after the first), split_s (joining the parts of a cache of two
blocks or more), p, l2_frac. Prefill uses the parameters of `attn_prefill`.
"""

from math import ceil

from specsim.ops.shapes import LatentDecode, LatentPrefill, SparsePrefill
from specsim.roofline.attention import PrefillWork, prefill_time
from specsim.roofline.device import CALIBRATED, Device, Pricing, compute_peak, foreign, params
from specsim.roofline.gemm import cache_hits
from specsim.roofline.kernels import prices
from specsim.roofline.result import KernelTime, datasheet_time, labelled, smooth_max
from specsim.units import DTYPE_BYTES

ROW_TILE = 64
SPLIT_TOKENS = 256


@prices(LatentDecode)
def mla_decode(device: Device, shape: LatentDecode, how: Pricing = CALIBRATED) -> KernelTime:
    """Attention kernel alone (no projections) for seqs sequences of q_len new tokens."""
    seqs, q_len, heads, kv_lora_rank, rope_dim, ctx, kv_fmt, amplification, apart = shape
    row_bytes = (kv_lora_rank + rope_dim) * DTYPE_BYTES[kv_fmt]
    width = 2 * kv_lora_rank + rope_dim
    rows = heads * q_len
    read = seqs * (ctx + q_len) * row_bytes
    other = seqs * q_len * (row_bytes + heads * width * 2.0)
    flops = 2.0 * seqs * rows * (ctx + 0.5 * (q_len + 1)) * width
    peak = compute_peak(device, "bf16")
    bandwidth = device.mem_bytes_per_s
    if how.datasheet:
        return datasheet_time((read + other) / bandwidth, flops / peak)
    t = params(device, "mla_decode", how.engine)
    read *= amplification
    cache_bytes = device.l2_bytes * t["l2_frac"]
    cold_s = t["cold_s"] * min(1.0, read / cache_bytes)
    if how.rotated_copies:
        cold_s *= 1.0 - cache_hits(read * how.rotated_copies, cache_bytes)
    tiles = q_len * ceil(heads / ROW_TILE) if apart else ceil(rows / ROW_TILE)
    mem_s = (read + other) / (bandwidth * t["mem_frac"])
    compute_s = flops * (tiles * ROW_TILE / rows) / (peak * t["peak_frac"])
    work_s = smooth_max(mem_s, compute_s, t["p"])
    # The scheduler shares the blocks of all caches out over the SMs and joins the parts after, in
    # whatever number of waves.
    floor_s = t["floor_s"] + cold_s + t["split_s"] * min(1.0, max(0.0, ctx / SPLIT_TOKENS - 1.0))
    waves = seqs * tiles / device.sms
    if waves > 1.0 and not foreign(device):
        work_s = smooth_max(work_s, (waves - 1.0) * t["tile_s"], t["p"])
    return labelled(floor_s + work_s, mem_s, compute_s, floor_s)


@prices(LatentPrefill)
def mla_prefill(device: Device, shape: LatentPrefill, how: Pricing = CALIBRATED) -> KernelTime:
    """Expanded attention (the up-projection of the latents is a gemm of its own)."""
    new, cached, heads, qk_head_dim, v_head_dim, seqs, pairs, _, _ = shape
    pairs = pairs or new * cached + 0.5 * new * (new + 1)
    both = qk_head_dim + v_head_dim
    flops = 2.0 * seqs * pairs * heads * both
    # Queries and outputs, keys and values of every head.
    moved = seqs * heads * 2.0 * (2.0 * new + cached) * both
    peak = compute_peak(device, "bf16")
    if how.datasheet:
        return datasheet_time(moved / device.mem_bytes_per_s, flops / peak)
    t = params(device, "attn_prefill", how.engine)
    work = PrefillWork(new, cached + new, pairs, flops, moved, heads, both / 2.0, seqs)
    return prefill_time(device, t, work, t["peak_frac"], shared_launch=shape.shared_launch)


@prices(SparsePrefill)
def sparse_prefill(
    device: Device, shape: SparsePrefill, how: Pricing = CALIBRATED
) -> KernelTime:
    """Absorbed attention to chosen keys: each query's are gathered, through the L2 cache, and its
    heads padded to what the kernel multiplies at once (of FlashMLA on Blackwell 128)."""
    new, keys, heads, head_dim, cache_bytes, fmt, _ = shape
    pairs = new * keys
    flops = 4.0 * pairs * heads * head_dim
    moved = cache_bytes + 4.0 * new * heads * head_dim  # queries and outputs of 16 bits
    if how.datasheet:
        return datasheet_time(moved / device.mem_bytes_per_s, flops / compute_peak(device, "bf16"))
    t = params(device, "attn_prefill", how.engine)
    tile = ROW_TILE * (2 if device.arch == "blackwell" and fmt == "bf16" else 1)
    padded = ceil(heads / tile) * tile
    flops *= padded / heads
    work = PrefillWork(new, keys, pairs, flops, moved, padded, head_dim, 1.0)
    return prefill_time(device, t, work, t["peak_frac"], shared_launch=shape.shared_launch)

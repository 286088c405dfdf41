"""Time of multi-head latent attention kernels (DeepSeek-V2 and later).

Decode is absorbed: every query head attends to one latent of kv_lora_rank + rope_dim numbers
per token, read once for all heads and all queries of a step. Its rows (heads x q_len) are padded
to 64, so 16 heads with 4 queries cost what 64 heads cost; arithmetic binds soon after. Prefill is
expanded to ordinary heads.

Parameters, decode: floor_s, cold_s, mem_frac, peak_frac (of the 16-bit peak, whatever the cache
dtype), tile_s (a wave of sequences after the first), split_s (splitting a long cache over idle
SMs), p, l2_frac. Prefill uses the parameters of `attn_prefill`.
"""

from math import ceil

from specsim.roofline.attention import prefill_time
from specsim.roofline.device import Device, compute_peak, params
from specsim.roofline.gemm import cache_hits
from specsim.roofline.result import KernelTime, datasheet_time, labelled, smooth_max
from specsim.units import DTYPE_BYTES

ROW_TILE = 64
SPLIT_TOKENS = 256


def mla_decode(
    device: Device,
    seqs: float,
    q_len: int,
    heads: float,
    kv_lora_rank: int,
    rope_dim: int,
    ctx_tokens_per_seq: float,
    kv_fmt: str = "bf16",
    *,
    kv_read_amplification: float = 1.0,
    rotated_copies: int = 0,
    fidelity: str = "calibrated",
    engine: str = "",
) -> KernelTime:
    """Attention kernel alone (no projections) for seqs sequences of q_len new tokens."""
    ctx = ctx_tokens_per_seq
    row_bytes = (kv_lora_rank + rope_dim) * DTYPE_BYTES[kv_fmt]
    width = 2 * kv_lora_rank + rope_dim
    rows = heads * q_len
    read = seqs * (ctx + q_len) * row_bytes
    other = seqs * q_len * (row_bytes + heads * width * 2.0)
    flops = 2.0 * seqs * rows * (ctx + 0.5 * (q_len + 1)) * width
    peak = compute_peak(device, "bf16")
    bandwidth = device.mem_bytes_per_s
    if fidelity == "datasheet":
        return datasheet_time((read + other) / bandwidth, flops / peak)
    t = params(device, "mla_decode", engine)
    read *= kv_read_amplification
    cache_bytes = device.l2_bytes * t["l2_frac"]
    cold_s = t["cold_s"] * min(1.0, read / cache_bytes)
    if rotated_copies:
        cold_s *= 1.0 - cache_hits(read * rotated_copies, cache_bytes)
    tiles = ceil(rows / ROW_TILE)
    mem_s = (read + other) / (bandwidth * t["mem_frac"])
    compute_s = flops * (tiles * ROW_TILE / rows) / (peak * t["peak_frac"])
    work_s = smooth_max(mem_s, compute_s, t["p"])
    floor_s = t["floor_s"] + cold_s
    blocks = seqs * tiles
    waves = blocks / device.sms
    if waves < 1.0:
        splits = min(1.0 / waves, ctx / SPLIT_TOKENS)
        floor_s += t["split_s"] * min(1.0, max(0.0, splits - 1.0))
    else:
        work_s = smooth_max(work_s, (waves - 1.0) * t["tile_s"], t["p"])
    return labelled(floor_s + work_s, mem_s, compute_s, floor_s)


def mla_prefill(
    device: Device,
    new: float,
    cached: float,
    heads: float,
    qk_head_dim: int,
    v_head_dim: int,
    seqs: float = 1,
    *,
    pairs: float = 0.0,
    fidelity: str = "calibrated",
    engine: str = "",
) -> KernelTime:
    """Expanded attention of `new` tokens after `cached`, per-head K of qk_head_dim and V of
    v_head_dim (the up-projection of the latents is a gemm of its own). pairs: query-key pairs of
    one chunk where they are fewer than causal (sparse attention); 0: causal."""
    pairs = pairs or new * cached + 0.5 * new * (new + 1)
    both = qk_head_dim + v_head_dim
    flops = 2.0 * seqs * pairs * heads * both
    # Queries and outputs, keys and values of every head.
    moved = seqs * heads * 2.0 * (2.0 * new + cached) * both
    peak = compute_peak(device, "bf16")
    if fidelity == "datasheet":
        return datasheet_time(moved / device.mem_bytes_per_s, flops / peak)
    t = params(device, "attn_prefill", engine)
    return prefill_time(
        device, t, new, cached + new, pairs, flops, moved, heads, both / 2.0, seqs, t["peak_frac"]
    )

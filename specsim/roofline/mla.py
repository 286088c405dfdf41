"""Time of multi-head latent attention kernels (DeepSeek-V2 and later).

Decode is absorbed: every query head attends to one latent of kv_lora_rank + rope_dim numbers
per token, read once for all heads and all queries. Prefill is expanded to ordinary heads.
"""

from specsim.roofline.device import Device, compute_peak, params
from specsim.roofline.result import KernelTime, datasheet_time, kernel_time
from specsim.units import DTYPE_BYTES


def mla_decode(
    device: Device,
    seqs: float,
    q_len: int,
    heads: int,
    kv_lora_rank: int,
    rope_dim: int,
    ctx_tokens_per_seq: float,
    kv_fmt: str = "bf16",
    *,
    kv_read_amplification: float = 1.0,
    fidelity: str = "calibrated",
    engine: str = "",
) -> KernelTime:
    """Attention kernel alone (no projections) for seqs sequences of q_len new tokens."""
    ctx = ctx_tokens_per_seq
    row = (kv_lora_rank + rope_dim) * DTYPE_BYTES[kv_fmt]
    read = seqs * (ctx + q_len) * row
    written = seqs * q_len * row
    act = seqs * q_len * heads * (2 * kv_lora_rank + rope_dim) * 2.0
    flops = (
        2.0 * seqs * q_len * (ctx + 0.5 * q_len) * heads * (2 * kv_lora_rank + rope_dim)
    )
    peak = compute_peak(device, "bf16")
    if fidelity == "datasheet":
        return datasheet_time((read + written + act) / device.mem_bytes_per_s, flops / peak)
    table = params(device, "mla_decode", engine)
    mem_s = (read * kv_read_amplification + written + act) / (
        device.mem_bytes_per_s * table["mem_frac"]
    )
    return kernel_time(
        mem_s, flops / (peak * table["peak_frac"]), table["floor_s"], table["p"], table["p_floor"]
    )


def mla_prefill(
    device: Device,
    new: float,
    cached: float,
    heads: int,
    qk_head_dim: int,
    v_head_dim: int,
    seqs: float = 1,
    *,
    fidelity: str = "calibrated",
    engine: str = "",
) -> KernelTime:
    """Expanded attention of `new` tokens after `cached`, per-head K of qk_head_dim and V of
    v_head_dim (the up-projection of the latents is a gemm of its own)."""
    pairs = new * cached + 0.5 * new * (new + 1)
    flops = 2.0 * seqs * pairs * heads * (qk_head_dim + v_head_dim)
    moved = seqs * heads * 2.0 * ((cached + new) + new) * (qk_head_dim + v_head_dim)
    peak = compute_peak(device, "bf16")
    if fidelity == "datasheet":
        return datasheet_time(moved / device.mem_bytes_per_s, flops / peak)
    table = params(device, "mla_prefill", engine)
    mem_s = moved / (device.mem_bytes_per_s * table["mem_frac"])
    return kernel_time(
        mem_s, flops / (peak * table["peak_frac"]), table["floor_s"], table["p"], table["p_floor"]
    )

"""Time of grouped-query attention: decode and verify (few queries per sequence, long cache)
and prefill (many queries).

Decode reads every cached K and V once, whatever the number of queries: the q_len queries of a
verify step and the query heads of a group share one read. The write of the new K and V is
part of the call.
"""

from specsim.roofline.device import Device, compute_peak, params
from specsim.roofline.result import KernelTime, datasheet_time, kernel_time
from specsim.units import DTYPE_BYTES


def attn_decode(
    device: Device,
    seqs: float,
    q_len: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    ctx_tokens_per_seq: float,
    kv_fmt: str = "bf16",
    window: int = 0,
    *,
    kv_read_amplification: float = 1.0,
    fidelity: str = "calibrated",
    engine: str = "",
) -> KernelTime:
    """Seconds for `seqs` sequences of q_len new tokens over ctx_tokens_per_seq cached ones."""
    ctx = min(ctx_tokens_per_seq, window) if window else ctx_tokens_per_seq
    element = DTYPE_BYTES[kv_fmt]
    kv_row = 2.0 * kv_heads * head_dim * element
    read = seqs * (ctx + q_len) * kv_row
    written = seqs * q_len * kv_row
    act = seqs * q_len * heads * head_dim * 4.0
    flops = 4.0 * seqs * q_len * (ctx + 0.5 * q_len) * heads * head_dim
    peak = compute_peak(device, "bf16")
    if fidelity == "datasheet":
        return datasheet_time((read + written + act) / device.mem_bytes_per_s, flops / peak)
    table = params(device, f"attn_decode.{'fp8' if element == 1.0 else 'bf16'}", engine)
    mem_s = (read * kv_read_amplification + written + act) / (
        device.mem_bytes_per_s * table["mem_frac"]
    )
    return kernel_time(
        mem_s, flops / (peak * table["peak_frac"]), table["floor_s"], table["p"], table["p_floor"]
    )


def attn_prefill(
    device: Device,
    new: float,
    cached: float,
    heads: int,
    kv_heads: int,
    head_dim: int,
    window: int = 0,
    kv_fmt: str = "bf16",
    seqs: float = 1,
    *,
    fidelity: str = "calibrated",
    engine: str = "",
) -> KernelTime:
    """Seconds for `seqs` chunks of `new` tokens each, causal, after `cached` tokens each."""
    if window and new + cached > window:
        # Query i sees min(cached + i + 1, window) tokens.
        short = max(0.0, min(new, window - cached))
        pairs = short * cached + 0.5 * short * (short + 1) + (new - short) * window
        kv_tokens = min(cached, window) + new
    else:
        pairs = new * cached + 0.5 * new * (new + 1)
        kv_tokens = cached + new
    flops = 4.0 * seqs * pairs * heads * head_dim
    read = seqs * kv_tokens * 2.0 * kv_heads * head_dim * DTYPE_BYTES[kv_fmt]
    act = seqs * new * heads * head_dim * 4.0
    peak = compute_peak(device, "bf16")
    if fidelity == "datasheet":
        return datasheet_time((read + act) / device.mem_bytes_per_s, flops / peak)
    table = params(device, "attn_prefill", engine)
    mem_s = (read + act) / (device.mem_bytes_per_s * table["mem_frac"])
    return kernel_time(
        mem_s, flops / (peak * table["peak_frac"]), table["floor_s"], table["p"], table["p_floor"]
    )

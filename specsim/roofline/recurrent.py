"""Time of recurrent token mixers: Gated DeltaNet and Mamba-2, with their short convolution.

Decode reads and writes one state per sequence. Verify of q_len tokens reads the state once
and writes q_len snapshots, so that any number of drafts can be rejected: (1 + q_len) / 2
times the traffic of a decode, as measured for Kimi Delta Attention. Prefill works in chunks.
"""

from specsim.roofline.device import Device, compute_peak, params
from specsim.roofline.result import KernelTime, datasheet_time, kernel_time


def _decode(
    device: Device,
    name: str,
    seqs: float,
    q_len: int,
    state_bytes: float,
    conv_channels: int,
    conv_kernel: int,
    state_flops: float,
    fidelity: str,
    engine: str,
) -> KernelTime:
    states = seqs * (1.0 + q_len) * state_bytes
    # The convolution shifts a window of conv_kernel - 1 bf16 inputs per channel.
    conv = seqs * conv_channels * 2.0 * ((conv_kernel - 1) * (1.0 + q_len) + 2.0 * q_len)
    flops = seqs * q_len * (state_flops + 2.0 * conv_channels * conv_kernel)
    peak = compute_peak(device, "bf16")
    bandwidth = device.mem_bytes_per_s
    if fidelity == "datasheet":
        return datasheet_time((states + conv) / bandwidth, flops / peak)
    table = params(device, name, engine)
    mem_s = states / (bandwidth * table["mem_frac"]) + conv / (bandwidth * table["conv_mem_frac"])
    return kernel_time(
        mem_s, flops / peak, table["floor_s"] + table["conv_floor_s"], 1.0, table["p_floor"]
    )


def gdn_decode(
    device: Device,
    seqs: float,
    q_len: int,
    n_k_heads: int,
    n_v_heads: int,
    dk: int,
    dv: int,
    conv_kernel: int = 4,
    state_bytes_per_elem: float = 4.0,
    *,
    fidelity: str = "calibrated",
    engine: str = "",
) -> KernelTime:
    """Convolution and recurrent kernel of one Gated DeltaNet layer."""
    elems = n_v_heads * dk * dv
    channels = 2 * n_k_heads * dk + n_v_heads * dv
    return _decode(
        device, "gdn_decode", seqs, q_len, elems * state_bytes_per_elem, channels, conv_kernel,
        8.0 * elems, fidelity, engine,
    )


def mamba2_decode(
    device: Device,
    seqs: float,
    q_len: int,
    n_heads: int,
    head_dim: int,
    state_size: int,
    n_groups: int,
    conv_kernel: int = 4,
    state_bytes_per_elem: float = 4.0,
    *,
    fidelity: str = "calibrated",
    engine: str = "",
) -> KernelTime:
    """Convolution and state update of one Mamba-2 layer. The state update has no measured
    table: it is assumed to move its state as fast as Gated DeltaNet does."""
    elems = n_heads * head_dim * state_size
    channels = n_heads * head_dim + 2 * n_groups * state_size
    return _decode(
        device, "gdn_decode", seqs, q_len, elems * state_bytes_per_elem, channels, conv_kernel,
        5.0 * elems, fidelity, engine,
    )


def gdn_prefill(
    device: Device,
    tokens: float,
    n_k_heads: int,
    n_v_heads: int,
    dk: int,
    dv: int,
    seqs: float = 1,
    conv_kernel: int = 4,
    *,
    chunk: int = 64,
    fidelity: str = "calibrated",
    engine: str = "",
) -> KernelTime:
    """Chunked prefill of `seqs` sequences of `tokens` tokens each."""
    total = tokens * seqs
    channels = 2 * n_k_heads * dk + n_v_heads * dv
    moved = total * channels * 4.0 + total * n_v_heads * dv * 2.0
    state = seqs * n_v_heads * dk * dv * 8.0
    # Per chunk of C tokens: C^2 (dk + dv) within, 3 C dk dv with the state, per head.
    flops = 2.0 * total * n_v_heads * (chunk * (2.0 * dk + dv) + 3.0 * dk * dv)
    peak = compute_peak(device, "bf16")
    bandwidth = device.mem_bytes_per_s
    if fidelity == "datasheet":
        return datasheet_time((moved + state) / bandwidth, flops / peak)
    table = params(device, "gdn_prefill", engine)
    mem_s = (moved + state) / (bandwidth * table["mem_frac"])
    # One head's chunks follow each other: a sequence takes at least token_s per token.
    compute_s = max(flops / (peak * table["peak_frac"]), tokens * table["token_s"])
    return kernel_time(mem_s, compute_s, table["floor_s"], table["p"], table["p_floor"])


def mamba2_prefill(
    device: Device,
    tokens: float,
    n_heads: int,
    head_dim: int,
    state_size: int,
    n_groups: int,
    seqs: float = 1,
    conv_kernel: int = 4,
    *,
    fidelity: str = "calibrated",
    engine: str = "",
) -> KernelTime:
    """Chunked scan; no measured table, assumed to run as fast as Gated DeltaNet's."""
    return gdn_prefill(
        device, tokens, n_groups, n_heads, state_size, head_dim, seqs, conv_kernel,
        fidelity=fidelity, engine=engine,
    )

"""Time of recurrent token mixers: Gated DeltaNet and Mamba-2, with their short convolution.

Decode reads and writes one state per sequence. Verify of q_len tokens reads the state once
and writes q_len snapshots, so that any number of drafts can be rejected: (1 + q_len) / 2
times the traffic of a decode, as measured for Kimi Delta Attention (same state, same engines).
The tokens of a sequence follow each other, `token_s` apart.

Prefill works in chunks of 64 tokens: one block of threads per sequence and value head takes
them in order, so the time is waves x chunks x the arithmetic of a chunk on one SM.

Parameters, decode: floor_s (both kernels), mem_frac, conv_frac (bandwidth share of the
convolution), token_s, p, l2_frac and l2_traffic (benchmarks whose states stay in the L2).
Prefill: floor_s, peak_frac (of one SM), mem_frac, conv_frac, tail (1: whole waves), p,
chunk_traffic (how often a kernel writes or reads the state of every chunk to memory), ramp_s
(per token of the first chunk, where a kernel takes those one by one).
"""

from math import ceil

from specsim.ops.shapes import StateDecode, StatePrefill
from specsim.roofline.device import CALIBRATED, Device, Pricing, compute_peak, params
from specsim.roofline.gemm import cache_hits
from specsim.roofline.kernels import prices
from specsim.roofline.result import KernelTime, datasheet_time, labelled, smooth_max

CHUNK = 64


@prices(StateDecode)
def state_decode(device: Device, shape: StateDecode, how: Pricing = CALIBRATED) -> KernelTime:
    """Convolution and recurrent kernel of one layer. The state update of Mamba-2 has no measured
    table: it is assumed to move its state as fast as Gated DeltaNet does."""
    seqs, q_len, elems, channels, flops_per_elem, conv_kernel, element, traffic = shape
    state_bytes = elems * element
    # The convolution shifts a window of conv_kernel - 1 inputs of 2 bytes per channel.
    window = seqs * channels * 2.0 * (conv_kernel - 1)
    moved = traffic or seqs * (1.0 + q_len) * state_bytes
    conv = window * (1.0 + q_len) + seqs * channels * 4.0 * q_len
    flops = seqs * q_len * (flops_per_elem * elems + 2.0 * channels * conv_kernel)
    compute_s = flops / compute_peak(device, "bf16")
    bandwidth = device.mem_bytes_per_s
    if how.datasheet:
        return datasheet_time((moved + conv) / bandwidth, compute_s)
    t = params(device, "gdn_decode", how.engine)
    if how.rotated_copies:
        states = seqs * state_bytes * how.rotated_copies
        moved *= 1.0 - cache_hits(states, device.l2_bytes * t["l2_frac"]) * (1.0 - t["l2_traffic"])
    mem_s = moved / (bandwidth * t["mem_frac"]) + conv / (bandwidth * t["conv_frac"])
    floor_s = t["floor_s"] + (q_len - 1) * t["token_s"]
    work_s = max(mem_s, compute_s)
    return labelled(smooth_max(work_s, floor_s, t["p"]), mem_s, compute_s, floor_s)


@prices(StatePrefill)
def state_prefill(device: Device, shape: StatePrefill, how: Pricing = CALIBRATED) -> KernelTime:
    """Chunked prefill, convolution included. Mamba-2's scan has no measured table: it is assumed
    to run as fast as Gated DeltaNet's."""
    tokens, n_k_heads, n_v_heads, dk, dv, seqs = shape[:6]
    total = tokens * seqs
    channels = 2 * n_k_heads * dk + n_v_heads * dv
    conv = total * channels * 4.0
    moved = total * (channels + n_v_heads * dv) * 2.0 + seqs * n_v_heads * dk * dv * 8.0
    # One head, one chunk of C tokens: C^2 (2 dk + dv) among themselves, 3 C dk dv with the state.
    chunk_flops = 2.0 * CHUNK * (CHUNK * (2.0 * dk + dv) + 3.0 * dk * dv)
    blocks = seqs * n_v_heads
    chunks = max(1.0, tokens / CHUNK)
    peak = compute_peak(device, "bf16")
    bandwidth = device.mem_bytes_per_s
    if how.datasheet:
        return datasheet_time((moved + conv) / bandwidth, blocks * chunks * chunk_flops / peak)
    t = params(device, "gdn_prefill", how.engine)
    moved += t["chunk_traffic"] * blocks * chunks * dk * dv * 4.0
    waves = max(1.0, blocks / device.sms)
    waves += t["tail"] * (ceil(waves) - waves)
    compute_s = waves * ceil(chunks) * chunk_flops * device.sms / (peak * t["peak_frac"])
    mem_s = moved / (bandwidth * t["mem_frac"])
    conv_s = conv / (bandwidth * t["conv_frac"])
    floor_s = t["floor_s"] + t["ramp_s"] * min(tokens, CHUNK)
    work_s = smooth_max(mem_s, compute_s, t["p"])
    return labelled(floor_s + conv_s + work_s, mem_s + conv_s, compute_s, floor_s)

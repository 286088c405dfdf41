"""Kernel time model: seconds of one kernel call from its shape and a hardware profile.

Every function takes (device, shape...) and returns a `KernelTime`; times in seconds, sizes in
bytes, a multiply-add is 2 FLOP. fidelity 'calibrated' uses the device's kernel parameters,
'datasheet' is the plain roofline max(bytes / bandwidth, FLOP / peak).
"""

from specsim.roofline.attention import attn_decode, attn_prefill
from specsim.roofline.comm import all_gather, all_reduce, all_to_all
from specsim.roofline.device import Device, compute_peak, params
from specsim.roofline.dispatch import FIDELITIES, op_time
from specsim.roofline.gemm import gemm
from specsim.roofline.mla import mla_decode, mla_prefill
from specsim.roofline.moe import distinct_experts, moe
from specsim.roofline.recurrent import gdn_decode, gdn_prefill, mamba2_decode, mamba2_prefill
from specsim.roofline.result import KernelTime, smooth_max
from specsim.roofline.simple import elementwise, sample

__all__ = [
    "FIDELITIES",
    "Device",
    "KernelTime",
    "all_gather",
    "all_reduce",
    "all_to_all",
    "attn_decode",
    "attn_prefill",
    "compute_peak",
    "distinct_experts",
    "elementwise",
    "gdn_decode",
    "gdn_prefill",
    "gemm",
    "mamba2_decode",
    "mamba2_prefill",
    "mla_decode",
    "mla_prefill",
    "moe",
    "op_time",
    "params",
    "sample",
    "smooth_max",
]

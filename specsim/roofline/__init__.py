"""Kernel time model: seconds of one kernel call from its shape and a hardware profile.

Every function takes (device, shape, how) and returns a `KernelTime`; the shapes are those of
`specsim.ops.shapes`; times in seconds, sizes in bytes, a multiply-add is 2 FLOP. fidelity
'calibrated' uses the device's kernel parameters, 'datasheet' is the plain roofline
max(bytes / bandwidth, FLOP / peak).
"""

from specsim.roofline.attention import attn_decode, attn_prefill
from specsim.roofline.comm import all_reduce, nccl
from specsim.roofline.device import FIDELITIES, Device, Pricing, compute_peak, params
from specsim.roofline.dispatch import op_time
from specsim.roofline.gemm import gemm
from specsim.roofline.kernels import prices
from specsim.roofline.mla import mla_decode, mla_prefill
from specsim.roofline.moe import distinct_experts, moe
from specsim.roofline.recurrent import state_decode, state_prefill
from specsim.roofline.result import KernelTime, smooth_max
from specsim.roofline.simple import elementwise, sample

__all__ = [
    "FIDELITIES",
    "Device",
    "KernelTime",
    "Pricing",
    "all_reduce",
    "attn_decode",
    "attn_prefill",
    "compute_peak",
    "distinct_experts",
    "elementwise",
    "gemm",
    "mla_decode",
    "mla_prefill",
    "moe",
    "nccl",
    "op_time",
    "params",
    "prices",
    "sample",
    "smooth_max",
    "state_decode",
    "state_prefill",
]

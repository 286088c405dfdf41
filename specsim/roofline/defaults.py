"""Kernel parameters assumed for a device without measured tables.

Assumed, not measured: round numbers typical of tuned kernels on data-centre GPUs. Fractions
are of the device's own peaks; `*_s` are seconds.
"""

_GEMM = {
    "floor_s": 3.5e-6, "mem_frac": 0.85, "peak_frac": 0.80, "p": 3.0, "p_floor": 1.0,
    "act_frac": 1.0, "weight_bytes": 2.0, "act_bytes": 2.0,
}
_ATTN = {"floor_s": 11e-6, "mem_frac": 0.90, "peak_frac": 0.5, "p": 3.0, "p_floor": 1.0}
_MOE = {
    "floor_s": 28e-6, "mem_frac": 0.85, "peak_frac": 0.55, "p": 2.0, "p_floor": 1.0,
    "weight_bytes": 2.0, "skew": 0.55,
}

ASSUMED: dict[str, dict[str, float]] = {
    "gemm.bf16": _GEMM,
    "gemm.fp8": {**_GEMM, "floor_s": 6e-6, "mem_frac": 0.75, "peak_frac": 0.65,
                 "weight_bytes": 1.0},
    "gemm.fp8_block": {**_GEMM, "floor_s": 5.7e-6, "mem_frac": 0.75, "peak_frac": 0.65,
                       "weight_bytes": 1.0 + 4 / 16384},
    "gemm.int4": {**_GEMM, "floor_s": 5e-6, "mem_frac": 0.65, "peak_frac": 0.6,
                  "weight_bytes": 0.5 + 2 / 128},
    "gemm.nvfp4": {**_GEMM, "floor_s": 5e-6, "mem_frac": 0.65, "peak_frac": 0.6,
                   "weight_bytes": 0.5625},
    "gemm.mxfp4": {**_GEMM, "floor_s": 5e-6, "mem_frac": 0.65, "peak_frac": 0.6,
                   "weight_bytes": 0.53125},
    "attn_decode.bf16": _ATTN,
    "attn_decode.fp8": {**_ATTN, "floor_s": 13e-6, "mem_frac": 0.66},
    "attn_prefill": {**_ATTN, "floor_s": 11e-6, "peak_frac": 0.65},
    "mla_decode": {**_ATTN, "floor_s": 13e-6, "mem_frac": 0.9},
    "mla_prefill": {**_ATTN, "peak_frac": 0.55},
    "moe.bf16": _MOE,
    "moe.fp8": {**_MOE, "floor_s": 32e-6, "weight_bytes": 1.0},
    "moe.fp8_block": {**_MOE, "floor_s": 36e-6, "weight_bytes": 1.0 + 4 / 16384},
    "moe.int4": {**_MOE, "floor_s": 32e-6, "mem_frac": 0.62, "weight_bytes": 0.5 + 2 / 128},
    "moe.nvfp4": {**_MOE, "floor_s": 42e-6, "mem_frac": 0.6, "weight_bytes": 0.5625},
    "moe.mxfp4": {**_MOE, "floor_s": 42e-6, "mem_frac": 0.6, "weight_bytes": 0.53125},
    "gdn_decode": {"floor_s": 4.2e-6, "conv_floor_s": 1.8e-6, "mem_frac": 0.8,
                   "conv_mem_frac": 0.5, "p_floor": 1.5},
    "gdn_prefill": {"floor_s": 11e-6, "mem_frac": 0.6, "peak_frac": 0.2, "token_s": 4.8e-8,
                    "conv_mem_frac": 0.5, "p": 3.0, "p_floor": 1.5},
    "all_reduce": {"floor_s": 4.3e-6, "hop_s": 1.2e-7, "link_frac": 0.75},
    "nccl": {"floor_s": 5e-6, "hop_s": 1.2e-6, "link_frac": 0.8},
    "elementwise": {"floor_s": 2.0e-6, "mem_frac": 0.8, "p_floor": 1.0},
    "sample": {"floor_s": 15e-6, "mem_frac": 0.7, "passes": 4.0},
}

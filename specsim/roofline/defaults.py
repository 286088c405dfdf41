"""Kernel parameters assumed for a device without measured tables.

Assumed, not measured: round numbers typical of tuned kernels on data-centre GPUs. Fractions
are of the device's own peaks; `*_s` are seconds.
"""

_GEMM = {
    "floor_s": 1.5e-6, "cold_s": 1.0e-6, "mem_frac": 0.85, "peak_frac": 0.85, "p": 3.5,
    "act_traffic": 1.0, "tile_s": 1.2e-6, "k_step_s": 1.0e-9, "tail": 0.0, "tile_by_rows": 0.0,
    "split_s": 2.2e-6, "split_traffic": 4e-12, "sag": 0.02, "sag_s": 1e-4, "row_s": 0.0,
    "quant_frac": 0.5, "fill_penalty": 0.0, "fill_power": 1.0, "tile_128x128_frac": 0.95,
    "tile_64x128_frac": 0.9, "tile_64x64_frac": 0.8, "l2_frac": 0.95,
}
_GEMM_FP8 = {
    **_GEMM, "floor_s": 4e-6, "cold_s": 1.4e-6, "peak_frac": 0.8, "p": 2.0, "tile_s": 1e-6,
    "k_step_s": 6e-10, "tail": 1.0, "row_s": 1e-6, "quant_frac": 0.4,
}
_ATTN = {
    "floor_s": 12e-6, "cold_s": 5e-6, "mem_frac": 0.93, "wide_power": 0.0, "tile_s": 3.7e-6,
    "tile_power": 0.5, "tail": 1.0, "split_s": 1e-6, "p": 1.3, "peak_frac": 0.6, "sm_frac": 0.85,
    "max_splits": 48.0,
    "block_s": 0.0, "l2_frac": 1.0, "l2_traffic": 0.5,
}
_PREFILL = {
    "floor_s": 12e-6, "mem_frac": 0.3, "peak_frac": 0.66, "wide_frac": 0.7, "chain_gain": 1.0,
    "tile_s": 0.4e-6, "sag": 0.03, "sag_s": 1e-3, "p": 1.5,
}
_MOE = {
    "floor_s": 25e-6, "sort_s": 1e-6, "mem_frac": 0.88, "peak_frac": 0.55, "p": 3.0,
    "tile_s": 0.5e-6, "tile_rows": 64.0, "act_frac": 0.5, "routing_shape": 1.5, "rank_skew": 1.5,
    "rank_power": 0.4,
    "unaligned": 1.0, "crowded": 1.0,
}

ASSUMED: dict[str, dict[str, float]] = {
    "gemm.bf16": _GEMM,
    "gemm.fp8": _GEMM_FP8,
    "gemm.fp8_block": _GEMM_FP8,
    "gemm.fp4": _GEMM_FP8,
    "gemm.weight_only": {**_GEMM, "floor_s": 3e-6, "mem_frac": 0.65, "peak_frac": 0.6},
    "attn_decode.bf16": _ATTN,
    "attn_decode.bf16.hd512": {**_ATTN, "tile_s": 0.0, "block_s": 2e-6},
    "attn_decode.fp8": {**_ATTN, "floor_s": 13.7e-6, "mem_frac": 0.67, "wide_power": 1.1},
    "attn_prefill": _PREFILL,
    "attn_prefill.hd512": {**_PREFILL, "wide_frac": 0.4},
    "mla_decode": {
        "floor_s": 13e-6, "cold_s": 5e-6, "mem_frac": 0.93, "peak_frac": 0.7, "tile_s": 8e-6,
        "split_s": 2e-6, "p": 4.0, "l2_frac": 1.0,
    },
    "moe.bf16": _MOE,
    "moe.fp8": {**_MOE, "floor_s": 32e-6},
    "moe.fp8_block": {**_MOE, "floor_s": 36e-6},
    "moe.weight_only": {**_MOE, "floor_s": 36e-6, "mem_frac": 0.62},
    "moe.mxfp4": {**_MOE, "floor_s": 36e-6, "mem_frac": 0.62},
    "moe.fp4": {**_MOE, "floor_s": 36e-6, "mem_frac": 0.7},
    "gdn_decode": {
        "floor_s": 6.5e-6, "mem_frac": 0.83, "conv_frac": 0.5, "token_s": 0.5e-6, "p": 2.0,
        "l2_frac": 0.9, "l2_traffic": 0.45,
    },
    "gdn_prefill": {
        "floor_s": 12e-6, "peak_frac": 0.4, "mem_frac": 0.6, "conv_frac": 0.45, "tail": 1.0,
        "p": 2.0, "chunk_traffic": 0.0, "ramp_s": 0.0,
    },
    "all_reduce": {
        "floor_s": 4.3e-6, "hop_s": 1e-7, "link_frac": 0.7, "link_gain": 0.08,
        "one_shot_frac": 0.9, "sync_s": 4e-6,
    },
    "all_reduce.fused": {
        "floor_s": 6e-6, "hop_s": 1e-7, "link_frac": 0.7, "link_gain": 0.0,
        "one_shot_frac": 0.6, "sync_s": 4e-6,
    },
    "all_reduce.nccl": {
        "floor_s": 3.4e-6, "hop_s": 1.7e-6, "link_frac": 0.64, "link_gain": 0.05,
        "one_shot_frac": 0.37, "sync_s": 11e-6,
    },
    # A 400 Gbit/s card for every GPU at four fifths of its rate; latency: NCCL sums of a few
    # kB took 23 to 33 us on two nodes of 8 GPUs (sglang #32461), about 18 of them in the node.
    "network": {"floor_s": 10e-6, "bytes_per_s": 40e9},
    "nccl": {"floor_s": 5e-6, "hop_s": 1e-6, "link_frac": 0.57, "link_gain": 0.08},
    "elementwise": {"floor_s": 1.8e-6, "mem_frac": 0.8, "p_floor": 1.0},
    "sample": {"floor_s": 15e-6, "mem_frac": 0.7, "passes": 4.0},
}

"""Fits of routed experts: `moe.*` from moe_*.csv.gz. Held out by whole expert shapes
(hidden, inter, top_k, experts), all parallel sizes of a shape together.

Left out as artefacts (see the data's README): vLLM's per-tensor FP8 FlashInfer path and SGLang's
bf16 FlashInfer path, both several times slower than every other path, and two shapes of
TensorRT-LLM's that take up to eight times what all others suggest.
"""

from kernels.fitting import Fit
from kernels.gemm import DEVICE, SOURCE
from kernels.tables import Row, called, wide

from specsim import roofline
from specsim.ops.shapes import Experts

moe = called(roofline.moe, Experts)

VLLM = "moe_vllm_0.24.0.csv.gz"
SGLANG = "moe_sglang_0.5.14.csv.gz"
TRTLLM = "moe_trtllm_1.3.0rc20.csv.gz"
UNGATED_TRTLLM = "moe_trtllm_1.3.0rc23_nongated.csv.gz"


# Squared-ReLU experts (Nemotron 3): two matrices. Only TensorRT-LLM's tables say so; in vLLM's
# these shapes take two thirds of the time that three matrices would. SGLang's measured three.
UNGATED = {(1024, 2688), (2048, 5120), (8192, 5120), (2688, 1856)}


def rows(file: str, dtype: str, kernel: str, fmt: str, engine: str = "") -> list[Row]:
    found = []
    for labels, tokens, us in wide(file):
        if labels["moe_dtype"] != dtype or kernel not in labels["kernel_source"]:
            continue
        hidden, inter, top_k, experts, tp, ep = (
            int(labels[name])
            for name in (
                "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size",
            )
        )
        gated = file in (SGLANG, TRTLLM) or (hidden, inter) not in UNGATED
        kwargs = {
            "tokens": tokens, "hidden": hidden, "inter": inter / tp, "top_k": top_k,
            "experts": experts, "gated": gated, "fmt": fmt,
            "local_experts": experts / ep,
            "distribution": "balanced" if labels["distribution"] == "balanced" else "power_law",
            "rotated_copies": 1, "engine": engine,
        }
        found.append(Row(f"{hidden}/{inter}/{top_k}/{experts}", kwargs, us * 1e-6))
    return found


FREE = {
    "floor_s": (25e-6, 5e-6, 100e-6),
    "sort_s": (1e-6, 0.0, 8e-6),
    "mem_frac": (0.88, 0.3, 0.97),
    "peak_frac": (0.55, 0.1, 0.95),
    "p": (3.0, 1.0, 10.0),
    "tile_s": (0.5e-6, 0.0, 20e-6),
    "act_frac": (0.5, 0.05, 1.0),
    "routing_shape": (1.5, 0.3, 20.0),
    "rank_skew": (1.5, 0.0, 6.0),
    "rank_power": (0.4, 0.0, 1.0),
    "unaligned": (2.0, 1.0, 4.0),
    "crowded": (1.1, 1.0, 2.0),
}
# TensorRT-LLM's kernels expand local assignments alone, and prepare each local expert.
TRTLLM_FREE = FREE | {"expert_s": (0.1e-6, 0.0, 2e-6), "act_away": (0.3, 0.0, 1.0)}
TRTLLM_ARTEFACTS = {"5120/8192/1/16": ("bf16", "fp8"), "4096/1024/10/512": ("bf16",)}
BARS = (0.12, 0.30)
NOTES = {
    "moe.bf16": "Nemotron-3 shapes are priced with two matrices per expert, as their times show",
    "moe.bf16@sglang": "some shapes have tuned tiles and some not, up to 1.8 x apart, which no "
    "shape tells",
}


def fits() -> list[Fit]:
    def one(name: str, file: str, dtype: str, kernel: str, fmt: str, version: str) -> Fit:
        engine = name.partition("@")[2]
        measured = rows(file, dtype, kernel, fmt, engine)
        on = f"{DEVICE}, {version}"
        note = NOTES.get(name, "")
        return Fit(
            name, SOURCE + file, on, moe, measured, FREE, {"tile_rows": 64.0}, BARS, note=note
        )

    def own(dtype: str, fmt: str) -> Fit:
        """TensorRT-LLM's."""
        gated = rows(TRTLLM, dtype, "moe_torch_flow", fmt, "trtllm")
        odd = [row for row in gated if fmt in TRTLLM_ARTEFACTS.get(row.group, ())]
        plain = [row for row in gated if row not in odd]
        plain += rows(UNGATED_TRTLLM, dtype, "nongated", fmt, "trtllm")
        free, fixed = dict(TRTLLM_FREE), {"tile_rows": 64.0}
        if fmt == "mxfp4":  # measured whole; slices are padded as they are loaded
            del free["unaligned"]
            fixed["unaligned"] = 1.0
        return Fit(
            f"moe.{fmt}@trtllm", SOURCE + TRTLLM, f"{DEVICE}, trtllm 1.3.0rc20", moe, plain,
            free, fixed, BARS, excluded=odd,
        )

    return [
        one("moe.bf16", VLLM, "bfloat16", "triton", "bf16", "vllm 0.24.0"),
        one("moe.fp8_block", VLLM, "fp8_block", "triton", "fp8_block", "vllm 0.24.0"),
        one("moe.bf16@sglang", SGLANG, "bfloat16", "triton", "bf16", "sglang 0.5.14"),
        one("moe.fp8_block@sglang", SGLANG, "fp8_block", "triton", "fp8_block", "sglang 0.5.14"),
        one("moe.fp8", UNGATED_TRTLLM, "fp8", "nongated", "fp8", "trtllm 1.3.0rc23"),
        own("bfloat16", "bf16"), own("fp8", "fp8"), own("fp8_block", "fp8_block"),
        own("w4a16_mxfp4", "mxfp4"),
        Fit("moe.weight_only", SOURCE + VLLM, f"{DEVICE}, vllm 0.24.0", moe,
            rows(VLLM, "int4_wo", "marlin", "int4") + rows(VLLM, "w4a16_mxfp4", "marlin", "int4"),
            FREE, {"tile_rows": 64.0}, BARS, note="Marlin, int4 and mxfp4 weights"),
        one("moe.mxfp4", VLLM, "w4a16_mxfp4", "oaitriton", "mxfp4", "vllm 0.24.0"),
    ]

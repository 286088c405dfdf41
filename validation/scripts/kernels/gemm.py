"""Fits of dense linear layers: `gemm.*` tables from gemm_*.csv.gz.

Held out by whole (n, k). The collectors cycle through copies of the weights inside a CUDA graph;
all three tables show the cache effect of about eight copies, so that number is used for each.
"""

from collections.abc import Callable

from kernels.fitting import Fit
from kernels.tables import Row, called, wide

from specsim import roofline
from specsim.ops.shapes import Gemm

gemm = called(roofline.gemm, Gemm)

ROTATED_COPIES = 8
DEVICE = "NVIDIA H200 SXM"
SOURCE = "aiconfigurator-core 0.12.0 (NVIDIA, Apache-2.0), "


def rows(
    file: str, dtype: str, fmt: str, keep: Callable[[int, int], bool], engine: str = ""
) -> list[Row]:
    found = []
    for labels, m, us in wide(file):
        if labels["gemm_dtype"] != dtype:
            continue
        n, k = int(labels["n"]), int(labels["k"])
        if keep(m, n):
            kwargs = {
                "m": m, "n": n, "k": k, "fmt": fmt, "rotated_copies": ROTATED_COPIES,
                "engine": engine,
            }
            found.append(Row(f"{n}x{k}", kwargs, us * 1e-6))
    return found


def everything(m: int, n: int) -> bool:
    return True


def slow_tile_count(m: int, n: int) -> bool:
    """SGLang 0.5.14's block-FP8 kernel runs at 0.4 of its neighbours' speed exactly where 192 or
    256 tiles of 128 x 128 are needed and m >= 256, at every k; vLLM's and TensorRT-LLM's builds
    of the same kernel do not. A tile choice of that version, not a property of the device."""
    return m >= 256 and -(-m // 128) * -(-n // 128) in (192, 256)


FREE = {
    "floor_s": (2e-6, 0.3e-6, 10e-6),
    "cold_s": (1e-6, 0.0, 4e-6),
    "mem_frac": (0.86, 0.3, 0.95),
    "peak_frac": (0.85, 0.2, 0.95),
    "p": (3.0, 1.0, 12.0),
    "act_traffic": (0.8, 0.3, 2.0),
    "tile_s": (0.8e-6, 0.0, 4e-6),
    "k_step_s": (0.8e-9, 0.05e-9, 4e-9),
    "sag": (0.02, 0.0, 0.2),
    "sag_s": (1e-4, 5e-6, 2e-3),
}
PICKED = {  # a library that picks the fastest tile
    "tile_64x128_frac": (0.9, 0.4, 1.0),
    "tile_64x64_frac": (0.8, 0.4, 1.0),
}
SPLIT = {"split_s": (2e-6, 0.2e-6, 8e-6), "split_traffic": (1e-12, 0.0, 1e-11)}
NARROW = {"tile_64x32_frac": (0.5, 0.1, 1.0), "tile_64x16_frac": (0.4, 0.05, 1.0)}
QUANTISED = {"row_s": (0.5e-6, 0.001e-6, 4e-6), "quant_frac": (0.5, 0.1, 1.0)}
FILL = {"fill_penalty": (0.3, 0.0, 1.0)}
FILL_SHAPE = {"fill_power": 1.5, "tile_128x128_frac": 1.0}
NO_TILES = {"tile_64x128_frac": 1.0, "tile_64x64_frac": 1.0}
NO_SPLIT = {"split_s": 0.0, "split_traffic": 0.0}
NO_FILL = {**FILL_SHAPE, "fill_penalty": 0.0}
NO_QUANT = {"row_s": 0.0, "quant_frac": 1.0}
CACHE = {"l2_frac": 0.95}
BARS = (0.06, 0.20)


def fits() -> list[Fit]:
    out = []
    for engine, version in (("vllm", "0.24.0"), ("sglang", "0.5.14"), ("trtllm", "1.3.0rc20")):
        file = f"gemm_{engine}_{version}.csv.gz"
        suffix = "" if engine == "vllm" else f"@{engine}"
        out.append(
            Fit(
                f"gemm.bf16{suffix}", SOURCE + file, f"{DEVICE}, {engine} {version}", gemm,
                rows(file, "bfloat16", "bf16", everything, suffix[1:]),
                {**FREE, **PICKED, **SPLIT},
                {**NO_FILL, **NO_QUANT, **CACHE, "tail": 0.0, "tile_by_rows": 0.0},
                BARS,
            )
        )
    file = "gemm_vllm_0.24.0.csv.gz"
    out.append(
        Fit(
            "gemm.fp8", SOURCE + file, f"{DEVICE}, vllm 0.24.0", gemm,
            rows(file, "fp8", "fp8", everything),
            {**FREE, **QUANTISED, **FILL},
            {**NO_TILES, **NO_SPLIT, **FILL_SHAPE, **CACHE, "tail": 1.0, "tile_by_rows": 1.0},
            BARS,
        )
    )
    for engine, version in (("sglang", "0.5.14"), ("trtllm", "1.3.0rc20")):
        file = f"gemm_{engine}_{version}.csv.gz"
        suffix = "" if engine == "sglang" else f"@{engine}"
        sglang = engine == "sglang"
        keep = (lambda m, n: not slow_tile_count(m, n)) if sglang else everything
        out.append(
            Fit(
                f"gemm.fp8_block{suffix}", SOURCE + file, f"{DEVICE}, {engine} {version}", gemm,
                rows(file, "fp8_block", "fp8_block", keep, suffix[1:]),
                {**FREE, **PICKED, **NARROW, **QUANTISED, **FILL},
                {**CACHE, **NO_SPLIT, **FILL_SHAPE, "tail": 1.0, "tile_by_rows": 0.0},
                BARS,
                loss_scale=0.02,  # the cleanest cells decide: this table repeats to 4% only
                note="without the cells of 192 and 256 tiles (a bad tile choice of that version)"
                if sglang else "",
                excluded=rows(file, "fp8_block", "fp8_block", slow_tile_count) if sglang else (),
            )
        )
    return out

"""On which units a weight format's products run, device by device, as engines choose kernels.

vLLM and SGLang: FP8 below compute capability 8.9, every format named weight-only, NVFP4 below 10.0
and int4 run Marlin or its like, which unpack to 16 bits; MXFP4 of gpt-oss keeps 16-bit
activations everywhere. Which kernels ran stands in the names of the measured tables
(validation/data/other_gpus/moe.csv.gz); where no table was measured, from the engines' rules.
"""

from dataclasses import replace

import pytest

from specsim.hardware.store import load_profile
from specsim.model.catalogue import find_model
from specsim.model.weights import FORMATS
from specsim.ops.shapes import AttentionDecode, Experts, Gemm
from specsim.roofline.device import Pricing, compute_peak, gemm_table, params
from specsim.roofline.gemm import gemm
from specsim.roofline.kernels import KERNELS
from specsim.roofline.moe import moe, moe_table

# One device of each class. dtype that is multiplied, by format: the rest is 16 bits.
NATIVE = {
    "a100-80gb": {"int8": "int8"},  # 8.0
    "rtx-3090": {"int8": "int8"},  # 8.6
    "l40s": {"fp8": "fp8", "fp8_block": "fp8", "int8": "int8"},  # 8.9
    "h100-sxm": {"fp8": "fp8", "fp8_block": "fp8", "int8": "int8"},  # 9.0
    "b200": {"fp8": "fp8", "fp8_block": "fp8", "int8": "int8", "nvfp4": "fp4",
             "mxfp4_w4a8": "fp8"},  # 10.0
    "rtx-pro-6000": {"fp8": "fp8", "fp8_block": "fp8", "int8": "int8", "nvfp4": "fp4"},  # 12.0
    "mi300x": {"fp8": "fp8", "fp8_block": "fp8", "int8": "int8"},
    "mi355x": {"fp8": "fp8", "fp8_block": "fp8", "int8": "int8", "mxfp4_w4a4": "fp4"},
}
FAMILY = {"fp8": "fp8", "fp8_block": "fp8_block", "int8": "int8", "nvfp4": "fp4",
          "mxfp4_w4a4": "fp4", "mxfp4_w4a8": "fp4"}
MXFP4_EXPERTS = {
    "a100-80gb": "moe.weight_only", "rtx-3090": "moe.weight_only", "l40s": "moe.weight_only",
    "h100-sxm": "moe.mxfp4", "b200": "moe.mxfp4", "rtx-pro-6000": "moe.weight_only",
    "mi300x": "moe.mxfp4", "mi355x": "moe.mxfp4",
}


@pytest.mark.parametrize("fmt", [f for f in FORMATS if f not in ("bf16", "fp16", "fp32")])
@pytest.mark.parametrize("device", NATIVE)
def test_the_unit_and_the_kernels_of_a_format(device: str, fmt: str) -> None:
    profile = load_profile(device)
    dtype = NATIVE[device].get(fmt, "bf16")
    family = FAMILY[fmt] if fmt in NATIVE[device] else "weight_only"
    assert compute_peak(profile, fmt) == profile.flops[dtype]
    assert gemm_table(profile, fmt, "sglang") == f"gemm.{family}"
    machete = device == "h100-sxm" and fmt in ("int4", "int8_w8a16")
    assert gemm_table(profile, fmt) == ("gemm.mixed_input" if machete else f"gemm.{family}")
    experts = MXFP4_EXPERTS[device] if fmt == "mxfp4" else f"moe.{family}"
    assert moe_table(profile, fmt) == experts


def test_a_weight_only_checkpoint_reads_four_bits_and_multiplies_in_sixteen() -> None:
    b200 = load_profile("b200")
    rows, wide = 4096, 8192
    narrow = gemm(b200, Gemm(rows, wide, wide, "nvfp4")).seconds
    unpacked = gemm(b200, Gemm(rows, wide, wide, "nvfp4_w4a16"))
    assert unpacked.seconds > 4 * narrow  # the 16-bit unit is a quarter as fast
    assert unpacked.seconds > 2.0 * rows * wide * wide / b200.flops["bf16"]
    # One row: the bytes of four bits and their scales, not of sixteen (a B200 widens them more
    # slowly than it reads them: test_marlin_products.py).
    for device, share in (b200, 0.65), (load_profile("l40s"), 0.32):
        one = gemm(device, Gemm(1, wide, wide, "nvfp4_w4a16")).seconds
        assert one < share * gemm(device, Gemm(1, wide, wide, "bf16")).seconds
    # The published checkpoint is of this kind.
    ffn = find_model("Qwen3.6-27B-NVFP4").layers[0].ffn
    assert ffn.weight.name == "nvfp4_w4a16"  # type: ignore[union-attr]


@pytest.mark.parametrize(("engine", "times"), [("", 1.2), ("trtllm", 1.2), ("sglang", 3.5)])
def test_integers_of_a_prompt_on_hopper_cost_what_the_engines_kernel_does(
    engine: str, times: float
) -> None:
    """Machete (vLLM) multiplies with Hopper's own instructions, Marlin with Ampere's. A kernel of
    the library that Machete is built from took 1.1 times cuBLAS on the A100 (TensorRT-LLM's, median
    of 29 shapes of 4096 rows); Marlin's experts on the H200 reach a third of the peak."""
    h100, how = load_profile("h100-sxm"), Pricing(engine=engine)
    wide = gemm(h100, Gemm(4096, 8192, 8192, "bf16")).seconds
    int4 = gemm(h100, Gemm(4096, 8192, 8192, "int4"), how).seconds
    assert int4 / wide == pytest.approx(times, rel=0.25)
    assert int4 > wide


def test_eight_bit_integers_borrow_the_shares_of_fp8_until_they_are_measured() -> None:
    h200 = load_profile("h200-sxm")
    assert params(h200, "gemm.int8") == params(h200, "gemm.fp8")
    assert params(h200, "moe.int8") == params(h200, "moe.fp8")
    a100 = load_profile("a100-80gb")
    many = gemm(a100, Gemm(4096, 8192, 8192, "int8")).seconds
    assert many > 2.0 * 4096 * 8192**2 / a100.flops["int8"]
    assert many < 0.8 * gemm(a100, Gemm(4096, 8192, 8192, "fp8")).seconds  # Marlin: 16 bits


def test_experts_read_the_bytes_of_their_own_block_scales() -> None:
    """Kimi-K2's integers have a scale per 32 weights, not per 128; a GGUF's any number."""
    h200 = load_profile("h200-sxm")
    usual, finer = (
        moe(h200, Experts(64, 7168, 2048, 8, 384, "int4", bytes_per_weight=each)).mem_s
        for each in (0.5 + 2 / 128, 0.5 + 2 / 32)
    )
    assert finer / usual == pytest.approx((0.5 + 2 / 32) / (0.5 + 2 / 128), rel=0.01)


def test_units_of_another_make_have_no_waves_of_a_gpus_tiles() -> None:
    """Gaudi: 24 cores beside two large matrix engines, whose number says nothing of a product."""
    gaudi = load_profile("gaudi2")
    calls = (
        *(Gemm(m, 12288, 4096, fmt) for m in (1, 512) for fmt in ("bf16", "fp8", "fp8_block")),
        Experts(512, 2048, 768, 8, 128, "fp8"),
        AttentionDecode(512, 1, 32, 32, 128, 192, "fp8"),
    )
    for shape in calls:
        for device in (gaudi, load_profile("h200-sxm")):
            price = KERNELS[type(shape)]
            times = [price(replace(device, sms=sms), shape).seconds for sms in (24, 240)]
            assert (times[0] == times[1]) == (device is gaudi), shape
    # Weights and caches stream at the share of the bandwidth that the fit has.
    read = 512 * 193 * 2 * 32 * 128
    busy = read / (gaudi.mem_bytes_per_s * gaudi.kernels["attn_decode.fp8"]["mem_frac"])
    assert KERNELS[AttentionDecode](gaudi, calls[-1]).seconds < 1.2 * busy

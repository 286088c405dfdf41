"""Verify steps of latent attention where no kernel packs their queries, and SGLang's Triton."""

import pytest

from specsim.hardware.store import load_profile
from specsim.latency.engine import find_engine
from specsim.latency.instance import Instance
from specsim.latency.shape import StepShape
from specsim.latency.step import LatencyModel
from specsim.latency.walks import walk_of
from specsim.methods.resolve import resolve_setup
from specsim.model.catalogue import find_model
from specsim.ops.op import OpCost
from specsim.ops.shapes import AttentionDecode, AttentionPrefill, LatentDecode
from specsim.ops.work import Parallel
from specsim.roofline.dispatch import op_time

A100 = load_profile("a100-80gb")  # 312 TFLOP/s, 108 SMs, 2.039 TB/s
LITE = find_model("deepseek-v2-lite")  # 16 heads of 128 + 64 and 128, latents of 512 + 64


def latent(seqs: float, q_len: int, ctx: float, apart: bool = False) -> OpCost:
    return OpCost("mla", LatentDecode(seqs, q_len, 16, 512, 64, ctx, apart=apart))


@pytest.mark.parametrize(
    ("engine", "device", "way"),
    [("vllm==0.25.1", "a100-80gb", "expanded"), ("vllm==0.30.0", "l40s", "expanded"),
     ("vllm==0.27", "rtx-5090", "expanded"), ("vllm==0.31", "a100-80gb", "rows"),
     ("vllm", "rtx-pro-6000", "rows"), ("vllm 0.13", "rtx-4090", "expanded"),
     ("vllm==0.20", "mi300x", "expanded"), ("vllm==0.9", "a100-80gb", "expanded"),
     ("vllm", "h100-sxm", ""), ("vllm==0.27", "b200", ""), ("vllm==0.14.1", "b200", "expanded"),
     ("vllm==0.12", "b200", "expanded"), ("vllm==0.15", "b200", ""),
     ("sglang", "a100-80gb", "walked"),
     ("sglang==0.5.9", "rtx-4090", "walked"), ("sglang", "h200-sxm", ""), ("sglang", "mi300x", "")],
)
def test_how_verify_steps_of_latent_attention_run(engine: str, device: str, way: str) -> None:
    profile = load_profile(device)
    assert find_engine(engine).latent_way(profile.arch) == way
    assert (walk_of(find_engine(engine), LITE, profile, "fp8") is None) == (not way)


def test_vllm_before_0_31_expands_the_context_of_verified_rows() -> None:
    walk = walk_of(find_engine("vllm==0.27"), LITE, A100, "bf16")
    assert walk is not None
    # 16 heads, a block each: 16,004 tokens of 192 columns, padded to 64 queries.
    walked = 16004 * 192 * (4 * 64 * 108 / 312e12 + 8.9e-9 / 128)
    # Multiplied by kv_b_proj, 512 to 16 x 256; gathered, put together, padded.
    products = 2 * 16004 * 4096 * 512 / 312e12
    moved = 16004 * (576 * 4 + 2 * 16 * (128 + 192) + 2 * 16 * (128 + 192)) / 2.039e12
    assert walked == pytest.approx(0.486e-3, rel=0.01)
    assert products == pytest.approx(0.215e-3, rel=0.01)
    assert moved == pytest.approx(0.179e-3, rel=0.01)
    at_best = walked + products + moved
    assert at_best < walk(latent(1, 4, 16000.0)) < 1.4 * at_best
    # 128 blocks on 108 SMs walk twice, where the device is full.
    full = 16004 * 192 * (4 * 64 * 108 / 312e12 + 12.6e-9 / 128)
    at_best = 2 * full + 8 * (products + moved)
    assert at_best < walk(latent(8, 4, 16000.0)) < 1.5 * at_best
    assert walk(latent(1, 1, 16000.0)) == 0.0
    assert walk(OpCost("prompt", AttentionPrefill(8, 0, 16, 16, 128))) == 0.0


def test_before_0_15_data_centre_blackwell_expands_as_well() -> None:
    """DeepSeek-R1 on 8 B200, 16 heads a GPU: of four sequences at 8k tokens the products, 0.12 ms
    at 2250 TFLOP/s, two passes over what they give, and tiles of 128 queries over every head."""
    b200 = load_profile("b200")
    walk = walk_of(find_engine("vllm==0.14"), find_model("deepseek-r1"), b200, "fp8")
    assert walk is not None
    op = OpCost("mla", LatentDecode(4, 2, 16, 512, 64, 8000.0, "fp8"))
    products = 2 * 4 * 8002 * 4096 * 512 / 2250e12
    tiles = 2 * 4 * 128 * 8000 * 16 * (192 + 128) / 2250e12
    assert products + tiles < walk(op) < 8 * (products + tiles)
    assert walk(op) > 4 * op_time(op, b200).seconds


def test_from_0_31_on_every_query_is_a_sequence() -> None:
    walk = walk_of(find_engine("vllm==0.33"), LITE, A100, "bf16")
    assert walk is not None
    four = walk(latent(8, 4, 4000.0))
    assert four == op_time(latent(8, 4, 4000.0, apart=True), A100).seconds
    assert four > op_time(latent(8, 4, 4000.0), A100).seconds


def test_sglang_walks_the_latents_by_head() -> None:
    walk = walk_of(find_engine("sglang"), LITE, A100, "bf16")
    assert walk is not None
    # 32 queries of a head a block, 576 + 512 columns: 24.1 ns a token at the peak of an SM.
    token = 2 * 32 * (576 + 512) * 108 / 312e12
    assert token == pytest.approx(24.1e-9, rel=0.01)
    assert walk(latent(6, 4, 1000.0)) == pytest.approx(1000 * token)  # 96 of 108 blocks
    assert walk(latent(7, 4, 1000.0)) == pytest.approx(2000 * token)
    assert walk(latent(1, 1, 1000.0)) == walk(latent(1, 4, 1000.0, apart=True)) == 0.0


def test_sinks_in_sglang_are_walked_by_query_head() -> None:
    """gpt-oss-20b: 64 query heads, 64 wide; 128 queries a block on sm_80, else 64."""
    oss = find_model("gpt-oss-20b")
    for device, rows, sms, peak in (
        ("a100-80gb", 128, 108, 312e12), ("l40s", 64, 142, 362e12)
    ):
        walk = walk_of(find_engine("sglang"), oss, load_profile(device), "bf16")
        assert walk is not None
        op = OpCost("attn", AttentionDecode(1, 4, 64, 8, 64, 1000.0))
        assert walk(op) == pytest.approx(1000 * 2 * rows * 128 * sms / peak, rel=0.01)
        two = OpCost("attn", AttentionDecode(3, 4, 64, 8, 64, 1000.0))
        assert walk(two) == pytest.approx(2 * walk(op))
        assert walk(OpCost("attn", AttentionDecode(1, 1, 64, 8, 64, 1000.0))) == 0.0
    for device in ("h100-sxm", "b200", "mi300x"):
        assert walk_of(find_engine("sglang"), oss, load_profile(device), "bf16") is None


def test_gemma_4_in_sglang_is_walked_by_query_head() -> None:
    gemma, sglang = find_model("gemma-4-31b"), find_engine("sglang")
    walk = walk_of(sglang, gemma, load_profile("h200-sxm"), "bf16")
    assert walk is not None
    # Heads of 512: 32 queries a block, 8.75 ns a token of an SM at its peak; of 256: 64 queries.
    wide = OpCost("attn", AttentionDecode(1, 4, 32, 4, 512, 1000.0))
    assert walk(wide) == pytest.approx(1000 * 2 * 32 * 1024 * 132 / 989e12, rel=0.01)
    narrow = OpCost("attn", AttentionDecode(1, 4, 32, 16, 256, 1000.0))
    assert walk(narrow) == pytest.approx(1000 * 2 * 64 * 512 * 132 / 989e12, rel=0.01)
    assert walk_of(sglang, gemma, load_profile("b200"), "bf16") is None


def test_a_verify_step_pays_for_the_expansion_in_every_layer() -> None:
    def step(engine: str, q_len: int) -> float:
        found = find_engine(engine)
        instance = Instance(
            LITE, A100, found, Parallel(), "bf16", resolve_setup(LITE, found, "ngram", k=3)
        )
        return LatencyModel(instance).seconds(StepShape(1, q_len, 16384))

    old, new = step("vllm==0.27", 4), step("vllm==0.33", 4)
    assert old - new > 27 * 0.85e-3  # by hand at least 0.88 ms a layer, less one read of latents
    assert step("vllm==0.27", 1) == step("vllm==0.33", 1)

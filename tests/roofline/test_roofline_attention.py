"""Attention kernels: bytes and FLOP by hand, bounds, what verify costs."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thinned import examples

from roofline_calls import attn_decode, attn_prefill, mla_decode, mla_prefill
from specsim.hardware.profile import HardwareProfile
from specsim.hardware.store import load_profile
from specsim.ops.shapes import AttentionDecode, AttentionPrefill
from specsim.roofline.device import Pricing
from specsim.roofline.kernels import KERNELS

seqs = st.integers(1, 512)
contexts = st.integers(1, 65536)
queries = st.integers(1, 9)
shapes = st.sampled_from([(32, 8, 128), (64, 8, 128), (24, 4, 256), (8, 1, 128), (16, 2, 512)])
kv = st.sampled_from(["bf16", "fp8"])


def test_decode_by_hand(h200: HardwareProfile) -> None:
    # 32 sequences of 4,096 cached tokens, 8 KV heads of 128 in bf16: 4,096 bytes per token.
    # Read 32 * 4,097 tokens, write 32; 32 heads in and out: 16,384 bytes per sequence.
    time = attn_decode(h200, 32, 1, 32, 8, 128, 4096, fidelity="datasheet")
    moved = 32 * (4097 + 1) * 4096 + 32 * 32 * 128 * 4
    assert time.mem_s == pytest.approx(moved / 4.8e12)
    # One query over its own token too: 4,097 keys, 4 FLOP per key, head and dimension.
    assert time.compute_s == pytest.approx(4 * 32 * 4097 * 32 * 128 / 989e12)


def test_verify_reads_the_cache_once(h200: HardwareProfile) -> None:
    one = attn_decode(h200, 32, 1, 32, 8, 128, 8192)
    four = attn_decode(h200, 32, 4, 32, 8, 128, 8192)
    assert four.seconds < 1.1 * one.seconds
    reread = attn_decode(h200, 32, 4, 32, 8, 128, 8192, kv_read_amplification=4.0)
    assert reread.seconds > 3 * one.seconds


def test_queries_beyond_one_block_of_rows_cost(h200: HardwareProfile) -> None:
    # 16 query heads per KV head and 32 queries: 512 rows, four blocks' worth of arithmetic.
    few = attn_decode(h200, 64, 2, 64, 4, 128, 8192).seconds
    many = attn_decode(h200, 64, 32, 64, 4, 128, 8192).seconds
    assert many > 2 * few


@settings(max_examples=examples(200), deadline=None)
@given(seqs, queries, shapes, contexts, kv)
def test_decode_is_never_below_the_datasheet(
    h200: HardwareProfile, b: int, q: int, shape: tuple[int, int, int], ctx: int, fmt: str
) -> None:
    floor = attn_decode(h200, b, q, *shape, ctx, fmt, fidelity="datasheet").seconds
    assert attn_decode(h200, b, q, *shape, ctx, fmt).seconds >= floor


@settings(max_examples=examples(200), deadline=None)
@given(seqs, queries, shapes, contexts, kv)
def test_decode_grows_with_every_size(
    h200: HardwareProfile, b: int, q: int, shape: tuple[int, int, int], ctx: int, fmt: str
) -> None:
    base = attn_decode(h200, b, q, *shape, ctx, fmt).seconds * (1 - 1e-9)
    assert attn_decode(h200, b + 1, q, *shape, ctx, fmt).seconds >= base
    assert attn_decode(h200, b, q + 1, *shape, ctx, fmt).seconds >= base
    assert attn_decode(h200, b, q, *shape, ctx + 97, fmt).seconds >= base


@settings(max_examples=examples(100), deadline=None)
@given(seqs, queries, shapes, contexts, kv, st.floats(1.0, 4.0))
def test_decode_gains_from_bandwidth(
    h200: HardwareProfile, b: int, q: int, shape: tuple[int, int, int], ctx: int, fmt: str,
    gain: float,
) -> None:
    fast = replace(h200, mem_bytes_per_s=h200.mem_bytes_per_s * gain)
    slow = attn_decode(h200, b, q, *shape, ctx, fmt).seconds
    assert attn_decode(fast, b, q, *shape, ctx, fmt).seconds <= slow * (1 + 1e-9)


def test_fp8_cache_pays_at_128_and_not_at_256_wide_heads(h200: HardwareProfile) -> None:
    def gain(head_dim: int) -> float:
        bf16 = attn_decode(h200, 128, 1, 16, 4, head_dim, 16384, "bf16").seconds
        return bf16 / attn_decode(h200, 128, 1, 16, 4, head_dim, 16384, "fp8").seconds

    # Measured shares of 4.8 TB/s beyond 2 GB: 0.90 and 0.66 at 128, 0.89 and 0.33 at 256.
    assert gain(128) == pytest.approx(2 * 0.66 / 0.90, abs=0.15)
    assert gain(256) == pytest.approx(2 * 0.33 / 0.89, abs=0.1)


def test_prefill_by_hand(h200: HardwareProfile) -> None:
    # 1,024 new after 3,072 cached: query i sees 3,073 + i keys.
    pairs = sum(3072 + i + 1 for i in range(1024))
    time = attn_prefill(h200, 1024, 3072, 32, 8, 128, fidelity="datasheet")
    assert time.compute_s == pytest.approx(4 * pairs * 32 * 128 / 989e12)
    assert time.mem_s == pytest.approx(((4096 + 1024) * 4096 + 1024 * 32 * 128 * 4) / 4.8e12)


@pytest.mark.parametrize(("new", "cached"), [(10, 0), (10, 3), (10, 5), (3, 1), (40, 7)])
def test_prefill_pairs_under_a_window(h200: HardwareProfile, new: int, cached: int) -> None:
    pairs = sum(min(cached + i + 1, 6) for i in range(new))
    time = attn_prefill(h200, new, cached, 4, 4, 64, window=6, fidelity="datasheet")
    assert time.compute_s == pytest.approx(4 * pairs * 4 * 64 / 989e12)


@settings(max_examples=examples(150), deadline=None)
@given(st.integers(1, 16384), st.integers(0, 32768), shapes, st.sampled_from([0, 1024]))
def test_prefill_bounds_and_growth(
    h200: HardwareProfile, new: int, cached: int, shape: tuple[int, int, int], window: int
) -> None:
    time = attn_prefill(h200, new, cached, *shape, window).seconds
    assert time >= attn_prefill(h200, new, cached, *shape, window, fidelity="datasheet").seconds
    assert attn_prefill(h200, new + 128, cached, *shape, window).seconds >= time * (1 - 1e-9)
    assert attn_prefill(h200, new, cached + 500, *shape, window).seconds >= time * (1 - 1e-9)


def test_latent_decode_by_hand(h200: HardwareProfile) -> None:
    # 576 latent numbers of 2 bytes per token, read once for all 16 heads and 2 queries.
    time = mla_decode(h200, 8, 2, 16, 512, 64, 1000, fidelity="datasheet")
    moved = 8 * (1002 * 1152 + 2 * 1152 + 2 * 16 * 1088 * 2)
    assert time.mem_s == pytest.approx(moved / 4.8e12)
    assert time.compute_s == pytest.approx(2 * 8 * 2 * 1001.5 * 16 * 1088 / 989e12)


@settings(max_examples=examples(150), deadline=None)
@given(seqs, queries, st.sampled_from([1, 8, 16, 64, 128]), contexts, kv)
def test_latent_decode_bounds_and_growth(
    h200: HardwareProfile, b: int, q: int, heads: int, ctx: int, fmt: str
) -> None:
    time = mla_decode(h200, b, q, heads, 512, 64, ctx, fmt).seconds
    assert time >= mla_decode(h200, b, q, heads, 512, 64, ctx, fmt, fidelity="datasheet").seconds
    assert mla_decode(h200, b + 1, q, heads, 512, 64, ctx, fmt).seconds >= time * (1 - 1e-9)
    assert mla_decode(h200, b, q + 1, heads, 512, 64, ctx, fmt).seconds >= time * (1 - 1e-9)
    assert mla_decode(h200, b, q, heads, 512, 64, ctx + 99, fmt).seconds >= time * (1 - 1e-9)


def test_latent_verify_is_free_up_to_64_rows_and_dear_beyond(h200: HardwareProfile) -> None:
    # 16 heads x 4 queries fill one tile of 64 rows; 128 heads x 4 are eight.
    def penalty(heads: int) -> float:
        four, one = (mla_decode(h200, 64, q, heads, 512, 64, 8192).seconds for q in (4, 1))
        return four / one

    assert penalty(16) < 1.1
    assert penalty(128) > 3.0


def test_queries_with_choices_of_their_own_share_no_tile(h200: HardwareProfile) -> None:
    # 8 heads x 4 queries fit one tile of 64 rows; each alone is padded to 64.
    shared, apart = (
        mla_decode(h200, 47, 4, 8, 512, 64, 2048, apart=own) for own in (False, True)
    )
    assert apart.compute_s == pytest.approx(4 * shared.compute_s)
    assert apart.mem_s == shared.mem_s  # the same tokens, from the L2 cache
    # Of one query, and of heads that fill their tiles, nothing changes.
    for q, heads in ((1, 8), (4, 64)):
        whole, each = (
            mla_decode(h200, 47, q, heads, 512, 64, 2048, apart=own) for own in (False, True)
        )
        assert whole == each


def test_latent_prefill(h200: HardwareProfile) -> None:
    time = mla_prefill(h200, 100, 50, 16, 192, 128, fidelity="datasheet")
    pairs = sum(50 + i + 1 for i in range(100))
    assert time.compute_s == pytest.approx(2 * pairs * 16 * 320 / 989e12)
    sparse = mla_prefill(h200, 8192, 32768, 16, 192, 128, pairs=8192 * 2048)
    assert sparse.seconds < 0.3 * mla_prefill(h200, 8192, 32768, 16, 192, 128).seconds


def test_tensorrt_llm_reads_an_fp8_cache_with_kernels_of_its_own(h200: HardwareProfile) -> None:
    """Its XQA kernels are not FlashAttention 3, whose fp8 cache streams at 0.7 of the bandwidth,
    and with an 8-bit cache each sequence costs a third of what it costs with a 16-bit one: 512 and
    2,048 sequences of 256 tokens took 189 and 660 us in 16 bits, 85 and 314 in 8
    (attn_decode_trtllm_*.csv.gz)."""
    def us(seqs: int, ctx: int, fmt: str, engine: str = "trtllm") -> float:
        shape = AttentionDecode(seqs, 1, 32, 8, 128, ctx, fmt)
        return 1e6 * KERNELS[AttentionDecode](h200, shape, Pricing(engine=engine)).seconds

    assert us(512, 255, "fp8") == pytest.approx(85, rel=0.1)
    assert us(512, 255, "bf16") == pytest.approx(189, rel=0.1)
    assert us(256, 5000, "fp8") < 0.85 * us(256, 5000, "fp8", "vllm")
    # H100 has tables of vLLM's kernels of its own; TensorRT-LLM's run there all the same.
    h100 = load_profile("h100-sxm")
    for fmt in ("bf16", "fp8"):
        table = f"attn_decode.{fmt}@trtllm"
        assert h100.kernels[table].params == h200.kernels[table].params


@pytest.mark.parametrize(("gpu", "engine", "us"), [
    ("h200-sxm", "vllm", 291.0), ("h200-sxm", "sglang", 122.5),
    ("b200", "vllm", 50.2), ("b200", "sglang", 47.4),
])
def test_widest_heads_cost_a_sequence_on_hopper_alone(gpu: str, engine: str, us: float) -> None:
    """64 sequences of 1,024 tokens, 16 heads of 512 on 2: FlashAttention 4 of vLLM on the H200
    takes some 2 us per sequence, SGLang's Triton less; the kernels of three engines on the B200
    read as with any head."""
    shape = AttentionDecode(64, 1, 16, 2, 512, 1023)
    found = 1e6 * KERNELS[AttentionDecode](load_profile(gpu), shape, Pricing(engine=engine)).seconds
    assert found == pytest.approx(us, rel=0.25)


def prompt_us(
    profile: HardwareProfile, head_dim: int, fmt: str = "bf16", engine: str = ""
) -> float:
    shape = AttentionPrefill(8192, 0, 32, 8, head_dim, 0, fmt)
    return 1e6 * KERNELS[AttentionPrefill](profile, shape, Pricing(engine=engine)).seconds


def test_prompts_with_narrow_heads_gain_less_than_their_products(h200: HardwareProfile) -> None:
    """Half as wide, the products take half as long and the softmax as long: 8,192 tokens of 32
    heads took 0.80 ms with FlashAttention 3, those 128 wide 1.04 (attn_context_vllm_*)."""
    assert prompt_us(h200, 64) / prompt_us(h200, 128) > 0.65
    # Before Hopper softmax and products do not overlap, and nothing was measured.
    assert "narrow_frac" not in load_profile("a100-80gb").kernels["attn_prefill"].params


def test_prompts_beside_an_8_bit_cache(h200: HardwareProfile) -> None:
    """FlashAttention 3 transposes 8-bit values first and gains nothing, TensorRT-LLM's multiplies
    them in 8 bits: 1.07 ms in 16 bits, 0.86 in 8, for 8,192 tokens (attn_context_trtllm_*)."""
    assert prompt_us(h200, 128, "fp8", "trtllm") == pytest.approx(860, rel=0.1)
    assert prompt_us(h200, 128, "bf16", "trtllm") == pytest.approx(1070, rel=0.1)
    assert prompt_us(h200, 128, "fp8", "vllm") > 0.95 * prompt_us(h200, 128, "bf16", "vllm")
    # Other architectures keep their one table, whether it was measured there (B200) or not (B300).
    for name in ("b200", "b300", "strix-halo"):
        other = load_profile(name)
        narrow = prompt_us(other, 128, "fp8", "vllm")
        assert prompt_us(other, 128, "fp8", "trtllm") == narrow
        assert narrow <= prompt_us(other, 128, "bf16", "vllm")

"""Attention in walks of whole contexts, by hand and beside measured kernels."""

import csv
import gzip
from heapq import heapreplace
from math import ceil
from pathlib import Path

import pytest

from specsim.hardware.store import load_profile
from specsim.latency import unsplit
from specsim.latency.engine import find_engine
from specsim.latency.unsplit import (
    flash2_attention_s,
    rocm_attention_s,
    unsplit_attention_s,
)
from specsim.latency.walks import unsplit as runs_unsplit
from specsim.latency.walks import walk_of
from specsim.model.catalogue import find_model
from specsim.ops.op import OpCost
from specsim.ops.shapes import AttentionDecode, AttentionPrefill, Gemm, LatentDecode
from specsim.ops.spread import Contexts, spread_factors
from specsim.roofline import compute_peak

WIDE = 84e-9  # a token of a 16-bit cache, heads 512 wide
T = WIDE * 817 / 892  # and 256 wide, by the instructions of the loop
SMS = 132


def decode(seqs: int, q_len: int, ctx: float, heads: int, kv_heads: int, head_dim: int) -> OpCost:
    return OpCost("attn.decode", AttentionDecode(seqs, q_len, heads, kv_heads, head_dim, ctx))


def prompt(new: int, cached: float, window: int = 0, shared: int = 0) -> OpCost:
    shape = AttentionPrefill(new, cached, 32, 16, 256, window, shared_launch=bool(shared))
    return OpCost("attn.prefill", shape)


def seconds(op: OpCost, blocks_per_sm: float = 2.0) -> float:
    return unsplit_attention_s(op, SMS, WIDE, blocks_per_sm)


def test_a_verify_step_is_one_walk_until_the_device_is_full() -> None:
    # 2 query heads per KV head: 8 queries fit a block, so 16 blocks per sequence, 264 at a time.
    for seqs, waves in ((1, 1), (16, 1), (17, 2), (33, 2), (34, 3), (48, 3)):
        assert seconds(decode(seqs, 5, 1024, 32, 16, 256)) == pytest.approx(1024 * T * waves)


def test_wide_heads_take_three_blocks_for_five_queries() -> None:
    # 8 query heads per KV head: 2 queries per block, 12 blocks per sequence, 264 at a time.
    for seqs, waves in ((1, 1), (22, 1), (23, 2), (48, 3)):
        assert seconds(decode(seqs, 5, 2000, 32, 4, 512)) == pytest.approx(2000 * WIDE * waves)


def test_a_token_of_an_fp8_cache_takes_as_many_instructions_more() -> None:
    for head_dim, loop in ((256, 867), (512, 1371)):
        op = decode(1, 5, 2000, 32, 4, head_dim)
        fp8 = OpCost("attn.decode", op.shape._replace(fmt="fp8"))
        assert seconds(fp8) == pytest.approx(2000 * WIDE * loop / 892)


def unequal(seqs: int, window: int = 0, beside: bool = False) -> float:
    """Seconds per mean walk of sequences of 1000 tokens that differ by 77 %."""
    shape = AttentionDecode(
        seqs, 5, 32, 4, 512, 1000.0, beside_prompts=beside, contexts=Contexts(1000.0, 0.77, window)
    )
    return seconds(OpCost("attn.decode", shape)) / (1000 * WIDE)


def test_while_all_blocks_fit_a_call_lasts_as_long_as_its_longest_sequence() -> None:
    assert unequal(1) == pytest.approx(1.0)
    # Means of the largest of 2, 4, 8 and 16 gamma numbers of mean 1, by numerical integration.
    for seqs, largest in ((2, 1.404), (4, 1.842), (8, 2.295), (16, 2.753)):
        assert unequal(seqs) == pytest.approx(largest, rel=0.06)
    # Of 16 sequences some see the whole window.
    assert unequal(16, window=500) == pytest.approx(0.5)


def test_unequal_blocks_are_run_one_after_the_other() -> None:
    # 48 sequences have 576 blocks for 264 slots: more than the mean work of a slot and the longest
    # alone, less than one after the other. Equal ones take 3 waves.
    work, longest = 576 / 264, spread_factors(0.77, 48)[-1]
    assert max(work, longest) < unequal(48) < work + longest
    # A prompt's blocks fill what the last ones leave idle.
    assert unequal(48, beside=True) == pytest.approx(max(work, longest), rel=0.05)
    assert unequal(200, beside=True) == pytest.approx(200 * 12 / 264)


def test_few_single_queries_are_split() -> None:
    assert seconds(decode(8, 1, 4000, 32, 16, 256)) == 0.0
    assert seconds(decode(9, 1, 4000, 32, 16, 256)) == pytest.approx(4000 * T)
    assert seconds(decode(1, 2, 4000, 32, 16, 256)) == pytest.approx(4000 * T)


def test_beside_a_prompt_nothing_is_split_and_waves_are_shared() -> None:
    one = decode(1, 1, 4000, 32, 16, 256)
    beside = OpCost("attn.decode", one.shape._replace(beside_prompts=True))
    assert seconds(beside) == pytest.approx(4000 * T)
    many = decode(20, 5, 1024, 32, 16, 256)
    beside = OpCost("attn.decode", many.shape._replace(beside_prompts=True))
    assert seconds(beside) == pytest.approx(1024 * T * 320 / 264)


# Sequences, queries, context, heads, queries of a block, tokens of a prompt, slots: Gemma-4's and
# Gemma-3's layers on an H100, FlashAttention 2 on an A100 (Llama-3.1-8B, whole and in four).
MIXED = [
    (1, 5, 4000, 4, 2, 2048, 264), (8, 5, 4000, 4, 2, 2048, 264), (32, 5, 4000, 4, 2, 2048, 264),
    (1, 5, 31000, 4, 2, 2048, 264), (4, 5, 31000, 4, 2, 2048, 264), (4, 5, 31000, 4, 2, 256, 264),
    (8, 4, 8000, 16, 8, 2048, 264), (1, 4, 16000, 16, 8, 512, 264), (8, 4, 8000, 32, 64, 2048, 108),
    (1, 4, 16000, 32, 64, 2048, 108), (1, 4, 16000, 32, 64, 512, 108),
    (32, 4, 4000, 32, 64, 2048, 108), (8, 4, 8000, 8, 64, 2048, 108),
]


@pytest.mark.parametrize("case", MIXED)
def test_beside_prompts_walks_end_as_when_played_out(case: tuple[int, ...]) -> None:
    """Heads one after the other, of each the decoding sequences first; in tokens."""
    seqs, q_len, ctx, heads, queries, new, slots = case
    per_head = ceil(q_len / queries)
    chunk = [min((i + 1) * queries, new) for i in range(ceil(new / queries))]
    ends = [0.0] * slots
    for _ in range(heads):
        for length in [ctx] * (seqs * per_head) + chunk:
            heapreplace(ends, ends[0] + length)
    prompt = heads * sum(chunk) / slots
    shape = AttentionDecode(
        seqs, q_len, heads, heads, 128, ctx, beside_prompts=True, prompt_s=prompt
    )
    found = unsplit.beside_prompts_s(shape, per_head, slots, 1.0, turns=heads) + prompt
    assert found == pytest.approx(max(ends), rel=0.09)


def test_the_last_head_starts_its_walk_when_the_others_are_through() -> None:
    """By hand: 4 heads of one block of 4000 tokens, prompts of 10,000 a slot: W = 10,061, the last
    of four turns of 2515 begins at 7545 less what the walk before has left, 1485 of a slot."""
    shape = AttentionDecode(1, 2, 8, 4, 512, 4000.0, beside_prompts=True, prompt_s=10000.0)
    added = unsplit.beside_prompts_s(shape, 1, 264, 1.0, turns=4)
    assert added == pytest.approx(10060.6 * 3 / 4 - 1484.8 / 264 + 4000 - 10000, abs=1)
    # Where walks come first of all, they are through before the prompts.
    assert unsplit.beside_prompts_s(shape, 1, 264, 1.0, turns=1) == pytest.approx(60.6, abs=0.1)


def test_a_prompt_is_all_its_walks() -> None:
    # 1000 queries in blocks of 8 over 16 KV heads, each walking 500.5 keys on average.
    assert seconds(prompt(1000, 0)) == pytest.approx(125 * 16 * 500.5 / 264 * T)
    # A short one lasts as long as its longest walk, unless another call has paid for that.
    assert seconds(prompt(8, 3000)) == pytest.approx(3008 * T)
    assert seconds(prompt(8, 3000, shared=1)) == pytest.approx(16 * 3004.5 / 264 * T)
    # A window bounds what a query sees.
    assert seconds(prompt(1000, 5000, window=1024)) == pytest.approx(125 * 16 * 1024 / 264 * T)


def test_other_ops_are_not_its_business() -> None:
    assert seconds(OpCost("mlp", Gemm(1, 1, 1))) == 0.0
    assert seconds(OpCost("mla", LatentDecode(1, 2, 8, 512, 64, 10))) == 0.0


def test_makespans_between_nodes_are_those_played_out() -> None:
    """Whatever the mean context: read between windows it is what playing it out gives."""
    for mean in (300.0, 777.0, 1024.0, 2418.0, 5000.0):
        for seqs, heads, each in ((1, 16, 2), (8, 16, 2), (24, 4, 2), (48, 16, 2)):
            exact = mean * unsplit._mean_makespan(
                Contexts(1.0, 0.77, 1024 / mean), seqs, heads, each, 264
            )
            between = unsplit._spread_makespan(
                Contexts(mean, 0.77, 1024.0), seqs, heads, each, 264
            )
            assert between == pytest.approx(exact, rel=3e-3)


def test_gemma_runs_on_triton_where_flash_attention_4_does_not_take_it() -> None:
    """Gemma-4: FlashAttention 4 on Hopper, not with an fp8 cache. Gemma-3 with images is a
    prefix-LM, whose heads of 128 FlashAttention 4 takes on data-centre Blackwell alone."""
    vllm = find_engine("vllm", "0.25.1")
    wide, narrow = find_model("gemma-3-4b"), find_model("gemma-3-27b")  # heads of 256 and 128
    gemma4, text = find_model("gemma-4-31b"), find_model("gemma-3-1b")
    assert runs_unsplit(vllm, gemma4, "hopper", "fp8")
    assert runs_unsplit(vllm, gemma4, "ampere", "bf16")
    assert not runs_unsplit(vllm, gemma4, "hopper", "bf16")
    for arch in ("hopper", "ampere", "ada", "blackwell-consumer"):
        assert runs_unsplit(vllm, wide, arch, "bf16") and runs_unsplit(vllm, narrow, arch, "bf16")
        assert not runs_unsplit(vllm, text, arch, "bf16")
    assert runs_unsplit(vllm, wide, "blackwell", "bf16")
    assert runs_unsplit(vllm, narrow, "blackwell", "fp8")
    assert not runs_unsplit(vllm, narrow, "blackwell", "bf16")
    assert not runs_unsplit(vllm, wide, "cdna3", "bf16")
    assert not runs_unsplit(find_engine("vllm==0.12"), wide, "hopper", "bf16")
    assert not runs_unsplit(vllm, find_model("llama-3.1-8b"), "hopper", "fp8")


def test_a_verify_step_of_gemma_3_walks_its_full_layers() -> None:
    """27B on an H100: 16 KV heads of 2 query heads, 128 wide; 8 queries a block, all at once."""
    walk = walk_of(find_engine("vllm"), find_model("gemma-3-27b"), load_profile("h100-sxm"), "bf16")
    assert walk is not None
    token = WIDE * (742 + 75 * 0.5) / (742 + 75 * 2)
    assert token == pytest.approx(73.4e-9, rel=0.001)
    assert walk(decode(1, 4, 16000, 32, 16, 128)) == pytest.approx(16000 * token)  # 1.17 ms
    assert walk(decode(1, 1, 16000, 32, 16, 128)) == 0.0


# --- FlashAttention 2 ---------------------------------------------------------------------------

A100 = load_profile("a100-80gb")
PROMPTS = Path(__file__).parents[2] / "validation/data/other_gpus/attn_prefill.csv.gz"


def flash2(op: OpCost, name: str = "a100-80gb") -> float:
    device = load_profile(name)
    return flash2_attention_s(op, device.sms, compute_peak(device, "bf16"))


def prompts_of(heads: int) -> dict[str, dict[str, str]]:
    """By device: measured microseconds by prompt tokens, heads 128 wide, each with its own keys."""
    with gzip.open(PROMPTS, "rt") as file:
        rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    return {
        row["profile"]: row for row in rows
        if row["profile"] in ("a100-80gb", "l40s", "rtx-pro-6000") and row["batch_size"] == "1"
        and row["head_dim"] == "128"
        and row["num_heads"] == row["num_key_value_heads"] == str(heads)
    }


def test_blocks_walk_as_measured() -> None:
    """A block of 64 queries walks what is before it: the longest of one head's all of a prompt;
    four heads of 16k tokens fill a device, half of the prompt on average."""
    few, many = prompts_of(1), prompts_of(4)
    assert len(few) == len(many) == 3
    for name in few:
        token = flash2(decode(1, 2, 1.0, 1, 1, 128), name)
        slope = (float(few[name]["4096"]) - float(few[name]["1024"])) / (4096 - 1024)
        assert token == pytest.approx(1e-6 * slope, rel=0.18)
        walked = 4 * 16384 / 64 * 16384 / 2 / load_profile(name).sms
        shape = AttentionDecode(1, 2, 1, 1, 128, 1.0, beside_prompts=True)
        full = flash2(OpCost("attn.decode", shape), name)
        assert full == pytest.approx(1e-6 * float(many[name]["16384"]) / walked, rel=0.05)


def test_a_block_takes_the_queries_of_one_head() -> None:
    one = flash2(decode(1, 4, 1000.0, 32, 8, 128))
    assert one == pytest.approx(1000 * 20.2e-9, rel=0.01)
    wave = 1000 * 23.9e-9  # of a full device
    # 32 query heads a sequence on 108 SMs, whatever the queries up to 64.
    for seqs, q_len in ((3, 4), (3, 64)):
        assert flash2(decode(seqs, q_len, 1000.0, 32, 8, 128)) == pytest.approx(one)
    for seqs, q_len, waves in ((4, 4, 2), (6, 4, 2), (7, 4, 3), (3, 65, 2)):
        found = flash2(decode(seqs, q_len, 1000.0, 32, 8, 128))
        assert found == pytest.approx(waves * wave, rel=0.01)
    assert flash2(decode(1, 4, 1000.0, 32, 8, 256)) == pytest.approx(2 * one)
    # static_switch.h, HEADDIM_SWITCH: heads 80 wide run as 96, of 160 as 192.
    for width, padded in ((80, 96), (112, 128), (160, 192), (100, 128)):
        narrow = flash2(decode(1, 4, 1000.0, 32, 8, width))
        assert narrow == pytest.approx(one * padded / 128)


def test_single_queries_are_split_where_heads_share_a_cache() -> None:
    single = decode(1, 1, 1000.0, 32, 8, 128)
    assert flash2(single) == 0.0
    windowed = OpCost("swa.decode", single.shape._replace(windowed=True))
    for unpacked in (decode(1, 1, 1000.0, 32, 32, 128), windowed):
        assert flash2(unpacked) == pytest.approx(flash2(decode(1, 2, 1000.0, 32, 8, 128)))
    beside = OpCost("attn.decode", single.shape._replace(beside_prompts=True))
    assert flash2(beside) == pytest.approx(1000 * 23.9e-9, rel=0.01)
    assert flash2(prompt(1000, 0)) == 0.0  # in the kernel's own table


def test_who_runs_flash_attention_2() -> None:
    llama, vllm = find_model("llama-3.1-8b"), find_engine("vllm")
    for name in ("a100-80gb", "rtx-3090", "rtx-4090", "l40s", "rtx-5090"):
        assert walk_of(vllm, llama, load_profile(name), "bf16") is not None
        assert walk_of(vllm, llama, load_profile(name), "fp8") is None
    for name in ("h100-sxm", "b200", "t4", "gaudi2"):
        assert walk_of(vllm, llama, load_profile(name), "bf16") is None
    assert walk_of(find_engine("sglang"), llama, A100, "bf16") is None
    oss, sinks = find_model("gpt-oss-20b"), []
    for name in ("a100-80gb", "l40s", "rtx-pro-6000", "h100-sxm", "b200", "mi300x"):
        walk = walk_of(vllm, oss, load_profile(name), "bf16")
        sinks.append(walk is not None)
    assert sinks == [True, True, True, False, False, False]


def test_sinks_before_hopper_are_walked_by_triton() -> None:
    """gpt-oss: 64 query heads on 8 KV heads, 64 wide; loops of 248 and 328 instructions (304 and
    347 of an fp8 cache) where the one that 84 ns are stated for has 988 in the same compilation."""
    walk = walk_of(find_engine("vllm"), find_model("gpt-oss-20b"), A100, "bf16")
    assert walk is not None
    full = decode(1, 4, 1000.0, 64, 8, 64)
    for windowed, fmt, loop in (
        (False, "bf16", 248), (True, "bf16", 328), (False, "fp8", 304), (True, "fp8", 347)
    ):
        op = OpCost("attn", full.shape._replace(windowed=windowed, fmt=fmt))
        assert walk(op) == pytest.approx(1000 * WIDE * loop / 988, rel=0.01)
    # Two queries a block, 16 blocks a sequence of four queries, 432 at a time on 108 SMs.
    assert walk(decode(27, 4, 1000.0, 64, 8, 64)) == pytest.approx(walk(full))
    assert walk(decode(28, 4, 1000.0, 64, 8, 64)) == pytest.approx(2 * walk(full))
    # Single queries of up to 16 sequences are split.
    assert walk(decode(16, 1, 1000.0, 64, 8, 64)) == 0.0
    assert walk(decode(17, 1, 1000.0, 64, 8, 64)) == pytest.approx(walk(full))
    assert walk(prompt(1000, 0)) == 0.0


def test_verify_steps_under_rocm_walk_at_best_at_the_peak() -> None:
    device = load_profile("mi300x")
    walk = walk_of(find_engine("vllm"), find_model("llama-3.1-8b"), device, "fp8")
    assert walk is not None
    # 128 padded queries of a head 128 wide, both products, on one of 304 CUs of 1.307 PFLOP/s.
    token = 4 * 128 * 128 / (1307.4e12 / 304)
    for seqs, q_len, waves in ((1, 4, 1), (9, 4, 1), (10, 4, 2), (1, 1, 0), (64, 1, 0)):
        seconds = walk(decode(seqs, q_len, 8000.0, 32, 8, 128))
        assert seconds == pytest.approx(waves * 8000 * token, rel=1e-3)
    peak = compute_peak(device, "bf16")
    assert rocm_attention_s(prompt(1000, 0), device.sms, peak, cdna=True, odd=False) == 0.0
    hybrid = walk_of(find_engine("vllm"), find_model("qwen3.6-27b"), device, "fp8")
    assert hybrid is not None
    assert hybrid(decode(1, 4, 8000.0, 32, 8, 128)) == pytest.approx(8000 * token / 4, rel=1e-3)


def test_single_queries_under_rocm_walk_where_no_native_kernel_takes_them() -> None:
    """use_rocm_custom_paged_attention of vLLM 0.25.1; else a block of 16 rows for each KV head."""
    device = load_profile("mi300x")
    peak = compute_peak(device, "bf16")

    def alone(op: OpCost, *, cdna: bool = True, odd: bool = False) -> float:
        return rocm_attention_s(op, device.sms, peak, cdna=cdna, odd=odd)

    usual, wide = decode(1, 1, 8000.0, 32, 8, 128), decode(1, 1, 8000.0, 16, 2, 256)
    row_token = 4 * 128 / (1307.4e12 / 304)
    assert alone(usual) == alone(decode(64, 1, 8000.0, 64, 8, 64)) == 0.0
    assert alone(wide) == pytest.approx(8000 * 2 * 16 * row_token, rel=1e-3)
    for walked in (
        alone(usual, odd=True), alone(OpCost("swa", usual.shape._replace(windowed=True))),
        alone(OpCost("fp8", usual.shape._replace(fmt="fp8")), cdna=False),
        alone(decode(1, 1, 8000.0, 32, 16, 128), cdna=False),
    ):
        assert walked == pytest.approx(8000 * 16 * row_token, rel=1e-3)
    assert alone(decode(1, 1, 8000.0, 32, 1, 128)) == pytest.approx(2 * alone(usual, odd=True))
    assert alone(usual, cdna=False) == 0.0
    assert alone(OpCost("fp8", usual.shape._replace(fmt="fp8"))) == 0.0
    # Never dearer than several queries.
    assert alone(wide, odd=True) <= alone(decode(1, 2, 8000.0, 16, 2, 256), odd=True)

"""Attention by hand: cache bytes, FLOP, windows, gates, shared keys, latents, sparse indexing."""

from dataclasses import replace

import pytest

from specsim.model.catalogue import find_model
from specsim.model.mixers import Attention, LatentAttention
from specsim.model.spec import LayerGroup
from specsim.ops.attention import (
    attention_context,
    attention_rows,
    latent_context,
    latent_rows,
)
from specsim.ops.op import OpCost
from specsim.ops.shapes import LatentPrefill, SparsePrefill
from specsim.ops.spread import causal_keys
from specsim.ops.work import Work

GQA = Attention(n_heads=32, n_kv_heads=8, head_dim=128)
MLA = LatentAttention(
    n_heads=128, q_lora_rank=1536, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64,
    v_head_dim=128,
)
SPARSE = replace(MLA, index_heads=64, index_head_dim=128, index_topk=2048)


def decoding(seqs: float, q_len: int, ctx: float) -> Work:
    return Work(seqs, q_len, ctx, (), seqs * q_len, seqs * q_len)


def prompt(new: int, cached: int = 0) -> Work:
    return Work(0.0, 1, 0.0, ((new, cached),), float(new), 1.0)


def only(ops: list[OpCost], name: str) -> OpCost:
    (found,) = [op for op in ops if op.name == name]
    return found


def test_the_cache_is_read_once_for_all_queries_of_a_verify_step() -> None:
    # 2 (K and V) x 8 heads x 128 x 2 B = 4096 B per token and layer
    plain = only(attention_context(GQA, decoding(4, 1, 1000), 1, "bf16", 1, "a"), "a.decode")
    verify = only(attention_context(GQA, decoding(4, 4, 1000), 1, "bf16", 1, "a"), "a.decode")
    assert plain.kv_bytes == 4096 * 4 * (1000 + 1 + 1)  # cached and new read, new written
    assert verify.kv_bytes == 4096 * 4 * (1000 + 4 + 4)  # not 4 x 1000
    # 4 FLOP x queries x mean keys (ctx + (q + 1) / 2) x 32 heads x 128
    assert plain.flops == 4 * 4 * 1 * 1001 * 32 * 128
    assert verify.flops == 4 * 4 * 4 * 1002.5 * 32 * 128


def test_cache_of_qwen3_8b_at_32_sequences_of_2048_tokens() -> None:
    spec = find_model("qwen3-8b")
    (group,) = spec.layers
    assert isinstance(group.mixer, Attention)
    op = only(
        attention_context(group.mixer, decoding(32, 5, 2048), 1, "bf16", group.count, "a"),
        "a.decode",
    )
    # 147,456 B per token: 36 layers x 2 x 8 x 128 x 2 B
    assert op.kv_bytes * op.count == 147_456 * 32 * (2048 + 5 + 5)
    assert 147_456 * 32 * 2048 == 9_663_676_416  # the 9.7 GB of the notes


def test_fp8_cache_halves_the_bytes_and_nothing_else() -> None:
    wide = only(attention_context(GQA, decoding(4, 1, 1000), 1, "bf16", 1, "a"), "a.decode")
    narrow = only(attention_context(GQA, decoding(4, 1, 1000), 1, "fp8", 1, "a"), "a.decode")
    assert narrow.kv_bytes == wide.kv_bytes / 2
    assert narrow.flops == wide.flops
    assert narrow.fmt == "fp8"


@pytest.mark.parametrize(("ctx", "seen"), [(100, 100), (1024, 1024), (5000, 1024)])
def test_a_window_caps_what_is_read(ctx: int, seen: int) -> None:
    sliding = replace(GQA, window=1024)
    op = only(attention_context(sliding, decoding(2, 1, ctx), 1, "bf16", 1, "s"), "s.decode")
    assert op.kv_bytes == 4096 * 2 * (seen + 2)
    assert op.shape.ctx == seen
    assert op.flops == 4 * 2 * min(seen + 1, 1024) * 32 * 128


def test_prefill_reads_the_cache_before_it_and_is_causal() -> None:
    op = only(attention_context(GQA, prompt(512, 1024), 1, "bf16", 1, "a"), "a.prefill")
    assert op.flops == 4 * 512 * (1024 + 256.5) * 32 * 128
    assert op.kv_bytes == 4096 * (1024 + 512 + 512)
    sliding = replace(GQA, window=256)
    op = only(attention_context(sliding, prompt(512, 1024), 1, "bf16", 1, "s"), "s.prefill")
    assert op.flops == 4 * 512 * 256 * 32 * 128


def test_only_the_first_call_of_a_mixed_step_pays_a_launch() -> None:
    mixed = Work(4.0, 1, 100.0, ((64, 0), (32, 0)), 100.0, 6.0)
    ops = attention_context(GQA, mixed, 1, "bf16", 1, "a")
    assert [getattr(op.shape, "shared_launch", False) for op in ops] == [0, 1, 1]
    ops = attention_context(GQA, prompt(64), 1, "bf16", 1, "a")
    assert [op.shape.shared_launch for op in ops] == [0]


def test_gated_attention_doubles_the_query_projection_alone() -> None:
    # q 4096, k and v 1024 each, gate 4096 more
    plain, out = attention_rows(GQA, 4096, 8, 1, 1, "a")
    gated, out_gated = attention_rows(replace(GQA, gated=True), 4096, 8, 1, 1, "a")
    assert plain[0].shape.n == 4096 + 2048
    assert gated[0].shape.n == 2 * 4096 + 2048
    assert out_gated[0].shape[:3] == out[0].shape[:3] == (8, 4096, 4096)


def test_shared_keys_and_values_are_cached_and_multiplied_twice() -> None:
    # Gemma-4's full layers: no value projection in the file, both slots filled from the keys
    shared = Attention(n_heads=32, n_kv_heads=4, head_dim=512, k_eq_v=True)
    before, _ = attention_rows(shared, 5376, 1, 1, 1, "a")
    assert before[0].shape.n == 32 * 512 + 2 * 4 * 512
    op = only(attention_context(shared, decoding(1, 1, 1000), 1, "bf16", 1, "a"), "a.decode")
    assert op.kv_bytes == 2 * 4 * 512 * 2 * (1000 + 2)


def test_a_layer_that_borrows_a_cache_reads_and_writes_none_of_its_own() -> None:
    borrowed = replace(GQA, owns_kv=False)
    before, _ = attention_rows(borrowed, 1024, 1, 1, 1, "a")
    assert before[0].shape.n == 32 * 128  # queries only
    op = only(attention_context(borrowed, decoding(1, 1, 1000), 1, "bf16", 1, "a"), "a.decode")
    assert op.kv_bytes == 4096 * (1000 + 1)  # read, nothing written


def test_eagle3_layers_read_two_widths() -> None:
    before, out = attention_rows(replace(GQA, input_mult=2), 4096, 1, 1, 1, "a")
    assert before[0].shape.k == 2 * 4096
    assert out[0].shape.n == 4096


def test_tensor_parallelism_splits_heads_until_none_is_left() -> None:
    whole = only(attention_context(GQA, decoding(4, 1, 1000), 1, "bf16", 1, "a"), "a.decode")
    eighth = only(attention_context(GQA, decoding(4, 1, 1000), 8, "bf16", 1, "a"), "a.decode")
    sixteenth = only(attention_context(GQA, decoding(4, 1, 1000), 16, "bf16", 1, "a"), "a.decode")
    assert eighth.kv_bytes == whole.kv_bytes / 8
    assert sixteenth.kv_bytes == eighth.kv_bytes  # one KV head on each of 16 GPUs
    assert sixteenth.flops == whole.flops / 16
    before, out = attention_rows(GQA, 4096, 1, 8, 1, "a")
    assert before[0].shape.n == (4096 + 2048) / 8
    assert out[0].shape.k == 4096 / 8


def test_latent_attention_by_hand() -> None:
    # DeepSeek-V3: 512 + 64 numbers per token, shared by all 128 heads
    op = only(latent_context(MLA, decoding(2, 4, 1000), 1, "bf16", 1, "m"), "m.decode")
    assert op.kv_bytes == 576 * 2 * 2 * (1000 + 4 + 4)
    # Absorbed: 2 FLOP x queries x keys x heads x (2 x 512 + 64)
    assert op.flops == 2 * (2 * 4) * 1002.5 * 128 * 1088
    half = only(latent_context(MLA, decoding(2, 4, 1000), 2, "bf16", 1, "m"), "m.decode")
    assert half.kv_bytes == op.kv_bytes  # a latent cache is not divided
    assert half.flops == op.flops / 2


def test_latent_projections_by_hand() -> None:
    before, after = latent_rows(MLA, 7168, 1, 1, 1, "m")
    widths = {op.name: (op.shape.n, op.shape.k) for op in before if op.kind == "gemm"}
    assert widths == {"m.qkv_a": (1536 + 576, 7168), "m.q_b": (128 * 192, 1536)}
    assert after[0].shape[:3] == (1, 7168, 128 * 128)
    absorbed = latent_context(MLA, decoding(1, 1, 10), 1, "bf16", 1, "m")
    sizes = {op.name: op.shape.n * op.shape.k for op in absorbed if op.kind == "gemm"}
    assert sizes == {"m.absorb_k": 128 * 128 * 512, "m.absorb_v": 128 * 128 * 512}


def test_latent_prefill_expands_the_cache_before_the_chunk_too() -> None:
    ops = latent_context(MLA, prompt(512, 1024), 1, "bf16", 1, "m")
    expand = only(ops, "m.kv_b")
    assert expand.shape[:3] == (512 + 1024, 128 * 256, 512)
    core = only(ops, "m.prefill")
    assert core.flops == 2 * 512 * (1024 + 256.5) * 128 * (128 + 64 + 128)


@pytest.mark.parametrize(("ctx", "seen"), [(1000, 1000), (50_000, 2048)])
def test_sparse_attention_reads_the_chosen_tokens_and_all_index_keys(ctx: int, seen: int) -> None:
    ops = latent_context(SPARSE, decoding(2, 1, ctx), 1, "bf16", 1, "m")
    assert only(ops, "m.decode").kv_bytes == 576 * 2 * 2 * (seen + 2)
    scores = only(ops, "m.index_scores")
    assert scores.kv_bytes == 2 * (ctx + 2) * 132  # 128 fp8 and one fp32 scale
    assert scores.flops == 2 * 2 * (ctx + 1) * 64 * 128


def test_prompts_that_choose_run_absorbed_and_those_that_see_all_do_not() -> None:
    ops = latent_context(SPARSE, Work(0.0, 1, 0.0, ((3000, 0), (512, 1024)), 3512, 2.0), 1, "bf16",
                         1, "m")
    absorbed = {op.name: op.shape.m for op in ops if "absorb" in op.name}
    assert absorbed == {"m.absorb_k": 3000, "m.absorb_v": 3000}
    assert only(ops, "m.kv_b").shape.m == 512 + 1024
    chosen, seen = (op for op in ops if op.name == "m.prefill")
    pairs = sum(min(i, 2048) for i in range(1, 3001))
    assert isinstance(chosen.shape, SparsePrefill)
    assert chosen.flops == pytest.approx(2 * pairs * 128 * (512 + 64 + 512))
    assert isinstance(seen.shape, LatentPrefill)


@pytest.mark.parametrize(("cached", "new", "limit"), [
    (0, 7, 0), (0, 7, 100), (0, 7, 3), (2, 7, 3), (9, 7, 3), (2, 5, 7), (2, 6, 7),
])
def test_keys_of_causal_queries_under_a_limit(cached: int, new: int, limit: int) -> None:
    counted = [min(cached + i, limit or 10**9) for i in range(1, new + 1)]
    assert causal_keys(cached, new, limit) == pytest.approx(sum(counted) / new)


def test_a_layer_that_reuses_another_layers_choice_has_no_indexer() -> None:
    reuse = replace(SPARSE, index_heads=0, index_head_dim=0)
    ops = latent_context(reuse, decoding(1, 1, 50_000), 1, "bf16", 1, "m")
    assert not [op for op in ops if "index" in op.name]
    assert only(ops, "m.decode").shape.ctx == 2048
    before, _ = latent_rows(reuse, 7168, 1, 1, 1, "m")
    assert not [op for op in before if "index" in op.name]


def test_sparse_indexer_weights_by_hand() -> None:
    # q 1536 x 64 x 128 and k 7168 x 128 in the layer's format, head weights 7168 x 64 in 16 bits
    before, _ = latent_rows(SPARSE, 7168, 1, 1, 1, "m")
    sizes = {op.name: op.shape.n * op.shape.k for op in before if "index" in op.name}
    assert sizes == {
        "m.index_q": 1536 * 64 * 128, "m.index_k": 7168 * 128, "m.index_w": 7168 * 64,
    }


def test_groups_of_one_shape_are_counted_together() -> None:
    group = LayerGroup(36, GQA, None)
    ops = attention_context(GQA, decoding(1, 1, 10), 1, "bf16", group.count, "a")
    assert [op.count for op in ops] == [36]

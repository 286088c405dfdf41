"""Whole passes: heads, all-reduces, attention groups, drafters of each kind, split rules."""

import pytest

from ops_helpers import drafter_ops, target_ops
from specsim.errors import UsageError
from specsim.model.catalogue import find_drafter, find_model
from specsim.model.mixers import Attention, DeltaNet, LatentAttention, Mamba2, Mixer
from specsim.model.part import Part
from specsim.ops.network import (
    MIXERS,
    context_kv_ops,
    head_ops,
    markov_ops,
    repeat,
)
from specsim.ops.op import OpCost
from specsim.ops.shapes import Gemm
from specsim.ops.work import Parallel, Work, attention_share, split_fault

LLAMA = find_model("llama-3.1-8b")


def work(seqs: float = 1.0, q_len: int = 1, ctx: float = 100.0) -> Work:
    return Work(seqs, q_len, ctx, (), seqs * q_len, seqs * q_len)


def named(ops: list[OpCost], name: str) -> list[OpCost]:
    return [op for op in ops if op.name == name]


def weights(ops: list[OpCost]) -> float:
    return sum(op.weight_bytes * op.count for op in ops)


def test_head_runs_on_every_verified_row() -> None:
    (head,) = named(target_ops(LLAMA, work(8, 4), Parallel()), "lm_head")
    assert head.shape[:3] == (32, 128_256, 4096)
    # A prompt that does not end yet needs no token.
    chunk = Work(0.0, 1, 0.0, ((512, 0),), 512.0, 0.0)
    assert not named(target_ops(LLAMA, chunk, Parallel()), "lm_head")


def test_one_gpu_has_no_collective() -> None:
    kinds = {op.kind for op in target_ops(LLAMA, work(), Parallel())}
    assert not kinds & {"all_reduce", "all_gather", "all_to_all"}


def test_two_all_reduces_per_layer_and_a_gather_of_the_logits() -> None:
    ops = target_ops(LLAMA, work(8), Parallel(4))
    reduces = [op for op in ops if op.kind == "all_reduce"]
    assert sum(op.count for op in reduces) == 2 * 32 + 1  # and one after the embedding
    assert {op.act_bytes for op in reduces} == {2.0 * 8 * 4096}
    assert {op.shape.gpus for op in reduces} == {4}
    (gather,) = [op for op in ops if op.kind == "all_gather"]
    assert gather.act_bytes == 2.0 * 8 * 128_256
    (head,) = named(ops, "lm_head")
    assert head.shape.n == 128_256 / 4


@pytest.mark.parametrize("tp", [2, 4, 8])
def test_tensor_parallelism_divides_the_weights(tp: int) -> None:
    # All of them but the norms, which are a few kB and copied.
    assert weights(target_ops(LLAMA, work(), Parallel(tp))) == pytest.approx(
        weights(target_ops(LLAMA, work(), Parallel())) / tp, rel=1e-3
    )


def test_attention_groups_deal_out_sequences_and_copy_dense_weights() -> None:
    share = attention_share(Work(64.0, 2, 10.0, ((8, 0), (8, 0)), 144.0, 130.0), Parallel(1, 1, 2))
    assert (share.seqs, share.rows, share.head_rows) == (32, 72, 65)
    assert share.prefill == ((8, 0),)
    spec = find_model("deepseek-v3")
    one = target_ops(spec, work(64), Parallel(8, 8, 1))
    groups = target_ops(spec, work(64), Parallel(1, 8, 8))
    (whole,) = {op.weight_bytes for op in named(groups, "mla.out")}
    (slice_,) = {op.weight_bytes for op in named(one, "mla.out")}
    assert whole == 8 * slice_
    (head,) = named(groups, "lm_head")
    assert head.shape[:3] == (8, 129_280, 7168)
    experts = {op.weight_bytes for op in named(one, "moe.experts")}
    assert experts == {op.weight_bytes for op in named(groups, "moe.experts")}


@pytest.mark.parametrize(
    ("tp", "ep", "dp", "rule"),
    [(0, 1, 1, "tp is 0"), (-1, 1, 1, "tp is -1"), (2, 3, 1, "ep 3 does not divide"),
     (1, 1, 5000, "attention_dp is 5000"), (1, 0, 1, "ep is 0"), (True, 1, 1, None)],
)
def test_impossible_splits_are_refused(tp: int, ep: int, dp: int, rule: str | None) -> None:
    if rule is None:
        assert Parallel(tp, ep, dp).gpus == 1
        return
    with pytest.raises(UsageError, match=rule):
        Parallel(tp, ep, dp)


@pytest.mark.parametrize(
    ("name", "tp", "fault"),
    [
        ("llama-3.1-8b", 8, ""),
        ("llama-3.1-8b", 16, ""),  # 8 KV heads, two copies of each
        ("llama-3.1-8b", 3, "8 KV heads neither divide by 3"),
        ("llama-3.1-8b", 12, "8 KV heads neither divide by 12"),
        ("deepseek-v3", 16, ""),
        ("deepseek-v3", 3, "128 attention heads do not divide by 3"),
        ("qwen3.6-27b", 5, "do not divide by 5"),
        ("nemotron-3-super", 3, "do not divide by 3"),
    ],
)
def test_heads_are_dealt_out_whole(name: str, tp: int, fault: str) -> None:
    found = split_fault(find_model(name).layers, tp)
    assert fault in found and bool(fault) == bool(found)


def test_medusa_heads_each_have_a_block_and_a_matrix() -> None:
    drafter = find_drafter("Medusa-Vicuna-7B-v1.3")
    ops = drafter_ops(drafter, work(4), Parallel())
    (block,), (head,) = named(ops, "draft.block"), named(ops, "draft.lm_head")
    assert block.count == head.count == 5
    assert block.shape[:3] == (4, 4096, 4096)
    assert head.shape[:3] == (4, 32_000, 4096)
    # 5 x (4096^2 + 4096 x 32000) x 2 B = the 1.48 GB of the published file
    assert weights([block, head]) == 5 * (4096**2 + 4096 * 32_000) * 2 == 1_478_492_160


def test_eagle3_head_has_its_own_vocabulary() -> None:
    drafter = find_drafter("EAGLE3-Llama-3.1-8B")
    ops = drafter_ops(drafter, work(4), Parallel())
    (head,) = named(ops, "draft.lm_head")
    assert head.shape.n == 32_000
    (join,) = named(ops, "draft.fc")
    assert join.shape[:3] == (4, 4096, 3 * 4096)
    (qkv,) = named(ops, "draft.attn.qkv")
    assert qkv.shape.k == 2 * 4096


def test_block_drafters_attend_to_what_they_do_not_draft() -> None:
    drafter = find_drafter("DFlash-Qwen3.6-27B")
    block = drafter_ops(drafter, work(2, 8), Parallel())
    assert not named(block, "draft.fc")
    context = context_kv_ops(drafter, 500.0, Parallel())
    (join,) = named(context, "draft.fc")
    assert join.shape[:3] == (500, 5120, 5 * 5120)
    layers = sum(op.count for op in named(context, "draft.ctx_kv"))
    assert layers == 5
    assert context_kv_ops(drafter, 0.0, Parallel()) == []


def test_the_markov_head_walks_the_block() -> None:
    drafter = find_drafter("DSpark-Qwen3.6-27B")
    (walk,) = markov_ops(drafter, 4.0, 7)
    assert walk.shape[:3] == (4, 248_320, 256)
    assert walk.count == 7
    assert not named(drafter_ops(drafter, work(), Parallel()), "draft.proj")
    assert markov_ops(find_drafter("DFlash-Qwen3.6-27B"), 4.0, 7) == []


def test_gemma_assistant_projects_back_to_the_target() -> None:
    drafter = find_drafter("Gemma-4-31B-it-assistant")
    ops = drafter_ops(drafter, work(2), Parallel())
    assert named(ops, "draft.fc")[0].shape[:3] == (2, 1024, 2 * 5376)
    assert named(ops, "draft.proj")[0].shape[:3] == (2, 5376, 1024)
    assert named(ops, "draft.lm_head")[0].shape[:3] == (2, 262_144, 1024)


def test_no_rows_no_head() -> None:
    assert head_ops(16, 100, 0, LLAMA.head_weight, Parallel(8)) == []


def test_repeating_an_op_changes_its_count_alone() -> None:
    shape = Gemm(1, 2, 3, "fp8")
    op = OpCost("x", shape, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0)
    again = repeat(op, 3)
    assert again.count == 18
    assert again.bytes == op.bytes == 2 + 3 + 4 + 5
    assert (again.flops, again.fmt, again.shape, again.name) == (1.0, "fp8", shape, "x")


def test_every_kind_of_mixer_has_its_operations() -> None:
    kinds = {kind for kind in Part.by_tag.values() if issubclass(kind, Mixer)}
    assert {Attention, LatentAttention, DeltaNet, Mamba2} <= kinds == set(MIXERS)

"""Experts and recurrent state by hand: distinct experts, slices, latents, snapshots, copies."""

import math
from dataclasses import replace

import pytest

from ops_helpers import drafter_ops, target_ops
from specsim.model.catalogue import find_drafter, find_model, variant
from specsim.model.feedforward import DenseMLP, MoE
from specsim.model.mixers import DeltaNet, Mamba2
from specsim.model.state_mixers import LightningAttention, Mamba1
from specsim.ops.ffn import dense_mlp_ops, ffn_ops, moe_ops
from specsim.ops.network import group_rows
from specsim.ops.op import OpCost
from specsim.ops.recurrent import (
    delta_net_context,
    delta_net_rows,
    lightning_context,
    mamba1_context,
    mamba1_rows,
    mamba2_context,
)
from specsim.ops.work import UNIFORM, Parallel, Routing, Work

QWEN_35B = MoE(n_experts=256, top_k=8, intermediate=512, shared_intermediate=512, shared_gate=True)


def only(ops: list[OpCost], name: str) -> OpCost:
    (found,) = [op for op in ops if op.name == name]
    return found


def total(ops: list[OpCost], *fields: str) -> float:
    return sum(getattr(op, field) * op.count for op in ops for field in fields)


def test_routed_layer_by_hand() -> None:
    ops = moe_ops(QWEN_35B, 2048, 4.0, Parallel(), 1.0, "m", UNIFORM, seqs=1.0)
    experts = only(ops, "m.experts")
    each = 3 * 2048 * 512 * 2  # gate, up, down in 16 bits
    hit = 256 * (1 - (1 - 8 / 256) ** 4)
    assert experts.weight_bytes == pytest.approx(hit * each)
    assert experts.flops == 2 * (4 * 8) * 3 * 2048 * 512  # every assignment, chosen or shared
    assert only(ops, "m.router").shape[:3] == (4, 256, 2048)
    shared = only(ops, "m.shared.gate_up")
    assert shared.shape[:3] == (4, 2 * 512, 2048)
    assert only(ops, "m.shared_add").weight_bytes == 2048 * 2  # its gate


def test_neighbours_in_one_sequence_share_experts_and_strangers_do_not() -> None:
    alike = Routing(beta=0.7, shape=math.inf)
    verify = only(moe_ops(QWEN_35B, 2048, 4.0, Parallel(), 1, "m", alike, 1.0), "m.experts")
    batch = only(moe_ops(QWEN_35B, 2048, 4.0, Parallel(), 1, "m", alike, 4.0), "m.experts")
    free = only(moe_ops(QWEN_35B, 2048, 4.0, Parallel(), 1, "m", UNIFORM, 1.0), "m.experts")
    assert verify.weight_bytes < batch.weight_bytes
    assert batch.weight_bytes == pytest.approx(free.weight_bytes)
    assert verify.shape.distinct == alike.distinct(256, 8, 4, 1)


def test_slices_and_whole_experts() -> None:
    whole = only(moe_ops(QWEN_35B, 2048, 4.0, Parallel(), 1, "m", UNIFORM, 4), "m.experts")
    sliced = only(moe_ops(QWEN_35B, 2048, 4.0, Parallel(4), 1, "m", UNIFORM, 4), "m.experts")
    spread = only(moe_ops(QWEN_35B, 2048, 4.0, Parallel(4, 4), 1, "m", UNIFORM, 4), "m.experts")
    assert sliced.shape.inter == 512 / 4
    assert sliced.shape.local_experts == 256
    assert spread.shape.inter == 512
    assert spread.shape.local_experts == 64
    for split in (sliced, spread):
        assert split.weight_bytes == pytest.approx(whole.weight_bytes / 4)
        assert split.flops == pytest.approx(whole.flops / 4)


def test_attention_groups_share_the_experts_and_nothing_else() -> None:
    par = Parallel(tp=1, ep=8, attention_dp=8)
    ops = moe_ops(QWEN_35B, 2048, 64.0, par, 1, "m", UNIFORM, 64)
    assert only(ops, "m.experts").shape.tokens == 64  # rows of all groups
    assert only(ops, "m.experts").shape.local_experts == 32
    assert only(ops, "m.router").shape.m == 8  # its own rows
    assert only(ops, "m.shared.gate_up").shape[:3] == (8, 1024, 2048)
    dense = ffn_ops(DenseMLP(1024), 2048, 64.0, par, 1, "", UNIFORM, 64)
    assert dense[0].shape.m == 8


def test_latent_experts_by_hand() -> None:
    # Nemotron-3 Super: experts of 2 x 1024 x 2688 on a latent of 1024, shared on the full width
    spec = find_model("nemotron-3-super")
    group = next(g for g in spec.layers if isinstance(g.ffn, MoE))
    moe = group.ffn
    assert isinstance(moe, MoE)
    before, after = group_rows(group, spec.hidden, 1.0, 1.0, 1.0, Parallel(), UNIFORM)
    ops = [*before, *after]
    experts = only(ops, "moe.experts")
    assert experts.weight_bytes == pytest.approx(moe.top_k * 5_505_024 * 2)
    assert experts.shape.hidden == 1024
    assert only(ops, "moe.latent_in").shape[:3] == (1, 1024, 4096)
    assert only(ops, "moe.latent_out").shape[:3] == (1, 4096, 1024)
    assert only(ops, "moe.shared.up").shape[:3] == (1, 5376, 4096)
    assert "moe.shared.gate_up" not in {op.name for op in ops}  # relu^2: no gate


def test_dense_mlp_by_hand() -> None:
    # (M, K, N) = (8, 4096, 12288): 805,306,368 FLOP and 100,663,296 weight bytes
    down = dense_mlp_ops(DenseMLP(4096), 12288, 8, 1, 1, "x")[-1]
    assert down.flops == 805_306_368
    assert down.weight_bytes == 100_663_296
    plain = dense_mlp_ops(DenseMLP(100, gated=False, bias=True), 10, 1, 1, 1, "x")
    assert [op.name for op in plain] == ["x.up", "x.act", "x.down"]
    assert plain[1].weight_bytes == (100 + 10) * 2  # its biases


# Qwen3.6-27B: 48 layers, 48 heads of 128 x 128 in fp32 = 151.0 MB; convolution of 10240 channels
GDN_27B = DeltaNet(n_k_heads=16, n_v_heads=48, head_k_dim=128, head_v_dim=128)


def step(seqs: float, q_len: int) -> Work:
    return Work(seqs, q_len, 1000.0, (), seqs * q_len, seqs * q_len)


def test_verify_reads_one_state_and_writes_one_per_token() -> None:
    state, channels = 48 * 128 * 128 * 4, 2 * 16 * 128 + 48 * 128
    for q in (1, 2, 4):
        op = only(delta_net_context(GDN_27B, step(3, q), 1, "bf16", 48, "g"), "g.decode")
        window = 2 * (3 + q - 1) * channels * 2  # read and written, q - 1 columns wider
        assert op.state_bytes == 3 * (state * (1 + q) + window)
        assert op.flops == 8 * 48 * 128 * 128 * 3 * q
        assert op.shape.state_traffic == op.state_bytes - 3 * window


def test_committing_a_snapshot_costs_further_passes() -> None:
    state = 48 * 128 * 128 * 4
    plain = only(delta_net_context(GDN_27B, step(1, 1), 1, "bf16", 1, "g", 2.0), "g.decode")
    verify = only(delta_net_context(GDN_27B, step(1, 4), 1, "bf16", 1, "g", 2.0), "g.decode")
    free = only(delta_net_context(GDN_27B, step(1, 4), 1, "bf16", 1, "g", 0.0), "g.decode")
    assert verify.state_bytes - free.state_bytes == 2 * state
    assert plain.state_bytes == only(
        delta_net_context(GDN_27B, step(1, 1), 1, "bf16", 1, "g"), "g.decode"
    ).state_bytes


# Model notes, section 2: MB per sequence and step, verify of k drafts against a plain step
@pytest.mark.parametrize(
    ("name", "k", "verify_mb", "plain_mb"),
    [
        ("qwen3.6-27b", 3, 767, 308),
        ("qwen3.5-122b-a10b", 2, 613, 307),
        ("nemotron-3-super", 2, 679, 340),
        ("qwen3.6-35b-a3b", 3, 320, 129),
    ],
)
def test_state_traffic_of_whole_models(name: str, k: int, verify_mb: int, plain_mb: int) -> None:
    spec = find_model(name)
    plain = total(target_ops(spec, step(1, 1), Parallel()), "state_bytes")
    verify = total(target_ops(spec, step(1, k + 1), Parallel()), "state_bytes")
    assert round(plain / 1e6) == plain_mb
    assert round(verify / 1e6) == verify_mb


def test_mamba_state_by_hand() -> None:
    # Nemotron-3 Super, one layer: 128 heads x 64 x 128 in fp32, B and C of 8 groups
    mixer = Mamba2(n_heads=128, head_dim=64, n_groups=8, state_size=128)
    op = only(mamba2_context(mixer, step(1, 1), 1, "bf16", 1, "s"), "s.decode")
    assert op.state_bytes == 128 * 64 * 128 * 4 * 2 + 2 * 3 * (8192 + 2 * 8 * 128) * 2
    assert op.flops == 6 * 128 * 64 * 128
    half = only(mamba2_context(mixer, step(1, 1), 2, "bf16", 1, "s"), "s.decode")
    assert half.shape.state_elems == 64 * 64 * 128


def test_states_in_the_dtype_of_their_model_by_hand() -> None:
    """vLLM 0.25.1 keeps those of Mamba-1 and lightning attention in 16 bits."""
    (jamba,) = {g.mixer for g in find_model("jamba-v0.1").layers if isinstance(g.mixer, Mamba1)}
    op = only(mamba1_context(jamba, step(2, 1), 1, "bf16", 1, "s"), "s.decode")
    assert op.state_bytes == 2 * (2 * 8192 * 16 * 2 + 2 * 3 * 8192 * 2)
    assert op.flops == 2 * 6 * 8192 * 16
    before, _ = mamba1_rows(jamba, 4096, 2.0, 1, 1, "s")
    assert [op.flops for op in before[:3]] == [
        2 * 2 * 4096 * 16384, 2 * 2 * 8192 * (256 + 2 * 16), 2 * 2 * 256 * 8192
    ]
    # The norms of the step, of B and of C read and write that product's result once together.
    assert total([only(list(before), "s.norms")], "act_bytes") == pytest.approx(2 * 2 * 2 * 288)
    found = {g.mixer for g in find_model("minimax-text-01").layers}
    (mixer,) = [m for m in found if isinstance(m, LightningAttention)]
    op = only(lightning_context(mixer, step(1, 1), 8, "bf16", 1, "s"), "s.decode")
    assert op.state_bytes == 2 * 8 * 128 * 128 * 2
    assert op.flops == 5 * 8 * 128 * 128


def test_a_16_bit_state_says_so_to_the_kernel_model() -> None:
    narrow = replace(GDN_27B, state_dtype="bf16")
    op = only(delta_net_context(narrow, step(1, 1), 1, "bf16", 1, "g"), "g.decode")
    assert op.shape.state_bytes_per_elem == 2
    assert op.shape.conv_kernel == 4


def test_prefill_reads_and_writes_one_state_per_prompt() -> None:
    work = Work(0.0, 1, 0.0, ((100, 0), (50, 0)), 150.0, 2.0)
    op = only(delta_net_context(GDN_27B, work, 1, "bf16", 1, "g"), "g.prefill")
    state, conv = 48 * 128 * 128 * 4, 2 * 3 * 10240 * 2
    assert op.state_bytes == 2 * (2 * state + conv)
    assert op.shape.tokens * op.shape.seqs == 150


def test_gdn_projections_by_hand() -> None:
    before, after = delta_net_rows(GDN_27B, 5120, 1, 1, 1, "g")
    assert before[0].shape.n == 2 * 2048 + 2 * 6144
    assert before[1].shape[:3] == (1, 96, 5120)
    assert after[-1].shape[:3] == (1, 5120, 6144)


# Model notes, section 4: verify over decode bytes at batch 1, context 1024, for n = 2 ... 8 tokens
@pytest.mark.parametrize(
    ("name", "ratios"),
    [
        ("qwen3.6-35b-a3b", (1.33, 1.66, 1.97, 2.27, 2.57, 2.85, 3.13)),
        ("qwen3.5-122b-a10b", (1.39, None, None, None, None, None, 3.50)),
        ("nemotron-3-super", (1.38, None, None, None, None, None, 3.35)),
        ("gpt-oss-120b", (1.67, None, None, None, None, None, 5.30)),
        ("deepseek-v3", (1.54, None, None, None, None, None, 4.44)),
        ("qwen3-30b-a3b", (1.55, None, None, None, None, None, 4.20)),
    ],
)
def test_uniform_routing_makes_verification_dear(
    name: str, ratios: tuple[float | None, ...]
) -> None:
    spec = variant(find_model(name), "bf16")

    def moved(tokens: int) -> float:
        work = Work(1.0, tokens, 1024.0, (), float(tokens), float(tokens))
        ops = target_ops(spec, work, Parallel())
        return total(ops, "weight_bytes", "kv_bytes", "state_bytes")

    for tokens, ratio in enumerate(ratios, start=2):
        if ratio is not None:
            assert moved(tokens) / moved(1) == pytest.approx(ratio, abs=0.012)


# The whole table of section 4: GB of a decode step, of a verify step, and of each draft pass
TABLE = [
    ("qwen3.6-27b", 3, "bf16", 51.6, 52.1, (3.40, 3.40, 3.40)),
    ("qwen3.6-27b", 3, "fp8", 27.3, 27.8, (3.02, 3.02, 3.02)),
    ("qwen3.6-35b-a3b", 3, "bf16", 6.04, 11.9, (1.29, 1.15, 1.15)),
    ("qwen3.6-35b-a3b", 3, "fp8", 3.63, 6.66, (1.16, 1.09, 1.09)),
    ("qwen3.5-122b-a10b", 2, "bf16", 18.35, 32.5, (2.18, 1.89)),
    ("qwen3.5-122b-a10b", 2, "fp8", 10.2, 17.4, (1.87, 1.73)),
    ("nemotron-3-super", 2, "bf16", 24.8, 43.3, (2.02, 1.56)),
    ("nemotron-3-super", 2, "fp8", 13.2, 22.6, (2.02, 1.56)),
    ("qwen3.5-35b-a3b", 2, "bf16", 6.04, 10.0, (1.24, 1.15)),
    ("qwen3.5-35b-a3b", 2, "fp8", 3.63, 5.68, (1.14, 1.09)),
]


@pytest.mark.parametrize(("name", "k", "weights", "decode", "verify", "passes"), TABLE)
def test_bytes_of_the_cluster_models(
    name: str, k: int, weights: str, decode: float, verify: float, passes: tuple[float, ...]
) -> None:
    spec = variant(find_model(name), weights)
    fields = ("weight_bytes", "kv_bytes", "state_bytes")

    def target(tokens: int) -> float:
        work = Work(1.0, tokens, 1024.0, (), float(tokens), float(tokens))
        return total(target_ops(spec, work, Parallel()), *fields) / 1e9

    def digits(value: float, like: float) -> float:
        return round(value, len(str(like).split(".")[1]))

    assert digits(target(1), decode) == decode
    assert digits(target(k + 1), verify) == verify
    assert spec.mtp is not None
    rows = (k + 1, *[1] * (k - 1))  # the first pass runs over all verified rows
    for number, (width, expected) in enumerate(zip(rows, passes, strict=True)):
        work = Work(1.0, width, 1024.0, (), float(width), 1.0)
        moved = total(drafter_ops(spec.mtp, work, Parallel()), *fields) / 1e9
        assert digits(moved, expected) == expected, f"pass {number}"


@pytest.mark.parametrize(
    ("weights", "decode", "verify"), [("bf16", 62.5, 62.5), ("fp8", 33.1, 33.2)]
)
def test_bytes_of_gemma_with_its_assistant(weights: str, decode: float, verify: float) -> None:
    spec = variant(find_model("gemma-4-31b"), weights)
    fields = ("weight_bytes", "kv_bytes")
    for tokens, expected in ((1, decode), (5, verify)):
        work = Work(1.0, tokens, 1024.0, (), float(tokens), float(tokens))
        moved = total(target_ops(spec, work, Parallel()), *fields) / 1e9
        assert moved == pytest.approx(expected, abs=0.06)
    drafter = find_drafter("Gemma-4-31B-it-assistant")
    ops = drafter_ops(drafter, Work(1.0, 1, 1024.0, (), 1.0, 1.0), Parallel())
    assert round(total(ops, "weight_bytes") / 1e9, 2) == 0.94
    assert round(total(ops, "kv_bytes") / 1e6) == 59  # the target's cache, at 1k tokens

"""op_time: every kind of op reaches its kernel, and says so when it cannot."""

from dataclasses import replace
from types import MappingProxyType

import pytest

from specsim import roofline
from specsim.errors import ProfileError, UsageError
from specsim.hardware.profile import HardwareProfile, KernelTable
from specsim.ops.op import OpCost
from specsim.roofline import op_time

GDN = {"gdn": 1, "n_k_heads": 16, "n_v_heads": 48, "dk": 128, "dv": 128}
MAMBA = {"mamba": 1, "n_heads": 64, "head_dim": 64, "state_size": 128, "n_groups": 8}
MLA = {"mla": 1, "heads": 16, "kv_heads": 1, "head_dim": 576}
GQA = {"heads": 32, "kv_heads": 8, "head_dim": 128, "window": 0}
OPS = [
    OpCost("qkv", "gemm", weight_bytes=4096 * 6144 * 2, dims={"m": 8, "n": 6144, "k": 4096}),
    OpCost("attn", "attn_decode", dims={**GQA, "seqs": 8, "q_len": 4, "ctx": 1000.0}),
    OpCost("mla", "attn_decode", dims={**MLA, "seqs": 8, "q_len": 4, "ctx": 1000.0,
                                       "kv_lora_rank": 512, "rope_dim": 64}),
    OpCost("attn", "attn_prefill", dims={**GQA, "new": 512, "cached": 100}),
    OpCost("mla", "attn_prefill", flops=2.0 * 512 * 356.5 * 16 * 320,
           dims={**MLA, "new": 512, "cached": 100, "qk_head_dim": 192, "v_head_dim": 128}),
    OpCost("experts", "moe", dims={"tokens": 32, "hidden": 2048, "inter": 512, "top_k": 8,
                                   "experts": 256, "gated": 1, "local_experts": 256.0}),
    OpCost("gdn", "recurrent", state_bytes=1e8, dims={**GDN, "seqs": 8, "q_len": 4}),
    OpCost("gdn", "recurrent", dims={**GDN, "seqs": 2, "tokens": 900, "prefill": 1}),
    OpCost("mamba", "recurrent", state_bytes=1e8, dims={**MAMBA, "seqs": 8, "q_len": 1}),
    OpCost("mamba", "recurrent", dims={**MAMBA, "seqs": 2, "tokens": 900, "prefill": 1}),
    OpCost("norm", "elementwise", act_bytes=1e6),
    OpCost("sum", "all_reduce", act_bytes=1e6, dims={"gpus": 4}),
    OpCost("gather", "all_gather", act_bytes=1e6, dims={"gpus": 4}),
    OpCost("dispatch", "all_to_all", act_bytes=1e6, dims={"gpus": 4}),
    OpCost("sample", "sample", dims={"rows": 32, "vocab": 151936}),
]


@pytest.mark.parametrize("op", OPS, ids=lambda op: f"{op.name}-{op.kind}")
@pytest.mark.parametrize("engine", ["", "vllm", "sglang", "trtllm"])
def test_every_kind_has_a_price(
    h200: HardwareProfile, bare: HardwareProfile, op: OpCost, engine: str
) -> None:
    sheet = op_time(op, h200, "datasheet", engine)
    assert op_time(op, h200, "calibrated", engine).seconds >= sheet.seconds > 0
    assert op_time(op, bare, "calibrated", engine).seconds >= sheet.seconds


def test_an_op_is_the_function_it_names(h200: HardwareProfile) -> None:
    assert op_time(OPS[0], h200) == roofline.gemm(h200, 8, 6144, 4096)
    assert op_time(OPS[1], h200) == roofline.attn_decode(h200, 8, 4, 32, 8, 128, 1000.0)
    assert op_time(OPS[3], h200) == roofline.attn_prefill(h200, 512, 100, 32, 8, 128)
    two = roofline.gdn_prefill(h200, 450, 16, 48, 128, 128, 2)
    assert op_time(OPS[7], h200) == two


def test_sparse_latent_prefill_takes_its_pairs_from_the_op(h200: HardwareProfile) -> None:
    # 512 queries after 100 tokens see 356.5 keys each: causal.
    causal = roofline.mla_prefill(h200, 512, 100, 16, 192, 128)
    assert op_time(OPS[4], h200).seconds == pytest.approx(causal.seconds)
    sparse = replace(OPS[4], flops=OPS[4].flops / 4)
    assert op_time(sparse, h200).compute_s < 0.5 * causal.compute_s


def test_a_chunk_in_another_ops_call_pays_no_launch(h200: HardwareProfile) -> None:
    alone = op_time(OPS[3], h200)
    along = op_time(replace(OPS[3], dims={**OPS[3].dims, "shared_launch": 1}), h200)
    assert along.seconds == pytest.approx(alone.seconds - alone.floor_s)
    assert along.floor_s == 0.0


def test_unknown_kinds_and_fidelities_are_refused(h200: HardwareProfile) -> None:
    with pytest.raises(UsageError, match="kind 'conv', which no kernel model covers"):
        op_time(OpCost("x", "conv"), h200)
    with pytest.raises(UsageError, match="'exact' is not known; use one of calibrated, datasheet"):
        op_time(OPS[0], h200, "exact")


def test_an_incomplete_table_is_named(h200: HardwareProfile) -> None:
    poor = KernelTable("gemm.bf16", MappingProxyType({"floor_s": 1e-6}), "by hand")
    device = replace(h200, kernels={"gemm.bf16": poor})
    with pytest.raises(ProfileError, match=r"op 'qkv' of kind 'gemm' finds no '\w+', neither"):
        op_time(OPS[0], device)


def test_public_names() -> None:
    assert len(set(roofline.__all__)) == len(roofline.__all__)
    for name in roofline.__all__:
        assert hasattr(roofline, name)

"""op_time: every kind of op reaches its kernel, and says so when it cannot."""

from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

import pytest

import roofline_calls as calls
from specsim import roofline
from specsim.errors import ProfileError, UsageError
from specsim.hardware.profile import HardwareProfile, KernelTable
from specsim.ops.op import OpCost
from specsim.ops.shapes import (
    AllGather,
    AllReduce,
    AllToAll,
    AttentionDecode,
    AttentionPrefill,
    Elementwise,
    Experts,
    Gemm,
    LatentDecode,
    LatentPrefill,
    Sample,
    StateDecode,
    StatePrefill,
)
from specsim.roofline import kernels
from specsim.roofline.dispatch import op_time

GDN = StateDecode(8, 4, 48 * 128 * 128, 2 * 16 * 128 + 48 * 128)
OPS = [
    OpCost("qkv", Gemm(8, 6144, 4096, "bf16", 4096 * 6144 * 2)),
    OpCost("attn", AttentionDecode(8, 4, 32, 8, 128, 1000.0)),
    OpCost("mla", LatentDecode(8, 4, 16, 512, 64, 1000.0)),
    OpCost("attn", AttentionPrefill(512, 100, 32, 8, 128)),
    OpCost("mla", LatentPrefill(512, 100, 16, 192, 128, pairs=512 * 356.5)),
    OpCost("experts", Experts(32, 2048, 512, 8, 256, local_experts=256.0)),
    OpCost("gdn", GDN._replace(state_traffic=1e8)),
    OpCost("gdn", StatePrefill(450, 16, 48, 128, 128, 2)),
    OpCost("mamba", StateDecode(8, 1, 64 * 64 * 128, 64 * 64 + 2 * 8 * 128, 6.0)),
    OpCost("mamba", StatePrefill(450, 8, 64, 128, 64, 2)),
    OpCost("norm", Elementwise(1e6)),
    OpCost("sum", AllReduce(1e6, 4)),
    OpCost("gather", AllGather(1e6, 4)),
    OpCost("dispatch", AllToAll(1e6, 4)),
    OpCost("sample", Sample(32, 151936)),
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
    assert op_time(OPS[0], h200) == calls.gemm(h200, 8, 6144, 4096)
    assert op_time(OPS[1], h200) == calls.attn_decode(h200, 8, 4, 32, 8, 128, 1000.0)
    assert op_time(OPS[3], h200) == calls.attn_prefill(h200, 512, 100, 32, 8, 128)
    two = calls.gdn_prefill(h200, 450, 16, 48, 128, 128, 2)
    assert op_time(OPS[7], h200) == two


def test_sparse_latent_prefill_sees_fewer_pairs(h200: HardwareProfile) -> None:
    # 512 queries after 100 tokens see 356.5 keys each: causal.
    causal = calls.mla_prefill(h200, 512, 100, 16, 192, 128)
    assert op_time(OPS[4], h200).seconds == pytest.approx(causal.seconds)
    sparse = replace(OPS[4], shape=OPS[4].shape._replace(pairs=512 * 356.5 / 4))
    assert op_time(sparse, h200).compute_s < 0.5 * causal.compute_s


@pytest.mark.parametrize("op", OPS[3:5], ids=["attn", "mla"])
def test_a_chunk_in_another_ops_call_pays_no_launch(h200: HardwareProfile, op: OpCost) -> None:
    alone = op_time(op, h200)
    along = op_time(replace(op, shape=op.shape._replace(shared_launch=True)), h200)
    assert along.seconds == pytest.approx(alone.seconds - alone.floor_s)
    assert along.floor_s == 0.0


def test_a_kernel_of_another_kind_is_priced_by_its_registered_function(
    h200: HardwareProfile,
) -> None:
    class Convolution(NamedTuple):
        size: float

    with pytest.raises(UsageError, match="kind 'convolution', which no kernel model covers"):
        op_time(OpCost("x", Convolution(3.0)), h200)

    @roofline.prices(Convolution)
    def convolution(device: object, shape: Convolution, how: object) -> roofline.KernelTime:
        return roofline.KernelTime(shape.size, 0.0, 0.0, shape.size, "latency")

    try:
        assert op_time(OpCost("x", Convolution(3.0)), h200).seconds == 3.0
    finally:
        del kernels.KERNELS[Convolution]


def test_unknown_fidelities_are_refused(h200: HardwareProfile) -> None:
    with pytest.raises(UsageError, match="'exact' is not known; use one of calibrated, datasheet"):
        op_time(OPS[0], h200, "exact")


def test_an_incomplete_table_is_named(h200: HardwareProfile) -> None:
    poor = KernelTable("gemm.bf16", MappingProxyType({"floor_s": 1e-6}), "by hand")
    device = replace(h200, kernels={"gemm.bf16": poor})
    with pytest.raises(ProfileError, match=r"op 'qkv' of kind 'gemm' finds no '\w+' in the device"):
        op_time(OPS[0], device)


def test_public_names() -> None:
    assert len(set(roofline.__all__)) == len(roofline.__all__)
    for name in roofline.__all__:
        assert hasattr(roofline, name)

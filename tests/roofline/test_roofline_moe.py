"""Routed experts: how many are read, what they cost."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thinned import examples

from roofline_calls import moe
from specsim.errors import UsageError
from specsim.hardware.profile import HardwareProfile
from specsim.hardware.store import load_profile
from specsim.ops.shapes import Experts
from specsim.roofline.device import Pricing
from specsim.roofline.kernels import KERNELS
from specsim.roofline.moe import busiest_rank, distinct_experts

tokens = st.integers(1, 4096)
shapes = st.sampled_from([(2048, 512, 8, 256), (4096, 14336, 2, 8), (7168, 2048, 8, 384)])


def test_distinct_experts_of_uniform_routing() -> None:
    # Two tokens, two of four experts each: 4 (1 - (1/2)^2) = 3 on average. By enumeration: given
    # the first pair, the second shares two, one or no experts with weights 1, 4 and 1 of 6.
    assert distinct_experts(2, 2, 4) == pytest.approx(3.0)
    enumerated = (1 * 2 + 4 * 3 + 1 * 4) / 6
    assert enumerated == pytest.approx(3.0)
    # Qwen3-30B-A3B at 8 tokens: 128 (1 - (15/16)^8) = 51.62.
    assert distinct_experts(8, 8, 128) == pytest.approx(51.62, abs=0.01)


def test_distinct_experts_round_robin() -> None:
    assert distinct_experts(4, 8, 256, "balanced") == 32
    assert distinct_experts(100, 8, 256, "balanced") == 256


@given(st.integers(1, 5000), st.sampled_from([(8, 256), (2, 8), (1, 16), (22, 512)]))
def test_unequal_popularity_wakes_fewer_and_tends_to_uniform(
    t: int, routing: tuple[int, int]
) -> None:
    k, experts = routing
    skewed = distinct_experts(t, k, experts, "power_law", 1.3)
    uniform = distinct_experts(t, k, experts)
    assert k <= skewed <= uniform * (1 + 1e-12) <= experts * (1 + 1e-12)
    assert distinct_experts(t, k, experts, "power_law", 1e7) == pytest.approx(uniform, rel=1e-3)
    assert distinct_experts(t + 1, k, experts, "power_law", 1.3) >= skewed


def test_every_token_may_choose_all_experts() -> None:
    assert distinct_experts(3, 8, 8, "power_law") == 8


def test_an_unknown_distribution_names_the_known_ones() -> None:
    with pytest.raises(UsageError, match="'zipf' is not known; use one of power_law, uniform"):
        distinct_experts(3, 2, 8, "zipf")


def test_the_busiest_rank() -> None:
    assert busiest_rank(256, 64, 4) == 64  # all used: every rank full
    assert 8 < busiest_rank(32, 64, 4) < 24  # the mean is 8
    assert busiest_rank(1, 64, 4) <= 1  # one expert sits on one rank


def test_bytes_by_hand(h200: HardwareProfile) -> None:
    # Round robin, 4 tokens of 8: 32 experts of 3 * 2048 * 512 bf16 weights.
    time = moe(h200, 4, 2048, 512, 8, 256, distribution="balanced", fidelity="datasheet")
    weights = 32 * 3 * 2048 * 512 * 2
    act = 32 * 2 * (3 * 2048 + 4 * 512)
    assert time.mem_s == pytest.approx((weights + act) / 4.8e12)
    assert time.compute_s == pytest.approx(2 * 32 * 3 * 2048 * 512 / 989e12)


def test_two_matrices_instead_of_three(h200: HardwareProfile) -> None:
    gated = moe(h200, 512, 1024, 2688, 22, 512)
    plain = moe(h200, 512, 1024, 2688, 22, 512, gated=False)
    assert plain.seconds == pytest.approx(gated.seconds * 2 / 3, rel=0.1)


@settings(max_examples=examples(150), deadline=None)
@given(tokens, shapes, st.sampled_from(["bf16", "fp8", "fp8_block", "int4", "mxfp4", "nvfp4"]),
       st.sampled_from([1, 2, 8]))
def test_bounds_and_growth(
    h200: HardwareProfile, t: int, shape: tuple[int, int, int, int], fmt: str, ranks: int
) -> None:
    local = shape[3] / ranks
    time = moe(h200, t, *shape, fmt=fmt, local_experts=local).seconds
    sheet = moe(h200, t, *shape, fmt=fmt, local_experts=local, fidelity="datasheet").seconds
    assert time >= sheet
    assert moe(h200, t + 7, *shape, fmt=fmt, local_experts=local).seconds >= time * (1 - 1e-9)
    fast = replace(h200, mem_bytes_per_s=2 * h200.mem_bytes_per_s)
    assert moe(fast, t, *shape, fmt=fmt, local_experts=local).seconds <= time


def test_verify_is_dearest_for_few_sequences(h200: HardwareProfile) -> None:
    # Measured on the 35B-A3B shape, 4 tokens against 1: 2.31 at one sequence (whose few experts
    # stay in the L2 cache of the benchmark), 1.20 at 64 and 1.41 at 256, where arithmetic begins.
    def penalty(batch: int) -> float:
        four, one = (
            moe(h200, batch * q, 2048, 512, 8, 256, rotated_copies=1).seconds for q in (4, 1)
        )
        return four / one

    assert penalty(1) == pytest.approx(2.31, abs=0.35)
    assert penalty(64) == pytest.approx(1.20, abs=0.15)
    assert penalty(256) == pytest.approx(1.41, abs=0.15)


def test_fewer_distinct_experts_cost_less(h200: HardwareProfile) -> None:
    free = moe(h200, 8, 2048, 512, 8, 256).seconds
    half = moe(h200, 8, 2048, 512, 8, 256, distinct=30.0).seconds
    same = moe(h200, 8, 2048, 512, 8, 256, distinct=8.0)
    assert same.seconds < half < free
    one = moe(h200, 1, 2048, 512, 8, 256)
    assert same.mem_s == pytest.approx(one.mem_s, rel=0.05)  # the same experts, more activations


def test_expert_parallel_ranks_share_the_weights(h200: HardwareProfile) -> None:
    whole = moe(h200, 256, 7168, 2048, 8, 256, fmt="fp8_block").seconds
    eighth = moe(h200, 256, 7168, 2048, 8, 256, fmt="fp8_block", local_experts=32).seconds
    assert whole / 8 < eighth < whole / 4


def test_experts_of_the_benchmark_unless_the_call_says(h200: HardwareProfile) -> None:
    skewed = distinct_experts(64, 8, 256, "power_law", h200.kernels["moe.bf16"]["routing_shape"])
    silent, said = (
        moe(h200, 64, 2048, 512, 8, 256, distinct=found).seconds for found in (0.0, skewed)
    )
    assert silent == said
    assert silent < moe(h200, 64, 2048, 512, 8, 256, distribution="uniform").seconds


def test_a_cpu_multiplies_no_idle_rows_of_experts() -> None:
    cpu = load_profile("cpu-generic")
    one = moe(cpu, 1, 2048, 1408, 4, 60, fmt="int4")
    flops_s = 2 * 4 * 3 * 2048 * 1408 / cpu.flops["bf16"]
    assert flops_s < one.compute_s < 4 * flops_s  # not 16 rows for each


def test_tensorrt_llm_moves_the_rows_of_local_experts_alone(h200: HardwareProfile) -> None:
    """DeepSeek-V3's experts, 16,384 tokens: on eight GPUs each split eight ways 9.7 ms, each whole
    on one of them 2.5 ms, in TensorRT-LLM (moe_trtllm_1.3.0rc20.csv.gz); vLLM's pass over every
    assignment on every GPU."""
    def ms(engine: str, inter: int, local: int, tokens: int = 16384) -> float:
        shape = Experts(
            tokens, 7168, inter, 8, 256, "fp8_block", local_experts=local, distribution="balanced"
        )
        return 1e3 * KERNELS[Experts](h200, shape, Pricing(engine=engine)).seconds

    assert ms("trtllm", 2048, 32) == pytest.approx(2.5, rel=0.15)
    assert ms("trtllm", 256, 256) == pytest.approx(9.7, rel=0.15)
    assert ms("vllm", 2048, 32) > 1.3 * ms("trtllm", 2048, 32)
    # One token: preparing 256 local experts takes longer than reading eight of them (115 us, 40).
    assert ms("trtllm", 256, 256, 1) > 1.6 * ms("trtllm", 2048, 32, 1)


def test_mxfp4_experts_of_tensorrt_llm_on_hopper_are_slower_than_tritons(
    h200: HardwareProfile,
) -> None:
    """gpt-oss-120b, 8,192 tokens: 4.3 ms in TensorRT-LLM 1.3, 3.0 in vLLM 0.24."""
    shape = Experts(8192, 2880, 2880, 4, 128, "mxfp4", distribution="balanced")
    own, other = (
        1e3 * KERNELS[Experts](h200, shape, Pricing(engine=engine)).seconds
        for engine in ("trtllm", "vllm")
    )
    assert own == pytest.approx(4.3, rel=0.1)
    assert other < 0.85 * own

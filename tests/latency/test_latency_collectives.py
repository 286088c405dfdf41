"""Which kernel sums over GPUs by an engine's rules, what a fused one saves, and how long the last
GPU is awaited."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim.hardware.store import load_profile
from specsim.latency.collectives import Collectives, wait_share, waits
from specsim.latency.engine import find_engine, list_engines
from specsim.latency.engine_profile import EngineProfile
from specsim.latency.instance import Instance
from specsim.latency.overheads import Overheads
from specsim.latency.shape import decode_shape
from specsim.latency.step import LatencyModel
from specsim.model.catalogue import find_model
from specsim.ops.op import OpCost
from specsim.ops.shapes import AllReduce, AllToAll, Elementwise, ExpertExchange, Experts
from specsim.ops.work import Parallel
from specsim.roofline.comm import nccl

H200, PRO_6000, GB300 = (load_profile(n) for n in ("h200-sxm", "rtx-pro-6000", "gb300"))
LLAMA, DEEPSEEK = find_model("llama-3.1-70b"), find_model("deepseek-v3")
MIB = 2**20
RULES = (
    ("hopper nvlink moe", "fused", ((2, 4), (8, 0.5))),
    ("nvlink", "custom", ((8, 8),)),
    ("pcie", "custom", ((2, 8),)),
    ("", "nccl", ()),
)


def on(profile=H200, spec=DEEPSEEK, rules=RULES) -> Collectives:  # type: ignore[no-untyped-def]
    return Collectives.of(rules, profile, spec)


@pytest.mark.parametrize(("gpus", "mib", "path"), [
    (2, 1, "fused"), (2, 4, "fused"), (2, 5, "custom"), (3, 0.5, "fused"), (4, 1, "custom"),
    (8, 8, "custom"), (8, 9, "nccl"), (16, 0.1, "nccl"),
])
def test_the_first_rule_that_holds_is_taken(gpus: int, mib: float, path: str) -> None:
    assert on().path(mib * MIB, gpus) == path


def test_words_of_a_rule_must_all_hold() -> None:
    assert on(spec=LLAMA).path(1e3, 8) == "custom"  # not routed
    assert on(GB300).path(1e3, 8) == "custom"  # not Hopper
    assert on(PRO_6000).path(1e3, 2) == "custom"
    assert on(PRO_6000).path(1e3, 4) == "nccl"  # no direct links between more than two
    assert on(rules=()).path(1e12, 8) == "custom"


@pytest.mark.parametrize("engine", list_engines(), ids=lambda e: f"{e.name}-{e.version}")
def test_shipped_engines_take_the_library_where_no_kernel_of_theirs_runs(
    engine: EngineProfile,
) -> None:
    if engine.name != "specsim":  # whose decoder runs on one device
        for profile in (H200, PRO_6000, GB300):
            own = Collectives.of(engine.all_reduce, profile, LLAMA)
            assert own.path(1e9, 8) == "nccl"
        assert Collectives.of(engine.all_reduce, PRO_6000, LLAMA).path(1e4, 4) == "nccl"


def test_a_fused_sum_leaves_no_norm() -> None:
    norm = OpCost("norm", Elementwise(1e4, AllReduce(1e4, 8)), count=61.0)
    assert on().as_run(norm).count == 0
    assert on(spec=LLAMA).as_run(norm) == norm
    large = replace(norm, shape=Elementwise(1e6, AllReduce(MIB, 8)))
    assert on().as_run(large) == large
    assert on().as_run(replace(norm, shape=Elementwise(1e4))).count == 61
    across = replace(norm, shape=Elementwise(1e4, AllReduce(1e4, 16)))
    assert on(rules=(("", "fused", ()),)).as_run(across) == across  # two nodes


def test_rows_go_to_their_own_experts_alone_between_nodes_and_among_many() -> None:
    op = OpCost("exchange", ExpertExchange(4e6, 1e6, 16), count=58.0)
    there = on().as_run(op)
    assert there.shape == AllToAll(0.5e6, 16, 2)
    # Of 8 experts in 4 nodes 3.6 are in different ones: a prompt's rows cross so many times.
    prompts = replace(op, shape=ExpertExchange(4e6, 1e6, 32, 8, prompts=True))
    crossed = on().as_run(prompts).shape
    assert isinstance(crossed, AllToAll) and crossed[:3] == (0.5e6, 32, 4)
    assert crossed.crossing == pytest.approx(3.6 / 8, abs=0.001)
    many = crossed._replace(buffer_bytes=1e9)
    assert nccl(H200, many).seconds < 0.55 * nccl(H200, many._replace(crossing=1.0)).seconds
    assert there.count == 2 * 58
    assert on(GB300).as_run(op).shape == AllToAll(0.5e6, 16, 1)  # one domain of 72
    few = replace(op, shape=ExpertExchange(4e6, 1e6, 8))
    assert on(GB300).as_run(few).shape == AllReduce(4e6, 8, "custom", 1)
    far = Experts(4096, 7168, 2048, 8, 256, local_experts=16, sent=True)  # on 16 GPUs
    near = far._replace(local_experts=32)
    assert on().as_run(OpCost("experts", far)).shape == far
    assert on(GB300).as_run(OpCost("experts", near)).shape == near._replace(sent=False)
    whole = far._replace(sent=False)  # one attention group, all of whose GPUs have all rows
    assert on().as_run(OpCost("experts", whole)).shape == whole


def model(engine: EngineProfile, profile=H200, spec=DEEPSEEK, tp=8) -> LatencyModel:  # type: ignore[no-untyped-def]
    return LatencyModel(Instance(spec, profile, engine, Parallel(tp)))


def launches(model: LatencyModel) -> float:
    return sum(row.op.count for row in model.step(decode_shape(4, 1000)).ops)


def test_what_fusing_saves_in_a_step() -> None:
    plain = replace(find_engine("vllm"), overheads=Overheads(), all_reduce=())
    fused = replace(plain, all_reduce=(("", "fused", ()),))
    assert launches(model(plain)) - launches(model(fused)) == 2 * 61
    saved = (
        model(plain).seconds(decode_shape(4, 1000)) - model(fused).seconds(decode_shape(4, 1000))
    )
    assert 122 * 1.5e-6 < saved < 122 * 4e-6


def test_a_second_stream_hides_launches_of_shared_experts_and_no_bytes() -> None:
    one = replace(find_engine("vllm"), overheads=Overheads(), second_stream_tokens=0)
    two = replace(one, second_stream_tokens=8)
    few, many = decode_shape(8, 1000), decode_shape(9, 1000)
    saved = model(one).seconds(few) - model(two).seconds(few)
    assert 58 * 2e-6 < saved < 58 * 25e-6
    assert model(one).seconds(many) == model(two).seconds(many)
    assert model(one, spec=LLAMA).seconds(few) == model(two, spec=LLAMA).seconds(few)
    shared = [r for r in model(two).step(few).ops if ".shared." in r.op.name]
    assert all(r.op.weight_bytes / H200.mem_bytes_per_s <= r.time.seconds for r in shared)


@given(st.integers(1, 500))
def test_the_last_of_more_gpus_is_awaited_longer(gpus: int) -> None:
    assert wait_share(gpus) <= wait_share(gpus + 1)


def test_waits_by_hand() -> None:
    assert wait_share(1) == 0
    assert wait_share(8) == 1
    # Means of the largest of n normal numbers (tables of order statistics), within 3 %.
    for gpus, largest in ((2, 0.5642), (4, 1.0294), (16, 1.7660), (72, 2.4)):
        assert wait_share(gpus) == pytest.approx(largest / 1.4236, rel=0.045)
    assert waits(LLAMA.layers, Parallel(8)) == 160
    assert waits(DEEPSEEK.layers, Parallel(1, 8, 8)) == 61  # the feed-forward parts alone
    assert waits(LLAMA.layers, Parallel(1)) == 0


def test_waiting_costs_its_seconds_in_every_pass() -> None:
    free = replace(find_engine("vllm"), overheads=Overheads())
    slow = replace(free, overheads=Overheads(sync_s=1e-6))
    shape = decode_shape(1, 100)
    assert model(slow).seconds(shape) - model(free).seconds(shape) == pytest.approx(122e-6)

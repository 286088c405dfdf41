"""What the host adds to draft passes and verify steps, by how an engine runs them."""

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from specsim.hardware.store import load_profile
from specsim.latency.breakdown import StepLatency
from specsim.latency.engine import find_engine
from specsim.latency.engine_profile import TARGET_KINDS, EngineProfile
from specsim.latency.instance import Instance
from specsim.latency.overheads import Overheads
from specsim.latency.shape import decode_shape
from specsim.latency.step import LatencyModel
from specsim.methods.base import SpecSetup
from specsim.model.catalogue import find_drafter, find_model
from specsim.ops.work import Parallel

H200 = load_profile("h200-sxm")
PASSES = Path(__file__).parents[2] / "validation" / "data" / "verify_width" / "draft_passes.csv"
LLAMA = find_model("llama-3.1-8b")
QWEN = find_model("qwen3.6-27b")  # has recurrent layers
EAGLE3 = SpecSetup("eagle3", 3, find_drafter("EAGLE3-Llama-3.1-8B"))
TREE = replace(EAGLE3, tree_topk=4, tree_tokens=8)
BARE = replace(find_engine("vllm"), overheads=Overheads(), eager_drafters=(), piecewise_targets=())
LOCKSTEP = replace(BARE, scheduler=replace(BARE.scheduler, async_scheduling=False))


FREE = Overheads()


def step(
    engine: EngineProfile, over: Overheads = FREE, setup: SpecSetup = EAGLE3
) -> StepLatency:
    model = LatencyModel(
        Instance(LLAMA, H200, replace(engine, overheads=over), setup=setup)
    )
    return model.step(decode_shape(1, 1000, setup))


def launches(found: StepLatency) -> float:
    return sum(t.op.count for t in found.ops if t.phase == "draft")


@pytest.mark.parametrize("engine", [LOCKSTEP, BARE])
def test_passes_in_one_graph_need_no_host(engine: EngineProfile) -> None:
    assert step(engine, Overheads(host_pass_s=50e-3)).total_s == step(engine).total_s


def test_in_lockstep_the_device_waits_for_the_host_of_every_pass() -> None:
    pieces = replace(LOCKSTEP, piecewise_targets=("dense",))
    slow, fast = Overheads(host_pass_s=2e-3), Overheads(host_pass_s=1e-6)
    assert step(pieces, slow).draft_s == pytest.approx(3 * 2e-3)
    assert step(pieces, fast).total_s == step(LOCKSTEP).total_s  # kernels take longer
    eager = replace(LOCKSTEP, eager_drafters=("eagle3",))
    both = Overheads(host_pass_s=2e-3, eager_kernel_s=1e-3)
    found = step(eager, both)
    assert found.draft_s == pytest.approx(3 * 2e-3 + launches(found) * 1e-3)


def test_a_host_that_plans_ahead_launches_drafts_while_the_device_verifies() -> None:
    pieces = replace(BARE, piecewise_targets=("dense",))
    device_s = step(BARE).total_s
    hidden = Overheads(host_step_s=0.2 * device_s, host_pass_s=0.2 * device_s)
    assert step(pieces, hidden).total_s == pytest.approx(device_s)
    slow = Overheads(host_step_s=0.5 * device_s, host_pass_s=device_s)
    assert step(pieces, slow).total_s == pytest.approx(3.5 * device_s)


def test_only_the_kinds_of_target_that_are_named_run_in_pieces() -> None:
    newest, older = find_engine("vllm"), find_engine("vllm==0.14")
    mtp, block = SpecSetup("mtp", 3, QWEN.mtp), SpecSetup("dspark", 7)
    assert newest.draft_graphs(EAGLE3, LLAMA) == "whole"
    assert newest.draft_graphs(mtp, QWEN) == "pieces"
    assert newest.draft_graphs(block, QWEN) == "whole"  # runs on the newer runner
    assert newest.draft_graphs(EAGLE3, find_model("qwen3-30b-a3b")) == "pieces"
    assert older.draft_graphs(EAGLE3, LLAMA) == "pieces"
    assert find_engine("vllm==0.10.1").draft_graphs(EAGLE3, LLAMA) == "none"
    assert find_engine("vllm==0.9").draft_graphs(EAGLE3, LLAMA) == "none"
    assert find_engine("vllm==0.9").draft_graphs(replace(EAGLE3, method="eagle"), LLAMA) == "pieces"
    for name in ("sglang", "sglang==0.5.6", "trtllm"):
        assert {find_engine(name).draft_graphs(s, t) for s, t in ((EAGLE3, LLAMA), (mtp, QWEN))} \
            == {"whole"}
    assert set(older.piecewise_targets) == set(TARGET_KINDS)


def test_steps_that_are_not_planned_ahead_pay_for_their_planning() -> None:
    over = Overheads(lockstep_s=1e-3)
    for engine, setup, paid in (
        (BARE, EAGLE3, 0.0), (LOCKSTEP, EAGLE3, 1e-3), (LOCKSTEP, SpecSetup(), 1e-3),
        (find_engine("sglang==0.5.6"), EAGLE3, 1e-3), (find_engine("sglang"), EAGLE3, 0.0),
        (find_engine("sglang==0.5.6"), SpecSetup(), 0.0),
    ):
        extra = step(engine, over, setup).total_s - step(engine, FREE, setup).total_s
        assert extra == pytest.approx(paid)


@pytest.mark.parametrize(("model", "version", "gpus", "measured_ms"), [
    # SGLang's cookbook, B200, plain, one client: mean TPOT (CKBK-127, CKBK-115, CKBK-118)
    ("Qwen3-Next-80B-A3B", "0.5.6", 8, 6.19), ("Qwen3-Coder-Next", "0.5.8", 2, 6.19),
    ("Qwen3-Coder-Next", "0.5.8", 2, 6.24),
])
def test_recurrent_targets_wait_for_their_tokens_where_prefixes_had_no_buffers(
    model: str, version: str, gpus: int, measured_ms: float
) -> None:
    spec = find_model(model)
    old, new = find_engine(f"sglang=={version}"), find_engine("sglang==0.5.23")
    assert not old.plans_ahead("none", spec, "gpu") and new.plans_ahead("none", spec, "gpu")
    assert old.plans_ahead("none", LLAMA, "gpu")
    took = [
        LatencyModel(Instance(spec, load_profile("b200"), engine, Parallel(gpus))).seconds(
            decode_shape(1, 1000)
        )
        for engine in (old, replace(old, scheduler=replace(old.scheduler, sync_targets=())))
    ]
    assert took[0] - took[1] == pytest.approx(old.overheads.lockstep_s, abs=1e-5)
    assert took[0] == pytest.approx(measured_ms / 1e3, rel=0.12)  # 0.76 of it, planned ahead


def test_several_rows_of_a_sequence_and_trees_pay_per_layer() -> None:
    over = Overheads(wide_layer_s=1e-4, tree_layer_s=1e-3)
    for setup, layer_s in ((SpecSetup(), 0.0), (EAGLE3, 1e-4), (TREE, 1.1e-3)):
        extra = step(BARE, over, setup).total_s - step(BARE, Overheads(), setup).total_s
        assert extra == pytest.approx(LLAMA.n_layers * layer_s)
    idle = LatencyModel(Instance(LLAMA, H200, replace(BARE, overheads=over), setup=EAGLE3))
    bare = LatencyModel(Instance(LLAMA, H200, BARE, setup=EAGLE3))
    undrafted = decode_shape(1, 1000)  # a step without drafts under the same deployment
    assert idle.seconds(undrafted) == pytest.approx(bare.seconds(undrafted))


def published(source: str, what: str = "") -> dict[str, float]:
    """Measured milliseconds by draft length, or by `what` of a source."""
    rows = [r for r in csv.DictReader(PASSES.read_text().splitlines()) if source in r["source"]]
    return {r["what"] if not what else r["k"]: float(r["value_ms"]) for r in rows
            if not what or r["what"] == what}


def test_draft_passes_cost_what_was_published() -> None:
    measured = published("tech blog 2", "step")
    spec, b200, trt = find_model("deepseek-r1-nvfp4"), load_profile("b200"), find_engine("trtllm")
    steps = []
    for k in range(6):
        setup = SpecSetup("mtp", k, spec.mtp) if k else SpecSetup()
        model = LatencyModel(Instance(spec, b200, trt, Parallel(8, 8), setup=setup))
        steps.append(1e3 * model.seconds(decode_shape(1, 2000, setup)))
    assert (steps[5] - steps[1]) / 4 == pytest.approx((measured["5"] - measured["1"]) / 4, rel=0.25)
    first, each = steps[1] - steps[0], (steps[5] - steps[1]) / 4
    assert 0.5 * each < first < 2 * each  # nothing large is added once
    engine = find_engine("vllm==0.10.1")
    llama = LatencyModel(Instance(LLAMA, load_profile("h100-sxm"), engine, setup=EAGLE3))
    drafts_s = llama.step(decode_shape(1, 1000, EAGLE3)).draft_s
    assert drafts_s == pytest.approx(1e-3 * published("SpecDecode-Bench")["draft"], rel=0.3)


def test_the_second_sglang_worker_gains_what_was_published() -> None:
    gains = []
    for number in ("12128", "18906"):
        steps = published(f"SGLang pull request {number}")
        gains.append(1e-3 * (steps["step, first worker"] - steps["step, second worker"]))
    spec = find_model("deepseek-r1")
    setup = SpecSetup("mtp", 3, spec.mtp)
    first, second = (
        LatencyModel(Instance(spec, H200, find_engine(name), Parallel(8), setup=setup)).seconds(
            decode_shape(1, 1000, setup)
        )
        for name in ("sglang==0.5.6", "sglang==0.5.12")
    )
    # Both were measured over eight ranks, whose hosts wait for each other as well.
    assert 0.5 * min(gains) < first - second < max(gains)


def test_two_model_eagle_waits_for_the_host_in_every_pass() -> None:
    """TensorRT-LLM before 1.0; as one model the passes are part of the step's graph. The source
    names neither model (that of Llama-3.3-70B on 8 H200 has such a plain step) nor batch."""
    measured = published("TensorRT-LLM pull request 3035", "step")
    spec = find_model("llama-3.3-70b-instruct")
    eagle3 = SpecSetup("eagle3", 4, find_drafter("EAGLE3-Llama-3.3-70B"))

    def plain_and_added(version: str, seqs: int) -> tuple[float, float]:
        engine = find_engine("trtllm", version)
        plain, drafting = (
            1e3 * LatencyModel(Instance(spec, H200, engine, Parallel(8), setup=setup)).seconds(
                decode_shape(seqs, 1254, setup)
            )
            for setup in (SpecSetup(), eagle3)
        )
        return plain, drafting - plain

    one, eight = (plain_and_added("0.20", seqs) for seqs in (1, 8))
    assert one[0] == pytest.approx(measured["0"], rel=0.1)
    assert one[1] < measured["4"] - measured["0"] < eight[1]
    assert plain_and_added("1.0", 1) == (one[0], pytest.approx(0.4 * one[1], rel=0.3))

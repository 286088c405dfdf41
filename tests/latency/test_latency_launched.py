"""Steps without CUDA graphs, with them up to another batch, and planned ahead or not."""

from dataclasses import replace
from pathlib import Path

import pytest

from specsim.errors import UsageError
from specsim.hardware.store import load_profile
from specsim.latency.breakdown import StepLatency
from specsim.latency.engine import find_engine
from specsim.latency.engine_profile import EngineProfile
from specsim.latency.engine_text import write_engine
from specsim.latency.instance import Instance
from specsim.latency.shape import decode_shape
from specsim.latency.step import LatencyModel
from specsim.methods.base import SpecSetup
from specsim.model.catalogue import find_drafter, find_model

H200 = load_profile("h200-sxm")
LLAMA = find_model("llama-3.1-8b")
EAGLE3 = SpecSetup("eagle3", 3, find_drafter("EAGLE3-Llama-3.1-8B"))
PLAIN = SpecSetup("none", 0)
VLLM, SGLANG = find_engine("vllm"), find_engine("sglang")


def step(engine: EngineProfile, setup: SpecSetup = PLAIN, seqs: int = 1) -> StepLatency:
    return LatencyModel(Instance(LLAMA, H200, engine, setup=setup)).step(
        decode_shape(seqs, 1000, setup)
    )


@pytest.mark.parametrize("engine", [VLLM, SGLANG, find_engine("vllm==0.11")])
def test_without_graphs_a_step_takes_its_launches(engine: EngineProfile) -> None:
    eager = engine.launched(0, None)
    over = engine.overheads
    found = step(eager)
    assert not found.graphed
    per_op_s = max(over.prompt_op_s, over.eager_op_s)
    launches = sum(op.op.count for op in found.ops if op.phase == "target")
    assert found.target_s == pytest.approx(per_op_s * launches)
    assert found.total_s > 2.5 * step(engine).total_s  # 8B on an H200: the host is the slower one


def test_an_op_of_vllm_costs_no_more_than_one_of_transformers() -> None:
    """Which launches four times as many kernels for it. 291 ops of Llama-3.1-8B: 17.5 ms."""
    most_s = find_engine("transformers").overheads.eager_kernel_s
    for engine in (VLLM, find_engine("vllm==0.11")):
        assert engine.overheads.eager_op_s <= most_s
    assert step(VLLM.launched(0, None)).launch_s == pytest.approx(17.5e-3, rel=0.01)


def test_a_slow_device_hides_the_launches() -> None:
    eager = VLLM.launched(0, None)
    assert step(eager, seqs=4096).idle_s == 0.0


def test_drafts_are_launched_as_well() -> None:
    free = replace(VLLM.launched(0, None), overheads=replace(VLLM.overheads, eager_op_s=0.0))
    dear = VLLM.launched(0, None)
    longer_s = step(dear, EAGLE3).total_s - step(free, EAGLE3).total_s
    ops = [op for op in step(dear, EAGLE3).ops if op.phase != "sample"]
    launches = sum(op.op.count for op in ops)
    assert longer_s > 0.8 * VLLM.overheads.eager_op_s * (launches - 60)


def test_graphs_end_where_they_were_told_to() -> None:
    assert step(VLLM.launched(64, None), seqs=64).graphed
    assert not step(VLLM.launched(64, None), seqs=65).graphed
    assert step(VLLM, seqs=65).graphed
    # SGLang counts requests; what graphs do not hold costs a launch per kernel.
    beyond = step(SGLANG.launched(8, None), seqs=9)
    assert beyond.launch_s == pytest.approx(
        SGLANG.overheads.eager_kernel_s
        * sum(o.op.count for o in beyond.ops if o.phase == "target")
    )


def test_planned_ahead_or_not() -> None:
    over = VLLM.overheads
    waits = step(VLLM.launched(None, False))
    assert waits.total_s == pytest.approx(step(VLLM).total_s + over.lockstep_s)
    older = find_engine("vllm==0.11")
    assert step(older.launched(None, True)).total_s < step(older).total_s
    assert SGLANG.plans_ahead("ngram", LLAMA, "gpu") is False
    ahead = find_engine("sglang==0.5.5").launched(None, True)
    assert ahead.plans_ahead("eagle3", LLAMA, "gpu")
    assert not ahead.plans_ahead("ngram", LLAMA, "gpu")


@pytest.mark.parametrize("name", ["vllm", "vllm==0.11", "sglang"])
def test_a_file_keeps_how_steps_are_launched(name: str, tmp_path: Path) -> None:
    asked = find_engine(name).launched(64, False)
    write_engine(asked, tmp_path / "mine.toml")
    read = find_engine(str(tmp_path / "mine.toml"))
    assert read.launch_words == asked.launch_words
    assert read.graph_limit("blackwell") == read.graph_limit("hopper") == 64
    assert not read.scheduler.async_scheduling


def test_what_the_server_is_told() -> None:
    assert VLLM.launched(0, False).launch_words == ["--enforce-eager", "--no-async-scheduling"]
    assert SGLANG.launched(24, None).launch_words == ["--cuda-graph-max-bs", "24"]
    assert VLLM.launched(None, None) == VLLM
    again = VLLM.launched(64, False).launched(0, True)
    assert again.launch_words == ["--enforce-eager", "--async-scheduling"]
    assert again.described == f"{VLLM.title} with --enforce-eager --async-scheduling"
    assert again.launched(8, None).launch_words == [
        "--max-cudagraph-capture-size", "8", "--async-scheduling"
    ]
    with pytest.raises(UsageError, match="no flag for the batches of CUDA graphs"):
        find_engine("transformers").launched(0, None)

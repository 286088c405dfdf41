"""An engine that runs every prompt chunk as a pass of its own, and a narrow first draft pass."""

from dataclasses import replace

import pytest

from specsim.hardware.store import load_profile
from specsim.latency.engine import engine_from_dict, find_engine
from specsim.latency.instance import Instance
from specsim.latency.overheads import Overheads
from specsim.latency.shape import PrefillChunk, StepShape
from specsim.latency.step import LatencyModel
from specsim.methods.base import SpecSetup
from specsim.model.catalogue import find_model
from specsim.model.drafter_counts import drafter_from_spec

CPU = load_profile("cpu-generic")
SPEC = find_model("SmolLM2-135M")
APART = replace(find_engine("specsim"), overheads=Overheads(step_s=1e-3))
TOGETHER = replace(APART, separate_passes=False)
PLAIN = SpecSetup()
CHUNKS = (PrefillChunk(64), PrefillChunk(100, 32), PrefillChunk(7))


def model(engine, setup: SpecSetup = PLAIN) -> LatencyModel:  # type: ignore[no-untyped-def]
    return LatencyModel(Instance(SPEC, CPU, engine, setup=setup))


def test_a_mixed_step_is_the_sum_of_its_passes() -> None:
    apart = model(APART)
    decode = StepShape(4, 1, 4 * 200.0)
    whole = apart.step(replace(decode, prefill=CHUNKS))
    parts = [apart.step(decode), *(apart.step(StepShape(prefill=(c,))) for c in CHUNKS)]
    assert whole.target_s == pytest.approx(sum(p.target_s for p in parts))
    assert whole.sample_s == pytest.approx(sum(p.sample_s for p in parts))
    assert whole.host_s == pytest.approx(1e-3)  # one step of the host, not four
    assert whole.rows == pytest.approx(sum(p.rows for p in parts))
    assert sum(op.time.seconds * op.op.count for op in whole.ops) == pytest.approx(
        whole.target_s + whole.sample_s)


def test_passes_apart_read_the_weights_again() -> None:
    shape = StepShape(4, 1, 800.0, CHUNKS)
    assert model(APART).seconds(shape) > model(TOGETHER).seconds(shape) * 1.3
    one = StepShape(prefill=(CHUNKS[0],))
    assert model(APART).seconds(one) == pytest.approx(model(TOGETHER).seconds(one))
    plain = StepShape(4, 1, 800.0)
    assert model(APART).seconds(plain) == model(TOGETHER).seconds(plain)


def test_a_datasheet_step_has_no_engine() -> None:
    shape = StepShape(4, 1, 800.0, CHUNKS)
    apart = LatencyModel(Instance(SPEC, CPU, APART), fidelity="datasheet")
    together = LatencyModel(Instance(SPEC, CPU, TOGETHER), fidelity="datasheet")
    assert apart.seconds(shape) == together.seconds(shape)


def test_the_first_pass_of_a_draft_model_is_as_wide_as_the_engine_makes_it() -> None:
    setup = SpecSetup("draft-model", 5, drafter_from_spec(SPEC))
    shape = StepShape(32, 6, 32 * 100.0, (), 5)
    narrow = model(APART, setup).step(shape).draft_s
    wide = model(replace(APART, draft_model_first_rows=0), setup).step(shape).draft_s
    assert narrow < wide  # 2 rows per sequence against 7
    seven = model(replace(APART, draft_model_first_rows=7), setup).step(shape).draft_s
    assert seven == pytest.approx(wide)


def test_both_are_read_from_a_file() -> None:
    raw = {"engine": {"name": "mine", "version": "1", "separate_passes": True,
                      "draft_model_first_rows": 2}}
    engine = engine_from_dict(raw, "mine.toml")
    assert engine.separate_passes and engine.draft_model_first_rows == 2
    assert not find_engine("vllm").separate_passes

"""What each method runs besides the verify pass: passes, rows, heads, caches, prompts."""

from dataclasses import replace

import pytest

from specsim.hardware.store import load_profile
from specsim.latency.breakdown import StepLatency
from specsim.latency.engine import find_engine
from specsim.latency.engine_profile import EngineProfile
from specsim.latency.instance import Instance
from specsim.latency.shape import PrefillChunk, StepShape, decode_shape
from specsim.latency.step import LatencyModel
from specsim.methods.base import METHODS, SpecSetup
from specsim.model.catalogue import find_drafter, find_model
from specsim.model.drafter_counts import drafter_from_spec
from specsim.model.spec import Drafter, ModelSpec
from specsim.ops.work import Parallel

H200 = load_profile("h200-sxm")
ENGINE = replace(find_engine("vllm"), eager_drafters=())
QWEN = find_model("qwen3.6-27b")
LLAMA = find_model("llama-3.1-8b")
EAGLE3 = find_drafter("EAGLE3-Llama-3.1-8B")
GEMMA = find_model("gemma-4-31b")
ASSISTANT = find_drafter("Gemma-4-31B-it-assistant")


def model(
    spec: ModelSpec, setup: SpecSetup, fidelity: str = "datasheet", engine: EngineProfile = ENGINE
) -> LatencyModel:
    return LatencyModel(Instance(spec, H200, engine, setup=setup), fidelity=fidelity)


def drafts(step: StepLatency, name: str) -> list[tuple[float, float]]:
    """(rows, calls) of the draft ops called `name`."""
    return [
        (t.op.shape.m, t.op.count)
        for t in step.ops
        if t.phase == "draft" and t.op.name == f"draft.{name}"
    ]


def mtp(k: int = 3) -> SpecSetup:
    return SpecSetup("mtp", k, QWEN.mtp)


def test_mtp_runs_one_wide_pass_and_k_minus_one_narrow_ones() -> None:
    step = model(QWEN, mtp()).step(decode_shape(8, 1000, mtp()))
    # The wide pass covers all B (k + 1) verified rows; its head only the B rows that propose.
    assert drafts(step, "attn.qkv") == [(32, 1), (8, 2)]
    assert drafts(step, "lm_head") == [(8, 1), (8, 2)]
    assert drafts(step, "fc") == [(32, 1), (8, 2)]
    (target,) = [t for t in step.ops if t.op.name == "lm_head"]
    assert target.op.shape.m == 32


def test_every_pass_reads_the_whole_head() -> None:
    step = model(QWEN, mtp()).step(decode_shape(1, 1000, mtp()))
    head = 248_320 * 5120 * 2
    read = sum(t.op.weight_bytes * t.op.count for t in step.ops if t.phase == "draft")
    assert read > 3 * head
    assert 3 * head / read == pytest.approx(0.75, abs=0.006)  # three quarters of a 27B pass


def test_prompts_pass_through_a_drafter_that_keeps_a_cache() -> None:
    mixed = StepShape(8, 4, 8000.0, (PrefillChunk(512), PrefillChunk(64, 512, last=False)), 3)
    step = model(QWEN, mtp()).step(mixed)
    assert drafts(step, "attn.qkv") == [(32 + 576, 1), (9, 2)]  # one prompt ends and proposes
    assert drafts(step, "lm_head") == [(9, 1), (9, 2)]
    (target,) = [t for t in step.ops if t.op.name == "lm_head"]
    assert target.op.shape.m == 33


def test_a_step_without_drafts_still_fills_the_drafters_cache() -> None:
    idle = model(QWEN, mtp()).step(StepShape(8, 1, 8000.0, num_drafts=0))
    assert drafts(idle, "attn.qkv") == [(8, 1)]
    assert drafts(idle, "lm_head") == []
    assert idle.draft_s > 0


@pytest.mark.parametrize("method", ["ngram", "suffix", "none"])
def test_lookups_run_no_network(method: str) -> None:
    setup = SpecSetup(method, 0 if method == "none" else 3)
    step = model(QWEN, setup).step(decode_shape(8, 1000, setup))
    assert step.draft_s == 0
    assert not [t for t in step.ops if t.phase == "draft"]


def test_a_standalone_draft_sees_the_bonus_token_late() -> None:
    small = drafter_from_spec(find_model("qwen3-0.6b"))
    setup = SpecSetup("draft-model", 3, small)
    step = model(find_model("qwen3-8b"), setup).step(decode_shape(4, 1000, setup))
    # k + 1 verified rows and one more slot per sequence, then k - 1 passes of one row
    assert drafts(step, "attn.qkv") == [(20, 28), (4, 2 * 28)]
    layers = [t.op.count for t in step.ops if t.op.name == "draft.attn.decode"]
    assert layers == [28, 28 * 2]


def test_an_assistant_that_borrows_the_cache_fills_none() -> None:
    for method in ("draft-model", "mtp"):
        setup = SpecSetup(method, 4, ASSISTANT)
        assert not setup.fills_cache
        mixed = StepShape(2, 5, 2000.0, (PrefillChunk(512),), 4)
        step = model(GEMMA, setup).step(mixed)
        assert sum(rows * calls for rows, calls in drafts(step, "lm_head")) == 4 * 3
        assert {rows for rows, _ in drafts(step, "lm_head")} == {3}
        idle = model(GEMMA, setup).step(StepShape(2, 1, 2000.0))
        assert idle.draft_s == 0


def test_eagle3_as_mtp_with_its_own_head() -> None:
    setup = SpecSetup("eagle3", 5, EAGLE3)
    step = model(LLAMA, setup).step(decode_shape(1, 1000, setup))
    assert drafts(step, "lm_head") == [(1, 1), (1, 4)]
    # The target's three hidden states are joined once; later passes go on from the drafter's own.
    assert drafts(step, "fc") == [(6, 1)]
    head = next(t for t in step.ops if t.op.name == "draft.lm_head")
    assert head.op.weight_bytes == 32_000 * 4096 * 2


def test_a_tree_drafts_branches_and_verifies_its_tokens() -> None:
    chain = SpecSetup("eagle3", 3, EAGLE3)
    tree = replace(chain, tree_topk=4, tree_tokens=8)
    assert (chain.verify_tokens, tree.verify_tokens) == (4, 8)
    step = model(LLAMA, tree).step(decode_shape(2, 1000, tree))
    # The accepted path, padded to k + 1 rows, then four branches per sequence
    assert drafts(step, "attn.qkv") == [(8, 1), (8, 2)]
    assert drafts(step, "lm_head") == [(2, 1), (8, 2)]
    (target,) = [t for t in step.ops if t.op.name == "lm_head"]
    assert target.op.shape.m == 16


def test_parallel_drafting_is_one_pass() -> None:
    p_eagle = find_drafter("P-EAGLE-Qwen3-8B")
    setup = SpecSetup("eagle3", 4, p_eagle, parallel_drafting=True)
    spec = find_model("qwen3-8b")
    step = model(spec, setup).step(decode_shape(2, 1000, setup))
    ((rows, calls), *_) = drafts(step, "attn.qkv")
    assert (rows, calls) == (2 * (5 + 3), 1)
    assert drafts(step, "lm_head") == [(8, 1)]
    with_prompt = model(spec, setup).step(StepShape(2, 5, 2000.0, (PrefillChunk(100),), 4))
    ((rows, _), *_) = drafts(with_prompt, "attn.qkv")
    assert rows == 2 * 8 + 100 + 7
    assert drafts(with_prompt, "lm_head") == [(12, 1)]


@pytest.mark.parametrize(
    ("method", "name", "layers"),
    [
        # k + 1 rows per sequence through one full layer and four with a window
        ("dflash", "DFlash-Qwen3.6-27B", {"attn.qkv": [(16, 1)], "swa.qkv": [(16, 4)]}),
        # k rows: the anchor is the last verified token
        ("dspark", "DSpark-Qwen3.6-27B", {"attn.qkv": [(14, 5)], "swa.qkv": []}),
    ],
)
def test_block_drafters_run_once(
    method: str, name: str, layers: dict[str, list[tuple[float, float]]]
) -> None:
    setup = SpecSetup(method, 7, find_drafter(name))
    step = model(QWEN, setup).step(decode_shape(2, 1000, setup))
    assert {kind: drafts(step, kind) for kind in layers} == layers
    assert drafts(step, "lm_head") == [(14, 1)]
    assert drafts(step, "fc") == [(16, 1)]  # the verified rows, as context
    walks = drafts(step, "markov")
    assert walks == ([(2, 7)] if method == "dspark" else [])
    idle = model(QWEN, setup).step(StepShape(2, 1, 2000.0))
    assert drafts(idle, "fc") == [(2, 1)]
    assert drafts(idle, "lm_head") == []


def test_medusa_heads_run_once_on_the_rows_that_propose() -> None:
    medusa = find_drafter("Medusa-Vicuna-7B-v1.3")
    setup = SpecSetup("medusa", 4, medusa)
    step = model(find_model("vicuna-7b-v1.3"), setup).step(
        StepShape(3, 5, 3000.0, (PrefillChunk(100),), 4)
    )
    assert drafts(step, "lm_head") == [(4, 5)]
    assert drafts(step, "block") == [(4, 5)]


def test_early_exit_runs_the_first_layers_and_the_targets_head() -> None:
    setup = SpecSetup("early-exit", 3, exit_layers=8)
    step = model(LLAMA, setup).step(decode_shape(2, 1000, setup))
    assert drafts(step, "attn.qkv") == [(2, 8), (2, 16)]  # 8 of 32 layers, three times
    assert drafts(step, "lm_head") == [(2, 1), (2, 2)]
    half = replace(setup, exit_layers=16)
    twice = model(LLAMA, half).step(decode_shape(2, 1000, half))
    layers = [
        sum(t.seconds for t in s.ops if t.phase == "draft" and t.op.name != "draft.lm_head")
        for s in (step, twice)
    ]
    assert layers[1] == pytest.approx(2 * layers[0])
    assert model(LLAMA, setup).step(StepShape(2, 1, 2000.0)).draft_s == 0


def test_a_finished_prompt_is_drafted_for_even_when_nothing_decodes() -> None:
    for method, drafter, spec in (
        ("mtp", QWEN.mtp, QWEN), ("eagle3", EAGLE3, LLAMA), ("early-exit", None, LLAMA),
    ):
        setup = SpecSetup(method, 3, drafter, exit_layers=8)
        step = model(spec, setup).step(StepShape(prefill=(PrefillChunk(100),), num_drafts=3))
        assert {rows for rows, _ in drafts(step, "lm_head")} == {1}
        # The first drafts attend to the prompt just read.
        narrow = [t.op.shape.ctx for t in step.ops if t.op.name == "draft.attn.decode"]
        assert narrow[-1] == 100 + 3 / 2


def test_a_drafter_on_one_gpu_is_not_split() -> None:
    wide = SpecSetup("eagle3", 3, EAGLE3)
    alone = replace(wide, draft_tp=1)
    steps = [
        LatencyModel(
            Instance(LLAMA, H200, ENGINE, setup=setup, parallel=Parallel(4)), fidelity="datasheet"
        )
        .step(decode_shape(1, 1000, setup))
        for setup in (wide, alone)
    ]
    read = [
        sum(t.op.weight_bytes * t.op.count for t in s.ops if t.phase == "draft") for s in steps
    ]
    # All but the join projection, which every GPU of a split drafter holds whole
    join = 3 * 4096 * 4096 * 2
    assert read[1] - join == pytest.approx(4 * (read[0] - join), rel=1e-3)
    assert not [t for t in steps[1].ops if t.phase == "draft" and t.op.kind == "all_reduce"]


def test_draft_rows_are_padded_into_graphs_and_not_on_the_datasheet() -> None:
    setup = SpecSetup("eagle3", 3, EAGLE3)
    shape = decode_shape(33, 1000, setup)
    plain = model(LLAMA, setup).step(shape)
    padded = model(LLAMA, setup, "calibrated").step(shape)
    assert drafts(plain, "lm_head")[1][0] == 33
    assert drafts(plain, "attn.out") == [(132, 1), (33, 2)]
    assert drafts(padded, "attn.out") == [(136, 1), (40, 2)]


@pytest.mark.parametrize("method", METHODS)
def test_passes_and_lookahead_of_every_method(method: str) -> None:
    drafter: Drafter | None = QWEN.mtp if method not in ("none", "ngram", "suffix") else None
    setup = SpecSetup(method, 0 if method == "none" else 4, drafter)
    first, further = setup.passes()
    expected = {
        "none": (0, 0), "ngram": (0, 0), "suffix": (0, 0), "medusa": (1, 0), "dflash": (1, 0),
        "dspark": (1, 0),
    }.get(method, (1, 3))
    assert (first, further) == expected
    # vLLM: k slots ahead, k + 1 for DFlash, none for lookups
    ahead = {"none": 0, "ngram": 0, "suffix": 0, "medusa": 0, "dflash": 5}.get(method, 4)
    assert setup.lookahead_tokens == ahead
    assert setup.verify_tokens == (1 if method == "none" else 5)

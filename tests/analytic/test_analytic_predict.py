"""Predictions: what they compare, break-even, best k, intervals, and the cluster's table."""

import json
import math
from dataclasses import fields, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thinned import examples

from specsim.analytic import intervals
from specsim.analytic.closed import closed_loop
from specsim.analytic.compare import compared
from specsim.analytic.intervals import interval_for, prediction_class
from specsim.analytic.predict import (
    LoadPoint,
    best_k_at,
    break_even,
    candidate_k,
    predict,
)
from specsim.analytic.system import System
from specsim.analytic.workload import Workload
from specsim.data import data_table
from specsim.hardware.store import load_profile
from specsim.latency.engine import find_engine
from specsim.latency.overheads import Overheads
from specsim.methods.base import SpecSetup
from specsim.model.catalogue import find_drafter, find_model
from specsim.ops.work import Parallel
from specsim.planning.tune_choices import draft_lengths
from specsim.speculation.acceptance import Acceptance

H200 = load_profile("h200-sxm")
VLLM = find_engine("vllm")
QWEN = find_model("qwen3.6-27b")
LLAMA = find_model("llama-3.1-8b")
CHAT = Workload(1000, 201)


def drafted(k: int = 3, alpha: float = 0.8, **more: object) -> System:
    return System(
        QWEN, H200, VLLM, setup=SpecSetup("mtp", k, QWEN.mtp),
        acceptance=Acceptance.from_rate(alpha, k), **more,  # type: ignore[arg-type]
    )


def lookup(k: int, alpha: float, engine: object = VLLM, fidelity: str = "datasheet") -> System:
    return System(
        LLAMA, H200, engine, setup=SpecSetup("ngram", k),  # type: ignore[arg-type]
        acceptance=Acceptance.from_rate(alpha, k), fidelity=fidelity,
    )


def test_a_point_compares_with_plain_decoding_at_the_same_load() -> None:
    system = drafted()
    (point,) = predict(system, CHAT, [8], search_k=False).points
    with_it, without = closed_loop(system, CHAT, 8), closed_loop(system.plain(), CHAT, 8)
    assert point.speedup == with_it.output_tok_s / without.output_tok_s
    assert point.speedup == compared(system, CHAT, 8).speedup
    assert point.step_cost_ratio == with_it.step_s / without.step_s
    assert (point.tpot_s, point.baseline_tpot_s) == (with_it.tpot_s, without.tpot_s)
    assert (point.ttft_s, point.baseline_ttft_s) == (with_it.ttft_s, without.ttft_s)
    assert point.best_k is None


def test_plain_decoding_has_no_speedup_to_speak_of() -> None:
    result = predict(System(LLAMA, H200, VLLM), CHAT, [1, 4])
    assert [p.speedup for p in result.points] == [1.0, 1.0]
    assert [p.step_cost_ratio for p in result.points] == [1.0, 1.0]
    assert result.acceptance_length is None
    assert result.break_even_concurrency is None and result.best_k is None
    assert result.points[0].interval_90["speedup"] is None


@given(st.integers(1, 8), st.integers(1, 64))
@settings(max_examples=examples(30), deadline=None)
def test_a_free_drafter_that_is_always_right(k: int, clients: int) -> None:
    # One memory-bound step yields k + 1 tokens: decoding alone is nearly k + 1 times as fast.
    system = lookup(k, 1.0)
    with_it, without = closed_loop(system, CHAT, 1), closed_loop(system.plain(), CHAT, 1)
    surplus = (k / (2 * (k + 1))) * (k + 1) / 200  # half a step is overshot at the end
    expected = (k + 1) / (1 + surplus)
    assert without.tpot_s / with_it.tpot_s == pytest.approx(expected, rel=0.01)
    loaded = compared(system, CHAT, clients).speedup
    assert 1.0 < loaded <= k + 1


@given(st.integers(1, 8), st.floats(0.0, 1.0), st.integers(1, 64))
@settings(max_examples=examples(30), deadline=None)
def test_more_acceptance_never_hurts(k: int, alpha: float, clients: int) -> None:
    better = alpha + (1 - alpha) / 2
    assert compared(lookup(k, better), CHAT, clients).speedup >= (
        compared(lookup(k, alpha), CHAT, clients).speedup * (1 - 1e-9)
    )


def test_a_drafter_that_is_never_right_only_costs() -> None:
    for clients in (1, 16, 64):
        assert compared(drafted(3, 0.0), CHAT, clients).speedup < 1
    result = predict(drafted(3, 0.0), CHAT, [1])
    assert result.break_even_concurrency == 1
    assert result.best_k == 0


@pytest.mark.parametrize("alpha", [0.25, 0.35, 0.4, 0.45, 0.5])
def test_break_even_is_the_first_batch_that_does_not_pay(alpha: float) -> None:
    # A dense model on a free engine: every further row costs arithmetic, sooner or later too much
    engine = replace(VLLM, overheads=Overheads())
    system = replace(lookup(3, alpha, engine, "calibrated"), max_num_seqs=500)
    workload = Workload(100, 101)
    first = break_even(system, workload, 500)
    assert first is not None and first > 1
    assert compared(system, workload, first).speedup < 1
    assert compared(system, workload, first - 1).speedup >= 1
    assert break_even(system, workload, first - 1) is None


def test_best_k_wins_over_its_neighbours() -> None:
    system = drafted(3, 0.8)
    lengths = candidate_k(system)
    assert lengths == [1, 2, 3, 4, 5, 6, 7, 8]
    for clients in (1, 32):
        best = best_k_at(system, CHAT, clients, lengths)
        rates = {k: closed_loop(system.with_(k=k), CHAT, clients).output_tok_s for k in lengths}
        assert rates[best] == max(rates.values())
    result = predict(system, CHAT, [1, 32])
    assert [p.best_k for p in result.points] == [
        best_k_at(system, CHAT, c, lengths) for c in (1, 32)
    ]
    assert result.best_k == result.points[0].best_k
    assert result.points[0].best_k >= result.points[1].best_k  # type: ignore[operator]


def test_candidates_keep_the_rules_of_method_and_engine() -> None:
    assert candidate_k(System(LLAMA, H200, VLLM)) == []
    medusa = find_drafter("Medusa-Vicuna-7B-v1.3")
    fixed = replace(
        drafted(), spec=find_model("vicuna-7b-v1.3"), setup=SpecSetup("medusa", 5, medusa)
    )
    assert candidate_k(fixed) == []
    capped = replace(drafted(), engine=replace(VLLM, max_k=4))
    assert candidate_k(capped) == [1, 2, 3, 4]
    three = replace(QWEN.mtp, n_predict=3)  # type: ignore[type-var]
    stepped = replace(drafted(), setup=SpecSetup("mtp", 3, three))
    # vLLM takes fewer than there are MTP layers, and beyond them whole multiples (see
    # test_commands_request); `specsim tune` looks at the same.
    assert candidate_k(stepped) == [1, 2, 3, 6] == draft_lengths(stepped)
    anyhow = replace(stepped, engine=replace(VLLM, k_multiple_of_n_predict=False))
    assert candidate_k(anyhow) == [1, 2, 3, 4, 5, 6, 7, 8]


def test_an_unstable_rate_is_null_in_json_and_said_in_words() -> None:
    result = predict(drafted(), CHAT, rates=[0.1, 1e6])
    low, high = result.points
    assert low.stable and not high.stable
    # Both serve what arrives: the gain is in the time per token. Beyond it: in what is served.
    assert low.output_tok_s == low.baseline_output_tok_s
    assert low.speedup == low.baseline_tpot_s / low.tpot_s
    assert high.speedup == high.output_tok_s / high.baseline_output_tok_s
    assert math.isinf(high.ttft_s)
    shown = result.to_dict()["points"][1]
    assert shown["ttft_s"] is None and shown["queue_s"] is None
    assert any("beyond the capacity" in text for text in result.warnings)
    assert low.utilisation is not None and 0 < low.utilisation < 1
    json.dumps(result.to_dict(), allow_nan=False)


def test_one_token_has_no_tpot_to_compare() -> None:
    result = predict(drafted(), Workload(1000, 1), rates=[0.1])
    assert result.points[0].speedup == 1.0
    closed = predict(drafted(), Workload(1000, 1), [1, 64])
    assert all(0.5 < p.speedup <= 1.01 for p in closed.points)
    assert all(p.tpot_s == 0 and p.stream_tok_s == 0 for p in closed.points)


# The keys that the issue and docs/json.md promise
TOP = {"model", "gpu", "tp", "engine", "method", "k", "acceptance_length", "fidelity", "points",
       "break_even_concurrency", "best_k", "max_concurrency", "warnings"}
POINT = {"concurrency", "ttft_s", "tpot_s", "step_s", "output_tok_s", "stream_tok_s",
         "baseline_tpot_s", "baseline_step_s", "baseline_output_tok_s", "speedup",
         "step_cost_ratio", "bound", "interval_90"}


def test_every_promised_key_is_there() -> None:
    shown = predict(drafted(), CHAT, [1]).to_dict()
    assert set(shown) >= TOP
    point = shown["points"][0]
    assert set(point) >= POINT
    assert {f.name for f in fields(LoadPoint)} == set(point)
    assert point["bound"] in ("memory", "compute", "latency")
    assert set(point["interval_90"]) == {
        "tpot_s", "ttft_s", "baseline_tpot_s", "baseline_ttft_s", "speedup", "step_cost_ratio",
        "joules_per_output_token", "baseline_joules_per_output_token", "joules_ratio",
    }


# --- intervals ----------------------------------------------------------------------------------


@pytest.fixture
def residuals(monkeypatch: pytest.MonkeyPatch) -> None:
    def known(low: float, high: float, sources: int) -> dict[str, float]:
        return {"low": math.log(low), "high": math.log(high), "sources": sources, "n": 9}

    parts = [f"{side}|dense|{engine}|measured|one" for side in ("plain", "speculative")
             for engine in ("vllm", "other")]
    table = {"quantities": {
        quantity: {name: known(0.5, 3, 0) if "other" in name else known(0.8, 1.25, 4)
                   for name in parts}
        for quantity in ("speedup", "step_cost_ratio", "tpot", "ttft")
    }}
    monkeypatch.setattr(intervals, "data_table", lambda *_: table)


@pytest.mark.usefixtures("residuals")
def test_an_interval_is_that_of_the_class_or_of_engines_nobody_measured() -> None:
    low, high = interval_for("speedup", "speculative|dense|vllm|measured|one", 2.0)
    assert (low, high) == (pytest.approx(1.6), pytest.approx(2.5))
    low, high = interval_for("speedup", "speculative|dense|new-engine|measured|one", 2.0)
    assert (low, high) == (pytest.approx(1.0), pytest.approx(6.0))
    result = predict(drafted(), CHAT, [1])
    (point,) = result.points
    for name, value in (("speedup", point.speedup), ("tpot_s", point.tpot_s),
                        ("baseline_tpot_s", point.baseline_tpot_s), ("ttft_s", point.ttft_s),
                        ("baseline_ttft_s", point.baseline_ttft_s)):
        assert point.interval_90[name] == [pytest.approx(0.8 * value), pytest.approx(1.25 * value)]
    assert not any("interval" in text for text in result.warnings)
    other = replace(drafted(), engine=replace(VLLM, name="new-engine"))
    note, = (t for t in predict(other, CHAT, [1]).warnings if "interval" in t)
    assert "no public source has measured" in note and "new-engine" in note


def test_every_shipped_interval_holds_its_prediction() -> None:
    for quantity, table in data_table("catalog", "residuals.json")["quantities"].items():
        sides = {klass.split("|")[0] for klass in table}
        assert sides == ({"plain", "speculative"} if quantity in ("tpot", "ttft")
                         else {"speculative"})
        assert all(entry["low"] < 0 < entry["high"] or entry["low"] * entry["high"] == 0
                   for entry in table.values())
        for klass in list(table):  # whatever the class, there is an answer
            low, high = interval_for(quantity, klass.replace("vllm", "never-seen"), 1.0)
            assert low <= 1 <= high and low < high


def test_classes_of_predictions() -> None:
    assert prediction_class(drafted()) == "speculative|dense|vllm|measured|one"
    assert prediction_class(drafted().plain()) == "plain|dense|vllm|measured|one"
    moe = replace(drafted(), spec=find_model("qwen3.6-35b-a3b"))
    assert prediction_class(moe) == "speculative|moe|vllm|measured|one"
    other = replace(drafted(), profile=load_profile("b200"))
    assert prediction_class(other) == "speculative|dense|vllm|assumed|one"
    assert prediction_class(drafted().with_(parallel=Parallel(2))).endswith("|several")


def test_a_datasheet_bound_has_no_interval_and_says_why() -> None:
    result = predict(drafted(fidelity="datasheet"), CHAT, [1])
    assert set(result.points[0].interval_90.values()) == {None}
    assert any("calibrated predictions only" in text for text in result.warnings)


def test_r_compares_steps_of_the_same_sequences() -> None:
    # SGLang runs 48 sequences under speculation and far more without: its verify step of 48 is
    # shorter than a plain step of 480, but not cheaper than a plain step of 48.
    system = lookup(7, 0.9, find_engine("sglang"))
    (at_limit, beyond) = predict(system, Workload(16, 128), [48, 480], search_k=False).points
    assert beyond.running == 48
    assert beyond.step_cost_ratio == at_limit.step_cost_ratio > 1
    assert beyond.step_s / beyond.baseline_step_s < beyond.step_cost_ratio


def test_break_even_goes_on_where_plain_decoding_admits_more() -> None:
    # Four state slots per sequence let 112 run; 229 clients are served faster without drafts.
    system = drafted(3, 0.8)
    result = predict(system, Workload(1024, 460), [1], search_k=False)
    even = result.break_even_concurrency
    assert even is not None and even > result.max_concurrency
    assert compared(system, Workload(1024, 460), even).speedup < 1
    assert compared(system, Workload(1024, 460), even - 1).speedup >= 1


def test_a_prediction_of_a_run_says_so() -> None:
    plain = predict(drafted(), CHAT, [8], search_k=False)
    run = predict(drafted(), replace(CHAT, requests_per_client=2), [8], search_k=False)
    assert run.points[0].ttft_s > plain.points[0].ttft_s
    note = "TTFT: mean of a run of 2 requests per client"
    assert any(text.startswith(note) for text in run.warnings)
    assert not any(text.startswith("TTFT") for text in plain.warnings)

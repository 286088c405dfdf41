"""One acceptance everywhere: every format and copy of a model, every drafter that is known."""

import json
from pathlib import Path

import pytest

import specsim
from specsim.analytic.system import System
from specsim.api.acceptance import KNOWN, catalogued, rows_of
from specsim.api.deployment import build_request
from specsim.api.models import drafters_of
from specsim.api.tune_setup import build_offer
from specsim.errors import CapacityError, ModelConfigError, SpecSimError, UsageError
from specsim.latency.engine import find_engine
from specsim.methods.base import METHODS, find_method
from specsim.methods.resolve import resolve_setup
from specsim.model.catalogue import catalogue_root, find_model, list_drafters, list_models, variant
from specsim.model.spec import ModelSpec
from specsim.ops.work import split_fault
from specsim.options.groups import DeploymentOptions
from specsim.options.prediction import PredictOptions
from specsim.options.tuning import TuneOptions

ENGINES = ("vllm", "sglang", "trtllm")


def built(**options: object) -> System:
    return build_request(DeploymentOptions.of_values(options)).system


def level_of(spec: ModelSpec, engine: str, method: str) -> str | None:
    """How near the acceptance of a method is that the engine can run; None where it cannot."""
    try:
        setup = resolve_setup(spec, find_engine(engine), method)
    except (UsageError, ModelConfigError):
        return None
    return catalogued(DeploymentOptions(), spec, setup, None).level


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
def test_no_format_of_any_model_loses_a_drafter_or_its_acceptance(engine: str) -> None:
    profile, checked = find_engine(engine), 0
    for entry in list_models():
        spec = find_model(entry.name)
        forms = [spec, variant(spec, "fp8"), variant(spec, "int4")]
        for method in profile.methods:
            if not find_method(method).servable:
                continue
            levels = {level_of(form, engine, method) for form in forms}
            assert len(levels) == 1, (entry.name, method, levels)
            (level,) = levels
            if level is not None and rows_of(spec, method):
                assert level in KNOWN, (entry.name, method, level)
                checked += 1
    assert checked > 40


@pytest.mark.slow
def test_every_drafter_of_the_catalogue_drafts_for_its_targets() -> None:
    for entry in list_drafters():
        method = next(m.name for m in METHODS.values() if entry.kind in m.drafter_kinds)
        for target in entry.targets:
            layers = find_model(target).layers
            tp = next(gpus for gpus in (8, 4, 2, 1) if not split_fault(layers, gpus))
            try:
                system = built(model=target, method=method, draft=entry.name, tp=tp)
            except CapacityError:
                continue
            assert system.speculative and system.acceptance is not None
            assert system.acceptance.grounds is not None
            assert system.acceptance.grounds.level != "unknown", (target, entry.name)
            assert method in {line["method"] for line in drafters_of(find_model(target))}


@pytest.mark.slow
def test_plain_is_never_chosen_for_want_of_an_acceptance() -> None:
    for entry in list_models()[::4]:
        try:
            offer = build_offer(TuneOptions.of_values({"model": entry.name, "tp": 8}))
        except specsim.SpecSimError:
            continue  # does not fit, or cannot be split over 8 GPUs
        assert offer.systems or offer.unknown is not None, entry.name
        if entry.has_mtp or entry.drafters:
            assert offer.systems, entry.name


def test_a_local_copy_has_the_acceptance_of_its_model(tmp_path: Path) -> None:
    for name in ("Qwen3-32B", "gpt-oss-20b"):
        config = json.loads((catalogue_root() / "models" / f"{name}.json").read_text())["config"]
        folder = tmp_path / f"snapshot-{name[-3:]}"
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(config))
        copy, known = (built(model=model, method="eagle3") for model in (str(folder), name))
        assert copy.setup == known.setup and copy.acceptance == known.acceptance


def test_a_measured_draft_length_is_answered_with_the_measurement() -> None:
    found = specsim.predict("deepseek-v3", tp=8, method="mtp", k=3)
    assert found.system.acceptance is not None and found.system.acceptance.grounds is not None
    assert found.system.acceptance.grounds.level == "measured"
    assert found.acceptance_length == pytest.approx(2.18, abs=0.005)
    four = specsim.predict("deepseek-v3", tp=8, method="mtp", k=4)
    assert four.acceptance_length == pytest.approx(2.44, abs=0.005)


def test_kind_of_work_temperature_and_language_are_asked_for() -> None:
    def tokens(model: str, method: str, **options: object) -> float:
        return built(model=model, method=method, **options).tokens_per_step

    chat = tokens("llama-3.1-8b", "eagle3", workload="chat")
    code = tokens("llama-3.1-8b", "eagle3", workload="code")
    assert code > chat * 1.03  # HumanEval's rows against MT-Bench's
    assert tokens("llama-3.1-8b", "eagle3", work="code") == code
    greedy, hot = (
        tokens("qwen3.6-27b", "mtp", temperature=value, work="code", k=5) for value in (0.0, 1.0)
    )
    assert greedy > hot
    with pytest.raises(UsageError, match="--language"):
        built(model="qwen3-8b", language="fr")


def test_an_interval_of_acceptance_widens_that_of_the_speedup() -> None:
    known = specsim.predict("qwen3-32b", method="eagle3").points[0]
    given = specsim.predict(
        "qwen3-32b", method="eagle3", acceptance_length=built(
            model="qwen3-32b", method="eagle3").tokens_per_step,
    ).points[0]
    # The same mean; what the last step gives beyond the end depends on the scatter, a little.
    assert known.speedup == pytest.approx(given.speedup, rel=1e-4)
    for quantity in ("speedup", "tpot_s"):
        (low, high), (tight_low, tight_high) = (
            p.interval_90[quantity] or [0.0, 0.0] for p in (known, given)
        )
        assert low < tight_low < tight_high < high
    assert known.interval_90["step_cost_ratio"] == given.interval_90["step_cost_ratio"]


def test_unknown_says_from_how_many_tokens_it_pays() -> None:
    found = specsim.tune("mistral-7b-v0.3", concurrency="1,64")
    assert found.answers[0].best is None and found.answers[0].flags is None
    verdict = found.verdict
    assert verdict is not None and verdict.decision == "unknown"
    low, high = verdict.comparable_90 or (0.0, 0.0)
    assert 1 < low < high < verdict.k + 1
    one, many = (load.needed_tokens_per_step for load in verdict.loads)
    assert one is not None and many is not None and min(one, many) > 1
    assert f"{one:.2f} tokens at 1 client" in " ".join(found.to_text().split())


def test_the_default_is_the_best_of_the_known() -> None:
    chosen = specsim.predict("qwen3-8b", concurrency=1)
    for name in ("eagle3", "dflash", "ngram"):
        other = specsim.predict("qwen3-8b", method=name, concurrency=1)
        assert chosen.points[0].speedup >= other.points[0].speedup
    coder = specsim.tune("qwen3-coder-30b-a3b-instruct", concurrency=1).answers[0]
    assert coder.best is not None and coder.best.method == "eagle3" and coder.best.speedup > 1.5
    assert coder.flags is not None and "lmsys/SGLang-EAGLE3" in coder.flags.command
    assert PredictOptions(model="qwen3-8b").method is None


@pytest.mark.slow
def test_sglangs_trees_compete_and_gain_tokens() -> None:
    found = specsim.tune("llama-3.1-8b", engine="sglang", methods="eagle3", concurrency=1)
    chains = {c.k: c.tokens_per_step for c in found.answers[0].candidates if c.tree is None}
    trees = [c for c in found.answers[0].candidates if c.tree is not None]
    assert {(c.k, c.tree) for c in trees} >= {(5, (4, 8)), (4, (4, 16))}
    wide = next(c for c in trees if c.tree == (4, 16))
    assert wide.tokens_per_step > chains[wide.k]
    assert not any(c.tree for c in specsim.tune("llama-3.1-8b").answers[0].candidates)


def test_recorded_acceptance_is_replayed(tmp_path: Path) -> None:
    trace = tmp_path / "accepted.jsonl"
    trace.write_text("[2]\n[2, 2]\n")
    told = specsim.simulate(
        model="qwen3.6-27b", weights="fp8", k=3, concurrency=2, duration=30.0,
        acceptance_trace=str(trace), output_len=90,
    )
    figures = told.comparison.main.figures
    assert figures["acceptance_length"] == pytest.approx(3.0, abs=0.05)  # with the bonus token
    for text in ("[4]", "{}", "[]", "nonsense", "[true]", ""):
        trace.write_text(text)
        with pytest.raises(SpecSimError):
            specsim.simulate(
                model="qwen3.6-27b", weights="fp8", k=3, concurrency=2, duration=30.0,
                acceptance_trace=str(trace),
            )
    with pytest.raises(UsageError, match="--acceptance-trace"):
        specsim.simulate(
            model="qwen3.6-27b", method="none", concurrency=2, acceptance_trace=str(trace)
        )

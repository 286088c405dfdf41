"""What every drafting method promises, and how one is added."""

from collections.abc import Iterator

import pytest

from specsim.errors import UsageError
from specsim.latency.engine import find_engine, list_engines
from specsim.methods.base import MAX_K, METHODS, DraftMethod, SpecSetup, k_fault, method_of
from specsim.methods.registry import (
    method_name,
    method_of_checkpoint,
    register,
    server_method,
    server_methods,
)
from specsim.methods.resolve import default_drafter, resolve_setup
from specsim.model.catalogue import find_drafter, find_model

VLLM = find_engine("vllm")


@pytest.mark.parametrize("name", METHODS)
def test_names_and_spellings_lead_to_one_method(name: str) -> None:
    method = METHODS[name]
    assert method.name == name
    for word in (name, *method.spellings):
        assert method_name(f" {word.upper()} ") == name
        assert [m.name for m in METHODS.values() if m.spelt(word)] == [name]


@pytest.mark.parametrize("name", METHODS)
def test_what_a_server_calls_it_is_read_back(name: str) -> None:
    for engine, words in METHODS[name].server_names.items():
        for word in words:
            assert server_method(engine, word) == name
            assert word in server_methods(engine)


@pytest.mark.parametrize("name", METHODS)
def test_engines_that_list_a_method_can_say_it(name: str) -> None:
    """Engines whose command lines are written know a word for each method that they list."""
    for engine in list_engines():
        if engine.name in ("vllm", "sglang") and name in engine.methods and name != "none":
            assert METHODS[name].server_names[engine.name]


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("k", [1, 4, 8])
def test_steps_are_whole(name: str, k: int) -> None:
    method = METHODS[name]
    setup = SpecSetup(name, k)
    first, further = setup.passes()
    assert (first + further > 0) == method.runs_passes
    assert first <= 1 and first + further <= k
    assert setup.first_rows(VLLM) >= 1
    assert setup.lookahead_tokens in (0, k, k + 1)
    assert setup.verify_tokens == (k + 1 if method.speculates else 1)


@pytest.mark.parametrize(
    ("name", "method"),
    [("yuhuili/EAGLE3-LLaMA3.1-8B", "eagle3"), ("x/eagle-3-y", "eagle3"),
     ("yuhuili/EAGLE-llama2", "eagle"), ("z-lab/Qwen3-DFlash", "dflash"), ("a/dspark-b", "dspark"),
     ("FasterDecoding/medusa-vicuna", "medusa"), ("q/MTP-head", "mtp"), ("[ngram]", "ngram"),
     ("Qwen/Qwen3-0.6B", None)],
)
def test_vllm_infers_the_method_from_a_checkpoint(name: str, method: str | None) -> None:
    assert method_of_checkpoint(name) == method


def test_draft_lengths_are_those_that_may_be_asked_for() -> None:
    """One rule: what `draft_lengths` offers is what `resolve_setup` takes."""
    for model, method, drafter in (
        ("qwen3.6-27b", "mtp", None), ("qwen3.6-27b", "dflash", "DFlash-Qwen3.6-27B"),
        ("vicuna-7b-v1.3", "medusa", "Medusa-Vicuna-7B-v1.3"), ("llama-3.1-8b", "ngram", None),
    ):
        spec = find_model(model)
        setup = resolve_setup(spec, VLLM, method, draft=drafter)
        offered = setup.draft_lengths(VLLM, MAX_K)
        assert setup.k in offered
        for k in range(1, MAX_K + 1):
            taken = not k_fault(VLLM, setup.drafting, k, setup.drafter)
            assert taken == (k in offered)
            if taken:
                assert resolve_setup(spec, VLLM, method, k, draft=drafter).k == k
            else:
                with pytest.raises(UsageError, match="use"):
                    resolve_setup(spec, VLLM, method, k, draft=drafter)


def test_drafters_find_their_method() -> None:
    assert method_of(find_drafter("P-EAGLE-Qwen3-8B")).name == "eagle3"
    for method in METHODS.values():
        assert set(method.catalogue_kinds) <= set(method.drafter_kinds)
    for name in ("eagle", "eagle3", "medusa"):
        drafter = default_drafter(find_model("qwen3-1.7b"), name)
        assert drafter is not None and method_of(drafter).name == name


class Copy(DraftMethod):
    """Drafts that are copied from what the user just edited."""

    name = "copy"
    spellings = ("copy-paste",)
    lookup = True


@pytest.fixture
def added() -> Iterator[type[DraftMethod]]:
    yield register(Copy)
    del METHODS["copy"]


def test_a_method_can_be_added_once(added: type[DraftMethod]) -> None:
    assert method_name("Copy_Paste") == "copy"
    assert list(METHODS)[-1] == "copy"
    with pytest.raises(UsageError, match="'copy' exists already"):
        register(added)
    assert list(METHODS)[:3] == ["none", "mtp", "draft-model"]

"""vLLM's --speculative-config: what is read, what is inferred, and what is refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim.errors import FormatError, SpecSimError, UsageError
from specsim.formats.speculative_config import (
    SpeculativeConfig,
    detect_method,
    parse_speculative_config,
)


def parse(**fields: object) -> SpeculativeConfig:
    return parse_speculative_config(json.dumps(fields))


def test_the_usual_forms() -> None:
    assert parse(method="mtp", num_speculative_tokens=3) == SpeculativeConfig("mtp", 3)
    eagle = parse(
        method="eagle3", model="x/EAGLE3-y", num_speculative_tokens=5,
        draft_tensor_parallel_size=1,
    )
    assert (eagle.method, eagle.model, eagle.k, eagle.draft_tp) == ("eagle3", "x/EAGLE3-y", 5, 1)
    assert parse(method="ngram", num_speculative_tokens=4, prompt_lookup_max=5).k == 4
    assert parse(method="mtp").k is None


def test_synthetic_acceptance() -> None:
    rates = parse(method="mtp", rejection_sample_method="synthetic",
                  synthetic_acceptance_rates=[0.9, 0.7, 1])
    assert rates.acceptance == (0.9, 0.7, 1.0)
    length = parse(method="mtp", rejection_sample_method="synthetic",
                   synthetic_acceptance_length=2)
    assert length.acceptance_length == 2.0


@pytest.mark.parametrize(
    ("model", "method"),
    [("yuhuili/EAGLE3-LLaMA3.1", "eagle3"), ("a/eagle-3-x", "eagle3"), ("a/EAGLE-llama2", "eagle"),
     ("z/Qwen3-DFlash", "dflash"), ("z/dspark-head", "dspark"), ("a/medusa-7b", "medusa"),
     ("zai/GLM-4.5-MTP", "mtp"), ("Qwen/Qwen3-0.6B", "draft-model"), ("[ngram]", "ngram"),
     ("ngram", "ngram"), ("NGRAM", "ngram"), ("suffix", "suffix"), ("x/my-ngram-lm", "draft-model"),
     ("/models/DeepSeek-V3-NextN", "mtp"), ("lmsys/DeepSeek-R1-nextn/", "mtp")],
)
def test_the_method_that_vllm_infers_from_a_name(model: str, method: str) -> None:
    assert detect_method(model) == method
    assert parse(model=model).method == method


def test_dynamic_lengths_by_batch() -> None:
    table = [[1, 8, 5], [9, 32, 3], [33, 128, 0]]
    found = parse(method="mtp", num_speculative_tokens_per_batch_size=table)
    assert found.batch_table == ((1, 8, 5), (9, 32, 3), (33, 128, 0))
    assert "num_speculative_tokens_per_batch_size" in found.not_modelled


def test_fields_that_change_the_cost_and_are_not_modelled_are_named() -> None:
    quiet = parse(method="mtp", quantization=None, enforce_eager=False)
    assert quiet.not_modelled == ()
    loud = parse(method="mtp", draft_lm_head_quantization="fp8", enforce_eager=True)
    assert loud.not_modelled == ("enforce_eager", "draft_lm_head_quantization")
    assert parse(method="eagle3", model="x", parallel_drafting=True).parallel_drafting


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "neither a method nor a model"),
        ({"metod": "mtp"}, "did you mean 'method'"),
        ({"method": "mtp", "num_speculative_token": 3}, "did you mean 'num_speculative_tokens'"),
        ({"method": "mtp", "zzz": 3}, "unknown field 'zzz'"),
        ({"method": "mtp", "num_speculative_tokens": 0}, "is 0; it must be a whole number"),
        ({"method": "mtp", "num_speculative_tokens": -1}, "is -1"),
        ({"method": "mtp", "num_speculative_tokens": 2.5}, "is 2.5"),
        ({"method": "mtp", "num_speculative_tokens": "3"}, "is '3'"),
        ({"method": "mtp", "num_speculative_tokens": True}, "is True"),
        ({"method": 5}, "method is 5; it must be text"),
        ({"method": " "}, "must be text"),
        ({"method": "mtp", "model": ["x"]}, "model is"),
        ({"method": "mtp", "draft_tensor_parallel_size": 0}, "draft_tensor_parallel_size is 0"),
        ({"method": "mtp", "synthetic_acceptance_rates": []}, "list of numbers"),
        ({"method": "mtp", "synthetic_acceptance_rates": "0.9"}, "list of numbers"),
        ({"method": "mtp", "synthetic_acceptance_rates": [0.9, None]}, "list of numbers"),
        ({"method": "mtp", "synthetic_acceptance_rates": 0.9}, "list of numbers"),
        ({"method": "mtp", "synthetic_acceptance_length": "3"}, "must be a number"),
        ({"method": "mtp", "synthetic_acceptance_length": True}, "must be a number"),
        ({"method": "mtp", "synthetic_acceptance_rates": [0.5],
          "synthetic_acceptance_length": 2}, "exactly one"),
        ({"method": "mtp", "rejection_sample_method": "synthetic"}, "needs synthetic"),
        ({"method": "mtp", "rejection_sample_method": "lucky"}, "must be one of standard"),
        ({"method": "mtp", "parallel_drafting": "yes"}, "must be true or false"),
        ({"method": "mtp", "num_speculative_tokens_per_batch_size": []}, "must be"),
        ({"method": "mtp", "num_speculative_tokens_per_batch_size": [[1, 2]]}, "whole numbers"),
        ({"method": "mtp", "num_speculative_tokens_per_batch_size": [[2, 4, 1]]}, "start at batch"),
        ({"method": "mtp", "num_speculative_tokens_per_batch_size": [[1, 4, 1], [3, 5, 0]]},
         "rising"),
        ({"method": "mtp", "num_speculative_tokens_per_batch_size": [[1, 4, -1]]}, "k >= 0"),
    ],
)
def test_what_is_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        parse(**fields)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    ["", "{", "null", "[]", '"mtp"', "3", "{'method': 'mtp'}", "[" * 100_000, "x" * 200_000,
     '{"method": "mtp", "num_speculative_tokens": ' + "9" * 5000 + "}"],
)
def test_what_is_not_the_json_of_an_object(text: str) -> None:
    with pytest.raises(FormatError) as caught:
        parse_speculative_config(text)
    assert "--speculative-config" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_numbers_beyond_a_float_are_infinite_and_refused_later() -> None:
    huge = parse_speculative_config(
        '{"method": "mtp", "synthetic_acceptance_length": ' + "9" * 400 + "}"
    )
    assert huge.acceptance_length == float("inf")


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner,
                                                               max_size=2),
    max_leaves=5,
)
keys = st.sampled_from(
    ["method", "model", "num_speculative_tokens", "synthetic_acceptance_rates",
     "synthetic_acceptance_length", "num_speculative_tokens_per_batch_size",
     "parallel_drafting", "rejection_sample_method", "draft_tensor_parallel_size",
     "enforce_eager", "quantization"]
)


@given(st.dictionaries(keys, values, max_size=5))
def test_any_values_give_a_config_or_one_line(fields: dict[str, object]) -> None:
    try:
        found = parse_speculative_config(json.dumps(fields))
    except SpecSimError as error:
        assert "\n" not in str(error) and len(str(error)) < 500
    else:
        assert found.method


@pytest.mark.parametrize("word", ["ngram", "[ngram]"])
def test_a_lookup_is_no_draft_model(word: str) -> None:
    """vLLM up to 0.8 had its name in the place of a model, and takes it as a method too."""
    assert parse(model=word, num_speculative_tokens=3) == SpeculativeConfig("ngram", 3)
    found = parse(method=word, model=word, num_speculative_tokens=3)
    assert (found.method.strip("[]"), found.model) == ("ngram", None)


def test_fields_up_to_vllm_0_9() -> None:
    found = parse(model="x/y", num_speculative_tokens=3, disable_mqa_scorer=True,
                  disable_by_batch_size=8, acceptance_method="rejection_sampler")
    assert found.not_modelled == ("disable_by_batch_size",)
    with pytest.raises(UsageError, match="num_spec_tokens"):
        parse(model="x/y", num_spec_tokens=3)

"""Weight formats, the quantised variant by the usual rules, and the catalogue's own format."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thinned import examples

from specsim.errors import ModelConfigError, UsageError
from specsim.model.catalogue import find_drafter, find_model, list_drafters, list_models
from specsim.model.counts import active_weight_bytes, head_bytes, parameters, weight_bytes
from specsim.model.feedforward import DenseMLP, MoE
from specsim.model.part import BF16
from specsim.model.serial import drafter_from_dict, spec_from_dict, to_dict
from specsim.model.weights import FORMATS, FP8, INT4, MXFP4, NVFP4, quantized, weight_format


def test_bytes_of_the_formats() -> None:
    assert NVFP4.bytes_per_weight == 0.5 + 1 / 16
    assert MXFP4.bytes_per_weight == 4.25 / 8
    assert FORMATS["fp8_block"].bytes_per_weight == 1 + 4 / 128**2
    assert INT4.bytes_per_weight == (4 + 16 / 128 + 4 / 128) / 8
    assert weight_format(" AWQ ") == INT4
    assert weight_format("bfloat16") == BF16


def test_unknown_format_names_the_known() -> None:
    with pytest.raises(UsageError, match="'fp8x' is not known; did you mean 'fp8"):
        weight_format("fp8x")


def test_fp8_of_a_dense_model_by_hand() -> None:
    base, fp8 = find_model("Llama-3.1-8B"), quantized(find_model("Llama-3.1-8B"), "fp8")
    table = 128_256 * 4096
    linears = 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336)
    norms = 65 * 4096
    assert weight_bytes(base).total == 2 * (2 * table + linears + norms)
    assert weight_bytes(fp8).total == 2 * (2 * table + norms) + linears
    assert head_bytes(fp8) == 2 * table
    assert fp8.weights == "fp8"


def test_what_stays_in_16_bits() -> None:
    for name in ("Qwen3.6-35B-A3B", "DeepSeek-V3.2", "Nemotron-3-Super-120B-A12B", "gpt-oss-20b"):
        spec = quantized(find_model(name), "fp8")
        assert spec.head_weight == BF16
        assert spec.embed_weight == BF16
        for group in spec.layers:
            assert group.mixer is None or group.mixer.weight == FP8
            branch = group.ffn
            if isinstance(branch, MoE):
                assert (branch.weight, branch.shared_weight) == (FP8, FP8)
            elif isinstance(branch, DenseMLP):
                assert branch.weight == FP8
        if spec.mtp is not None:
            assert spec.mtp.fc_weight == BF16
    nvfp4 = quantized(find_model("Qwen3.6-27B"), "nvfp4")
    assert nvfp4.mtp == find_model("Qwen3.6-27B").mtp


def test_back_to_16_bits() -> None:
    for name in ("Qwen3.6-27B-NVFP4", "DeepSeek-V3.2-NVFP4", "gpt-oss-120b", "Kimi-K2.5"):
        spec = quantized(find_model(name), "bf16")
        assert weight_bytes(spec).total == 2 * parameters(spec).total
        assert active_weight_bytes(spec) > active_weight_bytes(find_model(name))


@given(st.sampled_from([entry.name for entry in list_models()]), st.sampled_from(list(FORMATS)))
@settings(max_examples=examples(150), deadline=None, derandomize=True)
def test_quantising_changes_bytes_and_nothing_else(name: str, fmt: str) -> None:
    spec = find_model(name)
    other = quantized(spec, fmt)
    assert parameters(other) == parameters(spec)
    assert sum(group.count for group in other.layers) == spec.n_layers
    low = min(FORMATS[fmt].bytes_per_weight, 2.0)
    assert low * parameters(spec).text <= weight_bytes(other).text
    assert quantized(other, fmt).layers == other.layers


def test_round_trip_of_everything_in_the_catalogue() -> None:
    for entry in list_models():
        spec = find_model(entry.name)
        assert spec_from_dict(json.loads(json.dumps(to_dict(spec)))) == spec
    for entry in list_drafters():
        drafter = find_drafter(entry.name)
        assert drafter_from_dict(json.loads(json.dumps(to_dict(drafter)))) == drafter


def test_own_format_refuses_what_does_not_belong() -> None:
    good = to_dict(find_model("Qwen3-0.6B"))
    for change, what in (
        ({"colour": 1}, "no field 'colour'"),
        ({"layers": [{"count": 1, "mixer": {"type": "lstm"}, "ffn": None}]}, "'lstm'"),
        ({"head_weight": "fp5"}, "'fp5'"),
        ({"layers": [3]}, "must be an object"),
    ):
        with pytest.raises(ModelConfigError, match=what):
            spec_from_dict({**good, **change})
    del good["hidden"]
    with pytest.raises(ModelConfigError, match="hidden"):
        spec_from_dict(good)

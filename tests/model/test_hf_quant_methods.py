"""Checkpoints of the libraries that quantise: what each linear is stored in, and the way on."""

import json
from pathlib import Path
from typing import Any

import pytest

from specsim.errors import ModelConfigError
from specsim.formats.hf_config import model_from_config
from specsim.formats.load_model import load_model
from specsim.model.catalogue import variant
from specsim.model.counts import weight_bytes
from specsim.model.feedforward import DenseMLP
from specsim.model.mixers import Attention
from specsim.model.part import BF16, WeightFormat
from specsim.model.weights import FP8, INT8, INT8_W8A16, MXFP4, MXFP4_W4A4, NVFP4
from tests.model.test_hf_config import formats, llama, stored

AWQ = WeightFormat("int4", 0.5 + 2.5 / 128, "bf16")
GPTQ: dict[str, Any] = {"quant_method": "gptq", "bits": 4, "group_size": 128}


def of_dense(section: dict[str, Any]) -> WeightFormat:
    """The format of all linears, where they have the same."""
    attention, mlp = formats(section)
    assert attention == mlp
    return attention


def test_gptq_dynamic_exclusions_stay_in_16_bits() -> None:
    """268.4 M attention x 2 B + 402.7 M MLP at 4.16 bit + 204.8 M embeddings x 2 B."""
    config = {
        "model_type": "qwen3", "hidden_size": 2048, "intermediate_size": 4096,
        "num_hidden_layers": 16, "num_attention_heads": 16, "num_key_value_heads": 16,
        "head_dim": 128, "vocab_size": 50000, "tie_word_embeddings": False,
        "quantization_config": GPTQ | {"dynamic": {"lm_head": {}, "-:.*attn.*": {}}},
    }
    spec = model_from_config(config)
    assert weight_bytes(spec).total == pytest.approx(1.156e9, rel=1e-3)
    assert spec.head_weight == BF16
    config["quantization_config"] = GPTQ
    assert weight_bytes(model_from_config(config)).total == pytest.approx(0.758e9, rel=1e-3)


def test_the_published_exclusions_of_a_27b_model() -> None:
    """28.4 GB of text weights: attention (also linear), tables and the MTP head in 16 bits."""
    names = ("attn", "shared_expert", "mtp", "visual")
    dynamic: dict[str, Any] = {"lm_head": {}, **{f"-:.*{name}.*": {} for name in names}}
    config = stored("Qwen3.5-27B") | {"quantization_config": GPTQ | {"dynamic": dynamic}}
    found = weight_bytes(model_from_config(config))
    assert found.total - found.vision - found.mtp == pytest.approx(28.4e9, rel=3e-3)
    plain = weight_bytes(model_from_config(stored("Qwen3.5-27B")))
    assert (found.mixer, found.mtp) == (plain.mixer, plain.mtp)


def test_gptq_dynamic_widths_and_order() -> None:
    """The first pattern that matches from the name's start decides."""
    dynamic: dict[str, Any] = {
        r"+:.*\.self_attn\..*": {"bits": 8, "group_size": 32}, "-:.*proj": {},
    }
    attention, mlp = formats(GPTQ | {"dynamic": dynamic})
    assert attention == WeightFormat("int8_w8a16", 1 + 3 / 32, "bf16")
    assert mlp == BF16
    assert of_dense(GPTQ | {"dynamic": {"-:self_attn": {}}}).name == "int4"  # not at the start
    assert of_dense(GPTQ | {"dynamic": {"-:.*visual.*": {}}}).name == "int4"
    first: dict[str, Any] = {r"-:model\.layers\.0\..*": {}}
    spec = model_from_config(llama(quantization_config=GPTQ | {"dynamic": first}))
    assert [g.mixer.weight.name for g in spec.layers if g.mixer] == ["bf16", "int4"]


def test_gptq_of_listed_modules_only() -> None:
    inside = [["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"]]
    attention, mlp = formats(GPTQ | {"modules_in_block_to_quantize": inside})
    assert (attention.name, mlp) == ("int4", BF16)


def test_many_changes_of_format_are_bounded() -> None:
    many: dict[str, Any] = {f"{'-' if n % 2 else '+'}:a{'b' * n}": {} for n in range(40)}
    with pytest.raises(ModelConfigError, match="40 changes between formats"):
        formats(GPTQ | {"dynamic": many})


def test_auto_round() -> None:
    section: dict[str, Any] = {
        "quant_method": "auto-round", "bits": 4, "group_size": 128, "sym": True,
        "data_type": "int", "packing_format": "auto_round:auto_gptq",
        "block_name_to_quantize": "model.layers",
    }
    assert of_dense(section).name == "int4"
    single = {f"model.layers.{n}.self_attn": {"bits": 16} for n in range(2)}
    attention, mlp = formats(section | {"extra_config": single})
    assert (attention, mlp.name) == (BF16, "int4")
    attention, mlp = formats(section | {"extra_config": {".*attn.*": {"bits": 8}}})
    assert (attention.name, mlp.name) == ("int8_w8a16", "int4")
    assert of_dense(section | {"block_name_to_quantize": ["model.visual.blocks"]}) == BF16
    assert model_from_config(llama(quantization_config=section)).head_weight == BF16
    head = section | {"extra_config": {"lm_head": {"bits": 4, "group_size": 128}}}
    assert model_from_config(llama(quantization_config=head)).head_weight.name == "int4"
    with pytest.raises(ModelConfigError, match="data_type = 'mx_fp'"):
        formats(section | {"data_type": "mx_fp"})


def test_bitsandbytes() -> None:
    four = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
    assert of_dense(four).bytes_per_weight == 0.5 + 4 / 64
    twice = of_dense(four | {"bnb_4bit_use_double_quant": True})
    assert twice.bytes_per_weight == pytest.approx(0.5 + 0.127 / 8, rel=1e-4)  # the paper's figure
    assert formats(four | {"llm_int8_skip_modules": ["self_attn"]})[0] == BF16
    spec = model_from_config(llama(quantization_config=four))
    assert spec.head_weight == BF16
    assert "not timed" in spec.notes[-1]
    assert of_dense({"quant_method": "bitsandbytes", "_load_in_8bit": True}) == INT8
    with pytest.raises(ModelConfigError, match="load_in_4bit"):
        formats({"quant_method": "bitsandbytes"})


def test_hqq() -> None:
    params = {"weight_quant_params": {"nbits": 4, "group_size": 64, "axis": 1}}
    section = {"quant_method": "hqq", "quant_config": params, "skip_modules": ["lm_head"]}
    assert of_dense(section).bytes_per_weight == 0.5 + 4 / 64
    kinds = {"mlp.gate_proj": params, "mlp.up_proj": params, "mlp.down_proj": params}
    attention, mlp = formats(section | {"quant_config": kinds})
    assert (attention, mlp.name) == (BF16, "int4")
    with pytest.raises(ModelConfigError, match="only 4 and 8 bits"):
        formats(section | {"quant_config": {"weight_quant_params": {"nbits": 2}}})


@pytest.mark.parametrize(
    ("kind", "right"),
    [
        ("int4_weight_only", WeightFormat("int4", 0.5 + 4 / 128, "bf16")),
        ({"default": {"_type": "Int4WeightOnlyConfig", "_data": {"group_size": 32}}},
         WeightFormat("int4", 0.5 + 4 / 32, "bf16")),
        ({"default": {"_type": "Int8WeightOnlyConfig", "_version": 1, "_data": {}}}, INT8_W8A16),
        ("int8_dynamic_activation_int8_weight", INT8),
        ({"default": {"_type": "Float8DynamicActivationFloat8WeightConfig", "_data": {}}}, FP8),
        ({"default": {"_type": "NVFP4DynamicActivationNVFP4WeightConfig"}}, NVFP4),
    ],
)  # fmt: skip
def test_torchao(kind: object, right: WeightFormat) -> None:
    assert of_dense({"quant_method": "torchao", "quant_type": kind}) == right


def test_torchao_by_name() -> None:
    each = {
        "_default": {"_type": "Int4WeightOnlyConfig", "_data": {"group_size": 128}},
        "re:.*self_attn.*": {"_type": "Float8DynamicActivationFloat8WeightConfig", "_data": {}},
        "model.layers.1.mlp": None,
    }
    data = {"_type": "ModuleFqnToConfig", "_data": {"module_fqn_to_config": each}}
    section = {"quant_method": "torchao", "quant_type": {"default": data}}
    spec = model_from_config(llama(quantization_config=section))
    assert all(isinstance(g.mixer, Attention) and g.mixer.weight == FP8 for g in spec.layers)
    assert [g.ffn.weight.name for g in spec.layers] == ["int4", "bf16"]  # type: ignore[union-attr]
    with pytest.raises(ModelConfigError, match="'MagicConfig'"):
        formats({"quant_method": "torchao", "quant_type": {"default": {"_type": "MagicConfig"}}})
    with pytest.raises(ModelConfigError, match="quant_type"):
        formats({"quant_method": "torchao"})


@pytest.mark.parametrize(
    ("weight", "inputs", "right"),
    [
        ({"dtype": "fp8_e4m3", "qscheme": "per_channel"}, {"dtype": "fp8_e4m3"}, FP8),
        ({"dtype": "int8", "qscheme": "per_channel"}, {"dtype": "int8"}, INT8),
        ({"dtype": "fp4", "group_size": 32}, {"dtype": "fp4"}, MXFP4_W4A4),
        ({"dtype": "fp4", "group_size": 32}, None, MXFP4),
        ({"dtype": "uint4", "group_size": 128}, None, AWQ),
    ],
)  # fmt: skip
def test_quark(weight: object, inputs: object, right: WeightFormat) -> None:
    layer = {"weight": weight, "input_tensors": inputs}
    section = {"quant_method": "quark", "global_quant_config": layer, "exclude": ["lm_head"]}
    assert of_dense(section) == right
    assert model_from_config(llama(quantization_config=section)).head_weight == BF16


def test_quark_by_layer_and_its_cache() -> None:
    fp8 = {"dtype": "fp8_e4m3"}
    section = {
        "quant_method": "quark",
        "global_quant_config": {"weight": {"dtype": "fp4", "group_size": 32},
                                "input_tensors": {"dtype": "fp4"}},
        "layer_quant_config": {"*self_attn*": {"weight": fp8, "input_tensors": fp8,
                                               "output_tensors": fp8}},
    }  # fmt: skip
    attention, mlp = formats(section)
    assert (attention, mlp) == (FP8, MXFP4_W4A4)
    spec = model_from_config(llama(quantization_config=section))
    assert (spec.default_kv_dtype, spec.weights) == ("fp8", "mxfp4")
    with pytest.raises(ModelConfigError, match="dtype = 'int2'"):
        formats({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "int2"}}})


@pytest.mark.parametrize(
    ("algorithm", "right"),
    [("W8A8_SQ_PER_CHANNEL", INT8), ("W8A16", INT8_W8A16), ("NVFP4_AWQ", NVFP4)],
)
def test_modelopt_in_8_bit_integers(algorithm: str, right: WeightFormat) -> None:
    assert of_dense({"quant_algo": algorithm}) == right


def test_integers_of_8_bits_are_multiplied_as_such_only_with_quantised_activations() -> None:
    group: dict[str, Any] = {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "int"}}
    section = {"quant_method": "compressed-tensors", "config_groups": {"g": group}}
    assert of_dense(section) == INT8_W8A16
    group["input_activations"] = {"num_bits": 8, "type": "int"}
    assert of_dense(section) == INT8
    assert of_dense({"quant_method": "gptq", "bits": 8}).compute == "bf16"


def test_an_unknown_method_is_refused_with_the_way_on(tmp_path: Path) -> None:
    config = llama(quantization_config={"quant_method": "magic"})
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelConfigError, match=r"'magic'.*quark.*--weights FORMAT"):
        load_model(str(tmp_path))
    read = load_model(str(tmp_path), formats_needed=False)
    assert "'magic'" in read.notes[0]
    assert variant(read, "fp8").layers[0].mixer.weight == FP8  # type: ignore[union-attr]


@pytest.mark.parametrize("fused", [False, True])
def test_a_mixed_feed_forward_part_has_the_mean_of_its_bytes(fused: bool) -> None:
    """down_proj, a third of the weights, in 8 bits; also where gate and up are one linear."""
    section = GPTQ | {"dynamic": {"+:.*down_proj": {"bits": 8}}}
    config = llama(num_hidden_layers=2) | {"quantization_config": section}
    if fused:
        config["model_type"] = "phi3"
    spec = model_from_config(config)
    ffn = spec.layers[0].ffn
    assert isinstance(ffn, DenseMLP)
    eight = 1.0 + 3.0 / 128
    assert ffn.weight.bytes_per_weight == pytest.approx((2 * AWQ.bytes_per_weight + eight) / 3)
    assert spec.notes == (
        "mlp (bytes: the mean): linears of several formats, all counted in the commonest one",
    )


def test_sparse_weights_are_refused() -> None:
    """A 2:4 sparse checkpoint stores and reads about half of a dense one."""
    weights = {"num_bits": 4, "type": "int", "group_size": 128}
    section: dict[str, Any] = {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}},
    }
    dense = {"sparsity_config": {"format": "dense", "sparsity_structure": "unstructured"}}
    assert of_dense(section | dense).name == "int4"
    for part in ({"format": "marlin-24"}, {"sparsity_config": {"format": "sparse-24-bitmask"}}):
        with pytest.raises(ModelConfigError, match=r"sparse weights are not modelled.*--weights"):
            of_dense(section | part)


def test_a_field_of_phi_4_mini_that_changes_nothing() -> None:
    assert model_from_config(llama() | {"model_type": "phi3", "full_attn_mod": 1}).layers

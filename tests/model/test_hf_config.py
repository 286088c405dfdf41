"""Hugging Face configs: what is read, and what is refused with the field, value and rule."""

import json
from pathlib import Path
from typing import Any

import pytest

from specsim.errors import FormatError, ModelConfigError, SpecSimError, shown
from specsim.formats.hf_config import load_config, model_from_config, read_model
from specsim.formats.hf_object import MAX_FILE_BYTES
from specsim.formats.hf_shape import TextConfig
from specsim.model.catalogue import catalogue_root, find_model, same_shapes
from specsim.model.counts import parameters
from specsim.model.feedforward import DenseMLP, MoE
from specsim.model.mixers import Attention, LatentAttention
from specsim.model.part import BF16, WeightFormat
from specsim.model.weights import FP8, FP8_BLOCK, NVFP4, NVFP4_W4A16


def llama(**changes: Any) -> dict[str, Any]:
    config = {
        "model_type": "llama",
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "intermediate_size": 128,
        "vocab_size": 100,
        "max_position_embeddings": 512,
    }
    config.update(changes)
    return {name: value for name, value in config.items() if value != "absent"}


def stored(name: str) -> dict[str, Any]:
    entry: dict[str, Any] = json.loads((catalogue_root() / "models" / f"{name}.json").read_text())
    config: dict[str, Any] = entry["config"]
    return config


def test_a_small_llama() -> None:
    spec = model_from_config(llama(), "tiny")
    assert (spec.name, spec.family, spec.hidden, spec.vocab) == ("tiny", "llama", 64, 100)
    assert spec.n_layers == 2
    assert spec.max_position == 512
    assert not spec.tied_embeddings
    # tables, q and o, k and v of 4 heads of 8, MLP, norms
    layer = 2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 128 + 2 * 64
    assert parameters(spec).text == 2 * 6400 + 2 * layer + 64


def test_biases_and_tied_tables() -> None:
    plain = parameters(model_from_config(llama())).text
    biased = parameters(model_from_config(llama(attention_bias=True, mlp_bias=True))).text
    assert biased - plain == 2 * (64 + 32 + 32 + 64 + 128 + 128 + 64)
    tied = parameters(model_from_config(llama(tie_word_embeddings=True))).text
    assert plain - tied == 6400


LIES = [
    ({"hidden_size": -64}, "hidden_size = -64", "integer from 1"),
    ({"hidden_size": 64.0}, "hidden_size = 64.0", "integer"),
    ({"hidden_size": "64"}, "hidden_size = '64'", "integer"),
    ({"hidden_size": True}, "hidden_size = True", "integer"),
    ({"hidden_size": 10**30}, "hidden_size", "10000000"),
    ({"hidden_size": "absent"}, "hidden_size", "missing"),
    ({"hidden_size": 65}, "hidden_size = 65", "multiple of num_attention_heads = 8"),
    ({"num_attention_heads": 0}, "num_attention_heads = 0", "integer from 1"),
    ({"num_key_value_heads": 3}, "num_attention_heads = 8", "multiple of num_key_value_heads = 3"),
    ({"num_hidden_layers": 100_001}, "num_hidden_layers = 100001", "integer from 1"),
    ({"num_hidden_layers": 0}, "num_hidden_layers = 0", "integer from 1"),
    ({"num_hidden_layers": None}, "num_hidden_layers", "missing"),
    ({"vocab_size": [100]}, "vocab_size = [100]", "integer"),
    ({"tie_word_embeddings": "yes"}, "tie_word_embeddings = 'yes'", "true or false"),
    ({"layer_types": ["full_attention"]}, "layer_types", "one for each of the 2 layers"),
    ({"layer_types": ["full_attention", "magic"]}, "layer_types", "magic"),
    ({"hidden_act": "relu"}, "hidden_act = 'relu'", "gated activation"),
    ({"quantization_config": {"quant_method": "magic"}}, "quant_method = 'magic'", "known are fp8"),
    ({"quantization_config": 8}, "quantization_config = 8", "object"),
]


@pytest.mark.parametrize(("changes", "what", "rule"), LIES, ids=lambda item: str(item)[:40])
def test_a_config_that_lies_is_refused(changes: dict[str, Any], what: str, rule: str) -> None:
    with pytest.raises(ModelConfigError) as caught:
        model_from_config(llama(**changes), "liar")
    message = str(caught.value)
    assert message.startswith("liar")
    assert what in message
    assert rule in message
    assert "\n" not in message


MORE_LIES = [
    ("Qwen3-30B-A3B", {"num_experts_per_tok": 129}, "must not exceed the number of experts = 128"),
    ("Qwen3-30B-A3B", {"head_dim": None}, "head_dim is missing"),
    ("DeepSeek-V3", {"kv_lora_rank": 0}, "kv_lora_rank = 0"),
    ("DeepSeek-V3", {"attention_bias": True}, "not modelled"),
    ("gpt-oss-20b", {"num_local_experts": 2}, "must not exceed"),
    ("Nemotron-3-Nano-30B-A3B", {"num_hidden_layers": 51}, "the block pattern has 52 layers"),
    ("Nemotron-3-Nano-30B-A3B", {"hybrid_override_pattern": "MX"}, "'X' must be one of mamba"),
    ("Nemotron-3-Nano-30B-A3B", {"mamba_num_heads": 63}, "multiple of n_groups = 8"),
    ("MiniMax-M2", {"qk_norm_type": "per_head"}, "only per_layer"),
    ("Qwen3-Next-80B-A3B", {"linear_num_value_heads": 17}, "multiple of the key heads = 16"),
    ("Qwen3-Next-80B-A3B", {"mamba_ssm_dtype": "float8"}, "float32, bfloat16, float16"),
]


@pytest.mark.parametrize(("name", "changes", "rule"), MORE_LIES)
def test_lies_particular_to_a_family(name: str, changes: dict[str, Any], rule: str) -> None:
    with pytest.raises(ModelConfigError) as caught:
        model_from_config({**stored(name), **changes}, "liar")
    assert rule in str(caught.value)


def test_gemma_layers_share_a_cache_of_their_kind_only() -> None:
    config = stored("Gemma-4-E2B")
    config["text_config"]["num_kv_shared_layers"] = 32  # leaves three window layers
    with pytest.raises(ModelConfigError, match="num_kv_shared_layers = 32: every layer that"):
        model_from_config(config)


def test_unknown_architecture_names_itself_and_the_way_on() -> None:
    for config in (llama(model_type="mamba9"), {"model_type": "mamba9", "text_config": {}}):
        with pytest.raises(ModelConfigError) as caught:
            model_from_config(config, "new")
        message = str(caught.value)
        assert "'mamba9'" in message
        assert "`specsim models`" in message
    with pytest.raises(ModelConfigError, match="near: qwen3"):
        model_from_config(llama(model_type="qwen3x"))
    with pytest.raises(ModelConfigError, match="'WeirdForCausalLM'"):
        model_from_config({"architectures": ["WeirdForCausalLM"]})


def test_a_drafter_is_not_a_model() -> None:
    with pytest.raises(ModelConfigError, match="draft_vocab_size marks a drafter"):
        model_from_config(llama(draft_vocab_size=50))


def test_file_and_folder(tmp_path: Path) -> None:
    folder = tmp_path / "My-Model"
    folder.mkdir()
    file = folder / "config.json"
    file.write_text(json.dumps(llama()))
    assert read_model(folder) == read_model(file)
    assert read_model(folder).name == "My-Model"
    assert read_model(file, name="other").name == "other"
    (folder / "hf_quant_config.json").write_text(
        json.dumps({"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}})
    )
    spec = read_model(folder)
    assert (spec.weights, spec.default_kv_dtype) == ("fp8", "fp8")
    single = tmp_path / "named.json"
    single.write_text(json.dumps(llama()))
    assert read_model(single).name == "named"
    assert load_config(single)[1] is None


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"{", "not valid JSON"),
        (b"[1]", "JSON object"),
        (b"\xff\xfe", "not UTF-8 text"),
        (b'{"a": ' + b"[" * 100_000, "nested too deeply"),
        (b'{"a": ' + b"1" * 5000 + b"}", "not valid JSON"),
        (b"", "not valid JSON"),
    ],
    ids=["cut", "list", "bytes", "deep", "long-integer", "empty"],
)
def test_files_that_are_no_config(tmp_path: Path, content: bytes, reason: str) -> None:
    file = tmp_path / "config.json"
    file.write_bytes(content)
    with pytest.raises(FormatError, match=reason) as caught:
        read_model(file)
    assert "\n" not in str(caught.value)


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    with file.open("wb") as out:
        out.truncate(100_000_000)
    with pytest.raises(FormatError) as caught:
        read_model(file)
    assert f"over the limit of {MAX_FILE_BYTES:,} bytes" in str(caught.value)


def test_no_file_at_all(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="not a file"):
        read_model(tmp_path / "absent.json")
    with pytest.raises(FormatError, match="not a file"):
        read_model(tmp_path)
    with pytest.raises(FormatError, match="not a file"):
        read_model("/dev/null")
    with pytest.raises(SpecSimError):
        read_model("a\x00b")


def test_values_in_messages_stay_short() -> None:
    assert len(shown("x" * 1000)) == 60
    assert "\n" not in shown("a\nb")
    assert "more than 30 digits" in shown(10**5000)
    with pytest.raises(ModelConfigError) as caught:
        _ = TextConfig.of({"hidden_size": 10**5000}, "w").hidden_size
    assert len(str(caught.value)) < 200


# --- windows and other shapes -------------------------------------------------------------


def attention_of(config: dict[str, Any]) -> list[Attention]:
    return [
        group.mixer
        for group in model_from_config(config).layers
        if isinstance(group.mixer, Attention)
    ]


def test_windows_of_the_dense_families() -> None:
    base = {"sliding_window": 256, "head_dim": 8}
    assert [mixer.window for mixer in attention_of(llama(model_type="mistral", **base))] == [256]
    # an absent field is the architecture's default, a null one is no window
    far = {"max_position_embeddings": 32_768}
    assert [m.window for m in attention_of(llama(model_type="mistral", **far))] == [4096]
    none = attention_of(llama(model_type="mistral", sliding_window=None))
    assert [m.window for m in none] == [0]
    # a window as long as the context is none
    assert [m.window for m in attention_of(llama(model_type="phi3", sliding_window=512))] == [0]
    qwen = llama(model_type="qwen3", use_sliding_window=True, max_window_layers=1, **base)
    assert [m.window for m in attention_of(qwen)] == [0, 256]
    assert [m.window for m in attention_of({**qwen, "use_sliding_window": False})] == [0]
    listed = llama(
        model_type="gemma3_text", layer_types=["sliding_attention", "full_attention"], **base
    )
    assert [m.window for m in attention_of(listed)] == [256, 0]


def test_published_gemma3_files_lean_on_defaults() -> None:
    """gemma-3-4b's text_config names neither its heads nor its vocabulary."""
    config = {
        "model_type": "gemma3",
        "text_config": {
            "model_type": "gemma3_text",
            "hidden_size": 2560,
            "intermediate_size": 10240,
            "num_hidden_layers": 34,
            "sliding_window": 1024,
        },
    }
    assert same_shapes(model_from_config(config), find_model("Gemma-3-4B"))


def test_dense_layers_among_mixtures() -> None:
    config = {
        **stored("Qwen3-30B-A3B"),
        "intermediate_size": 6144,
        "mlp_only_layers": [0, 5],
        "decoder_sparse_step": 2,
    }
    layers = model_from_config(config).layers
    dense = sum(group.count for group in layers if isinstance(group.ffn, DenseMLP))
    sparse = sum(group.count for group in layers if isinstance(group.ffn, MoE))
    assert (dense, sparse) == (25, 23)  # every second layer, less layer 5


def test_latent_attention_without_query_latent() -> None:
    mixer = find_model("DeepSeek-V2-Lite").layers[0].mixer
    assert isinstance(mixer, LatentAttention)
    assert mixer.q_lora_rank == 0
    config = stored("DeepSeek-V2-Lite")
    del config["q_lora_rank"]
    with pytest.raises(ModelConfigError, match="q_lora_rank is missing"):
        model_from_config(config)


# --- quantisation -------------------------------------------------------------------------


def formats(section: dict[str, Any], **changes: Any) -> tuple[WeightFormat, WeightFormat]:
    """(attention, MLP) formats of a small Llama under a quantisation config."""
    spec = model_from_config(llama(quantization_config=section, **changes))
    group = spec.layers[0]
    assert isinstance(group.mixer, Attention)
    assert isinstance(group.ffn, DenseMLP)
    return group.mixer.weight, group.ffn.weight


def test_fp8_per_tensor_and_in_blocks() -> None:
    assert formats({"quant_method": "fp8"}) == (FP8, FP8)
    block = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    assert formats(block) == (FP8_BLOCK, FP8_BLOCK)
    odd = formats({"quant_method": "fp8", "weight_block_size": [1, 32]})[0]
    assert odd.bytes_per_weight == 1 + 4 / 32
    for bad in ([128], [0, 128], [128, 10**40], ["a", "b"]):
        with pytest.raises(ModelConfigError, match="weight_block_size"):
            formats({"quant_method": "fp8", "weight_block_size": bad})


@pytest.mark.parametrize(
    "pattern",
    [
        "model.layers.*.self_attn",
        "model.layers.0.self_attn*",
        "self_attn",
        "re:.*self_attn.*",
        "re:.*(q|k|v|o)_proj$",
        "model.layers.0.self_attn.*",
    ],
)
def test_patterns_of_modules_that_stay(pattern: str) -> None:
    section = {"quant_method": "fp8", "modules_to_not_convert": [pattern]}
    assert formats(section, num_hidden_layers=1) == (BF16, FP8)


def test_a_layer_number_is_not_a_prefix_of_another() -> None:
    section = {"quant_algo": "NVFP4", "exclude_modules": ["model.layers.1.*", "lm_head"]}
    spec = model_from_config(llama(num_hidden_layers=12), "x", {"quantization": section})
    counts = {group.mixer.weight: group.count for group in spec.layers if group.mixer}
    assert counts == {NVFP4: 11, BF16: 1}


def test_weight_only_and_compressed_tensors() -> None:
    awq = formats({"quant_method": "awq", "bits": 4, "group_size": 128})[0]
    assert (awq.name, awq.compute) == ("int4", "bf16")
    assert awq.bytes_per_weight == 0.5 + 2.5 / 128
    group: dict[str, Any] = {
        "targets": ["Linear"],
        "weights": {"num_bits": 4, "type": "float", "group_size": 16},
    }
    section = {"quant_method": "compressed-tensors", "config_groups": {"g": group}}
    assert formats(section)[0] == NVFP4_W4A16
    group["input_activations"] = {"num_bits": 4, "type": "float"}
    assert formats(section)[0] == NVFP4
    group["weights"] = {"num_bits": 8, "type": "float", "strategy": "channel"}
    assert formats(section)[0] == FP8
    group["weights"] = {"num_bits": 3, "type": "int"}
    with pytest.raises(ModelConfigError, match="3-bit"):
        formats(section)
    group["targets"] = ["Conv1d"]
    group["weights"] = {"num_bits": 8, "type": "float"}
    with pytest.raises(ModelConfigError, match="Conv1d"):
        formats(section)


def test_mixed_precision_by_module() -> None:
    layers = {
        "model.layers.0.self_attn.q_proj": {"quant_algo": "FP8"},
        "model.layers.0.mlp.up_proj": {"quant_algo": "W4A16_NVFP4", "group_size": 16},
    }
    section = {"quant_algo": "MIXED_PRECISION", "quantized_layers": layers}
    spec = model_from_config(llama(num_hidden_layers=1), "m", {"quantization": section})
    assert spec.weights == "nvfp4"
    assert "several formats" in spec.notes[0]  # k, v, o and gate, down are not listed
    section["quantized_layers"] = {"model.layers.0.mlp": {"quant_algo": "MAGIC"}}
    with pytest.raises(ModelConfigError, match="'MAGIC'"):
        model_from_config(llama(), "m", {"quantization": section})


@pytest.mark.parametrize(
    "pattern",
    ["re:(a+)+$", "re:" + ".*" * 4, "re:(", "re:" + "a" * 400, "*" * 400 + "b", "re:(.*){9}"],
)
def test_patterns_that_could_run_away_are_refused(pattern: str) -> None:
    section = {"quant_method": "fp8", "ignored_layers": [pattern]}
    with pytest.raises(ModelConfigError) as caught:
        formats(section)
    assert len(str(caught.value)) < 300


def test_the_number_of_patterns_is_bounded() -> None:
    many = {"quant_method": "fp8", "ignore": [f"re:a{'b' * n}.*" for n in range(33)]}
    with pytest.raises(ModelConfigError, match="33 wildcard patterns"):
        formats(many)
    names = [f"model.layers.{n}.self_attn.q_proj" for n in range(50_000)]
    plain = {"quant_method": "fp8", "ignore": names}
    assert formats(plain)[1] == FP8


def test_a_text_model_that_holds_another_one_is_not_called_unknown() -> None:
    with pytest.raises(ModelConfigError, match="a llama config has its sizes outside it"):
        model_from_config(llama(text_config={"hidden_size": 1}), "tiny")

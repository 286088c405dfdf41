"""Reading model configs: every spelling accepted, everything unsupported refused by name."""

import json
from dataclasses import replace

import pytest

from specsim.decoder.config import ModelConfig, RopeScaling, read_config
from specsim.errors import ModelConfigError

LLAMA_8B = {
    "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
    "vocab_size": 128256, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
    "tie_word_embeddings": False, "max_position_embeddings": 131072,
    "eos_token_id": [128001, 128008],
    "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                     "high_freq_factor": 4.0, "original_max_position_embeddings": 8192},
}
QWEN3_06B = {
    "model_type": "qwen3", "hidden_size": 1024, "num_hidden_layers": 28,
    "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
    "intermediate_size": 3072, "vocab_size": 151936, "rms_norm_eps": 1e-6,
    "rope_theta": 1000000, "tie_word_embeddings": True,
}
QWEN3_MOE = {
    "model_type": "qwen3_moe", "hidden_size": 2048, "num_hidden_layers": 48,
    "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128,
    "intermediate_size": 6144, "moe_intermediate_size": 768, "num_experts": 128,
    "num_experts_per_tok": 8, "norm_topk_prob": True, "vocab_size": 151936,
    "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "tie_word_embeddings": False,
}


@pytest.mark.parametrize(
    ("raw", "parameters"),
    [(LLAMA_8B, 8_030_261_248), (QWEN3_06B, 596_049_920), (QWEN3_MOE, 30_532_122_624)],
)
def test_parameter_counts_are_the_published_ones(raw, parameters):
    assert ModelConfig.from_hf(raw).num_parameters() == parameters


def test_transformers_5_spelling_equals_the_older_one():
    new = {k: v for k, v in LLAMA_8B.items() if k not in ("rope_theta", "rope_scaling")}
    new["rope_parameters"] = {**LLAMA_8B["rope_scaling"], "rope_theta": 500000.0}
    assert ModelConfig.from_hf(new) == ModelConfig.from_hf(LLAMA_8B)


def test_experts_are_found_under_both_names():
    other = {k: v for k, v in QWEN3_MOE.items() if k != "num_experts"}
    assert ModelConfig.from_hf(other | {"num_local_experts": 128}) == ModelConfig.from_hf(QWEN3_MOE)


def test_missing_head_dim_is_hidden_over_heads():
    assert ModelConfig.from_hf(LLAMA_8B).head_dim == 128


@pytest.mark.parametrize("raw", [LLAMA_8B, QWEN3_06B, QWEN3_MOE])
def test_round_trip_through_a_config_file(raw, tmp_path):
    config = replace(ModelConfig.from_hf(raw), bos_token_id=1)
    (tmp_path / "config.json").write_text(json.dumps(config.to_hf()))
    assert read_config(tmp_path) == config


def test_generation_config_adds_stop_tokens(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_8B | {"eos_token_id": 128001}))
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [128009, 128001]}')
    assert read_config(tmp_path).eos_token_ids == (128001, 128009)


def test_linear_rope_scaling_is_read():
    raw = LLAMA_8B | {"rope_scaling": {"type": "linear", "factor": 2.0}}
    assert ModelConfig.from_hf(raw).rope_scaling == RopeScaling("linear", 2.0)


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"model_type": "qwen3moe"}, "did you mean 'qwen3_moe"),
        ({"model_type": ""}, "llama, mistral, qwen2"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "'yarn'"),
        ({"attention_bias": True}, "attention_bias"),
        ({"mlp_bias": True}, "mlp_bias"),
        ({"hidden_act": "gelu"}, "'gelu'"),
        ({"num_key_value_heads": 5}, "not a multiple"),
        ({"hidden_size": "wide"}, "not a number"),
        ({"sliding_window": 4096, "use_sliding_window": True}, "sliding_window 4096"),
        ({"vocab_size": 0}, "vocab_size is 0"),
    ],
)
def test_what_cannot_be_run_exactly_is_refused_by_name(change, names):
    with pytest.raises(ModelConfigError, match=names):
        ModelConfig.from_hf(LLAMA_8B | change)


def test_incomplete_config_names_the_field():
    raw = {k: v for k, v in LLAMA_8B.items() if k != "num_hidden_layers"}
    with pytest.raises(ModelConfigError, match="num_hidden_layers"):
        ModelConfig.from_hf(raw)


def test_folder_without_config(tmp_path):
    with pytest.raises(ModelConfigError, match=r"no config\.json"):
        read_config(tmp_path)

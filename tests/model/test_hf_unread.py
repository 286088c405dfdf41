"""Fields of sizes that no reader reads are refused by name: nothing is priced without its part."""

import pytest

from specsim.errors import ModelConfigError
from specsim.formats.hf_config import model_from_config
from specsim.formats.hf_drafters import drafter_from_config
from specsim.model.counts import parameters

LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "intermediate_size": 128,
    "vocab_size": 100,
}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("num_experts", 8), ("zero_expert_num", 4), ("kv_lora_rank", 32), ("index_topk", 64),
        ("hc_mult", 4), ("num_kv_shared_layers", 1), ("use_qk_norm", True), ("v_head_dim", 16),
        ("linear_attn_config", {"head_dim": 16}), ("compress_ratios", [0, 4]),
        ("num_nextn_predict_layers", 1), ("layer_types", ["full_attention", "linear_attention"]),
        ("attn_res_block_size", 6), ("moe_layer_freq", [0, 1]), ("sliding_window", 16),
    ],
)  # fmt: skip
def test_a_part_of_another_architecture_is_refused(field: str, value: object) -> None:
    family = "glm4" if field in ("sliding_window", "layer_types") else "llama"
    config = {**LLAMA, "model_type": family, "head_dim": 8, field: value}
    with pytest.raises(ModelConfigError, match=rf"{field} = .*may change sizes"):
        model_from_config(config, "m")


def test_what_changes_nothing_is_let_through() -> None:
    extra = {
        "num_experts": 0, "use_qk_norm": False, "kv_lora_rank": None, "compress_ratios": [],
        "bos_token_id": 1, "rope_scaling": {"factor": 8}, "rms_norm_eps": 1e-6, "num_labels": 2,
        "attention_dropout": 0.1, "use_cache": True, "_note": "moe", "norm_topk_prob": True,
        "head_dim": 8, "v_head_dim": 8, "architectures": ["LlamaForCausalLM"],
    }  # fmt: skip
    assert parameters(model_from_config({**LLAMA, **extra})) == parameters(model_from_config(LLAMA))


def test_other_kinds_of_layers_are_refused_in_a_known_family() -> None:
    minimax = {
        **LLAMA, "model_type": "minimax_m2", "head_dim": 8, "num_local_experts": 4,
        "num_experts_per_tok": 2, "attn_type_list": [1, 1],
    }  # fmt: skip
    assert parameters(model_from_config(minimax)).total > 0
    with pytest.raises(ModelConfigError, match=r"attn_type_list = .*linear attention"):
        model_from_config({**minimax, "attn_type_list": [0, 1]})


def test_a_drafter_with_an_unknown_part_is_refused() -> None:
    head = {**LLAMA, "num_hidden_layers": 1, "draft_vocab_size": 40}
    assert drafter_from_config({**head, "num_target_layers": 36, "use_qk_norm": True}).kind
    with pytest.raises(ModelConfigError, match="num_experts = 8"):
        drafter_from_config({**head, "num_experts": 8}, "d")

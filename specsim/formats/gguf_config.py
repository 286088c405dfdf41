"""The metadata and tensors of a GGUF header as the fields of a Hugging Face config.

Keys and tensor names follow ggml's gguf-py 0.19 (constants.py, MIT). Each architecture gets only
the fields that its reader asks for. A header lists every tensor, so what a reader leaves out is
seen: a tensor of an unknown name, or a sum that is not the reader's, is refused.
"""

import re
from collections.abc import Mapping
from math import prod

from specsim.errors import FormatError, ModelConfigError
from specsim.model.counts import parameters
from specsim.model.spec import ModelSpec

Shapes = Mapping[str, tuple[int, ...]]

MAX_UNREAD_SHARE = 0.01  # of all weights, that a reader may count otherwise than the tensors
_COMMON = """
    model_type hidden_size num_hidden_layers num_attention_heads num_key_value_heads head_dim
    intermediate_size vocab_size max_position_embeddings hidden_act tie_word_embeddings
"""
_ROUTED = "num_experts num_experts_per_tok moe_intermediate_size "
_AFTER_DENSE = _ROUTED + "n_shared_experts first_k_dense_replace num_nextn_predict_layers "
_LATENT = _AFTER_DENSE + (
    "q_lora_rank kv_lora_rank qk_nope_head_dim qk_rope_head_dim v_head_dim topk_method"
)
_DELTA = (
    "attention_bias full_attention_interval linear_num_key_heads linear_num_value_heads "
    "linear_key_head_dim linear_value_head_dim linear_conv_kernel_dim "
)
_SHARED_WIDTH = _ROUTED + "shared_expert_intermediate_size "
_BIAS = "attention_bias"
_WINDOW = "sliding_window sliding_window_pattern layer_types"
# general.architecture -> (Hugging Face model_type, its fields beside those of every decoder)
_FAMILIES = {
    "llama": ("llama", _BIAS), "mistral3": ("ministral3", ""), "granite": ("granite", _BIAS),
    "smollm3": ("smollm3", _BIAS), "phi3": ("phi3", "sliding_window"),
    "seed_oss": ("seed_oss", "attention_bias attention_out_bias"),
    "olmo2": ("olmo2", _BIAS), "glm4": ("glm4", _BIAS), "ernie4_5": ("ernie4_5", "use_bias"),
    "hunyuan-dense": ("hunyuan_v1_dense", _BIAS),
    "qwen2": ("qwen2", ""), "qwen2vl": ("qwen2", ""),
    "qwen3": ("qwen3", _BIAS), "qwen3vl": ("qwen3", _BIAS),
    "gemma": ("gemma", ""), "gemma2": ("gemma2", _WINDOW), "gemma3": ("gemma3_text", _WINDOW),
    "qwen2moe": ("qwen2_moe", _SHARED_WIDTH + "qkv_bias"),
    "qwen3moe": ("qwen3_moe", _ROUTED + _BIAS), "qwen3vlmoe": ("qwen3_moe", _ROUTED + _BIAS),
    "qwen3next": ("qwen3_next", _DELTA + _SHARED_WIDTH + "num_nextn_predict_layers"),
    "qwen35": ("qwen3_5_text", _DELTA),
    "qwen35moe": ("qwen3_5_moe_text", _DELTA + _SHARED_WIDTH),
    "gpt-oss": ("gpt_oss", "num_experts num_experts_per_tok layer_types sliding_window "
                "attention_bias"),
    "minimax-m2": ("minimax_m2", "num_experts num_experts_per_tok use_qk_norm use_routing_bias"),
    "glm4moe": ("glm4_moe", _AFTER_DENSE + "attention_bias use_qk_norm topk_method"),
    "dots1": ("dots1", _AFTER_DENSE + "attention_bias topk_method"),
    "ernie4_5-moe": ("ernie4_5_moe", _ROUTED + "n_shared_experts moe_layer_start_index "
                     "moe_layer_interval"),
    "deepseek2": ("deepseek_v3", _LATENT), "mistral4": ("mistral4", _LATENT),
}
# Field -> metadata key, less the architecture's name.
_KEYS = {
    "hidden_size": "embedding_length",
    "num_attention_heads": "attention.head_count",
    "intermediate_size": "feed_forward_length",
    "max_position_embeddings": "context_length",
    "sliding_window": "attention.sliding_window",
    "num_experts": "expert_count",
    "num_experts_per_tok": "expert_used_count",
    "moe_intermediate_size": "expert_feed_forward_length",
    "shared_expert_intermediate_size": "expert_shared_feed_forward_length",
    "n_shared_experts": "expert_shared_count",
    "first_k_dense_replace": "leading_dense_block_count",
    "moe_layer_start_index": "leading_dense_block_count",
    "moe_layer_interval": "interleave_moe_layer_step",
    "full_attention_interval": "full_attention_interval",
    "kv_lora_rank": "attention.kv_lora_rank",
    "qk_rope_head_dim": "rope.dimension_count",
    "linear_conv_kernel_dim": "ssm.conv_kernel",
    "linear_key_head_dim": "ssm.state_size",
    "linear_num_key_heads": "ssm.group_count",
    "linear_num_value_heads": "ssm.time_step_rank",
}
# Tensors of these architectures: outside the layers, and inside them.
_OUTER = "token_embd output_norm output rope_freqs rope_factors_long rope_factors_short"
_INNER = """
    attn_norm attn_q attn_k attn_v attn_qkv attn_output attn_q_norm attn_k_norm attn_rot_embd
    attn_sinks attn_gate attn_q_a attn_q_b attn_q_a_norm attn_kv_a_mqa attn_kv_a_norm attn_kv_b
    attn_k_b attn_v_b post_attention_norm post_ffw_norm ffn_norm ffn_gate ffn_up ffn_down
    ffn_gate_inp ffn_gate_exps ffn_up_exps ffn_gate_up_exps ffn_down_exps ffn_gate_inp_shexp
    ffn_gate_shexp ffn_up_shexp ffn_down_shexp exp_probs_b ssm_a ssm_conv1d ssm_dt ssm_norm ssm_in
    ssm_ba ssm_alpha ssm_beta ssm_out nextn.eh_proj nextn.embed_tokens nextn.enorm nextn.hnorm
    nextn.shared_head_head nextn.shared_head_norm
"""
_LAYER, _ENDING = re.compile(r"^blk\.\d+\."), re.compile(r"\.(weight|bias|scale|input_scale)$")
# Positions, and copies of the model's own embedding and head.
_UNCOUNTED = ("rope_f", "attn_rot_embd", "nextn.embed_tokens", "nextn.shared_head_head")


def config_of(meta: Mapping[str, object], tensors: Shapes, where: str) -> dict[str, object]:
    """The fields of a Hugging Face config that the metadata and the tensors' shapes hold."""
    arch = meta.get("general.architecture")
    if not isinstance(arch, str):
        raise FormatError(f"{where}: no general.architecture in the metadata; it is no model")
    if arch not in _FAMILIES:
        raise ModelConfigError(
            f"{where}: the GGUF architecture {arch[:40]!a} is not read from a GGUF header "
            f"(known: {', '.join(_FAMILIES)}); give the model's config.json instead"
        )
    own = {key.removeprefix(f"{arch}."): value for key, value in meta.items()}
    kind, fields = _FAMILIES[arch]
    if arch == "llama" and own.get("expert_count"):
        kind, fields = "mixtral", "num_experts num_experts_per_tok"
    elif arch == "olmo2" and own.get("attention.sliding_window"):
        kind, fields = "olmo3", "attention_bias sliding_window layer_types"
    _refuse_parts(tensors, arch, where)
    found = {name: own.get(key) for name, key in _KEYS.items()}
    layers, heads = own.get("block_count"), found["num_attention_heads"]
    kv_heads = own.get("attention.head_count_kv", heads)
    if isinstance(heads, tuple) or isinstance(kv_heads, tuple):
        raise ModelConfigError(
            f"{where}: its layers differ in their heads; give the model's config.json instead"
        )
    copies = _whole(own.get("nextn_predict_layers")) or 0
    for name, value, wanted in (("embedding_length", found["hidden_size"], 1),
                                ("block_count", layers, copies + 1),
                                ("attention.head_count", heads, 1)):
        if (_whole(value) or 0) < wanted:
            raise FormatError(f"{where}: {arch}.{name} is missing or no whole number of at least "
                              f"{wanted}; the file is not complete")
    found |= _from_tensors(tensors) | _widths(own, found) | {
        "model_type": kind,
        "num_hidden_layers": (_whole(layers) or 0) - copies,
        "num_key_value_heads": kv_heads,
        # converters may count the MTP layers and leave their tensors out
        "num_nextn_predict_layers": copies if any(".nextn." in name for name in tensors) else 0,
        "vocab_size": own.get("vocab_size") or _vocabulary(meta, tensors),
        "hidden_act": "gelu_pytorch_tanh" if arch.startswith("gemma") else "silu",
    }
    if "moe_intermediate_size" not in fields.split():  # one width, whatever it is called
        found["intermediate_size"] = found["intermediate_size"] or found["moe_intermediate_size"]
    asked = {*_COMMON.split(), *fields.split()}
    return {name: found[name] for name in found if name in asked and found[name] is not None}


def check_sum(spec: ModelSpec, meta: Mapping[str, object], tensors: Shapes, where: str) -> None:
    """Raise ModelConfigError if the model has not the weights that the tensors hold; one file of a
    split model holds only some of them."""
    if not tensors or (_whole(meta.get("split.count")) or 0) > 1:
        return
    held = sum(prod(shape) for name, shape in tensors.items()
               if not any(part in name for part in _UNCOUNTED)
               and not (".attn_kv_b." in name and name.replace("_kv_b", "_k_b") in tensors))
    counted = parameters(spec).total
    if abs(held - counted) > MAX_UNREAD_SHARE * counted:
        raise ModelConfigError(
            f"{where}: its tensors hold {held:,} weights and its metadata describe {counted:,}: "
            f"a part of it is not known for {str(meta.get('general.architecture'))[:40]!a}; give "
            "the model's config.json instead"
        )


def _refuse_parts(tensors: Shapes, arch: str, where: str) -> None:
    outer, inner = frozenset(_OUTER.split()), frozenset(_INNER.split())
    for name in tensors:
        part = _ENDING.sub("", name)
        if part not in outer and _LAYER.sub("", part) not in inner:
            raise ModelConfigError(
                f"{where}: the tensor {name[:60]!a} is a part that is not known for {arch}; give "
                "the model's config.json instead"
            )


def _from_tensors(tensors: Shapes) -> dict[str, object]:
    """What only the presence of a tensor says."""
    # of any layer: in hybrids and before mixtures the first one has not all parts
    parts = {_LAYER.sub("", name) for name in tensors}
    bias = "attn_q.bias" in parts or "attn_qkv.bias" in parts
    corrected = any(part.startswith("exp_probs_b") for part in parts)
    return {
        "attention_bias": bias, "qkv_bias": bias, "use_bias": bias,
        "attention_out_bias": "attn_output.bias" in parts,
        "use_qk_norm": "attn_q_norm.weight" in parts,
        "use_routing_bias": corrected,
        "topk_method": "noaux_tc" if corrected else "greedy",
        "tie_word_embeddings": bool(tensors) and "output.weight" not in tensors,
    }


def _widths(own: Mapping[str, object], found: Mapping[str, object]) -> dict[str, object]:
    """Fields that are worked out from several keys."""
    out: dict[str, object] = {"q_lora_rank": own.get("attention.q_lora_rank") or 0}
    hidden, heads = _whole(found["hidden_size"]), _whole(found["num_attention_heads"])
    out["head_dim"] = own.get("attention.key_length", hidden // heads if hidden and heads else None)
    # latent attention: the *_mla keys are of its heads, the others of the latent cache
    rope = _whole(found["qk_rope_head_dim"])
    key = _whole(own.get("attention.key_length_mla", own.get("attention.key_length")))
    out["qk_nope_head_dim"] = key - rope if key and rope else None
    out["v_head_dim"] = own.get("attention.value_length_mla", own.get("attention.value_length"))
    inner, states = _whole(own.get("ssm.inner_size")), _whole(own.get("ssm.time_step_rank"))
    out["linear_value_head_dim"] = inner // states if inner and states else None
    pattern = own.get("attention.sliding_window_pattern")  # every n-th is full, or one per layer
    if isinstance(pattern, tuple):
        out["layer_types"] = ["sliding_attention" if windowed else "full_attention"
                              for windowed in pattern]
    else:
        out["sliding_window_pattern"] = pattern
    return out


def _vocabulary(meta: Mapping[str, object], tensors: Shapes) -> object:
    embedding, tokens = tensors.get("token_embd.weight", ()), meta.get("tokenizer.ggml.tokens")
    if len(embedding) == 2:
        return embedding[1]
    if isinstance(tokens, tuple):
        return tokens[1] if tokens[:1] == ("array",) else len(tokens)
    return None


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None

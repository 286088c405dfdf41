"""The metadata and tensors of a GGUF header as the fields of a Hugging Face config.

Which keys, tensors and architectures there are stands in `catalog/gguf.toml`. Each architecture
gets only the fields that its reader asks for. A header lists every tensor, so what a reader leaves
out is seen: a tensor of an unknown name, or a sum that is not the reader's, is refused.
"""

import re
from collections.abc import Mapping
from math import prod

from specsim.data import data_table
from specsim.errors import FormatError, ModelConfigError
from specsim.model.counts import parameters
from specsim.model.spec import ModelSpec

Shapes = Mapping[str, tuple[int, ...]]

MAX_UNREAD_SHARE = 0.01  # of all weights, that a reader may count otherwise than the tensors
_KNOWN = data_table("catalog", "gguf.toml")
_LAYER, _ENDING = re.compile(r"^blk\.\d+\."), re.compile(r"\.(weight|bias|scale|input_scale)$")


def config_of(meta: Mapping[str, object], tensors: Shapes, where: str) -> dict[str, object]:
    """The fields of a Hugging Face config that the metadata and the tensors' shapes hold."""
    arch = meta.get("general.architecture")
    if not isinstance(arch, str):
        raise FormatError(f"{where}: no general.architecture in the metadata; it is no model")
    if arch not in _KNOWN["architectures"]:
        raise ModelConfigError(
            f"{where}: the GGUF architecture {arch[:40]!a} is not read from a GGUF header "
            f"(known: {', '.join(_KNOWN['architectures'])}); give the model's config.json instead"
        )
    own = {key.removeprefix(f"{arch}."): value for key, value in meta.items()}
    kind, fields = _KNOWN["architectures"][arch]
    if arch == "llama" and own.get("expert_count"):
        kind, fields = "mixtral", "num_experts num_experts_per_tok"
    elif arch == "olmo2" and own.get("attention.sliding_window"):
        kind, fields = "olmo3", "attention_bias sliding_window layer_types"
    _refuse_parts(tensors, arch, where)
    found = {name: own.get(key) for name, key in _KNOWN["keys"].items()}
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
    asked = {*" ".join(_KNOWN["groups"].get(word, word) for word in fields.split()).split()}
    if "moe_intermediate_size" not in asked:  # one width, whatever it is called
        found["intermediate_size"] = found["intermediate_size"] or found["moe_intermediate_size"]
    asked |= {*_KNOWN["common"]}
    return {name: found[name] for name in found if name in asked and found[name] is not None}


def check_sum(spec: ModelSpec, meta: Mapping[str, object], tensors: Shapes, where: str) -> None:
    """Raise ModelConfigError if the model has not the weights that the tensors hold; one file of a
    split model holds only some of them."""
    if not tensors or (_whole(meta.get("split.count")) or 0) > 1:
        return
    held = sum(prod(shape) for name, shape in tensors.items()
               if not any(part in name for part in _KNOWN["uncounted"])
               and not (".attn_kv_b." in name and name.replace("_kv_b", "_k_b") in tensors))
    counted = parameters(spec).total
    if abs(held - counted) > MAX_UNREAD_SHARE * counted:
        raise ModelConfigError(
            f"{where}: its tensors hold {held:,} weights and its metadata describe {counted:,}: "
            f"a part of it is not known for {str(meta.get('general.architecture'))[:40]!a}; give "
            "the model's config.json instead"
        )


def _refuse_parts(tensors: Shapes, arch: str, where: str) -> None:
    outer, inner = frozenset(_KNOWN["outer"]), frozenset(_KNOWN["inner"])
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

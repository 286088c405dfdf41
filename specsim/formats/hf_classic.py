"""Readers of dense families with other blocks than Llama's: LayerNorms with biases, MLPs of two
matrices, learned positions, attention and MLP side by side (OPT, GPT-2, GPT-NeoX, BLOOM, Falcon,
Phi, StarCoder2, StableLM, Nemotron, Cohere, OLMo, EXAONE, Apertus, Arcee).

What blocks side by side save in engines, one all-reduce of two in some, is not modelled. Counts
follow transformers 5.24 (Apache-2.0).
"""

from dataclasses import replace
from functools import partial

from specsim.formats.hf_common import (
    FULL,
    SLIDING,
    attention,
    kinds_or_every,
    plan,
    windowed_kinds,
)
from specsim.formats.hf_dense import Dense, dense
from specsim.formats.hf_plan import LayerNames, ModelPlan, decoder_layer, family
from specsim.formats.hf_shape import TextConfig
from specsim.model.feedforward import DenseMLP

# LayerNorms with biases before attention and MLP, two matrices in the MLP.
_TWO = Dense("opt", True, True, True, norms=4, final_norms=2, any_activation=True, mlp_gated=False)
_FUSED = LayerNames(linears=("query_key_value", "dense"), dense=("dense_h_to_4h", "dense_4h_to_h"))
_GPT2 = replace(
    _TWO, name="gpt2", tied=True, positions=0,
    names=LayerNames("attn", linears=("c_attn", "c_proj"), dense=("c_fc", "c_proj")),
)
_BIASES = ("use_bias", True)

_FAMILIES: dict[tuple[str, ...], Dense] = {
    ("gpt_neox",): replace(
        _TWO, name="gpt_neox", qkv_bias=("attention_bias", True), o_bias=("attention_bias", True),
        inert=("use_parallel_residual",), names=_FUSED,
    ),
    ("starcoder2",): replace(
        _TWO, name="starcoder2", qkv_bias=_BIASES, o_bias=_BIASES, mlp_bias=_BIASES, windows=True,
        tied=True, defaults=(_BIASES,), names=LayerNames(dense=("c_fc", "c_proj")),
    ),
    ("nemotron",): replace(
        _TWO, name="nemotron", qkv_bias=("attention_bias", False),
        o_bias=("attention_bias", False), mlp_bias=("mlp_bias", False),
        names=LayerNames(dense=("up_proj", "down_proj")),
    ),
    ("arcee",): Dense(
        "arcee", any_activation=True, mlp_gated=False,
        names=LayerNames(dense=("up_proj", "down_proj")),
    ),
    ("olmo",): Dense("olmo", norms=0, final_norms=0),  # norms without weights
}
for _types, _parts in _FAMILIES.items():
    family(*_types)(partial(dense, _parts))


@family("opt")
def opt(f: TextConfig) -> ModelPlan:
    """OPT: a table of positions with two rows more than the context."""
    for name, allowed in (("do_layer_norm_before", True), ("enable_bias", True),
                          ("layer_norm_elementwise_affine", True),
                          ("word_embed_proj_dim", f.hidden_size)):
        f.require(name, (allowed,), f"only {allowed} is modelled for this family")
    f.require("_remove_final_layer_norm", (False,), "only false is modelled for this family")
    names = LayerNames(
        linears=("q_proj", "k_proj", "v_proj", "out_proj"), ffn="", dense=("fc1", "fc2")
    )
    return dense(replace(_TWO, positions=2, tied=True, names=names), f)


@family("gpt2", "gpt_bigcode")
def gpt2(f: TextConfig) -> ModelPlan:
    """GPT-2 and the first StarCoder, whose heads share one of keys and values (multi_query)."""
    f = f.with_default("intermediate_size", 4 * f.hidden_size)
    f.require("add_cross_attention", (False,), "cross-attention is not modelled")
    f.costs_nothing("scale_attn_weights", "attention_softmax_in_fp32")
    if f.model_type == "gpt_bigcode" and f.flag("multi_query", True):
        f = f.with_default("num_key_value_heads", 1)
    return dense(_GPT2, f)


@family("bloom")
def bloom(f: TextConfig) -> ModelPlan:
    """BLOOM: a norm behind the embedding; positions by ALiBi."""
    f = f.with_default("intermediate_size", 4 * f.hidden_size)
    result = dense(replace(_TWO, name="bloom", tied=True, names=_FUSED), f)
    result.extra_weights = 2 * f.hidden_size
    return result


@family("falcon")
def falcon(f: TextConfig) -> ModelPlan:
    """Falcon: one norm for attention and MLP side by side (7B), one for each (40B, 180B)."""
    new, bias = f.new_decoder_architecture, f.flag("bias", False)
    f.require("parallel_attn", (True,), "only attention and MLP side by side are modelled")
    kv = f.num_kv_heads if new else 1 if f.multi_query else f.num_attention_heads
    norms = f.num_ln_in_parallel_attn or (2 if new else 1)
    f = f.with_default("num_key_value_heads", kv)
    f = f.with_default("intermediate_size", 4 * f.hidden_size)
    parts = replace(
        _TWO, name="falcon", qkv_bias=bias, o_bias=bias, mlp_bias=bias, norms=2 * norms, tied=True,
        inert=("num_kv_heads", "multi_query"), names=replace(_FUSED, mixer="self_attention"),
    )
    return dense(parts, f)


@family("phi")
def phi(f: TextConfig) -> ModelPlan:
    """Phi-1.5 and Phi-2: one norm for attention and MLP side by side, a bias in the head."""
    f.require("qk_layernorm", (False,), "norms of queries and keys are not known for this family")
    names = LayerNames(linears=("q_proj", "k_proj", "v_proj", "dense"), dense=("fc1", "fc2"))
    result = dense(replace(_TWO, name="phi", norms=2, names=names), f)
    result.extra_weights = f.vocab_size
    return result


@family("stablelm")
def stablelm(f: TextConfig) -> ModelPlan:
    """StableLM-2: Llama's layer with LayerNorms, or one for attention and MLP side by side."""
    f.require("qk_layernorm", (False,), "norms of queries and keys are not modelled")
    side_by_side = f.flag("use_parallel_residual", False)
    bias = ("use_qkv_bias", False)
    return dense(Dense("stablelm", bias, False, norms=2 if side_by_side else 4, final_norms=2), f)


@family("cohere", "cohere2")
def cohere(f: TextConfig) -> ModelPlan:
    """Command R and A: one norm for attention and MLP side by side; in Command R7B and A three
    windows to one layer that sees everything."""
    parts = Dense("cohere", norms=1, windows=f.model_type != "cohere", tied=True)
    if parts.windows:
        f = f.with_default("layer_types", list(windowed_kinds(f, f.num_hidden_layers)))
    elif f.flag("use_qk_norm", False):
        parts = replace(parts, qk_norm="full")
    return dense(parts, f)


@family("exaone4")
def exaone4(f: TextConfig) -> ModelPlan:
    """EXAONE-4: norms behind the blocks and of queries and keys; windows in three of four layers,
    where the file has a window."""
    if f.sliding_window:
        f = f.with_default("layer_types", list(windowed_kinds(f, f.num_hidden_layers)))
    f.costs_nothing("sliding_window_pattern")  # without a window
    return dense(Dense("exaone4", False, False, qk_norm="head", windows=True), f)


@family("apertus")
def apertus(f: TextConfig) -> ModelPlan:
    """Apertus: norms of queries and keys, two matrices in the MLP around xIELU, which has two
    parameters a layer."""
    hidden, bias = f.hidden_size, f.flag("attention_bias", False)
    mixer = attention(f, qkv_bias=bias, o_bias=bias, qk_norm="head")
    names = LayerNames(dense=("up_proj", "down_proj"))
    mlp = DenseMLP(f.intermediate_size, gated=False, bias=f.mlp_bias)
    kinds = kinds_or_every(f, f.num_hidden_layers, 1, SLIDING)
    if set(kinds) != {FULL}:
        raise f.fail("layer_types", "windows are not known for this family")
    layers = [decoder_layer(mixer, mlp, 2 * hidden + 2, names) for _ in kinds]
    return plan(f, "apertus", layers)

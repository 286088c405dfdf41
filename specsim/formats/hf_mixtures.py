"""Readers of further mixtures with ordinary attention: OLMoE, FlexOlmo, Granite's, Phi-3.5-MoE,
AFMoE (Trinity), Sarvam, K-EXAONE. Counts follow transformers 5.24 (Apache-2.0)."""

from dataclasses import replace

from specsim.formats.hf_common import (
    SLIDING,
    attention,
    experts,
    kinds_or_every,
    mlp,
    plan,
    shared_width,
    sparse_after_dense,
    windowed_kinds,
    windows,
)
from specsim.formats.hf_moe import appended_mtp, sigmoid_moe
from specsim.formats.hf_plan import LayerNames, ModelPlan, decoder_layer, family
from specsim.formats.hf_shape import TextConfig
from specsim.model.feedforward import MoE

_GRANITE = LayerNames(ffn="block_sparse_moe", shared="shared_mlp")


@family("olmoe", "flex_olmo", "granitemoe", "granitemoeshared")
def even_moe(f: TextConfig) -> ModelPlan:
    """A mixture in every layer: OLMoE and FlexOlmo with norms over all queries and keys, Granite's
    with or without a shared MLP."""
    bias, granite = f.flag("attention_bias", False), f.model_type.startswith("granite")
    mixer = attention(f, qkv_bias=bias, o_bias=bias, qk_norm="none" if granite else "full")
    shared = f.shared_mlp_width if granite else 0
    moe = MoE(*experts(f), f.intermediate_size, shared_intermediate=shared)
    names = _GRANITE if granite else LayerNames()
    layer = decoder_layer(mixer, moe, 2 * f.hidden_size, names)
    return plan(f, f.model_type, [layer] * f.num_hidden_layers)


@family("phimoe")
def phi_moe(f: TextConfig) -> ModelPlan:
    """Phi-3.5-MoE: LayerNorms with biases, and a bias in the head."""
    bias = f.flag("attention_bias", False)
    moe = MoE(*experts(f), f.intermediate_size)
    names = LayerNames(ffn="block_sparse_moe", experts=("w1", "w2", "w3"))
    layers = [
        decoder_layer(
            attention(f, qkv_bias=bias, o_bias=bias, window=window), moe, 4 * f.hidden_size, names
        )
        for window in windows(f, f.num_hidden_layers)
    ]
    result = plan(f, "phimoe", layers)
    result.final_norm_weights *= 2
    result.extra_weights = f.vocab_size if f.lm_head_bias else 0
    return result


@family("afmoe")
def afmoe(f: TextConfig) -> ModelPlan:
    """AFMoE (Trinity): a gate as wide as the queries, four norms a layer, windows in three of four
    layers, dense first layers, then sigmoid mixtures."""
    f.costs_nothing("mup_enabled", "num_expert_groups", "num_limited_groups")
    count, width = f.num_hidden_layers, f.moe_intermediate_size
    kinds = kinds_or_every(f, count, f.global_attn_every_n_layers, SLIDING)
    full = attention(f, qk_norm="head", gated=True, head_dim_given=True)
    swa = replace(full, window=f.given("sliding_window", f.sliding_window))
    moe = MoE(*experts(f), width, shared_intermediate=shared_width(f, width), router_bias=True)
    layers = [
        decoder_layer(
            swa if kind == SLIDING else full, mlp(f) if index < f.num_dense_layers else moe,
            4 * f.hidden_size,
        )
        for index, kind in enumerate(kinds)
    ]
    return plan(f, "afmoe", layers)


@family("exaone_moe")
def exaone_moe(f: TextConfig) -> ModelPlan:
    """K-EXAONE: norms of queries and keys, windows in three of four layers, a dense first layer,
    then DeepSeek-V3's mixtures; its MTP head is one more mixture layer."""
    count = f.num_hidden_layers
    kinds = windowed_kinds(f, count)
    full = attention(f, qk_norm="head")
    swa = replace(full, window=f.given("sliding_window", f.sliding_window))
    moe, norms = sigmoid_moe(f), 2 * f.hidden_size
    layers = [
        decoder_layer(swa if kind == SLIDING else full, moe if sparse else mlp(f), norms)
        for kind, sparse in zip(kinds, sparse_after_dense(f, count, 1), strict=True)
    ]
    result = plan(f, "exaone_moe", layers)
    result.mtp = appended_mtp(f, decoder_layer(full, moe, norms))
    return result

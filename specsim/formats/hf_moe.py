"""Readers of mixture-of-experts families with ordinary attention."""

import re
from collections.abc import Iterable
from dataclasses import replace

from specsim.formats.hf_common import (
    FULL,
    SLIDING,
    appended_mtp,
    attention,
    each_layer,
    experts,
    in_groups,
    kinds_or_every,
    listed_kinds,
    mlp,
    pattern,
    plan,
    shared_width,
    sigmoid_moe,
    sparse_after_dense,
    windowed_kinds,
)
from specsim.formats.hf_family import built, parts_of
from specsim.formats.hf_plan import LayerNames, LayerPlan, ModelPlan, MtpPlan, decoder_layer, family
from specsim.formats.hf_shape import TextConfig
from specsim.formats.hf_unread import refuse_unread
from specsim.model.feedforward import DenseMLP, MoE
from specsim.model.mixers import Attention

_USUAL = LayerNames()
_BLOCK_SPARSE = LayerNames(ffn="block_sparse_moe", experts=("w1", "w2", "w3"))


def _mixtures(
    f: TextConfig, mixer: Attention, moe: MoE, sparse: Iterable[bool],
    names: LayerNames = _USUAL,
) -> list[LayerPlan]:
    """Layers with one mixer: mixtures where `sparse` says so, dense elsewhere."""
    return [
        decoder_layer(mixer, moe if is_sparse else mlp(f), 2 * f.hidden_size, names)
        for is_sparse in sparse
    ]


def _after_dense(
    f: TextConfig, name: str, mixer: Attention, moe: MoE, default_dense: int = 0,
    names: LayerNames = _USUAL,
) -> ModelPlan:
    """Some dense layers, then mixtures, and DeepSeek-V3's kind of MTP head where there is one."""
    sparse = sparse_after_dense(f, f.num_hidden_layers, default_dense)
    result = plan(f, name, _mixtures(f, mixer, moe, sparse, names))
    result.mtp = appended_mtp(f, *_mixtures(f, mixer, moe, [True], names))
    return result


@family("minimax_m2")
def minimax_m2(f: TextConfig) -> ModelPlan:
    """MiniMax-M2: q/k norms over all heads. Its config declares MTP modules that the
    published checkpoints do not hold, so the model has none here."""
    f.require("shared_intermediate_size", (0,), "a shared expert is not known for this family")
    if set(f.attn_type_list) - {1}:
        raise f.fail("attn_type_list", "linear attention (type 0) is not known for this family")
    f.require("qk_norm_type", ("per_layer",), "only per_layer is known for this family")
    moe = MoE(*experts(f), f.intermediate_size, router_bias=f.use_routing_bias)
    norm = "full" if f.flag("use_qk_norm", True) else "none"
    mixer = attention(f, qk_norm=norm, head_dim_given=True)
    sparse = [True] * f.num_hidden_layers
    result = plan(f, "minimax_m2", _mixtures(f, mixer, moe, sparse, _BLOCK_SPARSE))
    if f.use_mtp:
        result.notes.append("the config declares MTP modules; the published weights have none")
    return result


@family("bailing_moe")
def bailing_moe(f: TextConfig) -> ModelPlan:
    """Ling and Ring 2.0 (bailing_moe): fused q/k/v, optional q/k norms, sigmoid mixtures."""
    bias, width = f.use_bias, f.moe_intermediate_size
    mixer = attention(
        f, qkv_bias=bias or f.use_qkv_bias, o_bias=bias,
        qk_norm="head" if f.flag("use_qk_norm", False) else "none",
    )
    shared = f.moe_shared_expert_intermediate_size or width
    moe = in_groups(f, MoE(
        *experts(f), width, shared_intermediate=shared_width(f, shared),
        router_bias=f.moe_router_enable_expert_bias,
    ))
    names = LayerNames(mixer="attention", linears=("query_key_value", "dense"))
    return _after_dense(f, "bailing_moe", mixer, moe, names=names)


@family("ernie4_5_moe")
def ernie_moe(f: TextConfig) -> ModelPlan:
    """ERNIE-4.5 mixtures. The MTP block, where the file has one, is a dense layer with two
    input norms and no norm of its own at the end."""
    f.require("use_bias", (False,), "biases are not known for this family's mixtures")
    mixer, moe, count = attention(f), sigmoid_moe(f), f.num_hidden_layers
    first, last = f.moe_layer_start_index, f.moe_layer_end_index
    last = count - 1 if last < 0 else last
    sparse = [first <= index <= last and (index - first) % f.moe_layer_interval == 0
              for index in range(count)]
    result = plan(f, "ernie4_5_moe", _mixtures(f, mixer, moe, sparse), tied=True)
    copies = f.num_nextn_predict_layers or 0
    if copies:
        result.mtp = MtpPlan(
            layers=_mixtures(f, mixer, moe, [False]), prefix="model.mtp_block.{i}.",
            fc_module="model.mtp_linear_proj.0", extra_weights=2 * f.hidden_size, copies=copies,
        )
    return result


@family("step3p5")
def step_3_5(f: TextConfig) -> ModelPlan:
    """Step-3.5-Flash: window layers with more query heads than the full ones, a gate per head,
    mixtures in the layers of `moe_layers_enum`. Its MTP layers are dense with a window."""
    other = f.attention_other_setting
    if other is None:
        raise f.fail("attention_other_setting", "the heads of the window layers are needed")
    count, gate = f.num_hidden_layers, f.use_head_wise_attn_gate
    kinds = listed_kinds(f, count, (FULL, SLIDING))
    if not re.fullmatch(r"\d+(,\d+)*", f.moe_layers_enum):
        raise f.fail("moe_layers_enum", "must list layers as in 3,4,5")
    sparse = {int(index) for index in f.moe_layers_enum.split(",")}
    f = f.with_default("num_key_value_heads", f.num_attention_groups)
    other = {"num_key_value_heads": other.get("num_attention_groups"), **other}
    full = replace(attention(f, qk_norm="head", head_dim_given=True), head_gate=gate)
    inner = TextConfig.of(other, f"{f.where}.attention_other_setting")
    window = f.given("sliding_window", f.sliding_window)
    swa = attention(inner, qk_norm="head", window=window, head_dim_given=True)
    swa = replace(swa, head_gate=gate)
    inner.costs_nothing("num_attention_groups")
    refuse_unread(inner)
    f.costs_nothing("norm_expert_weight")
    moe = MoE(
        *experts(f), f.moe_intermediate_size, shared_intermediate=f.share_expert_dim,
        router_bias=f.use_moe_router_bias,
    )
    norms = 2 * f.hidden_size
    layers = [
        decoder_layer(
            swa if kinds[index] == SLIDING else full,
            moe if index in sparse else mlp(f), norms,
        )
        for index in range(count)
    ]
    result = plan(f, "step3p5", layers)
    result.mtp = appended_mtp(f, decoder_layer(swa, mlp(f), norms))
    return result


@family("llama4_text")
def llama4(f: TextConfig) -> ModelPlan:
    """Llama-4: a mixture every `interleave_moe_layer_step` layers, top-1 plus a shared expert.

    Three of four layers attend within chunks of attention_chunk_size tokens; the chunk is
    counted as a window, its upper bound. The q/k norm has no weights.
    """
    count, width = f.num_hidden_layers, f.intermediate_size
    moe = MoE(*experts(f), width, shared_intermediate=width)
    step = f.interleave_moe_layer_step
    sparse = set(f.moe_layers) or set(range(step - 1, count, step))
    chunk = f.attention_chunk_size
    rope = f.no_rope_layers or tuple(int((index + 1) % 4 != 0) for index in range(count))
    if len(rope) != count:
        raise f.fail("no_rope_layers", f"must have one entry for each of the {count} layers")
    bias = f.flag("attention_bias", False)
    dense = DenseMLP(f.intermediate_size_mlp)
    names = LayerNames(ffn="feed_forward", shared="shared_expert")
    layers = [
        decoder_layer(
            attention(f, qkv_bias=bias, o_bias=bias, window=chunk if rope[index] else 0),
            moe if index in sparse else dense, 2 * f.hidden_size, names,
        )
        for index in range(count)
    ]
    f.costs_nothing("use_qk_norm", "layer_types")  # without weights; no_rope_layers says it
    result = plan(f, "llama4", layers)
    result.notes.append("chunked attention counted as a window of the chunk's length")
    return result


@family("mimo")
def mimo(f: TextConfig) -> ModelPlan:
    """MiMo-7B: Qwen2's layers, and one more behind them as MTP head."""
    f.costs_nothing("attention_bias")  # of q, k and v, as Qwen2's
    result = built(parts_of("qwen2"), f)
    result.mtp = appended_mtp(f, result.layers[0])
    return result


@family("mimo_v2_flash", "mimo_v2")
def mimo_v2(f: TextConfig) -> ModelPlan:
    """MiMo-V2: window layers with heads and sinks of their own, values narrower than keys.

    The checkpoints hold three MTP layers (window attention, dense MLP), which the files do not
    mention; where they do (num_nextn_predict_layers) that number counts.
    """
    f.require("n_shared_experts", (0,), "a shared expert is not known for this family")
    # transformers counts the token itself in sliding_window when it saves a file
    known = (f.sliding_window, (f.sliding_window or 0) - 1)
    f.costs_nothing("layer_types", "mlp_layer_types")  # the patterns say it
    f.require("sliding_window_size", known, "must equal sliding_window")
    f.require("attention_chunk_size", known, "must equal sliding_window")
    count, norms = f.num_hidden_layers, 2 * f.hidden_size
    windowed = pattern(f, "hybrid_layer_pattern", count)
    sparse = pattern(f, "moe_layer_freq", count)
    bias = f.flag("attention_bias", False)
    full = attention(f, qkv_bias=bias, o_bias=bias, head_dim_given=True)
    full = replace(full, v_head_dim=f.v_head_dim, sinks=f.add_full_attention_sink_bias)
    swa = _window_attention(f, full)
    moe = MoE(*experts(f), f.moe_intermediate_size, router_bias=f.topk_method == "noaux_tc")
    layers = [
        decoder_layer(swa if windowed[index] else full, moe if sparse[index] else mlp(f), norms)
        for index in range(count)
    ]
    result = plan(f, "mimo_v2", layers)
    mtp = f.with_default("num_nextn_predict_layers", 3)
    result.mtp = appended_mtp(mtp, decoder_layer(swa, mlp(f), norms))
    return result


def _window_attention(f: TextConfig, full: Attention) -> Attention:
    heads = f.swa_num_attention_heads or full.n_heads
    kv = f.swa_num_key_value_heads or full.n_kv_heads
    if heads % kv:
        raise f.fail("swa_num_attention_heads", f"must be a multiple of its KV heads = {kv}")
    return replace(
        full, n_heads=heads, n_kv_heads=kv, head_dim=f.swa_head_dim or full.head_dim,
        v_head_dim=f.swa_v_head_dim or full.v_head_dim, sinks=f.add_swa_attention_sink_bias,
        window=f.given("sliding_window", f.sliding_window),
    )


@family("hunyuan_v1_moe")
def hunyuan_moe(f: TextConfig) -> ModelPlan:
    """Hunyuan-A13B: a mixture in every layer, with an ungated shared MLP beside it; experts, their
    width, top-k and shared width as one number or layer by layer."""
    f.require("use_cla", (False,), "layers that share a cache are not modelled")
    f.require("moe_layer_num_skipped", (0,), "dense layers are not known for this family")
    f.require("use_mixed_mlp_moe", (True,), "mixtures without a shared MLP are not known")
    f.costs_nothing("use_qk_norm")  # it has the norms in any case
    bias, count = f.flag("attention_bias", False), f.num_hidden_layers
    mixer = attention(f, qkv_bias=bias, o_bias=bias, qk_norm="head")
    total = each_layer(f, "num_experts", count)
    top_k = each_layer(f, "moe_topk", count)
    width = each_layer(f, "moe_intermediate_size", count, f.intermediate_size)
    shared = each_layer(f, "num_shared_expert", count, 1)
    if any(few > many for few, many in zip(top_k, total, strict=True)):
        raise f.fail("moe_topk", "must not exceed the number of experts")
    layers = [
        decoder_layer(
            mixer,
            MoE(total[i], top_k[i], width[i], shared_intermediate=shared[i] * f.intermediate_size),
            2 * f.hidden_size,
        )
        for i in range(count)
    ]
    return plan(f, "hunyuan_v1_moe", layers)


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

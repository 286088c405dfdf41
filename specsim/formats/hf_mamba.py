"""Readers of families that mix attention with Mamba layers or short convolutions: Granite-4.0,
Bamba, Falcon-H1, Jamba, LFM2; and of Mamba layers alone. Counts follow transformers 5.24
(Apache-2.0)."""

from dataclasses import replace

from specsim.formats.hf_common import (
    FULL,
    attention,
    experts,
    layer_kinds,
    mlp,
    plan,
)
from specsim.formats.hf_hybrid import mamba2
from specsim.formats.hf_plan import LayerNames, LayerPlan, ModelPlan, Modules, decoder_layer, family
from specsim.formats.hf_shape import TextConfig
from specsim.model.feedforward import DenseMLP, FeedForward, MoE
from specsim.model.mixers import Attention, Mamba2, Mixer, ShortConvolution
from specsim.model.state_mixers import Mamba1

_MAMBA = LayerNames(mixer="mamba")
_MAMBA_FIELDS = (
    "ssm_state_size", "conv_kernel", "n_groups", "use_conv_bias", "use_bias",
)
_W = ("w1", "w3", "w2")


def _attention(f: TextConfig) -> Attention:
    bias = f.flag("attention_bias", False)
    return attention(f, qkv_bias=bias, o_bias=bias)


def _mamba(f: TextConfig) -> Mamba2:
    f.costs_nothing("mamba_chunk_size", "mamba_expand")  # the heads say the width
    return mamba2(f)


@family("granitemoehybrid")
def granite_hybrid(f: TextConfig) -> ModelPlan:
    """Granite-4.0: Mamba-2 layers and a few of attention, each with a shared MLP and in the larger
    models a mixture."""
    count, shared = f.num_hidden_layers, f.shared_mlp_width
    kinds = layer_kinds(f, count, (FULL, "attention", "mamba", "linear_attention"))
    if kinds is None:
        kinds = f.given("layer_types", f.layers_block_type)
        f.per_layer("layers_block_type", kinds, count)
    f.costs_nothing("num_local_experts", "num_experts_per_tok", "intermediate_size")  # of none
    ffn: FeedForward = DenseMLP(shared)
    if f.raw.get("num_local_experts"):
        ffn = MoE(*experts(f), f.intermediate_size, shared_intermediate=shared)
    plain = _attention(f)
    recurrent = plain if {*kinds} <= {FULL, "attention"} else _mamba(f)
    if recurrent is plain:  # Granite-4.0-Micro
        f.costs_nothing(*(name for name in f.raw if name.startswith("mamba_")), *_MAMBA_FIELDS)
    names, norms = LayerNames(ffn="block_sparse_moe", shared="shared_mlp"), 2 * f.hidden_size
    layers = [
        decoder_layer(plain, ffn, norms, names) if kind in (FULL, "attention")
        else decoder_layer(recurrent, ffn, norms, replace(names, mixer="mamba"))
        for kind in kinds
    ]
    return plan(f, "granite_hybrid", layers)


@family("bamba")
def bamba(f: TextConfig) -> ModelPlan:
    """Bamba: Mamba-2 layers, attention in those of `attn_layer_indices`, an MLP in each."""
    kept = set(f.attn_layer_indices)
    plain, recurrent = _attention(f), _mamba(f)
    norms = 2 * f.hidden_size
    layers = [
        decoder_layer(plain, mlp(f), norms) if index in kept
        else decoder_layer(recurrent, mlp(f), norms, _MAMBA)
        for index in range(f.num_hidden_layers)
    ]
    return plan(f, "bamba", layers)


@family("falcon_h1")
def falcon_h1(f: TextConfig) -> ModelPlan:
    """Falcon-H1: attention and Mamba-2 side by side in every layer. They are priced one after the
    other, as engines run them."""
    f.require("projectors_bias", (f.use_bias,), "must equal mamba_proj_bias")
    f.costs_nothing(
        "mamba_d_ssm", "mamba_norm_before_gate", "mamba_use_mlp", "mlp_expansion_factor"
    )
    recurrent = replace(_mamba(f), gate_norm=f.mamba_rms_norm)
    hidden = f.hidden_size
    leaves = ("q_proj", "k_proj", "v_proj", "o_proj")
    first = LayerPlan(
        _attention(f), None, 0, Modules(mixer=tuple(f"self_attn.{leaf}" for leaf in leaves))
    )
    names = LayerNames(mixer="mamba", ffn="feed_forward")
    second = decoder_layer(recurrent, mlp(f), 2 * hidden, names)
    return plan(f, "falcon_h1", [first, second] * f.num_hidden_layers)


@family("mamba", "falcon_mamba", "mamba2")
def mamba(f: TextConfig) -> ModelPlan:
    """State space layers alone, without attention or MLP: Mamba, FalconMamba, Mamba-Codestral."""
    hidden = f.hidden_size
    f.costs_nothing("mamba_expand", "intermediate_size", "mamba_dt_rank", "use_mambapy")
    mixer: Mixer = _mamba(f) if f.model_type == "mamba2" else _mamba1(f, norms=False)
    layer = LayerPlan(mixer, None, hidden, Modules(mixer=("mixer.in_proj", "mixer.out_proj")))
    return plan(f, f.model_type, [layer] * f.num_hidden_layers, tied=f.model_type != "mamba2")


def _mamba1(f: TextConfig, *, norms: bool) -> Mamba1:
    hidden, auto = f.hidden_size, f.mamba_dt_rank
    rank = -(-hidden // 16) if isinstance(auto, str) else auto
    return Mamba1(
        f.mamba_expand * hidden, f.ssm_state_size, rank, f.conv_kernel,
        conv_bias=f.use_conv_bias, proj_bias=f.use_bias, norms=norms,
    )


@family("jamba")
def jamba(f: TextConfig) -> ModelPlan:
    """Jamba: Mamba-1, attention in one of `attn_layer_period` layers, a mixture in every
    `expert_layer_period`-th."""
    norms = 2 * f.hidden_size
    f.costs_nothing("use_mambapy", "use_associative_scan", "n_ctx")
    f.require("mamba_inner_layernorms", (True,), "only layers with these norms are modelled")
    for kind in ("attn", "expert"):
        offset, period = f"{kind}_layer_offset", f"{kind}_layer_period"
        if getattr(f, offset) >= getattr(f, period):
            raise f.fail(offset, f"must be below {period} = {getattr(f, period)}")
    recurrent = _mamba1(f, norms=True)
    moe: FeedForward = mlp(f)
    if f.experts > 1:
        moe = MoE(*experts(f), f.intermediate_size)
    f.costs_nothing("num_experts_per_tok")  # of one
    names = LayerNames(ffn="feed_forward")
    layers = []
    for index in range(f.num_hidden_layers):
        ffn = moe if index % f.expert_layer_period == f.expert_layer_offset else mlp(f)
        if index % f.attn_layer_period == f.attn_layer_offset:
            layers.append(decoder_layer(attention(f), ffn, norms, names))
        else:
            layers.append(decoder_layer(recurrent, ffn, norms, replace(names, mixer="mamba")))
    return plan(f, "jamba", layers)


@family("lfm2", "lfm2_moe")
def lfm2(f: TextConfig) -> ModelPlan:
    """LFM2: gated short convolutions, some layers of attention with norms of queries and keys; in
    the mixtures the first `num_dense_layers` have an MLP."""
    count = f.num_hidden_layers
    f.costs_nothing(  # what other fields say again
        "block_multiple_of", "conv_dim", "conv_dim_out", "block_dim", "block_ff_dim",
        "block_use_swiglu", "block_norm_eps", "block_use_xavier_init", "conv_use_xavier_init",
    )
    f.costs_nothing("full_attn_idxs")  # beside layer_types
    kinds = layer_kinds(f, count, (FULL, "conv"))
    if kinds is None:
        named = f.full_attn_idxs  # none: all of them, as in transformers
        attend = set(range(count) if named is None else named)
        kinds = tuple(FULL if index in attend else "conv" for index in range(count))
    full: Mixer = attention(f, qk_norm="head")
    conv: Mixer = ShortConvolution(f.conv_kernel, f.conv_bias, f.hidden_size)
    names = LayerNames(ffn="feed_forward", dense=_W, experts=_W)
    dense = DenseMLP(_lfm2_width(f))
    moe: FeedForward = dense
    few = count
    if f.has("num_experts"):
        few = f.num_dense_layers
        dense = DenseMLP(f.intermediate_size)
        moe = MoE(*experts(f), f.moe_intermediate_size, router_bias=f.use_expert_bias)
    layers = [
        decoder_layer(
            full if kind == FULL else conv, dense if index < few else moe, 2 * f.hidden_size,
            names if kind == FULL else replace(names, mixer="conv"),
        )
        for index, kind in enumerate(kinds)
    ]
    return plan(f, "lfm2", layers, tied=True)


def _lfm2_width(f: TextConfig) -> int:
    """Width of the MLP: two thirds of the stated one, up to whole blocks, where the file asks."""
    width = f.intermediate_size
    if not f.block_auto_adjust_ff_dim:
        return width
    width = int(f.block_ffn_dim_multiplier * int(2 * width / 3))
    return -(-width // f.block_multiple_of) * f.block_multiple_of

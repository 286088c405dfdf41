"""Readers of families whose layers have sizes of their own: Hunyuan's mixtures, and networks that a
search made of Llama's layers (Llama-Nemotron, DeciLM)."""

from dataclasses import replace

from specsim.formats.hf_common import attention, plan
from specsim.formats.hf_object import MAX_WIDTH
from specsim.formats.hf_plan import LayerPlan, ModelPlan, decoder_layer, family
from specsim.formats.hf_shape import NasBlock, TextConfig
from specsim.formats.hf_unread import refuse_unread
from specsim.model.feedforward import DenseMLP, MoE


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
    total = _each(f, "num_experts", count)
    top_k = _each(f, "moe_topk", count)
    width = _each(f, "moe_intermediate_size", count, f.intermediate_size)
    shared = _each(f, "num_shared_expert", count, 1)
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


def _each(f: TextConfig, name: str, count: int, default: int | None = None) -> list[int]:
    """A size of every layer, which the file gives once or as a list."""
    if not f.has(name):
        if default is None:
            raise f.missing(name)
        return [default] * count
    value = f.raw[name]
    values = value if isinstance(value, list) else [value] * count
    whole = [item for item in values if type(item) is int and 0 < item <= MAX_WIDTH]
    if len(values) != count or len(whole) != count:
        raise f.fail(name, f"must be a positive whole number, or one for each of {count} layers")
    return whole


@family("nemotron-nas")
def nemotron_nas(f: TextConfig) -> ModelPlan:
    """Llama-3.3-Nemotron-Super: Llama's layers, some without attention or MLP, MLPs of several
    widths (SGLang 0.5.23 nemotron_nas.py, Apache-2.0)."""
    listed = f.raw.get("block_configs")
    f.costs_nothing("block_configs")  # what it says is in the layers
    count = f.num_hidden_layers
    if not isinstance(listed, list) or len(listed) != count:
        raise f.fail("block_configs", f"must have one entry for each of the {count} layers")
    blocks = [
        NasBlock.of(item, f"{f.where}.block_configs[{index}]") if isinstance(item, dict) else None
        for index, item in enumerate(listed)
    ]
    return plan(f, "nemotron-nas", [_searched_layer(f, block) for block in blocks])


def _searched_layer(f: TextConfig, block: NasBlock | None) -> LayerPlan:
    if block is None:
        raise f.fail("block_configs", "every entry must be an object with attention and ffn")
    attn, ffn, hidden = block.attention, block.ffn, f.hidden_size
    for part in (attn, ffn):
        part.require("replace_with_linear", (False,), "a linear in a part's place is not modelled")
        part.require("sparsify", (), "sparse weights are not modelled")
    attn.require("num_sink_tokens", (0,), "sink tokens are not modelled")
    attn.costs_nothing("unshifted_sink", "use_prefill_window_in_sink_attention")  # without a sink
    width = int(2 * (0.0 if ffn.no_op else ffn.ffn_mult) * hidden / 3)
    mlp = DenseMLP(-(-width // 256) * 256, bias=f.mlp_bias)  # up to whole tiles
    heads, group = f.num_attention_heads, 1 if attn.no_op else attn.n_heads_in_group
    if heads % group:
        raise attn.fail("n_heads_in_group", f"must divide num_attention_heads = {heads}")
    bias = f.flag("attention_bias", False)
    mixer = attention(f, qkv_bias=bias, o_bias=bias, window=attn.window_length or 0)
    mixer = replace(mixer, n_kv_heads=heads // group)
    refuse_unread(attn)
    refuse_unread(ffn)
    layer = decoder_layer(mixer, mlp, hidden * ((not attn.no_op) + (not ffn.no_op)))
    layer.mixer = None if attn.no_op else mixer
    layer.ffn = None if ffn.no_op else mlp
    return layer

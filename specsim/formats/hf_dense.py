"""Readers of dense decoder families with a rule of their own beside the parts that
`catalog/families.toml` declares: some of its families, the Gemmas, networks that a search made of
Llama's layers (Llama-Nemotron, DeciLM). Counts follow transformers 5.24 (Apache-2.0).
"""

from dataclasses import replace

from specsim.formats.hf_common import (
    FULL,
    SLIDING,
    attention,
    each_layer,
    experts,
    kinds_or_every,
    listed_kinds,
    mlp,
    plan,
    windowed_kinds,
)
from specsim.formats.hf_family import built, parts_of
from specsim.formats.hf_object import ConfigObject, Few, Width
from specsim.formats.hf_plan import LayerNames, LayerPlan, ModelPlan, decoder_layer, family
from specsim.formats.hf_shape import NasBlock, TextConfig
from specsim.formats.hf_unread import refuse_unread
from specsim.model.extras import AltUp, PerLayerInput
from specsim.model.feedforward import DenseMLP, MoE
from specsim.model.mixers import Attention


@family("gemma2")
def gemma2(f: TextConfig) -> ModelPlan:
    """Gemma-2: four norms a layer, every other layer with a window, tied 256k vocabulary."""
    return _gemma(f, "gemma2", qk_norm="none", pattern=2)


# What published Gemma-3 files leave out because it is the architecture's default.
_GEMMA3 = {
    "vocab_size": 262_208,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "max_position_embeddings": 131_072,
}


@family("gemma3_text")
def gemma3(f: TextConfig) -> ModelPlan:
    """Gemma-3: per-head q/k norms, five windows to one full layer."""
    for name, value in _GEMMA3.items():
        f = f.with_default(name, value)
    return _gemma(f, "gemma3", qk_norm="head", pattern=6)


def _gemma(f: TextConfig, family: str, *, qk_norm: str, pattern: int) -> ModelPlan:
    hidden = f.hidden_size
    count = f.num_hidden_layers
    window = 4096 if f.sliding_window is None else f.sliding_window
    every = f.sliding_window_pattern or pattern
    layers: list[LayerPlan] = []
    for kind in kinds_or_every(f, count, every, SLIDING):
        size = window if kind == SLIDING else 0
        mixer = attention(f, qk_norm=qk_norm, window=size, head_dim_given=True)
        layers.append(decoder_layer(mixer, mlp(f), 4 * hidden))
    return plan(f, family, layers, tied=True)


@family("gemma4_text")
def gemma4(f: TextConfig) -> ModelPlan:
    """Gemma-4: wide heads and shared K/V projections in full layers, parallel MoE. In E2B and E4B
    the last layers read the cache of the last one of their kind before them, and every layer takes
    a row of its own from a second table, a product of the token's embedding added to it."""
    hidden, count = f.hidden_size, f.num_hidden_layers
    f = _full_sizes(f, count)
    result = plan(f, "gemma4", gemma4_layers(f, count, hidden), tied=True)
    f.costs_nothing("vocab_size_per_layer_input")  # without the table
    if f.hidden_size_per_layer_input:
        packed = count * f.hidden_size_per_layer_input
        result.tables = ((f.vocab_size_per_layer_input, packed),)
        result.extra_matrices = ((hidden, packed),)
        result.extra_weights = f.hidden_size_per_layer_input  # the norm of that product
    return result


def _full_sizes(f: TextConfig, count: int) -> TextConfig:
    """The sizes of full layers where transformers wrote the file: in `per_layer_config`."""
    listed = f.raw.get("per_layer_config")
    f.costs_nothing("per_layer_config")
    if not listed:
        return f
    kinds = listed_kinds(f, count, (FULL, SLIDING))
    full = {str(index) for index, kind in enumerate(kinds) if kind == FULL}
    entries = listed if isinstance(listed, dict) else {}
    first = next(iter(entries.values()), None)
    first = first if isinstance(first, dict) else {}
    same = first and all(entry == first for entry in entries.values())
    if not same or {str(key).lstrip("0") or "0" for key in entries} != full:
        raise f.fail("per_layer_config", "must say the same of each full layer, and of no other")
    names = {"head_dim": "global_head_dim", "num_key_value_heads": "num_global_key_value_heads"}
    for name, value in first.items():
        if name not in names:
            raise f.fail("per_layer_config", f"{str(name)[:40]!r} is not known by layer")
        f = f.with_default(names[name], value)
    return f


def gemma4_attention(f: TextConfig, kind: str, *, owns_kv: bool = True) -> Attention:
    """A window layer with head_dim and all KV heads, or a full one with the global sizes."""
    count = f.num_attention_heads
    full = kind == FULL
    f.costs_nothing("num_global_key_value_heads")  # without shared K and V projections
    kv = f.given("num_key_value_heads", f.num_key_value_heads)
    dim = f.given("head_dim", f.head_dim)
    k_eq_v = full and f.attention_k_eq_v
    if full:
        dim = f.global_head_dim or dim
        if k_eq_v:
            kv = f.num_global_key_value_heads or kv
    if count % kv:
        raise f.fail("num_attention_heads", f"must be a multiple of the KV heads = {kv}")
    bias = f.flag("attention_bias", False)
    return Attention(
        n_heads=count, n_kv_heads=kv, head_dim=dim,
        window=0 if full else f.given("sliding_window", f.sliding_window), qkv_bias=bias,
        o_bias=bias, qk_norm="head", k_eq_v=k_eq_v, owns_kv=owns_kv,
    )


def gemma4_layers(
    f: TextConfig, count: int, hidden: int, *, owns_kv: bool = True
) -> list[LayerPlan]:
    kinds = listed_kinds(f, count, (FULL, SLIDING))
    owned = count - f.num_kv_shared_layers if owns_kv else 0
    if owned < 0 or (owned and not set(kinds[owned:]) <= set(kinds[:owned])):
        raise f.fail("num_kv_shared_layers", "every layer that shares needs one of its kind before")
    wide = DenseMLP(2 * f.intermediate_size, bias=f.mlp_bias)
    double = f.use_double_wide_mlp and owns_kv
    norms = 4 * hidden
    moe: MoE | None = None
    f.costs_nothing("num_experts", "top_k_experts", "moe_intermediate_size")  # without the block
    if f.enable_moe_block:
        total, top_k = experts(f)
        moe = MoE(total, top_k, f.moe_intermediate_size)
        norms = 7 * hidden + hidden + total  # three more norms, router scale, per-expert scale
    width = f.hidden_size_per_layer_input
    extras = (PerLayerInput(width),) if width else ()

    def layer(index: int, kind: str) -> LayerPlan:
        dense = wide if double and index >= owned else mlp(f)
        ffn: DenseMLP | tuple[DenseMLP, MoE] = (dense, moe) if moe else dense
        mixer = gemma4_attention(f, kind, owns_kv=index < owned)
        return decoder_layer(mixer, ffn, norms, extras=extras)

    return [layer(index, kind) for index, kind in enumerate(kinds)]


class AltUpSizes(ConfigObject):
    """What Gemma-3n says in names of its own."""

    altup_num_inputs: Few = 4
    laurel_rank: Width = 64


@family("gemma3n_text")
def gemma3n(f: TextConfig) -> ModelPlan:
    """Gemma-3n: four streams of the residual, rows of input for each layer, four windows to one
    full layer; the last layers read the cache of the last one of their kind before them. Engines
    multiply the MLPs' zeros (activation_sparsity_pattern) like other numbers."""
    count, hidden = f.num_hidden_layers, f.hidden_size
    sizes = AltUpSizes.of(f.raw, f.where)
    f.costs_nothing(
        "altup_num_inputs", "laurel_rank", "altup_active_idx", "altup_correct_scale",
        "activation_sparsity_pattern",
    )
    mlps = each_layer(f, "intermediate_size", count)
    kinds = kinds_or_every(f, count, 5, SLIDING)
    owned = count - f.num_kv_shared_layers
    if owned < 1 or not set(kinds[owned:]) <= set(kinds[:owned]):
        raise f.fail("num_kv_shared_layers", "every layer that shares needs one of its kind before")
    width = f.hidden_size_per_layer_input or 256
    extras = (AltUp(sizes.altup_num_inputs, sizes.laurel_rank), PerLayerInput(width))
    mixers = [
        replace(gemma4_attention(f, kind, owns_kv=index < owned), k_eq_v=False)
        for index, kind in enumerate(kinds)
    ]
    layers = [
        decoder_layer(mixer, DenseMLP(size), 4 * hidden, extras=extras)
        for mixer, size in zip(mixers, mlps, strict=True)
    ]
    result = plan(f, "gemma3n", layers, tied=True)
    result.tables = ((f.vocab_size_per_layer_input, count * width),)
    further = 2 * (sizes.altup_num_inputs - 1)  # into the streams, and out of them
    result.extra_matrices = ((hidden, count * width), *(((hidden, hidden),) * further))
    result.extra_weights = width  # the norm of the rows
    return result


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
    sized = DenseMLP(-(-width // 256) * 256, bias=f.mlp_bias)  # up to whole tiles
    heads, group = f.num_attention_heads, 1 if attn.no_op else attn.n_heads_in_group
    if heads % group:
        raise attn.fail("n_heads_in_group", f"must divide num_attention_heads = {heads}")
    bias = f.flag("attention_bias", False)
    mixer = attention(f, qkv_bias=bias, o_bias=bias, window=attn.window_length or 0)
    mixer = replace(mixer, n_kv_heads=heads // group)
    refuse_unread(attn)
    refuse_unread(ffn)
    layer = decoder_layer(mixer, sized, hidden * ((not attn.no_op) + (not ffn.no_op)))
    layer.mixer = None if attn.no_op else mixer
    layer.ffn = None if ffn.no_op else sized
    return layer


@family("opt")
def opt(f: TextConfig) -> ModelPlan:
    """OPT: what only some of its first files say differently is refused."""
    for name, allowed in (("do_layer_norm_before", True), ("enable_bias", True),
                          ("layer_norm_elementwise_affine", True),
                          ("word_embed_proj_dim", f.hidden_size),
                          ("_remove_final_layer_norm", False)):
        f.require(name, (allowed,), f"only {allowed} is modelled for this family")
    names = LayerNames(
        linears=("q_proj", "k_proj", "v_proj", "out_proj"), ffn="", dense=("fc1", "fc2")
    )
    return built(replace(parts_of("opt"), positions=2, tied=True, names=names), f)


@family("gpt_bigcode")
def gpt_bigcode(f: TextConfig) -> ModelPlan:
    """The first StarCoder: GPT-2, whose heads share one of keys and values (multi_query)."""
    shared = f.flag("multi_query", True)
    return built(parts_of("gpt2"), f.with_default("num_key_value_heads", 1) if shared else f)


@family("falcon")
def falcon(f: TextConfig) -> ModelPlan:
    """Falcon: one norm for attention and MLP side by side (7B), one for each (40B, 180B)."""
    new, bias = f.new_decoder_architecture, f.flag("bias", False)
    kv = f.num_kv_heads if new else 1 if f.multi_query else f.num_attention_heads
    norms = f.num_ln_in_parallel_attn or (2 if new else 1)
    parts = replace(
        parts_of("falcon"), qkv_bias=bias, o_bias=bias, mlp_bias=bias, norms=2 * norms)
    return built(parts, f.with_default("num_key_value_heads", kv))


@family("stablelm")
def stablelm(f: TextConfig) -> ModelPlan:
    """StableLM-2: one norm where attention and MLP stand side by side; in the 12B norms of queries
    and keys."""
    parts = parts_of("stablelm")
    return built(replace(parts, norms=2) if f.flag("use_parallel_residual", False) else parts, f)


@family("cohere2", "exaone4")
def patterned(f: TextConfig) -> ModelPlan:
    """Windows in three of four layers, in EXAONE-4 where the file has a window."""
    if f.sliding_window or f.model_type == "cohere2":
        f = f.with_default("layer_types", list(windowed_kinds(f, f.num_hidden_layers)))
    f.costs_nothing("sliding_window_pattern")  # without a window
    return built(parts_of(f.model_type), f)


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

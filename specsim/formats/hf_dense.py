"""Readers of dense decoder families: Llama and what is built like it, the Gemmas, networks that a
search made of Llama's layers (Llama-Nemotron, DeciLM).

A family with known parts is a row of `FAMILIES`; one with a rule of its own is a function. Biases
and norms per family follow the published model definitions (transformers 5.24, Apache-2.0, was the
oracle for parameter counts).
"""

from dataclasses import dataclass, replace
from functools import partial

from specsim.formats.hf_common import (
    FULL,
    SLIDING,
    attention,
    experts,
    kinds_or_every,
    listed_kinds,
    mlp,
    plan,
    windows,
)
from specsim.formats.hf_plan import LayerNames, LayerPlan, ModelPlan, decoder_layer, family
from specsim.formats.hf_shape import NasBlock, TextConfig
from specsim.formats.hf_unread import refuse_unread
from specsim.model.extras import PerLayerInput
from specsim.model.feedforward import DenseMLP, MoE
from specsim.model.mixers import Attention

Flag = bool | tuple[str, bool]  # fixed, or a field with the architecture's default
_BIAS = ("attention_bias", False)
_FUSED = LayerNames(dense=("gate_up_proj", "down_proj"))


@dataclass(frozen=True, slots=True)
class Dense:
    """What a family of alike layers is made of.

    qkv_bias, o_bias, mlp_bias: biases of the projections. norms: of the layer's width, a norm with
    a bias counting as two; final_norms alike. windows: layers may see `sliding_window` tokens only
    (`windows_asked`: only with use_sliding_window). gated: an output gate as wide as the queries;
    mlp_gated: three matrices in the MLP. head_dim_given: the file must say head_dim. tied: the
    architecture's default. positions: rows of a table of learned positions beyond the context.
    defaults: of fields that the file does not mention. inert: fields that cost nothing here.
    names: of its modules.
    """

    name: str
    qkv_bias: Flag = _BIAS
    o_bias: Flag = _BIAS
    mlp_bias: Flag = ("mlp_bias", False)
    qk_norm: str = "none"
    norms: int = 2
    final_norms: int = 1
    windows: bool = False
    windows_asked: bool = False
    head_dim_given: bool = False
    tied: bool = False
    any_activation: bool = False
    gated: bool = False
    mlp_gated: bool = True
    positions: int | None = None
    defaults: tuple[tuple[str, object], ...] = ()
    inert: tuple[str, ...] = ()
    names: LayerNames = LayerNames()


_QWEN2 = Dense("qwen2", True, False, windows=True, windows_asked=True)
_QWEN3 = Dense("qwen3", qk_norm="head", windows=True, windows_asked=True, head_dim_given=True)
_GLM4 = Dense("glm4", o_bias=False, norms=4, head_dim_given=True, names=_FUSED)
_GLM = Dense(
    "glm4", ("attention_bias", True), False, head_dim_given=True, names=_FUSED
)
_OLMO = Dense("olmo", qk_norm="full", windows=True)  # norms after the blocks, q/k over all heads
_USE_BIAS = ("use_bias", False)

# model_types -> parts. Some layers of SmolLM3 skip RoPE, which costs nothing.
FAMILIES: dict[tuple[str, ...], Dense] = {
    ("llama", "granite"): Dense("llama", windows=True),
    ("mistral", "ministral"): Dense(
        "mistral", False, False, windows=True, defaults=(("sliding_window", 4096),)
    ),
    ("ministral3",): Dense("mistral", False, False, windows=True),
    ("qwen2",): _QWEN2,
    ("qwen3",): _QWEN3,
    ("phi3",): Dense(
        "phi3", False, False, windows=True,
        names=LayerNames(linears=("qkv_proj", "o_proj"), dense=("gate_up_proj", "down_proj")),
    ),
    ("glm4",): _GLM4,
    ("glm",): _GLM,
    ("ernie4_5",): Dense("ernie4_5", _USE_BIAS, _USE_BIAS, _USE_BIAS, tied=True),
    ("olmo2",): _OLMO,
    ("seed_oss",): Dense(
        "seed_oss", ("attention_bias", True), ("attention_out_bias", False), head_dim_given=True
    ),
    ("smollm3",): Dense("smollm3", windows=True, tied=True),
    ("cwm",): Dense("llama", windows=True),
    ("iquestcoder", "internlm2", "internlm3", "exaone", "baichuan"): Dense(
        "llama", _BIAS, False
    ),
    ("chatglm",): Dense(
        "chatglm", _BIAS, False,
        inert=("multi_query_attention", "attention_softmax_in_fp32", "post_layer_norm", "rmsnorm"),
    ),
    ("hunyuan_v1_dense",): Dense("hunyuan", qk_norm="head", tied=True),
    ("muse_glimmer_text",): Dense(
        "muse_glimmer", norms=4, windows=True, head_dim_given=True, gated=True
    ),
    ("gemma",): Dense("gemma", head_dim_given=True, tied=True, any_activation=True),
}


def dense(parts: Dense, f: TextConfig) -> ModelPlan:
    """The plan of a family with known parts."""
    if not parts.any_activation:
        gated = ("silu", "gelu_pytorch_tanh", "swish")
        f.require("hidden_act", gated, "is not a gated activation")
    for name, value in parts.defaults:
        f = f.with_default(name, value)
    f.costs_nothing(*parts.inert)
    if parts.qkv_bias is True:
        f.costs_nothing("attention_bias")  # it has them whether the file says so or not
    hidden, count = f.hidden_size, f.num_hidden_layers
    sizes = windows(f, count) if parts.windows else [0] * count
    if parts.windows_asked and not f.flag("use_sliding_window", False):
        sizes = [0] * count
    mixers = {
        size: attention(
            f,
            qkv_bias=_flag(f, parts.qkv_bias),
            o_bias=_flag(f, parts.o_bias),
            qk_norm=parts.qk_norm,
            window=size,
            gated=parts.gated,
            head_dim_given=parts.head_dim_given,
        )
        for size in sizes
    }
    ffn = DenseMLP(f.intermediate_size, parts.mlp_gated, _flag(f, parts.mlp_bias))
    layers = [
        decoder_layer(mixers[size], ffn, parts.norms * hidden, parts.names) for size in sizes
    ]
    result = plan(f, parts.name, layers, tied=parts.tied)
    result.final_norm_weights = parts.final_norms * hidden
    if parts.positions is not None:
        result.tables = ((f.max_position_embeddings + parts.positions, hidden),)
    return result


def _flag(f: TextConfig, flag: Flag) -> bool:
    return flag if isinstance(flag, bool) else f.flag(*flag)


for _types, _parts in FAMILIES.items():
    family(*_types)(partial(dense, _parts))


@family("olmo3")
def olmo3(f: TextConfig) -> ModelPlan:
    """OLMo-3: three windows to one full layer where the file does not list them."""
    kinds = kinds_or_every(f, f.num_hidden_layers, 4, SLIDING)
    return dense(_OLMO, f.with_default("layer_types", list(kinds)))


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
    result = plan(f, "gemma4", gemma4_layers(f, count, hidden), tied=True)
    f.costs_nothing("vocab_size_per_layer_input")  # without the table
    if f.hidden_size_per_layer_input:
        packed = count * f.hidden_size_per_layer_input
        result.tables = ((f.vocab_size_per_layer_input, packed),)
        result.extra_matrices = ((hidden, packed),)
        result.extra_weights = f.hidden_size_per_layer_input  # the norm of that product
    return result


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
        n_heads=count,
        n_kv_heads=kv,
        head_dim=dim,
        window=0 if full else f.given("sliding_window", f.sliding_window),
        qkv_bias=bias,
        o_bias=bias,
        qk_norm="head",
        k_eq_v=k_eq_v,
        owns_kv=owns_kv,
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

"""Readers of the families with recurrent layers: Qwen3-Next, Qwen3.5/3.6, Intern-S2-Mobius,
Nemotron-H, MiniMax-Text-01."""

from dataclasses import replace

from specsim.formats.hf_common import (
    attention,
    experts,
    kinds_or_every,
    mlp,
    pattern,
    plan,
    shared_width,
    sparse_layers,
)
from specsim.formats.hf_object import MAX_LAYERS
from specsim.formats.hf_plan import (
    LayerNames,
    LayerPlan,
    ModelPlan,
    Modules,
    MtpPlan,
    decoder_layer,
    family,
)
from specsim.formats.hf_shape import TextConfig
from specsim.model.feedforward import FeedForward, MoE
from specsim.model.mixers import Attention, DeltaNet, Mamba2
from specsim.model.state_mixers import LightningAttention

_DTYPES = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}


def _state_dtype(f: TextConfig, name: str, text: str) -> str:
    if text not in _DTYPES:
        raise f.fail(name, f"must be one of {', '.join(_DTYPES)}")
    return _DTYPES[text]


def delta_net(f: TextConfig) -> DeltaNet:
    keys = f.linear_num_key_heads
    values = f.linear_num_value_heads
    if values % keys:
        raise f.fail("linear_num_value_heads", f"must be a multiple of the key heads = {keys}")
    return DeltaNet(
        n_k_heads=keys, n_v_heads=values, head_k_dim=f.linear_key_head_dim,
        head_v_dim=f.linear_value_head_dim, conv_kernel=f.linear_conv_kernel_dim,
        state_dtype=_state_dtype(f, "mamba_ssm_dtype", f.mamba_ssm_dtype),
    )


@family("qwen3_next")
def qwen3_next(f: TextConfig) -> ModelPlan:
    """Qwen3-Next: the published file names no MTP layer although the checkpoint has one,
    so its absence means 1 (engines assume the same)."""
    copies = 1 if f.num_nextn_predict_layers is None else f.num_nextn_predict_layers
    return _qwen_hybrid(f, "qwen3_next", copies, ("in_proj_qkvz", "out_proj"))


@family("qwen3_5_text", "qwen3_5_moe_text")
def qwen3_5(f: TextConfig) -> ModelPlan:
    """Qwen3.5 and 3.6, dense and mixture: one MTP layer where the file says so."""
    return _qwen_hybrid(f, "qwen3.5", f.mtp_num_hidden_layers)


@family("interns2_mobius_text")
def mobius(f: TextConfig) -> ModelPlan:
    """Intern-S2-Mobius: Qwen3.5's layers over `num_blocks` banks of routed experts, each with its
    router; layer i uses bank i % num_blocks. Its MTP head has a mixture of its own."""
    count, banks = f.num_hidden_layers, f.num_blocks
    if count % banks:
        raise f.fail("num_blocks", f"must divide the {count} layers")
    result = _qwen_hybrid(f, "interns2_mobius", f.mtp_num_hidden_layers)
    for layer in result.layers:
        if isinstance(layer.ffn, MoE):
            layer.ffn = replace(layer.ffn, layers_per_bank=count // banks)
    for layer in result.mtp.layers if result.mtp is not None else ():
        if isinstance(layer.ffn, MoE):
            total, top_k = f.mtp_num_experts, f.mtp_num_experts_per_tok
            layer.ffn = replace(layer.ffn, n_experts=total, top_k=top_k)
    return result


def _qwen_hybrid(
    f: TextConfig, family: str, copies: int, linear_leaves: tuple[str, ...] = ()
) -> ModelPlan:
    hidden = f.hidden_size
    count = f.num_hidden_layers
    kinds = kinds_or_every(f, count, f.full_attention_interval, "linear_attention")
    bias = f.flag("attention_bias", False)
    gated = f.attn_output_gate
    full = attention(
        f, qkv_bias=bias, o_bias=bias, qk_norm="head", gated=gated, head_dim_given=True
    )
    linear = delta_net(f) if "linear_attention" in kinds else None
    sparse = sparse_layers(f, count) if f.has("num_experts") else [False] * count

    def layer(kind: str, is_sparse: bool) -> LayerPlan:
        ffn: FeedForward = gated_shared_moe(f) if is_sparse else mlp(f)
        names = LayerNames(shared="shared_expert")
        if kind == "full_attention" or linear is None:
            return decoder_layer(full, ffn, 2 * hidden, names)
        names = replace(names, mixer="linear_attn", linears=linear_leaves)
        return decoder_layer(linear, ffn, 2 * hidden, names)

    result = plan(f, family, [layer(*pair) for pair in zip(kinds, sparse, strict=True)])
    if copies:
        if f.mtp_use_dedicated_embeddings:
            raise f.fail("mtp_use_dedicated_embeddings", "only shared embeddings are modelled")
        result.mtp = MtpPlan(
            layers=[layer("full_attention", sparse[-1])], prefix="mtp.layers.{i}.",
            fc_module="mtp.fc",
            extra_weights=3 * hidden,  # norms of both inputs, final norm
            copies=copies,
        )
    return result


def gated_shared_moe(f: TextConfig) -> MoE:
    shared = f.shared_expert_intermediate_size or 0
    return MoE(
        *experts(f), f.moe_intermediate_size, shared_intermediate=shared, shared_gate=shared > 0
    )


_SAVED = {"linear_attention": "mamba", "full_attention": "attention"}  # as transformers writes them
_LETTERS = {"M": "mamba", "E": "moe", "*": "attention", "-": "mlp"}


@family("nemotron_h")
def nemotron_h(f: TextConfig) -> ModelPlan:
    """Nemotron-H and Nemotron-3: one block per layer, of the kinds mamba, attention, moe, mlp."""
    hidden = f.hidden_size
    kinds = _blocks(f, f.hybrid_override_pattern, f.layers_block_type, "")
    if not kinds:
        raise f.fail("layers_block_type", "this architecture needs it (or hybrid_override_pattern)")
    if f.has("num_hidden_layers") and f.num_hidden_layers != len(kinds):
        raise f.fail("num_hidden_layers", f"the block pattern has {len(kinds)} layers")
    result = plan(f, "nemotron_h", [_block(f, kind, hidden) for kind in kinds])
    copies = f.num_nextn_predict_layers or 0
    f.costs_nothing("mtp_layers_block_type")  # of none
    if "moe" not in kinds:
        f.costs_nothing(
            "n_routed_experts", "n_shared_experts", "num_experts_per_tok", "moe_intermediate_size",
            "moe_shared_expert_intermediate_size",
        )
    if copies:
        blocks = _blocks(f, f.mtp_hybrid_override_pattern, f.mtp_layers_block_type, "mtp_")
        if not blocks:
            raise f.fail("mtp_layers_block_type", "an MTP head needs its block pattern")
        result.mtp = MtpPlan(
            layers=[_block(f, kind, hidden) for kind in blocks], prefix="mtp.layers.{i}.",
            fc_module="mtp.layers.0.eh_proj",
            extra_weights=3 * hidden,  # enorm, hnorm, final norm
            copies=copies,
        )
    return result


def _blocks(
    f: TextConfig, letters: str, listed: tuple[str, ...] | None, prefix: str
) -> tuple[str, ...]:
    """Kinds of blocks: as listed, or spelt in letters by the older files."""
    source = f"{prefix}layers_block_type"
    kinds = tuple(_SAVED.get(kind, kind) for kind in listed or ())
    if listed is None:
        kinds = tuple(_LETTERS.get(letter, letter) for letter in letters)
        source = f"{prefix}hybrid_override_pattern"
    if len(kinds) > MAX_LAYERS:
        raise f.fail(source, f"has {len(kinds)} layers, at most {MAX_LAYERS}")
    for kind in kinds:
        if kind not in _LETTERS.values():
            raise f.fail(source, f"{kind[:20]!r} must be one of {', '.join(_LETTERS.values())}")
    return kinds


def _block(f: TextConfig, kind: str, hidden: int) -> LayerPlan:
    if kind == "mamba":
        modules = Modules(mixer=("mixer.in_proj", "mixer.out_proj"))
        return LayerPlan(mamba2(f), None, hidden, modules)
    if kind == "attention":
        bias = f.flag("attention_bias", False)
        f = f.with_default("head_dim", f.attention_head_dim)  # the older files
        mixer: Attention = attention(f, qkv_bias=bias, o_bias=bias, head_dim_given=True)
        names = tuple(f"mixer.{name}" for name in ("q_proj", "k_proj", "v_proj", "o_proj"))
        return LayerPlan(mixer, None, hidden, Modules(mixer=names))
    leaves = ("up_proj", "down_proj")
    if kind == "mlp":
        modules = Modules(dense=tuple(f"mixer.{leaf}" for leaf in leaves))
        return LayerPlan(None, mlp(f, gated=False), hidden, modules)
    modules = Modules(
        experts=tuple(f"mixer.experts.0.{leaf}" for leaf in leaves),
        shared=tuple(f"mixer.shared_experts.{leaf}" for leaf in leaves),
    )
    return LayerPlan(None, _relu2_moe(f), hidden, modules)


def _relu2_moe(f: TextConfig) -> MoE:
    """Two matrices an expert (squared ReLU); routed experts may work on a latent width."""
    if f.mlp_bias:
        raise f.fail("mlp_bias", "biases in this family's experts are not modelled")
    width = f.moe_intermediate_size
    shared = shared_width(f, f.moe_shared_expert_intermediate_size or width)
    return MoE(
        *experts(f), width, gated=False, shared_intermediate=shared, latent=f.moe_latent_size,
        router_bias=True,
    )


def mamba2(f: TextConfig) -> Mamba2:
    n_heads = f.mamba_num_heads
    groups = f.n_groups
    if n_heads % groups:
        raise f.fail("mamba_num_heads", f"must be a multiple of n_groups = {groups}")
    return Mamba2(
        n_heads=n_heads, head_dim=f.mamba_head_dim, n_groups=groups, state_size=f.ssm_state_size,
        conv_kernel=f.conv_kernel,
        state_dtype=_state_dtype(f, "mamba_ssm_cache_dtype", f.mamba_ssm_cache_dtype),
        conv_bias=f.use_conv_bias, proj_bias=f.use_bias,
    )


@family("minimax_text_01")
def minimax(f: TextConfig) -> ModelPlan:
    """MiniMax-Text-01 and M1: lightning attention, softmax attention in every eighth layer
    (`attn_type_list`: 1), a mixture in each."""
    count, hidden = f.num_hidden_layers, f.hidden_size
    f.costs_nothing("block_size", "postnorm", "shared_intermediate_size", "rotary_dim")
    if f.raw.get("shared_intermediate_size"):
        raise f.fail("shared_intermediate_size", "a shared expert is not modelled for this family")
    if f.has("attn_type_list"):
        full = pattern(f, "attn_type_list", count)
    else:
        kinds = kinds_or_every(f, count, 2, "linear_attention")
        full = [kind == "full_attention" for kind in kinds]
    plain = attention(f)
    linear = LightningAttention(plain.n_heads, plain.head_dim)
    moe, usual = MoE(*experts(f), f.intermediate_size), ("qkv_proj", "output_gate", "out_proj")
    names = LayerNames(ffn="block_sparse_moe", experts=("w1", "w2", "w3"))
    layers = [
        decoder_layer(plain, moe, 2 * hidden, names) if is_full
        else decoder_layer(linear, moe, 2 * hidden, replace(names, linears=usual))
        for is_full in full
    ]
    return plan(f, "minimax", layers)

"""Reader of Gemma-4: wide heads and shared K/V projections in full layers, parallel MoE."""

from specsim.formats.hf_common import experts, layer_kinds, mlp, plan
from specsim.formats.hf_plan import LayerPlan, ModelPlan, decoder_layer, family
from specsim.formats.hf_shape import TextConfig
from specsim.model.feedforward import DenseMLP, MoE
from specsim.model.mixers import Attention


@family("gemma4_text")
def gemma4(f: TextConfig) -> ModelPlan:
    """Gemma-4 31B and 26B-A4B. E2B and E4B (per-layer embeddings) are refused by name."""
    hidden = f.hidden_size
    count = f.num_hidden_layers
    f.require(
        "hidden_size_per_layer_input",
        (0,),
        "per-layer embeddings (Gemma-4 E2B, E4B) are not modelled",
    )
    f.require("num_kv_shared_layers", (0,), "layers that share a cache are not modelled")
    f.require("use_double_wide_mlp", (False,), "double-wide MLPs are not modelled")
    return plan(f, "gemma4", gemma4_layers(f, count, hidden), tied=True)


def gemma4_attention(f: TextConfig, kind: str, *, owns_kv: bool = True) -> Attention:
    """A window layer with head_dim and all KV heads, or a full one with the global sizes."""
    count = f.num_attention_heads
    full = kind == "full_attention"
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
    kinds = layer_kinds(f, count, ("full_attention", "sliding_attention"))
    if kinds is None:
        raise f.fail("layer_types", "this architecture needs it")
    dense = mlp(f)
    ffn: DenseMLP | tuple[DenseMLP, MoE] = dense
    norms = 4 * hidden
    f.costs_nothing("num_experts", "top_k_experts", "moe_intermediate_size")  # without the block
    if f.enable_moe_block:
        total, top_k = experts(f)
        ffn = (dense, MoE(total, top_k, f.moe_intermediate_size))
        norms = 7 * hidden + hidden + total  # three more norms, router scale, per-expert scale
    return [decoder_layer(gemma4_attention(f, kind, owns_kv=owns_kv), ffn, norms) for kind in kinds]

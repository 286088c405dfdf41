"""Reader of Gemma-4: wide heads and shared K/V projections in full layers, parallel MoE, layers
that share a cache, inputs per layer."""

from specsim.formats.hf_common import FULL, SLIDING, experts, listed_kinds, mlp, plan
from specsim.formats.hf_plan import LayerPlan, ModelPlan, decoder_layer, family
from specsim.formats.hf_shape import TextConfig
from specsim.model.extras import PerLayerInput
from specsim.model.feedforward import DenseMLP, MoE
from specsim.model.mixers import Attention


@family("gemma4_text")
def gemma4(f: TextConfig) -> ModelPlan:
    """Gemma-4. In E2B and E4B the last layers read the cache of the last one of their kind before
    them, and every layer takes a row of its own from a second table, a product of the token's
    embedding added to it."""
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

"""What the readers of all families share: attention, MLP and window fields, and their checks."""

from specsim.formats.hf_fields import MAX_EXPERTS, MAX_HEADS, MAX_LAYERS, Fields
from specsim.formats.hf_plan import LayerPlan, ModelPlan
from specsim.model.spec import Attention, DenseMLP


def n_layers(f: Fields) -> int:
    return f.integer("num_hidden_layers", high=MAX_LAYERS)


def heads(f: Fields, name: str = "num_attention_heads") -> int:
    return f.integer(name, high=MAX_HEADS)


def head_dim(f: Fields, *, given: bool = False) -> int:
    """`head_dim`, or hidden_size / heads where the file leaves it out; then it must divide.

    `given`: for architectures whose default is another number the file must say it.
    """
    if f.has("head_dim") or given:
        return f.integer("head_dim", high=65_536)
    hidden, count = f.integer("hidden_size"), heads(f)
    if hidden % count:
        raise f.fail("hidden_size", f"must be a multiple of num_attention_heads = {count}")
    return hidden // count


def attention(
    f: Fields,
    *,
    qkv_bias: bool = False,
    o_bias: bool = False,
    qk_norm: str = "none",
    window: int = 0,
    gated: bool = False,
    head_dim_given: bool = False,
) -> Attention:
    """Grouped-query attention from the usual field names."""
    count = heads(f)
    kv = f.integer("num_key_value_heads", default=count, high=MAX_HEADS)
    if count % kv:
        raise f.fail("num_attention_heads", f"must be a multiple of num_key_value_heads = {kv}")
    return Attention(
        n_heads=count,
        n_kv_heads=kv,
        head_dim=head_dim(f, given=head_dim_given),
        window=window,
        gated=gated,
        qkv_bias=qkv_bias,
        o_bias=o_bias,
        qk_norm=qk_norm,
    )


def mlp(f: Fields, name: str = "intermediate_size", *, gated: bool = True) -> DenseMLP:
    return DenseMLP(f.integer(name), gated=gated, bias=f.boolean("mlp_bias", False))


def experts(
    f: Fields, count_names: tuple[str, ...], top_k_names: tuple[str, ...]
) -> tuple[int, int]:
    """(experts, top_k); top_k may not exceed the experts."""
    count = f.integer(*count_names, high=MAX_EXPERTS)
    top_k = f.integer(*top_k_names, high=MAX_EXPERTS)
    if top_k > count:
        name = next((name for name in top_k_names if f.has(name)), top_k_names[0])
        raise f.fail(name, f"must not exceed the number of experts = {count}")
    return count, top_k


def sparse_layers(f: Fields, layers: int) -> list[bool]:
    """Which layers are mixtures: every `decoder_sparse_step`-th, less `mlp_only_layers`."""
    step = f.integer("decoder_sparse_step", default=1, high=MAX_LAYERS)
    dense = set(f.integers("mlp_only_layers"))
    return [index not in dense and (index + 1) % step == 0 for index in range(layers)]


def sparse_after_dense(f: Fields, layers: int, default_dense: int = 0) -> list[bool]:
    """Which layers are mixtures: all but the first `first_k_dense_replace`, or as
    `mlp_layer_types` lists them."""
    kinds = f.per_layer("mlp_layer_types", layers)
    if kinds is not None:
        for kind in kinds:
            if kind not in ("dense", "sparse"):
                raise f.fail("mlp_layer_types", f"{kind[:40]!r} must be dense or sparse")
        return [kind == "sparse" for kind in kinds]
    dense = f.integer("first_k_dense_replace", default=default_dense, low=0, high=MAX_LAYERS)
    return [index >= dense for index in range(layers)]


def max_position(f: Fields) -> int:
    return f.integer("max_position_embeddings", default=0, low=0, high=1 << 40)


def window_size(f: Fields) -> int:
    """`sliding_window`, 0 where it is null, switched off, or not shorter than the context."""
    if not f.has("sliding_window") or not f.boolean("use_sliding_window", True):
        return 0
    window = f.integer("sliding_window", low=0, high=1 << 40)
    longest = max_position(f)
    return 0 if longest and window >= longest else window


def layer_kinds(f: Fields, layers: int, known: tuple[str, ...]) -> tuple[str, ...] | None:
    """`layer_types`, each of which must be one of `known`; None when the field is absent."""
    kinds = f.per_layer("layer_types", layers)
    for kind in kinds or ():
        if kind not in known:
            raise f.fail("layer_types", f"{kind[:40]!r} must be one of {', '.join(known)}")
    return kinds


def windows(f: Fields, layers: int) -> list[int]:
    """The window of each layer of the Llama-like families (0 = full attention)."""
    size = window_size(f)
    kinds = layer_kinds(f, layers, ("full_attention", "sliding_attention"))
    if not size:
        return [0] * layers
    if kinds is not None:
        return [size if kind == "sliding_attention" else 0 for kind in kinds]
    if f.has("max_window_layers"):  # Qwen: the first ones see everything
        first = f.integer("max_window_layers", low=0, high=1 << 30)
        return [size if index >= first else 0 for index in range(layers)]
    return [size] * layers


def plan(f: Fields, family: str, layers: list[LayerPlan], *, tied: bool = False) -> ModelPlan:
    """A Plan of a decoder with one final norm. `tied` is the architecture's own default."""
    hidden = f.integer("hidden_size")
    return ModelPlan(
        family=family,
        hidden=hidden,
        vocab=f.integer("vocab_size"),
        layers=layers,
        tied=f.boolean("tie_word_embeddings", tied),
        final_norm_weights=hidden,
        max_position=max_position(f),
    )


def shared_width(f: Fields, moe_intermediate: int, count_name: str = "n_shared_experts") -> int:
    """Width of the always-on expert, given as a number of routed experts' widths."""
    return f.integer(count_name, default=0, low=0, high=1000) * moe_intermediate

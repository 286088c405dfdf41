"""What the readers of all families share: attention, MLP and window fields, and their checks."""

from dataclasses import replace

from specsim.formats.hf_object import MAX_WIDTH, ConfigObject
from specsim.formats.hf_plan import LayerPlan, ModelPlan, MtpPlan
from specsim.formats.hf_shape import TextConfig
from specsim.model.feedforward import DenseMLP, MoE
from specsim.model.mixers import Attention

FULL, SLIDING = "full_attention", "sliding_attention"


def head_dim(f: TextConfig, *, given: bool = False) -> int:
    """`head_dim`, or hidden_size / heads where the file leaves it out; then it must divide.

    `given`: for architectures whose default is another number the file must say it.
    """
    if f.head_dim is not None or given:
        return f.given("head_dim", f.head_dim)
    hidden, count = f.hidden_size, f.num_attention_heads
    if hidden % count:
        raise f.fail("hidden_size", f"must be a multiple of num_attention_heads = {count}")
    return hidden // count


def attention(
    f: TextConfig, *, qkv_bias: bool = False, o_bias: bool = False, qk_norm: str = "none",
    window: int = 0, gated: bool = False, head_dim_given: bool = False,
) -> Attention:
    """Grouped-query attention from the usual field names."""
    count = f.num_attention_heads
    kv = (f.num_key_value_heads or count)
    if count % kv:
        raise f.fail("num_attention_heads", f"must be a multiple of num_key_value_heads = {kv}")
    return Attention(
        n_heads=count, n_kv_heads=kv, head_dim=head_dim(f, given=head_dim_given), window=window,
        gated=gated, qkv_bias=qkv_bias, o_bias=o_bias, qk_norm=qk_norm,
    )


def mlp(f: TextConfig, *, gated: bool = True) -> DenseMLP:
    return DenseMLP(f.intermediate_size, gated=gated, bias=f.mlp_bias)


def experts(f: TextConfig) -> tuple[int, int]:
    """(experts, top_k); top_k may not exceed the experts."""
    count, top_k = f.experts, f.top_k
    if top_k > count:
        raise f.fail(f.spelling("top_k"), f"must not exceed the number of experts = {count}")
    return count, top_k


def sparse_layers(f: TextConfig, layers: int) -> list[bool]:
    """Which layers are mixtures: every `decoder_sparse_step`-th, less `mlp_only_layers`."""
    step = f.decoder_sparse_step
    dense = set(f.mlp_only_layers)
    return [index not in dense and (index + 1) % step == 0 for index in range(layers)]


def sparse_after_dense(f: TextConfig, layers: int, default_dense: int = 0) -> list[bool]:
    """Which layers are mixtures: all but the first `first_k_dense_replace`, or as
    `mlp_layer_types` lists them."""
    kinds = f.mlp_layer_types
    f.per_layer("mlp_layer_types", kinds, layers)
    if kinds is not None:
        for kind in kinds:
            if kind not in ("dense", "sparse"):
                raise f.fail("mlp_layer_types", f"{kind[:40]!r} must be dense or sparse")
        return [kind == "sparse" for kind in kinds]
    first = f.first_k_dense_replace
    dense = default_dense if first is None else first
    return [index >= dense for index in range(layers)]


def pattern(f: ConfigObject, name: str, count: int) -> list[bool]:
    """A list of 0 and 1, one for each layer."""
    listed = f.raw.get(name)
    f.costs_nothing(name)  # what it says is in the layers
    if not isinstance(listed, list) or len(listed) != count or any(x not in (0, 1) for x in listed):
        raise f.fail(name, f"must list 0 or 1 for each of the {count} layers")
    return [bool(x) for x in listed]


def window_size(f: TextConfig) -> int:
    """`sliding_window`, 0 where it is null, switched off, or not shorter than the context."""
    window = f.sliding_window
    if window is None or not f.flag("use_sliding_window", True):
        return 0
    longest = f.max_position_embeddings
    return 0 if longest and window >= longest else window


def layer_kinds(f: TextConfig, layers: int, known: tuple[str, ...]) -> tuple[str, ...] | None:
    """`layer_types`, each of which must be one of `known`; None when the field is absent."""
    kinds = f.layer_types
    f.per_layer("layer_types", kinds, layers)
    for kind in kinds or ():
        if kind not in known:
            raise f.fail("layer_types", f"{kind[:40]!r} must be one of {', '.join(known)}")
    return kinds


def listed_kinds(f: TextConfig, layers: int, known: tuple[str, ...]) -> tuple[str, ...]:
    """The same for an architecture that needs the list."""
    return f.given("layer_types", layer_kinds(f, layers, known))


def kinds_or_every(f: TextConfig, layers: int, every: int, usual: str) -> tuple[str, ...]:
    """The same; without a list, every so many layers see everything and the others are `usual`."""
    return layer_kinds(f, layers, (FULL, usual)) or tuple(
        usual if (index + 1) % every else FULL for index in range(layers)
    )


def windowed_kinds(f: TextConfig, layers: int) -> tuple[str, ...]:
    """As listed; without a list one layer of `sliding_window_pattern` (4) sees everything. Beside
    the list that field may hold anything ("LLLG")."""
    f.costs_nothing("sliding_window_pattern")
    every = None if f.has("layer_types") else f.sliding_window_pattern
    return kinds_or_every(f, layers, every or 4, SLIDING)


def windows(f: TextConfig, layers: int) -> list[int]:
    """The window of each layer of the Llama-like families (0 = full attention)."""
    size = window_size(f)
    kinds = layer_kinds(f, layers, (FULL, SLIDING))
    if not size:
        return [0] * layers
    if kinds is not None:
        return [size if kind == SLIDING else 0 for kind in kinds]
    first = f.max_window_layers
    if first is not None:  # Qwen: the first ones see everything
        return [size if index >= first else 0 for index in range(layers)]
    return [size] * layers


def plan(f: TextConfig, family: str, layers: list[LayerPlan], *, tied: bool = False) -> ModelPlan:
    """A Plan of a decoder with one final norm. `tied` is the architecture's own default."""
    hidden = f.hidden_size
    return ModelPlan(
        family=family, hidden=hidden, vocab=f.vocab_size, layers=layers,
        tied=f.flag("tie_word_embeddings", tied), final_norm_weights=hidden,
        max_position=f.max_position_embeddings,
    )


def shared_width(f: TextConfig, moe_intermediate: int) -> int:
    """Width of the always-on expert, given as a number of routed experts' widths."""
    return f.shared_experts * moe_intermediate


def sigmoid_moe(f: TextConfig) -> MoE:
    """DeepSeek-V3's mixture: a router with a correction bias and an ungated shared expert."""
    width = f.moe_intermediate_size
    return in_groups(f, MoE(
        *experts(f), width, shared_intermediate=shared_width(f, width),
        router_bias=f.topk_method == "noaux_tc",
    ))


def in_groups(f: TextConfig, moe: MoE) -> MoE:
    """With the groups of experts of which a token's lie in a few, where the file has any."""
    groups, chosen = f.n_group or 1, f.topk_group or 1
    if groups == chosen:
        return moe
    total, top_k = moe.n_experts, moe.top_k
    if total % groups:
        raise f.fail("n_group", f"must divide {total} experts")
    if not top_k * groups <= chosen * total <= groups * total:
        raise f.fail("topk_group", f"must be 1 to {groups} groups that hold {top_k} experts")
    return replace(moe, groups=groups, top_groups=chosen)


def appended_mtp(f: TextConfig, layer: LayerPlan) -> MtpPlan | None:
    """DeepSeek-V3's kind of MTP head: stored as layers after the last one.

    enorm, hnorm, eh_proj (2h -> h), one decoder layer, shared_head norm; embeddings and head
    are the target's (published files repeat them).
    """
    copies, prefix = f.num_nextn_predict_layers or 0, f"model.layers.{f.num_hidden_layers}."
    if not copies:
        return None
    return MtpPlan([layer], prefix, f"{prefix}eh_proj", 3 * f.hidden_size, copies)


def each_layer(f: TextConfig, name: str, count: int, default: int | None = None) -> list[int]:
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

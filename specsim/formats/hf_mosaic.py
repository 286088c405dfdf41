"""Readers of MosaicML's families, whose configs hold objects for attention and feed-forward part:
MPT and DBRX. Counts follow transformers 5.24 (Apache-2.0)."""

from specsim.formats.hf_common import attention, plan
from specsim.formats.hf_family import built, parts_of
from specsim.formats.hf_object import ConfigObject, ExpertCount, Heads, Some, Switch, Width, needed
from specsim.formats.hf_plan import LayerNames, ModelPlan, decoder_layer, family
from specsim.formats.hf_shape import TextConfig
from specsim.model.feedforward import MoE


class MosaicAttention(ConfigObject):
    """`attn_config`."""

    kv_n_heads: Heads | None = None
    alibi: Switch = True


class MosaicMixture(ConfigObject):
    """`ffn_config` of DBRX."""

    ffn_hidden_size: Width = needed()
    moe_num_experts: ExpertCount = needed()
    moe_top_k: ExpertCount = needed()


class MosaicSizes(ConfigObject):
    """What MPT says in names of its own beside those of `architectures.toml`."""

    expansion_ratio: Some = 4


def _part(f: TextConfig, name: str) -> tuple[dict[str, object], str]:
    part = f.raw.get(name)
    f.costs_nothing(name)  # what it says is in the layers
    if part is not None and not isinstance(part, dict):
        raise f.fail(name, "must be an object")
    return part or {}, f"{f.where}.{name}"


@family("mpt")
def mpt(f: TextConfig) -> ModelPlan:
    """MPT: what `families.toml` says, with the heads and the width of the MLP in its own words."""
    part = MosaicAttention.of(*_part(f, "attn_config"))
    part.require("qk_ln", (False,), "norms of queries and keys are not modelled")
    part.require(
        "attn_type", ("multihead_attention", "multiquery_attention", "grouped_query_attention"),
        "is not a kind of attention that is known",
    )
    kv = 1 if part.raw.get("attn_type") == "multiquery_attention" else part.kv_n_heads
    if not part.alibi and f.raw.get("learned_pos_emb", True):
        raise part.fail("alibi", "a table of positions is not modelled for this family")
    f = f.with_default("num_key_value_heads", kv)
    times = MosaicSizes.of(f.raw, f.where).expansion_ratio
    f = f.with_default("intermediate_size", times * f.hidden_size)
    return built(parts_of("mpt"), f)


@family("dbrx")
def dbrx(f: TextConfig) -> ModelPlan:
    """DBRX: a mixture in every layer, LayerNorms without biases."""
    part = MosaicAttention.of(*_part(f, "attn_config"))
    moe = MosaicMixture.of(*_part(f, "ffn_config"))
    if moe.moe_top_k > moe.moe_num_experts:
        raise moe.fail("moe_top_k", f"must not exceed the experts = {moe.moe_num_experts}")
    f = f.with_default("num_key_value_heads", part.given("kv_n_heads", part.kv_n_heads))
    names = LayerNames(
        "norm_attn_norm.attn", linears=("Wqkv", "out_proj"), experts=("w1", "v1", "w2")
    )
    layer = decoder_layer(
        attention(f), MoE(moe.moe_num_experts, moe.moe_top_k, moe.ffn_hidden_size),
        2 * f.hidden_size, names,
    )
    return plan(f, "dbrx", [layer] * f.num_hidden_layers)

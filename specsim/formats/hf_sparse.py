"""Readers of families whose grouped heads choose what they attend to: MiniMax-M3."""

from specsim.formats.hf_common import attention, experts, pattern, plan, shared_width
from specsim.formats.hf_plan import (
    GATED_MLP,
    LayerNames,
    LayerPlan,
    ModelPlan,
    decoder_layer,
    family,
)
from specsim.formats.hf_shape import TextConfig
from specsim.formats.hf_unread import refuse_unread
from specsim.jsonable import taken
from specsim.model.feedforward import DenseMLP, MoE
from specsim.model.mixers import Attention
from specsim.model.sparse_mixers import SparseAttention

_MIXTURE = LayerNames(
    ffn="block_sparse_moe", experts=("w1", "w2", "w3"), shared_linears=GATED_MLP
)


@family("minimax_m3")
def minimax_m3(f: TextConfig) -> ModelPlan:
    """MiniMax-M3: a few dense layers with full attention, then mixtures whose attention reads some
    blocks of its cache. Its config declares MTP modules that no published checkpoint holds."""
    f.require("qk_norm_type", ("per_head",), "only per_head is known for this family")
    f.require("attention_output_gate", (False,), "an output gate is not known for this family")
    f.costs_nothing("num_nextn_predict_layers", "use_gemma_norm")
    count, hidden = f.num_hidden_layers, f.hidden_size
    norm = "head" if f.flag("use_qk_norm", True) else "none"
    full = attention(f, qk_norm=norm, head_dim_given=True)
    sparse = _block_sparse(f, full, count)
    width = f.moe_intermediate_size if f.has("moe_intermediate_size") else f.intermediate_size
    moe = MoE(
        *experts(f), width, router_bias=f.use_routing_bias,
        shared_intermediate=shared_width(f, f.shared_intermediate_size),
    )
    mixtures = pattern(f, "moe_layer_freq", count)

    def layer(mixer: Attention, mixture: bool) -> LayerPlan:
        if mixture:
            return decoder_layer(mixer, moe, 2 * hidden, _MIXTURE)
        return decoder_layer(mixer, DenseMLP(f.dense_intermediate_size), 2 * hidden)

    pairs = zip(sparse, mixtures, strict=True)
    result = plan(f, "minimax_m3", [layer(*pair) for pair in pairs])
    result.notes.append("the config declares MTP modules; the published weights have none")
    return result


def _block_sparse(f: TextConfig, full: Attention, count: int) -> list[Attention]:
    """The attention of each layer."""
    section = f.sparse_attention_config
    if not section.use_sparse_attention:
        return [full] * count
    listed = pattern(section, "sparse_attention_freq", count)
    # Without a value of its own the index only chooses.
    if pattern(section, "sparse_disable_index_value", count) != listed:
        raise section.fail("sparse_disable_index_value", "indexes with values are not modelled")
    section.costs_nothing("sparse_init_block", "sparse_local_block")  # of the chosen blocks
    sparse = SparseAttention(
        **taken(full, "n_heads n_kv_heads head_dim qk_norm"),
        index_heads=section.sparse_num_index_heads,
        index_head_dim=section.sparse_index_dim,
        index_topk=section.sparse_topk_blocks * section.sparse_block_size,
    )
    refuse_unread(section)
    return [sparse if chosen else full for chosen in listed]

"""Readers of families whose grouped heads choose what they attend to: MiniMax-M3,
Qwen3.8-Flash-Next. Definitions: transformers 5.24 (Apache-2.0)."""

from dataclasses import replace

from specsim.formats.hf_common import (
    attention,
    experts,
    listed_kinds,
    pattern,
    plan,
    shared_width,
)
from specsim.formats.hf_hybrid import delta_net, gated_shared_moe
from specsim.formats.hf_plan import (
    GATED_MLP,
    LayerNames,
    LayerPlan,
    ModelPlan,
    MtpPlan,
    decoder_layer,
    family,
)
from specsim.formats.hf_shape import TextConfig
from specsim.formats.hf_unread import refuse_unread
from specsim.jsonable import taken
from specsim.model.extras import GatedStreams
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


@family("qwen4_exp_text")
def qwen4_exp(f: TextConfig) -> ModelPlan:
    """Qwen3.8-Flash-Next: DeltaNet layers, every fourth one attention with a token budget (QSA);
    mixtures throughout; residual streams behind gates of low rank, whose norms are the only ones.

    One layer adds embeddings of n-grams. Their table is larger than the rest of a quantised model
    and a token reads a few rows of it: it counts neither as parameters nor in device memory."""
    f.require("indexer_kv_heads", (1,), "index queries share one key")
    f.require("output_gate_type", ("sigmoid",), "only sigmoid is known for this family")
    f.costs_nothing("indexer_compress_ratio", "make_ngram_vocab_size_divisible_by",
                    "split_ngram_parts", "mtp", "full_attention_interval")
    count, hidden = f.num_hidden_layers, f.hidden_size
    kinds = listed_kinds(f, count, ("full_attention", "linear_attention"))
    full = attention(f, qk_norm="head", gated=f.attn_output_gate, head_dim_given=True)
    sparse = SparseAttention(
        **taken(full, "n_heads n_kv_heads head_dim qk_norm gated"),
        index_heads=f.indexer_n_heads,
        index_head_dim=f.indexer_head_dim,
        index_topk=f.indexer_budget,
    )
    linear, moe, streams = delta_net(f), gated_shared_moe(f), GatedStreams(f.hc_count, f.hc_lowrank)
    usual = LayerNames(shared="shared_expert")
    recurrent = replace(
        usual, mixer="linear_attn", linears=("in_proj_qkv", "in_proj_z", "out_proj")
    )

    def layer(kind: str) -> LayerPlan:
        chosen = kind == "full_attention"
        return decoder_layer(
            sparse if chosen else linear, moe, 0, usual if chosen else recurrent, (streams,)
        )

    result = plan(f, "qwen4_exp", [layer(kind) for kind in kinds])
    wide = f.hc_count * hidden
    result.final_norm_weights = wide  # of the streams, whose gated mean the head reads
    result.extra_matrices = ((wide, f.hc_lowrank), (f.hc_lowrank, wide))
    for _ in f.ple_layer_ids:
        # A key for each stream and one value of the n-grams; three norms and a convolution.
        result.extra_matrices += ((f.ple_embed_dim, wide), (f.ple_embed_dim, hidden))
        result.extra_weights += wide * (3 + f.ple_conv_kernel_size)
    heads = (f.ngram_size - 1) * f.heads_per_ngram
    if f.ple_layer_ids and heads:
        size = heads * f.ngram_vocab_size_base * (f.ple_embed_dim // heads) * len(f.ple_layer_ids)
        result.notes.append(
            f"the n-gram table of about {size / 1e9:.1f}e9 weights is taken to lie outside device "
            "memory and is not counted"
        )
    if f.mtp_num_hidden_layers:
        if f.mtp_use_dedicated_embeddings:
            raise f.fail("mtp_use_dedicated_embeddings", "only shared embeddings are modelled")
        result.mtp = MtpPlan(
            [layer("full_attention")], "mtp.layers.{i}.", "mtp.fc", 3 * hidden,
            f.mtp_num_hidden_layers,
        )
    return result

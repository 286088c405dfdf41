"""Readers of families whose heads choose what they attend to: MiniMax-M3, Qwen3.8-Flash-Next
(definitions: transformers 5.24, Apache-2.0) and DeepSeek-V4 (shapes: every tensor of
deepseek-ai/DeepSeek-V4-Pro)."""

from dataclasses import replace

from specsim.formats.hf_common import (
    attention,
    experts,
    listed_kinds,
    pattern,
    plan,
    shared_width,
    sigmoid_moe,
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
from specsim.model.extras import GatedStreams, HyperConnections
from specsim.model.feedforward import DenseMLP, MoE
from specsim.model.mixers import Attention
from specsim.model.sparse_mixers import CompressedAttention, SparseAttention

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
        index_heads=section.sparse_num_index_heads, index_head_dim=section.sparse_index_dim,
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
        **taken(full, "n_heads n_kv_heads head_dim qk_norm gated"), index_heads=f.indexer_n_heads,
        index_head_dim=f.indexer_head_dim, index_topk=f.indexer_budget,
    )
    linear, moe, streams = delta_net(f), gated_shared_moe(f), GatedStreams(f.hc_count, f.hc_lowrank)
    usual = LayerNames(shared="shared_expert")
    recurrent = replace(usual, mixer="linear_attn")

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


_CSA, _HCA = 4, 128  # tokens to an entry of layers with and without an indexer
_DSPARK_STAGES = 3  # in the checkpoints of -0731, -0813 and -Vision-Exp
_V4_NAMES = LayerNames(
    mixer="attn", ffn="ffn", experts=("w1", "w2", "w3"),
    linears=("wq_a", "wq_b", "wkv", "wo_a", "wo_b"),
)


_V4_KINDS = {
    "sliding_attention": 0, "compressed_sparse_attention": _CSA,
    "heavily_compressed_attention": _HCA,
}


def _v4_saved(f: TextConfig, count: int) -> TextConfig:
    """The ratios, and the layers with hashed routing, of a file that transformers wrote: from its
    kinds of layers."""
    if f.has("compress_ratios") or not f.has("layer_types"):
        return f
    kinds = listed_kinds(f, count, tuple(_V4_KINDS))
    rates = {name: ratio for name, ratio in _V4_KINDS.items() if ratio}
    f.require("compress_rates", (rates,), f"must be {rates}")
    f = f.with_default("compress_ratios", [_V4_KINDS[kind] for kind in kinds])
    return f.with_default("num_hash_layers", (f.mlp_layer_types or ()).count("hash_moe"))


@family("deepseek_v4", "deepseek_ref")
def deepseek_v4(f: TextConfig) -> ModelPlan:
    """Compressed sparse attention, hyper-connections, an MTP layer or DSpark stages. The first
    num_hash_layers choose experts by a table of token ids; their router
    only weighs them. Engines keep the cache in FP8 whatever the weights are in."""
    f.require("num_key_value_heads", (1,), "key and value are one latent of all heads")
    f.costs_nothing("hc_sinkhorn_iters", "compress_rope_theta")
    count, hidden = f.num_hidden_layers, f.hidden_size
    f = _v4_saved(f, count)
    ratios = f.compress_ratios
    streams, moe = HyperConnections(f.hc_mult), sigmoid_moe(f)
    if len(ratios) < count or set(ratios) - {0, _CSA, _HCA} or any(ratios[count:]):
        raise f.fail(
            "compress_ratios",
            f"must be 0, {_CSA} or {_HCA} for each of the {count} layers, and 0 for those behind",
        )
    by_ratio = {ratio: _v4_attention(f, ratio) for ratio in (0, *ratios)}
    hashed = replace(moe, router_bias=False)
    layers = [
        _v4_layer(f, by_ratio[ratio], hashed if index < f.num_hash_layers else moe, streams)
        for index, ratio in enumerate(ratios[:count])
    ]
    result = plan(f, "deepseek_v4", layers)
    result.kv_dtype = "fp8"
    join = streams.join_parameters(hidden)
    tables = f.num_hash_layers * f.vocab_size * moe.top_k
    result.extra_weights = join + tables
    last = _v4_layer(f, by_ratio[0], moe, streams)
    result.mtp = _v4_dspark(f, last, join) if f.dspark_block_size else _v4_mtp(f, last, join)
    return result


def _v4_attention(f: TextConfig, ratio: int) -> CompressedAttention:
    heads, groups = f.num_attention_heads, f.o_groups
    if heads % groups:
        raise f.fail("o_groups", f"must divide num_attention_heads = {heads}")
    f.costs_nothing("qk_rope_head_dim")  # a part of head_dim
    window = f.given("sliding_window", f.sliding_window)
    if not window or not f.q_lora_rank:
        raise f.fail("q_lora_rank" if window else "sliding_window", "must be positive")
    mixer = CompressedAttention(
        heads, f.given("head_dim", f.head_dim), f.q_lora_rank, groups, f.o_lora_rank, window,
        ratio,
    )
    if ratio != _CSA:
        return mixer
    return replace(
        mixer, index_heads=f.index_n_heads, index_head_dim=f.index_head_dim,
        index_topk=f.index_topk,
    )


def _v4_layer(
    f: TextConfig, mixer: CompressedAttention, moe: MoE, streams: HyperConnections
) -> LayerPlan:
    return decoder_layer(mixer, moe, 2 * f.hidden_size, _V4_NAMES, (streams,))


def _v4_mtp(f: TextConfig, layer: LayerPlan, join: int) -> MtpPlan | None:
    """One window layer; two projections join hidden state and embedding; three norms."""
    copies = f.num_nextn_predict_layers or 0
    if not copies:
        return None
    return MtpPlan([layer], "mtp.{i}.", "mtp.0.e_proj", 3 * f.hidden_size + join, copies)


def _v4_dspark(f: TextConfig, layer: LayerPlan, join: int) -> MtpPlan:
    """Stages of window layers that draft a block from the states of a few target layers, and a
    Markov head: a table of the previous token and one product."""
    hidden, rank, vocab = f.hidden_size, f.dspark_markov_rank, f.vocab_size
    taps = f.dspark_target_layer_ids
    if not taps:
        raise f.fail("dspark_target_layer_ids", "must name the layers whose states are joined")
    f.costs_nothing("num_nextn_predict_layers")  # 1 or 3 in files of the same shapes
    return MtpPlan(
        [layer] * _DSPARK_STAGES, "mtp.{i}.", "mtp.0.main_proj", 3 * hidden + join,
        kind="dspark", fc_in=len(taps) * hidden, block_size=f.dspark_block_size,
        extra_matrices=((rank, vocab),) if rank else (), lookup_weights=vocab * rank,
        walks_block=True,
    )

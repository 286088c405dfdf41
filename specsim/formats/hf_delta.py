"""Readers of the families with recurrent layers beside latent attention: Kimi-Linear, Kimi-K3,
GLM-5.3-Flash, Ling-3.0, GigaChat-3.5; and of Inkling, which has Kimi-K3's attention residuals:
attention whose keys, values and results pass short convolutions, with biases by distance that each
token projects.

Definitions: the publishers' modelling files as SGLang 0.5.23 and transformers 5.24 (both
Apache-2.0) run them.
"""

from dataclasses import replace

from specsim.formats.hf_common import (
    appended_mtp,
    layer_kinds,
    listed_kinds,
    mlp,
    plan,
    sigmoid_moe,
    sparse_after_dense,
)
from specsim.formats.hf_hybrid import delta_net
from specsim.formats.hf_mla import latent_attention
from specsim.formats.hf_plan import LayerNames, LayerPlan, ModelPlan, decoder_layer, family
from specsim.formats.hf_shape import TextConfig
from specsim.formats.hf_unread import refuse_unread
from specsim.model.extras import AttentionResidual, Extra, HyperConnections, NormGates
from specsim.model.mixers import ConvolvedAttention, DeltaAttention, Mixer

# What linear_attn_config says again in files that transformers wrote.
_SAVED = ("linear_num_heads", "linear_head_dim", "linear_conv_kernel_dim")


@family("kimi_linear")
def kimi_linear(f: TextConfig) -> ModelPlan:
    """Kimi-Linear: three layers of delta attention (KDA) to one of latent attention without
    rotary positions; a dense first layer, then mixtures. Kimi-K3 adds attention residuals, output
    gates and experts of a latent width whose sum is normalised."""
    linear = f.linear_attn_config
    f.costs_nothing("mla_use_nope", "model_max_length", "use_grouped_topk")
    f.costs_nothing("layer_types", *_SAVED)
    count, hidden = f.num_hidden_layers, f.hidden_size
    full, recurrent = set(linear.full_attn_layers), set(linear.kda_layers)  # counted from 1
    latent = replace(latent_attention(f, indexer=False), gated=f.mla_use_output_gate)
    delta = DeltaAttention(
        linear.num_heads, linear.head_dim, linear.short_conv_kernel_size,
        wide_gates=int(linear.use_full_rank_gate),
    )
    refuse_unread(linear)
    if full | recurrent != set(range(1, count + 1)) or full & recurrent:
        raise f.fail("linear_attn_config", f"must name each of the {count} layers once")
    width = f.routed_expert_hidden_size or 0
    f.costs_nothing("latent_moe_use_norm")  # without a latent width
    moe = sigmoid_moe(f)
    moe = replace(moe, latent=width, latent_norm=bool(width) and f.latent_moe_use_norm)
    sparse, every = sparse_after_dense(f, count), f.moe_layer_freq
    block = f.attn_res_block_size or 0
    extras = (AttentionResidual(mean_blocks(count, block)),) if block else ()

    def layer(mixer: Mixer, index: int) -> LayerPlan:
        ffn = moe if sparse[index] and index % every == 0 else mlp(f)
        return decoder_layer(mixer, ffn, 2 * hidden, extras=extras)

    layers = [layer(latent if index + 1 in full else delta, index) for index in range(count)]
    result = plan(f, "kimi_linear", layers)
    if block:
        result.extra_weights = 2 * hidden  # the residual before the head: its query and norm
    result.mtp = appended_mtp(f, decoder_layer(latent, moe, 2 * hidden))
    return result


def mean_blocks(count: int, block: int) -> float:
    """Block outputs that one of the two points of a layer reads, the mean over `count` layers.

    A layer that begins a block stores the sum so far behind its mixer and starts anew: layer i
    reads ceil(i / block) outputs before the mixer and floor(i / block) + 1 before the
    feed-forward part (SGLang attn_bank.py, transformers modeling_inkling2.py)."""
    points = sum(-(-index // block) + index // block + 1 for index in range(count))
    return points / (2 * count)


@family("glm5_next_text")
def glm5_next(f: TextConfig) -> ModelPlan:
    """GLM-5.3-Flash: delta attention (KDA), every fourth layer latent attention without rotary
    positions whose index keys are pooled; residual streams, which the last norm sums unweighed."""
    f.costs_nothing("mla_use_nope", "mhc", "hc_sinkhorn_iters", "index_kpool_compress",
                    "index_kpool_always_select_tail", *_SAVED)
    count, linear = f.num_hidden_layers, f.linear_attn_config
    kinds = listed_kinds(
        f, count, ("linear_attention", "deepseek_sparse_attention", "indexed_attention")
    )
    latent = replace(latent_attention(f, indexer=True), index_ratio=f.index_kpool)
    if set(f.indexer_types or ()) - {"full"}:
        raise f.fail("indexer_types", "layers that reuse an index are not known for this family")
    delta = DeltaAttention(linear.num_heads, linear.head_dim, linear.short_conv_kernel_size)
    linear.costs_nothing("full_attn_layers", "kda_layers")  # as layer_types says
    refuse_unread(linear)
    extras, moe, norms = (HyperConnections(f.hc_mult),), sigmoid_moe(f), 2 * f.hidden_size
    layers = [
        decoder_layer(
            delta if kind == "linear_attention" else latent, moe if sparse else mlp(f), norms,
            extras=extras,
        )
        for kind, sparse in zip(kinds, sparse_after_dense(f, count), strict=True)
    ]
    result = plan(f, "glm5_next", layers)
    result.mtp = appended_mtp(f, decoder_layer(latent, moe, norms, extras=extras))
    return result


@family("bailing_hybrid")
def bailing_hybrid(f: TextConfig) -> ModelPlan:
    """Ling-3.0: in each group of layers the last is latent attention with a gate per head, the
    others delta attention; routing within groups of experts. The MTP head is one more layer of
    latent attention with a mixture.

    The output gate of latent attention and the gates of delta attention in one product are the
    architecture's (transformers 5.24); a file that says otherwise is refused."""
    f.costs_nothing("kda_safe_gate")
    f.require("no_kda_lora", (True,), "gates of delta attention in two products are not modelled")
    f.require(
        "gated_attention_proj_granularity_type", ("head_wise",), "only head_wise is modelled"
    )
    if not f.head_dim:
        raise f.missing("head_dim")
    count, norms, shared = f.num_hidden_layers, 2 * f.hidden_size, f.moe_intermediate_size
    latent = replace(latent_attention(f, indexer=False), head_gate=True)
    delta = DeltaAttention(
        f.num_attention_heads, f.head_dim, f.short_conv_kernel_size, wide_gates=2
    )
    f.require("moe_shared_expert_intermediate_size", (shared,), "must equal moe_intermediate_size")
    moe, sparse = sigmoid_moe(f), sparse_after_dense(f, count, 2)
    every = f.layer_group_size
    names = LayerNames(linears=("q_proj", "k_proj", "v_proj", "f_proj", "g_proj", "o_proj"))
    layers = []
    for index in range(count):
        ffn = moe if sparse[index] else mlp(f)
        full = (index + 1) % every == 0
        layers.append(
            decoder_layer(latent, ffn, norms) if full else decoder_layer(delta, ffn, norms, names)
        )
    result = plan(f, "bailing_hybrid", layers)
    result.mtp = appended_mtp(f, decoder_layer(latent, moe, norms))
    return result


_GATE_RANK = 16  # of the gates behind norms, in the modelling file and not in the config


@family("gigachat3_5")
def gigachat(f: TextConfig) -> ModelPlan:
    """GigaChat-3.5: three layers of Gated DeltaNet to one of gated latent attention, norms before
    and behind every part, each with a gate of low rank. Its MTP layers are dense unless
    `nextn_is_sparse`: with mixtures they would not fit the published sizes."""
    f.require("linear_attention_type", ("Qwen3NextGatedDeltaNet",), "is not modelled")
    f.require("layernorm_type", ("pre", "pre_post"), "only pre and pre_post are modelled")
    f.require("norm_type", (*_PLAIN_NORMS, *_GATED_NORMS), "is not a known norm")
    f.costs_nothing("use_mla_scaling_factor", "swiglu_limit")
    count, hidden = f.num_hidden_layers, f.hidden_size
    latent = replace(latent_attention(f, indexer=False), gated=f.gated_attention)
    delta, moe = delta_net(f), sigmoid_moe(f)
    sparse, full = sparse_after_dense(f, count, 1), _full_layers(f, count)
    norms = 4 if f.layernorm_type == "pre_post" else 2
    rank = _GATE_RANK if f.norm_type in _GATED_NORMS else 0

    def layer(is_full: bool, is_sparse: bool) -> LayerPlan:
        mixer: Mixer = latent if is_full else delta
        more = latent.q_lora_rank + latent.kv_lora_rank if is_full else 0
        extras: tuple[Extra, ...] = (NormGates(norms, rank, more),) if rank else ()
        ffn = moe if is_sparse else mlp(f)
        return decoder_layer(mixer, ffn, norms * hidden, extras=extras)

    result = plan(
        f, "gigachat3_5", [layer(*pair) for pair in zip(full, sparse, strict=True)]
    )
    outer = hidden * (1 + 2 * rank)  # a norm outside layers, its gate with it
    result.final_norm_weights = outer
    result.mtp = appended_mtp(f, layer(True, f.nextn_is_sparse))
    if result.mtp is not None:
        result.mtp.extra_weights = 3 * outer
    return result


_PLAIN_NORMS = ("LlamaRMSNorm", "ZeroCenteredRMSNorm")
_GATED_NORMS = ("GatedNorm", "ZeroCenteredGatedNorm")


def _full_layers(f: TextConfig, count: int) -> list[bool]:
    """Which layers are latent attention: by layer_types, or counted from 0."""
    kinds = layer_kinds(f, count, ("attention", "full_attention", "linear_attention"))
    if kinds is not None:
        return [kind != "linear_attention" for kind in kinds]
    listed = set(f.full_attention_layers)
    if not listed <= set(range(count)):
        raise f.fail("full_attention_layers", f"must name layers from 0 to {count - 1}")
    return [index in listed for index in range(count)]


_SLIDING = "hybrid_sliding"


@family("inkling_text")
def inkling(f: TextConfig) -> ModelPlan:
    """Inkling: norms of queries and keys, mixtures with shared experts that the router scores too,
    and a learned scale on every feed-forward part. Its MTP layers are not read."""
    count, hidden = f.num_hidden_layers, f.hidden_size
    moe, shared, sparse = sigmoid_moe(f), f.shared_experts, sparse_after_dense(f, count)
    f.costs_nothing("shared_expert_sink", "chain_hidden_post_norm", "mtp_hidden_states_first")
    f.costs_nothing("log_scaling_n_floor")
    if all(sparse):
        f.costs_nothing("intermediate_size")

    def layer(index: int, kind: str) -> LayerPlan:
        mixer = replace(_convolved(f, kind), qk_norm="head")
        if sparse[index]:  # the router's rows for shared experts, its scale
            return decoder_layer(mixer, moe, 2 * hidden + shared * hidden + 1)
        return decoder_layer(mixer, mlp(f), 2 * hidden + 1)

    kinds = listed_kinds(f, count, ("hybrid", _SLIDING))
    layers = [layer(index, kind) for index, kind in enumerate(kinds)]
    result = plan(f, "inkling", layers)
    result.extra_weights = hidden  # the norm of the embedding
    return result


@family("inkling2_text")
def inkling2(f: TextConfig) -> ModelPlan:
    """Inkling-2: attention residuals, output gates, sinks that each token projects, scales per
    head in place of norms, mixtures without a shared expert; in full layers queries, keys and
    values have an input each, and the kernels of their convolutions depend on the token."""
    f.costs_nothing("unpadded_vocab_size")  # rows of padding in the head count with the others
    f.costs_nothing("number_of_conv_states", "intermediate_size", "log_scaling_n_floor")
    count, hidden = f.num_hidden_layers, f.hidden_size
    moe = sigmoid_moe(f)
    blocks = mean_blocks(count, f.n_layers_per_attn_res_block)

    def layer(index: int, kind: str) -> LayerPlan:
        full = kind != _SLIDING
        mixer = replace(
            _convolved(f, kind), gated=True, head_gate=True, head_scales=True, wide_kernels=full
        )
        queries = 1 + (0 if not index else 3 if full else 1)
        residual = AttentionResidual(blocks, queries)
        return decoder_layer(mixer, moe, (4 if full else 2) * hidden, extras=(residual,))

    kinds = listed_kinds(f, count, ("hybrid", _SLIDING))
    layers = [layer(index, kind) for index, kind in enumerate(kinds)]
    result = plan(f, "inkling2", layers)
    result.extra_weights = 2 * hidden  # the norm of the embedding, the query before the head
    return result


def _convolved(f: TextConfig, kind: str) -> ConvolvedAttention:
    """A full layer, or one with a window and heads of its own."""
    sliding = kind == _SLIDING
    heads = f.swa_num_attention_heads if sliding else f.num_attention_heads
    kv = f.swa_num_key_value_heads if sliding else f.num_key_value_heads
    dim = f.swa_head_dim if sliding else f.head_dim
    heads, kv = f.given("swa_num_attention_heads", heads), f.given("num_key_value_heads", kv)
    if heads % kv:
        raise f.fail("num_attention_heads", f"must be a multiple of the KV heads = {kv}")
    window = f.sliding_window_size
    return ConvolvedAttention(
        heads, kv, f.given("head_dim", dim), window=window if sliding else 0,
        conv_kernel=f.conv_kernel_size, stream=f.hidden_size, bias_dim=f.d_rel,
        bias_extent=window if sliding else f.rel_extent,
    )

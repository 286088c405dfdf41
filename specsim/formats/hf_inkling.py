"""Readers of Inkling and Inkling-2: attention whose keys, values and results pass short
convolutions, with biases by distance that each token projects (transformers 5.24, Apache-2.0)."""

from dataclasses import replace

from specsim.formats.hf_common import listed_kinds, mlp, plan, sparse_after_dense
from specsim.formats.hf_delta import mean_blocks
from specsim.formats.hf_moe import sigmoid_moe
from specsim.formats.hf_plan import LayerPlan, ModelPlan, decoder_layer, family
from specsim.formats.hf_shape import TextConfig
from specsim.model.extras import AttentionResidual
from specsim.model.mixers import ConvolvedAttention

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
        mixer = replace(_attention(f, kind), qk_norm="head")
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
            _attention(f, kind), gated=True, head_gate=True, head_scales=True, wide_kernels=full
        )
        queries = 1 + (0 if not index else 3 if full else 1)
        residual = AttentionResidual(blocks, queries)
        return decoder_layer(mixer, moe, (4 if full else 2) * hidden, extras=(residual,))

    kinds = listed_kinds(f, count, ("hybrid", _SLIDING))
    layers = [layer(index, kind) for index, kind in enumerate(kinds)]
    result = plan(f, "inkling2", layers)
    result.extra_weights = 2 * hidden  # the norm of the embedding, the query before the head
    return result


def _attention(f: TextConfig, kind: str) -> ConvolvedAttention:
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

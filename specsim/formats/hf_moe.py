"""Readers of mixture-of-experts families with ordinary attention."""

from dataclasses import replace

from specsim.formats.hf_common import (
    attention,
    experts,
    layer_kinds,
    mlp,
    n_layers,
    plan,
    shared_width,
    sparse_after_dense,
    sparse_layers,
    window_size,
    windows,
)
from specsim.formats.hf_plan import LayerNames, LayerPlan, ModelPlan, MtpPlan, decoder_layer, family
from specsim.formats.hf_shape import TextConfig
from specsim.model.spec import DenseMLP, FeedForward, MoE


@family("mixtral")
def mixtral(f: TextConfig) -> ModelPlan:
    hidden = f.hidden_size
    count, top_k = experts(f)
    moe = MoE(count, top_k, f.intermediate_size)
    layers = [
        decoder_layer(
            attention(f, window=window),
            moe,
            2 * hidden,
            LayerNames(ffn="block_sparse_moe", experts=("w1", "w2", "w3")),
        )
        for window in windows(f, n_layers(f))
    ]
    return plan(f, "mixtral", layers)


@family("qwen3_moe")
def qwen3_moe(f: TextConfig) -> ModelPlan:
    """Qwen3-MoE: per-head q/k norms, no shared expert."""
    hidden = f.hidden_size
    bias = f.flag("attention_bias", False)
    mixer = attention(f, qkv_bias=bias, o_bias=bias, qk_norm="head", head_dim_given=True)
    count, top_k = experts(f)
    moe = MoE(count, top_k, f.moe_intermediate_size)
    layers = [
        decoder_layer(mixer, moe if sparse else mlp(f), 2 * hidden)
        for sparse in sparse_layers(f, n_layers(f))
    ]
    return plan(f, "qwen3_moe", layers)


@family("qwen2_moe")
def qwen2_moe(f: TextConfig) -> ModelPlan:
    """Qwen1.5/Qwen2-MoE: q, k, v biases, a gated shared expert."""
    hidden = f.hidden_size
    mixer = attention(f, qkv_bias=f.qkv_bias)
    count, top_k = experts(f)
    moe = MoE(
        count,
        top_k,
        f.moe_intermediate_size,
        shared_intermediate=f.given(
            "shared_expert_intermediate_size", f.shared_expert_intermediate_size
        ),
        shared_gate=True,
    )
    layers = [
        decoder_layer(
            mixer,
            moe if sparse else mlp(f),
            2 * hidden,
            LayerNames(shared="shared_expert"),
        )
        for sparse in sparse_layers(f, n_layers(f))
    ]
    return plan(f, "qwen2_moe", layers)


@family("gpt_oss")
def gpt_oss(f: TextConfig) -> ModelPlan:
    """gpt-oss: biases everywhere, one sink logit per head, alternate layers with a window."""
    hidden = f.hidden_size
    count = n_layers(f)
    window = window_size(f)
    kinds = layer_kinds(f, count, ("full_attention", "sliding_attention")) or tuple(
        "sliding_attention" if index % 2 == 0 else "full_attention" for index in range(count)
    )
    total, top_k = experts(f)
    moe = MoE(total, top_k, f.intermediate_size, router_bias=True, expert_bias=True)
    bias = f.flag("attention_bias", True)
    layers = []
    for kind in kinds:
        mixer = attention(
            f,
            qkv_bias=bias,
            o_bias=bias,
            window=window if kind == "sliding_attention" else 0,
            head_dim_given=True,
        )
        mixer = replace(mixer, sinks=True)
        layers.append(
            decoder_layer(
                mixer,
                moe,
                2 * hidden,
                LayerNames(experts=("gate_up_proj", "down_proj")),
            )
        )
    return plan(f, "gpt_oss", layers)


@family("glm4_moe")
def glm4_moe(f: TextConfig) -> ModelPlan:
    """GLM-4.5, 4.6, 4.7 and Air: q, k, v biases, dense first layers, sigmoid router with bias.

    The MTP head is one more mixture layer after the last one (num_nextn_predict_layers).
    """
    hidden = f.hidden_size
    count = n_layers(f)
    mixer = attention(
        f,
        qkv_bias=f.flag("attention_bias", False),
        qk_norm="head" if f.flag("use_qk_norm", False) else "none",
        head_dim_given=True,
    )
    moe = sigmoid_moe(f)
    layers = [
        decoder_layer(mixer, moe if sparse else mlp(f), 2 * hidden)
        for sparse in sparse_after_dense(f, count)
    ]
    result = plan(f, "glm4_moe", layers)
    result.mtp = appended_mtp(f, decoder_layer(mixer, moe, 2 * hidden), hidden, count)
    return result


def sigmoid_moe(f: TextConfig) -> MoE:
    """DeepSeek-V3's mixture: a router with a correction bias and an ungated shared expert."""
    total, top_k = experts(f)
    width = f.moe_intermediate_size
    return MoE(
        total,
        top_k,
        width,
        shared_intermediate=shared_width(f, width),
        router_bias=f.topk_method == "noaux_tc",
    )


def appended_mtp(f: TextConfig, layer: LayerPlan, hidden: int, layers: int) -> MtpPlan | None:
    """DeepSeek-V3's kind of MTP head: stored as layers after the last one.

    enorm, hnorm, eh_proj (2h -> h), one decoder layer, shared_head norm; embeddings and head
    are the target's (published files repeat them).
    """
    copies = f.num_nextn_predict_layers or 0
    if not copies:
        return None
    return MtpPlan(
        layers=[layer],
        prefix=f"model.layers.{layers}.",
        fc_module=f"model.layers.{layers}.eh_proj",
        extra_weights=3 * hidden,
        copies=copies,
    )


@family("minimax_m2")
def minimax_m2(f: TextConfig) -> ModelPlan:
    """MiniMax-M2: q/k norms over all heads. Its config declares MTP modules that the
    published checkpoints do not hold, so the model has none here."""
    hidden = f.hidden_size
    total, top_k = experts(f)
    f.require("shared_intermediate_size", (0,), "a shared expert is not known for this family")
    f.require("qk_norm_type", ("per_layer",), "only per_layer is known for this family")
    moe = MoE(
        total,
        top_k,
        f.intermediate_size,
        router_bias=f.use_routing_bias,
    )
    norm = "full" if f.flag("use_qk_norm", True) else "none"
    layers: list[LayerPlan] = [
        decoder_layer(
            attention(f, qk_norm=norm, head_dim_given=True),
            moe,
            2 * hidden,
            LayerNames(ffn="block_sparse_moe", experts=("w1", "w2", "w3")),
        )
        for _ in range(n_layers(f))
    ]
    result = plan(f, "minimax_m2", layers)
    if f.use_mtp:
        result.notes.append("the config declares MTP modules; the published weights have none")
    return result


@family("hy_v3")
def hunyuan_v3(f: TextConfig) -> ModelPlan:
    """Hy3: q/k norms per head, a dense first layer, then sigmoid mixtures with a shared expert.
    Its MTP head is a mixture layer joined as DeepSeek-V3's."""
    hidden = f.hidden_size
    count = n_layers(f)
    bias = f.flag("attention_bias", False)
    mixer = attention(f, qkv_bias=bias, o_bias=bias, qk_norm="head", head_dim_given=True)
    total, top_k = experts(f)
    width = f.moe_intermediate_size
    shared = shared_width(f, width)
    moe = MoE(total, top_k, width, shared_intermediate=shared, router_bias=True)
    layers = [
        decoder_layer(mixer, moe if sparse else mlp(f), 2 * hidden)
        for sparse in sparse_after_dense(f, count, default_dense=1)
    ]
    result = plan(f, "hy_v3", layers)
    result.mtp = appended_mtp(f, decoder_layer(mixer, moe, 2 * hidden), hidden, count)
    return result


@family("bailing_moe")
def bailing_moe(f: TextConfig) -> ModelPlan:
    """Ling and Ring 2.0 (bailing_moe): fused q/k/v, optional q/k norms, sigmoid mixtures."""
    hidden = f.hidden_size
    count = n_layers(f)
    bias = f.use_bias
    mixer = attention(
        f,
        qkv_bias=bias or f.use_qkv_bias,
        o_bias=bias,
        qk_norm="head" if f.flag("use_qk_norm", False) else "none",
    )
    total, top_k = experts(f)
    width = f.moe_intermediate_size
    shared = f.moe_shared_expert_intermediate_size or width
    moe = MoE(
        total,
        top_k,
        width,
        shared_intermediate=shared_width(f, shared),
        router_bias=f.moe_router_enable_expert_bias,
    )

    def layer(sparse: bool) -> LayerPlan:
        return decoder_layer(
            mixer,
            moe if sparse else mlp(f),
            2 * hidden,
            LayerNames(mixer="attention", linears=("query_key_value", "dense")),
        )

    layers = [layer(sparse) for sparse in sparse_after_dense(f, count)]
    result = plan(f, "bailing_moe", layers)
    result.mtp = appended_mtp(f, layer(True), hidden, count)
    return result


@family("ernie4_5_moe")
def ernie_moe(f: TextConfig) -> ModelPlan:
    """ERNIE-4.5 mixtures. The MTP block, where the file has one, is a dense layer with two
    input norms and no norm of its own at the end."""
    hidden = f.hidden_size
    count = n_layers(f)
    f.require("use_bias", (False,), "biases are not known for this family's mixtures")
    mixer = attention(f)
    total, top_k = experts(f)
    width = f.moe_intermediate_size
    shared = shared_width(f, width)
    moe = MoE(total, top_k, width, shared_intermediate=shared, router_bias=True)
    first = f.moe_layer_start_index
    last = f.moe_layer_end_index
    every = f.moe_layer_interval
    last = count - 1 if last < 0 else last
    layers = [
        decoder_layer(
            mixer,
            moe if first <= index <= last and (index - first) % every == 0 else mlp(f),
            2 * hidden,
        )
        for index in range(count)
    ]
    result = plan(f, "ernie4_5_moe", layers, tied=True)
    copies = f.num_nextn_predict_layers or 0
    if copies:
        result.mtp = MtpPlan(
            layers=[decoder_layer(mixer, mlp(f), 2 * hidden)],
            prefix="model.mtp_block.{i}.",
            fc_module="model.mtp_linear_proj.0",
            extra_weights=2 * hidden,
            copies=copies,
        )
    return result


@family("llama4_text")
def llama4(f: TextConfig) -> ModelPlan:
    """Llama-4: a mixture every `interleave_moe_layer_step` layers, top-1 plus a shared expert.

    Three of four layers attend within chunks of attention_chunk_size tokens; the chunk is
    counted as a window, its upper bound. The q/k norm has no weights.
    """
    hidden = f.hidden_size
    count = n_layers(f)
    total, top_k = experts(f)
    width = f.intermediate_size
    moe = MoE(total, top_k, width, shared_intermediate=width)
    step = f.interleave_moe_layer_step
    sparse = set(f.moe_layers) or set(range(step - 1, count, step))
    chunk = f.attention_chunk_size
    rope = f.no_rope_layers or tuple(
        int((index + 1) % 4 != 0) for index in range(count)
    )
    if len(rope) != count:
        raise f.fail("no_rope_layers", f"must have one entry for each of the {count} layers")
    bias = f.flag("attention_bias", False)
    dense = DenseMLP(f.intermediate_size_mlp)
    layers = []
    for index in range(count):
        ffn: FeedForward = moe if index in sparse else dense
        mixer = attention(f, qkv_bias=bias, o_bias=bias, window=chunk if rope[index] else 0)
        layers.append(
            decoder_layer(
                mixer,
                ffn,
                2 * hidden,
                LayerNames(ffn="feed_forward", shared="shared_expert"),
            )
        )
    result = plan(f, "llama4", layers)
    result.notes.append("chunked attention counted as a window of the chunk's length")
    return result

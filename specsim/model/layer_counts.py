"""Exact parameter counts of single layers, and the bytes their weights and cache take.

Parameters are split in two kinds because quantised checkpoints do so: *matrices* take the
part's weight format, *plain* weights (norms, routers, gates, convolutions, biases) stay in
2-byte floats. h is the width of the layer throughout. Formulas: the published layer
definitions of each architecture.
"""

from dataclasses import dataclass

from specsim.model.spec import (
    Attention,
    DeltaNet,
    DenseMLP,
    FeedForward,
    LatentAttention,
    LayerGroup,
    Mamba2,
    Mixer,
    MoE,
)

PLAIN_BYTES = 2.0  # bytes of a weight that no checkpoint format quantises
MLA_FP8_SPARSE_BYTES = 656  # vLLM fp8_ds_mla row: 512 e4m3 + 4 fp32 scales + 64 bf16 rope
INDEX_KEY_BYTES_PER_128 = 132  # DSA index key: 128 e4m3 + one fp32 scale, any cache dtype


@dataclass(frozen=True, slots=True)
class PartCount:
    """Parameters of one part: `matrices` in the part's weight format, `plain` in 2 bytes."""

    matrices: int = 0
    plain: int = 0

    @property
    def total(self) -> int:
        return self.matrices + self.plain


@dataclass(frozen=True, slots=True)
class MoECount:
    """Parameters of a mixture of experts; `routed` is all experts, `per_expert` one of them."""

    per_expert: int
    routed: int
    shared: int  # always-on expert and latent projections
    plain: int  # router, biases, shared gate

    @property
    def total(self) -> int:
        return self.routed + self.shared + self.plain


@dataclass(frozen=True, slots=True)
class KVBytes:
    """Cache bytes per token. `full` grows without end; `sliding` is ((window, bytes), ...);
    `index` are the keys of a sparse-attention indexer (read in full, even where the
    attention itself reads only its top-k tokens)."""

    full: float
    sliding: tuple[tuple[int, float], ...] = ()
    index: float = 0.0

    @property
    def per_token(self) -> float:
        """Bytes one more token adds while every window is still open."""
        return self.full + self.index + sum(size for _, size in self.sliding)

    def held(self, context_tokens: float) -> float:
        """Bytes a sequence of `context_tokens` holds, windows capped."""
        capped = sum(min(context_tokens, window) * size for window, size in self.sliding)
        return (self.full + self.index) * context_tokens + capped


def mixer_count(mixer: Mixer, hidden: int) -> PartCount:
    """Parameters of one token mixer of a layer of width `hidden`."""
    if isinstance(mixer, Attention):
        return _attention(mixer, hidden)
    if isinstance(mixer, LatentAttention):
        return _latent_attention(mixer, hidden)
    if isinstance(mixer, DeltaNet):
        key, value = delta_net_widths(mixer)
        matrices = hidden * (2 * key + 2 * value) + value * hidden
        small = hidden * 2 * mixer.n_v_heads + 2 * mixer.n_v_heads  # a and b, A_log and dt_bias
        conv = (2 * key + value) * mixer.conv_kernel
        return PartCount(matrices, small + conv + mixer.head_v_dim)
    inner, conv_width = mamba_widths(mixer)
    matrices = hidden * (inner + conv_width + mixer.n_heads) + inner * hidden
    plain = conv_width * (mixer.conv_kernel + mixer.conv_bias)
    plain += 3 * mixer.n_heads + inner  # A, D and dt_bias; the gated norm
    if mixer.proj_bias:
        plain += inner + conv_width + mixer.n_heads + hidden
    return PartCount(matrices, plain)


def delta_net_widths(mixer: DeltaNet) -> tuple[int, int]:
    """(key width, value width) of all heads together."""
    return mixer.n_k_heads * mixer.head_k_dim, mixer.n_v_heads * mixer.head_v_dim


def mamba_widths(mixer: Mamba2) -> tuple[int, int]:
    """(inner width, width of the convolution = inner + 2 * groups * state size)."""
    inner = mixer.n_heads * mixer.head_dim
    return inner, inner + 2 * mixer.n_groups * mixer.state_size


def _attention(mixer: Attention, hidden: int) -> PartCount:
    query = mixer.n_heads * mixer.head_dim
    kv = mixer.n_kv_heads * mixer.head_dim if mixer.owns_kv else 0
    kv_projections = 1 if mixer.k_eq_v else 2
    source = hidden * mixer.input_mult
    query_out = query * (2 if mixer.gated else 1)
    matrices = source * query_out + kv_projections * source * kv + query * hidden
    plain = 0
    if mixer.qkv_bias:
        plain += query_out + kv_projections * kv
    if mixer.o_bias:
        plain += hidden
    if mixer.qk_norm == "head":
        plain += mixer.head_dim * (2 if mixer.owns_kv else 1)
    elif mixer.qk_norm == "full":
        plain += query + kv
    if mixer.sinks:
        plain += mixer.n_heads
    return PartCount(matrices, plain)


def _latent_attention(mixer: LatentAttention, hidden: int) -> PartCount:
    heads, rank = mixer.n_heads, mixer.q_lora_rank
    query = heads * (mixer.qk_nope_head_dim + mixer.qk_rope_head_dim)
    matrices = hidden * rank + rank * query if rank else hidden * query
    matrices += hidden * (mixer.kv_lora_rank + mixer.qk_rope_head_dim)
    matrices += mixer.kv_lora_rank * heads * (mixer.qk_nope_head_dim + mixer.v_head_dim)
    matrices += heads * mixer.v_head_dim * hidden
    plain = rank + mixer.kv_lora_rank  # the two latent norms
    if mixer.index_heads:
        matrices += rank * mixer.index_heads * mixer.index_head_dim
        matrices += hidden * mixer.index_head_dim
        plain += hidden * mixer.index_heads + 2 * mixer.index_head_dim  # head weights, LayerNorm
    return PartCount(matrices, plain)


def mlp_count(mlp: DenseMLP, hidden: int) -> PartCount:
    matrices = (3 if mlp.gated else 2) * hidden * mlp.intermediate
    bias = (mlp.intermediate * (2 if mlp.gated else 1) + hidden) if mlp.bias else 0
    return PartCount(matrices, bias)


def moe_count(moe: MoE, hidden: int) -> MoECount:
    """Parameters of one mixture of experts; expert biases count as part of each expert."""
    width = moe.latent or hidden
    projections = 3 if moe.gated else 2
    per_expert = projections * width * moe.intermediate
    if moe.expert_bias:
        per_expert += (projections - 1) * moe.intermediate + width
    shared = projections * hidden * moe.shared_intermediate + 2 * hidden * moe.latent
    plain = hidden * moe.n_experts
    plain += moe.n_experts if moe.router_bias else 0
    plain += hidden if moe.shared_gate else 0
    return MoECount(per_expert, moe.n_experts * per_expert, shared, plain)


def ffn_branches(ffn: FeedForward | tuple[FeedForward, ...] | None) -> tuple[FeedForward, ...]:
    """The parallel branches of a feed-forward part: none, one or several."""
    if ffn is None:
        return ()
    return ffn if isinstance(ffn, tuple) else (ffn,)


def ffn_parameters(ffn: FeedForward, hidden: int, active: bool = False) -> int:
    """All parameters of one branch, or with `active` those one token passes through."""
    if isinstance(ffn, DenseMLP):
        return mlp_count(ffn, hidden).total
    count = moe_count(ffn, hidden)
    routed = ffn.top_k * count.per_expert if active else count.routed
    return routed + count.shared + count.plain


def _ffn_bytes(ffn: FeedForward, hidden: int, active: bool = False) -> float:
    if isinstance(ffn, DenseMLP):
        part = mlp_count(ffn, hidden)
        return part.matrices * ffn.weight.bytes_per_weight + part.plain * PLAIN_BYTES
    count = moe_count(ffn, hidden)
    routed = ffn.top_k * count.per_expert if active else count.routed
    size = routed * ffn.weight.bytes_per_weight
    return size + count.shared * ffn.shared_weight.bytes_per_weight + count.plain * PLAIN_BYTES


def _mixer_bytes(mixer: Mixer | None, hidden: int) -> float:
    if mixer is None:
        return 0.0
    part = mixer_count(mixer, hidden)
    size = part.matrices * mixer.weight.bytes_per_weight + part.plain * PLAIN_BYTES
    if isinstance(mixer, LatentAttention) and mixer.o_weight is not None:
        out = mixer.n_heads * mixer.v_head_dim * hidden
        size += out * (mixer.o_weight.bytes_per_weight - mixer.weight.bytes_per_weight)
    return size


def layer_parameters(
    layers: tuple[LayerGroup, ...], hidden: int, active: bool = False
) -> tuple[int, int, int]:
    """(mixer, ffn, norm) parameters of all layers."""
    mixer = ffn = norms = 0
    for group in layers:
        if group.mixer is not None:
            mixer += group.count * mixer_count(group.mixer, hidden).total
        for branch in ffn_branches(group.ffn):
            ffn += group.count * ffn_parameters(branch, hidden, active)
        norms += group.count * group.norm_weights
    return mixer, ffn, norms


def layer_bytes(
    layers: tuple[LayerGroup, ...], hidden: int, active: bool = False
) -> tuple[float, float, float]:
    """(mixer, ffn, norm) bytes of all layers."""
    mixer = ffn = norms = 0.0
    for group in layers:
        mixer += group.count * _mixer_bytes(group.mixer, hidden)
        for branch in ffn_branches(group.ffn):
            ffn += group.count * _ffn_bytes(branch, hidden, active)
        norms += group.count * group.norm_weights * PLAIN_BYTES
    return mixer, ffn, norms


def kv_of_layers(layers: tuple[LayerGroup, ...], element: float, copies: int = 1) -> KVBytes:
    """Cache bytes per token of `copies` times these layers; `element` is the dtype's size."""
    full = index = 0.0
    sliding: dict[int, float] = {}
    for group in layers:
        mixer = group.mixer
        count = group.count * copies
        if isinstance(mixer, Attention) and mixer.owns_kv:
            size = count * 2 * mixer.n_kv_heads * mixer.head_dim * element
            if mixer.window:
                sliding[mixer.window] = sliding.get(mixer.window, 0.0) + size
            else:
                full += size
        elif isinstance(mixer, LatentAttention):
            row = (mixer.kv_lora_rank + mixer.qk_rope_head_dim) * element
            index += count * mixer.index_head_dim * INDEX_KEY_BYTES_PER_128 / 128
            if mixer.index_topk and element == 1.0:
                row = float(MLA_FP8_SPARSE_BYTES)
            full += count * row
    return KVBytes(full, tuple(sorted(sliding.items())), index)

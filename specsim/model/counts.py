"""Exact parameter counts of a ModelSpec, and the bytes its weights, cache and state take.

Every count is of the whole model, before tensor parallelism, and follows from shapes
alone. Parameters are split in two kinds because quantised checkpoints do so: *matrices*
take the part's weight format, *plain* weights (norms, routers, gates, convolutions,
biases) stay in 2-byte floats. h is the model width throughout.

Formulas: the published layer definitions of each architecture; the totals were compared
with the sizes the publishers state (tests/model/test_model_counts.py).
"""

from dataclasses import dataclass

from specsim.errors import UsageError
from specsim.model.spec import (
    Attention,
    DeltaNet,
    DenseMLP,
    Drafter,
    FeedForward,
    LatentAttention,
    LayerGroup,
    Mamba2,
    Mixer,
    ModelSpec,
    MoE,
)
from specsim.units import DTYPE_BYTES

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
class Parameters:
    """Parameters by part. A tied head is counted once, as `embed`."""

    embed: int
    mixer: int
    ffn: int
    norms: int  # layer norms and the final norm
    head: int
    extra: int
    mtp: int
    vision: int

    @property
    def text(self) -> int:
        """The language model alone: without the MTP head and the vision tower."""
        return self.embed + self.mixer + self.ffn + self.norms + self.head + self.extra

    @property
    def total(self) -> int:
        return self.text + self.mtp + self.vision


@dataclass(frozen=True, slots=True)
class ActiveParameters:
    """Parameters one token passes through; the two tables apart, as customs differ on them."""

    body: int
    head: int  # the output head; counted here also when it is tied
    embed: int  # the input table, 0 when tied

    @property
    def total(self) -> int:
        return self.body + self.head + self.embed


@dataclass(frozen=True, slots=True)
class WeightBytes:
    """Bytes of the stored weights by part; a tied head is stored once, as `embed`."""

    embed: float
    mixer: float
    ffn: float
    norms: float
    head: float
    extra: float
    mtp: float
    vision: float

    @property
    def text(self) -> float:
        return self.embed + self.mixer + self.ffn + self.norms + self.head + self.extra

    @property
    def total(self) -> float:
        return self.text + self.mtp + self.vision


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


@dataclass(frozen=True, slots=True)
class StateBytes:
    """Fixed-size recurrent state of one sequence (one slot; engines keep several)."""

    recurrent: float = 0.0
    conv: float = 0.0

    @property
    def total(self) -> float:
        return self.recurrent + self.conv


# --- layers -------------------------------------------------------------------------------


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


def _layers(
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


def _layer_bytes(
    layers: tuple[LayerGroup, ...], hidden: int, active: bool = False
) -> tuple[float, float, float]:
    mixer = ffn = norms = 0.0
    for group in layers:
        mixer += group.count * _mixer_bytes(group.mixer, hidden)
        for branch in ffn_branches(group.ffn):
            ffn += group.count * _ffn_bytes(branch, hidden, active)
        norms += group.count * group.norm_weights * PLAIN_BYTES
    return mixer, ffn, norms


# --- whole models -------------------------------------------------------------------------


def parameters(spec: ModelSpec) -> Parameters:
    """Exact parameter counts by part."""
    mixer, ffn, norms = _layers(spec.layers, spec.hidden)
    table = spec.vocab * spec.hidden
    return Parameters(
        embed=table,
        mixer=mixer,
        ffn=ffn,
        norms=norms + spec.final_norm_weights,
        head=0 if spec.tied_embeddings else table,
        extra=spec.extra_weights,
        mtp=drafter_parameters(spec.mtp) if spec.mtp else 0,
        vision=spec.vision_params,
    )


def active_parameters(spec: ModelSpec) -> ActiveParameters:
    """Parameters one token passes through (top_k routed experts of each layer)."""
    mixer, ffn, norms = _layers(spec.layers, spec.hidden, active=True)
    table = spec.vocab * spec.hidden
    return ActiveParameters(
        body=mixer + ffn + norms + spec.final_norm_weights,
        head=table,
        embed=0 if spec.tied_embeddings else table,
    )


def weight_bytes(spec: ModelSpec) -> WeightBytes:
    """Bytes of the stored weights by part, each part in its own format."""
    mixer, ffn, norms = _layer_bytes(spec.layers, spec.hidden)
    table = spec.vocab * spec.hidden
    return WeightBytes(
        embed=table * spec.embed_weight.bytes_per_weight,
        mixer=mixer,
        ffn=ffn,
        norms=norms + spec.final_norm_weights * PLAIN_BYTES,
        head=0.0 if spec.tied_embeddings else table * spec.head_weight.bytes_per_weight,
        extra=spec.extra_weights * PLAIN_BYTES,
        mtp=drafter_weight_bytes(spec.mtp) if spec.mtp else 0.0,
        vision=spec.vision_params * PLAIN_BYTES,
    )


def head_bytes(spec: ModelSpec) -> float:
    """Bytes of the output head that one pass reads, tied or not."""
    weight = spec.embed_weight if spec.tied_embeddings else spec.head_weight
    return spec.vocab * spec.hidden * weight.bytes_per_weight


def active_weight_bytes(spec: ModelSpec) -> float:
    """Bytes a step with a single token must read: body, top_k experts and the head, no table."""
    mixer, ffn, norms = _layer_bytes(spec.layers, spec.hidden, active=True)
    return mixer + ffn + norms + spec.final_norm_weights * PLAIN_BYTES + head_bytes(spec)


def kv_bytes_per_token(spec: ModelSpec, kv_dtype: str = "auto") -> KVBytes:
    """Cache bytes per token of the target's layers (its MTP head: `drafter_kv_bytes`).

    kv_dtype: 'auto' (the spec's default) or a name of `units.DTYPE_BYTES`.
    """
    return _kv_of_layers(spec.layers, kv_dtype_bytes(spec, kv_dtype))


def kv_dtype_bytes(spec: ModelSpec, kv_dtype: str = "auto") -> float:
    """Bytes of one cached element; 'auto' is the spec's default."""
    name = spec.default_kv_dtype if kv_dtype == "auto" else kv_dtype
    if name not in DTYPE_BYTES:
        known = ", ".join(["auto", *DTYPE_BYTES])
        raise UsageError(f"KV cache dtype {name!r} is not known; use one of {known}")
    return DTYPE_BYTES[name]


def _kv_of_layers(layers: tuple[LayerGroup, ...], element: float, copies: int = 1) -> KVBytes:
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


def state_bytes(spec: ModelSpec, conv_dtype: str = "bf16") -> StateBytes:
    """Recurrent state of one sequence, one slot. Verification of k drafts needs 1 + k slots."""
    recurrent = conv = 0.0
    conv_element = DTYPE_BYTES[conv_dtype]
    for group in spec.layers:
        mixer = group.mixer
        if isinstance(mixer, DeltaNet):
            key, value = delta_net_widths(mixer)
            elements, conv_width = value * mixer.head_k_dim, 2 * key + value
        elif isinstance(mixer, Mamba2):
            inner, conv_width = mamba_widths(mixer)
            elements = inner * mixer.state_size
        else:
            continue
        recurrent += group.count * elements * DTYPE_BYTES[mixer.state_dtype]
        conv += group.count * conv_width * (mixer.conv_kernel - 1) * conv_element
    return StateBytes(recurrent, conv)


def resident_bytes(
    spec: ModelSpec,
    drafter: Drafter | None = None,
    *,
    with_mtp: bool = False,
    with_vision: bool = True,
) -> float:
    """Weight bytes an engine keeps on the devices: the target, its tower, what it drafts with."""
    size = weight_bytes(spec)
    total = size.text + (size.vision if with_vision else 0.0)
    if with_mtp:
        total += size.mtp
    if drafter is not None and drafter is not spec.mtp:
        total += drafter_weight_bytes(drafter)
    return total


# --- drafters -----------------------------------------------------------------------------


def drafter_parameters(drafter: Drafter, active: bool = False) -> int:
    """Parameters a drafter owns; shared tables of the target are not counted.

    With `active`, experts count as top_k and one of `n_predict` physical copies.
    """
    copies = 1 if active else drafter.n_predict
    count = copies * sum(_layers(drafter.layers, drafter.hidden, active))
    count += copies * drafter.fc_in * drafter.fc_out + copies * drafter.extra_weights
    count += sum(rows * columns for rows, columns in drafter.extra_matrices)
    return count + drafter.lookup_weights + _own_tables(drafter)


def _own_tables(drafter: Drafter) -> int:
    if drafter.n_heads_medusa:
        per_head = drafter.hidden * drafter.hidden + drafter.vocab * drafter.hidden
        return drafter.n_heads_medusa * per_head
    count = drafter.draft_vocab * drafter.hidden if drafter.own_head else 0
    if drafter.own_embed and not (drafter.own_head and drafter.tied_embeddings):
        count += drafter.vocab * drafter.hidden
    return count


def drafter_weight_bytes(drafter: Drafter) -> float:
    """Bytes a drafter adds to the device."""
    layers = sum(_layer_bytes(drafter.layers, drafter.hidden))
    fc = drafter.fc_in * drafter.fc_out * drafter.fc_weight.bytes_per_weight
    total = drafter.n_predict * (layers + fc + drafter.extra_weights * PLAIN_BYTES)
    matrices = sum(rows * columns for rows, columns in drafter.extra_matrices)
    total += matrices * drafter.fc_weight.bytes_per_weight
    total += drafter.lookup_weights * PLAIN_BYTES
    return total + _own_tables(drafter) * drafter.head_weight.bytes_per_weight


def drafter_pass_bytes(drafter: Drafter) -> float:
    """Weight bytes one single-token pass reads, its head (own or the target's) included."""
    layers = sum(_layer_bytes(drafter.layers, drafter.hidden, active=True))
    fc = drafter.fc_in * drafter.fc_out * drafter.fc_weight.bytes_per_weight
    matrices = sum(rows * columns for rows, columns in drafter.extra_matrices)
    total = layers + fc + matrices * drafter.fc_weight.bytes_per_weight
    total += drafter.extra_weights * PLAIN_BYTES
    if drafter.n_heads_medusa:
        return total + _own_tables(drafter) * drafter.head_weight.bytes_per_weight
    return total + drafter.draft_vocab * drafter.hidden * drafter.head_weight.bytes_per_weight


def drafter_kv_bytes(drafter: Drafter, kv_dtype: str = "bf16") -> KVBytes:
    """Cache bytes per token of the drafter's own layers (none where it reads the target's)."""
    if kv_dtype not in DTYPE_BYTES:
        known = ", ".join(DTYPE_BYTES)
        raise UsageError(f"KV cache dtype {kv_dtype!r} is not known; use one of {known}")
    return _kv_of_layers(drafter.layers, DTYPE_BYTES[kv_dtype], drafter.n_predict)


def drafter_from_spec(spec: ModelSpec) -> Drafter:
    """A whole small model as the drafter of a larger one (method `draft_model`)."""
    return Drafter(
        name=spec.name,
        kind="model",
        hidden=spec.hidden,
        layers=spec.layers,
        vocab=spec.vocab,
        draft_vocab=spec.vocab,
        own_head=True,
        own_embed=True,
        extra_weights=spec.final_norm_weights + spec.extra_weights,
        head_weight=spec.embed_weight if spec.tied_embeddings else spec.head_weight,
        tied_embeddings=spec.tied_embeddings,
        source=spec.source,
    )

"""Token mixers of a layer: their shapes, parameters, cache and state.

A mixer is a frozen dataclass below `Mixer` that says what it owns: `count` its parameters,
`cache_row` what one more token adds to the cache, `state` what a sequence holds whatever its
length, `heads` what tensor parallelism deals out. Its operations are registered in
`specsim.ops.network.MIXERS`. Formulas: the published layer definitions of each architecture.

Widths are in elements, dtypes are the names of `specsim.units.DTYPE_BYTES`.
"""

from dataclasses import astuple, dataclass, replace
from typing import ClassVar, NamedTuple

from specsim.model.part import BF16, Part, PartCount, WeightFormat, bytes_of

INDEX_KEY_BYTES_PER_128 = 132  # DSA index key: 128 e4m3 + one fp32 scale, any cache dtype


class CacheRow(NamedTuple):
    """Cache bytes of one token in one layer. window: tokens that stay (0: all). index_size: of
    a sparse-attention indexer's key. kept_size: of what stays of every token beside a window."""

    size: float = 0.0
    window: int = 0
    index_size: float = 0.0
    kept_size: float = 0.0


class RecurrentState(NamedTuple):
    """State of one sequence in one layer: elements of `dtype`, and the convolution's inputs."""

    elements: int
    dtype: str
    conv_width: int
    conv_kernel: int


@dataclass(frozen=True, slots=True)
class Mixer(Part):
    """What every token mixer answers; the defaults are those of one without cache and state."""

    @property
    def label(self) -> str:
        """What its operations are called."""
        return self.tag

    def count(self, hidden: int) -> PartCount:
        """Parameters of one layer's mixer."""
        raise NotImplementedError

    def cache_row(self, element: float) -> CacheRow:
        """Cache of one token; `element` is the size of the cache's dtype."""
        return CacheRow()

    def cache_shards(self, tp: int) -> int:
        """Over how many of `tp` GPUs the cache is divided; the others hold copies."""
        return 1

    def state(self) -> RecurrentState | None:
        return None

    def heads(self) -> tuple[tuple[str, int], ...]:
        """(what they are called, how many), of each kind that engines deal out whole."""
        return ()

    def split_fault(self, tp: int) -> str:
        """Why `tp` GPUs cannot share it, '' when they can.

        Query heads must divide evenly; KV heads must too, or be fewer than the GPUs and be copied
        evenly (vLLM, SGLang, TensorRT-LLM)."""
        for what, count in self.heads():
            if count % tp:
                return f"{count} {what} do not divide by {tp}"
        return ""

    def parameters(self, hidden: int, active: bool = False) -> int:
        return self.count(hidden).total

    def weight_bytes(self, hidden: int, active: bool = False) -> float:
        return bytes_of(self.count(hidden), self.weight)


@dataclass(frozen=True, slots=True)
class Attention(Mixer):
    """Grouped-query attention, full (window 0) or sliding window, per layer."""

    tag: ClassVar[str] = "attention"

    n_heads: int
    n_kv_heads: int
    head_dim: int
    window: int = 0  # tokens a query sees; 0 = all
    gated: bool = False  # q_proj is doubled: query and output gate (Qwen3-Next family)
    qkv_bias: bool = False
    o_bias: bool = False
    qk_norm: str = "none"  # 'none' | 'head' (2*head_dim weights) | 'full' (all heads)
    k_eq_v: bool = False  # no v_proj; K and V are both cached (Gemma-4 full layers)
    sinks: bool = False  # one learned logit per head (gpt-oss)
    owns_kv: bool = True  # False: no K/V weights, reads the target's cache (Gemma assistant)
    input_mult: int = 1  # q,k,v take input_mult * hidden (EAGLE-3: 2)
    head_gate: bool = False  # one sigmoid gate per query head: hidden weights each (Step-3.5)
    v_head_dim: int = 0  # width of values where it is not head_dim (MiMo-V2)
    weight: WeightFormat = BF16

    @property
    def label(self) -> str:
        return "swa" if self.window else "attn"

    @property
    def mean_dim(self) -> int:
        """Mean width of keys and values: cache bytes and FLOPs of both follow from it."""
        return (self.head_dim + (self.v_head_dim or self.head_dim)) // 2

    def count(self, hidden: int) -> PartCount:
        query = self.n_heads * self.head_dim
        key = self.n_kv_heads * self.head_dim if self.owns_kv else 0
        both = self.n_kv_heads * 2 * self.mean_dim if self.owns_kv else 0
        kv = key if self.k_eq_v else both
        source = hidden * self.input_mult
        query_out = query * (2 if self.gated else 1)
        values = self.n_heads * (self.v_head_dim or self.head_dim)
        matrices = source * (query_out + kv) + values * hidden
        plain = 0
        if self.qkv_bias:
            plain += query_out + kv
        if self.o_bias:
            plain += hidden
        if self.qk_norm == "head":
            plain += self.head_dim * (2 if self.owns_kv else 1)
        elif self.qk_norm == "full":
            plain += query + key
        if self.sinks:
            plain += self.n_heads
        if self.head_gate:
            plain += hidden * self.n_heads
        return PartCount(matrices, plain)

    def cache_row(self, element: float) -> CacheRow:
        if not self.owns_kv:
            return CacheRow()
        return CacheRow(2 * self.n_kv_heads * self.mean_dim * element, self.window)

    def cache_shards(self, tp: int) -> int:
        return min(tp, self.n_kv_heads)

    def heads(self) -> tuple[tuple[str, int], ...]:
        return (("attention heads", self.n_heads),)

    def split_fault(self, tp: int) -> str:
        kv = self.n_kv_heads
        if kv % tp and tp % kv:
            return f"{kv} KV heads neither divide by {tp} nor divide it"
        return super(Attention, self).split_fault(tp)


@dataclass(frozen=True, slots=True)
class ConvolvedAttention(Attention):
    """Grouped-query attention whose keys and values pass a short convolution each, as its result
    and the feed-forward part's do, and whose scores get a bias by distance (Inkling).

    conv_kernel: of all four. stream: width of the last two, the layer's own. bias_dim: of the state
    per head that a token projects, mixed with bias_extent profiles. wide_kernels: the kernels of
    keys and values depend on the token, one per KV head. head_scales: a scale for every number of
    queries and of bias states (Inkling-2). With head_gate a token projects a sink per head."""

    tag: ClassVar[str] = "convolved_attention"

    conv_kernel: int = 4
    stream: int = 0
    bias_dim: int = 0
    bias_extent: int = 0
    wide_kernels: bool = False
    head_scales: bool = False

    def conv_widths(self) -> tuple[int, int]:
        """(of keys and values, of both results)."""
        return 2 * self.n_kv_heads * self.mean_dim, 2 * self.stream

    def projected(self, hidden: int) -> int:
        """Parameters of the bias states and of kernels that depend on the token."""
        kernels = 2 * self.n_kv_heads * self.conv_kernel if self.wide_kernels else 0
        return hidden * (self.n_heads * self.bias_dim + kernels)

    def count(self, hidden: int) -> PartCount:
        matrices, plain = astuple(super(ConvolvedAttention, self).count(hidden))
        plain += sum(self.conv_widths()) * self.conv_kernel + self.bias_dim * self.bias_extent
        plain += self.n_heads * (self.head_dim + self.bias_dim) if self.head_scales else 0
        return PartCount(matrices + self.projected(hidden), plain)

    def state(self) -> RecurrentState:
        return RecurrentState(0, "fp32", sum(self.conv_widths()), self.conv_kernel)


@dataclass(frozen=True, slots=True)
class LatentAttention(Mixer):
    """Multi-head latent attention (DeepSeek-V2 and later), with the optional sparse indexer."""

    tag: ClassVar[str] = "latent_attention"

    n_heads: int
    q_lora_rank: int  # 0: q_proj is one dense matrix
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    index_heads: int = 0  # DSA indexer; 0 = none, or with a topk: reuses another layer's choice
    index_head_dim: int = 0
    index_topk: int = 0  # cached tokens a query attends to; 0 = all
    index_ratio: int = 1  # tokens pooled into one index key, with learned weights (GLM-5.3: 4)
    input_mult: int = 1  # the latents are of input_mult * hidden (EAGLE-3: 2)
    gated: bool = False  # a sigmoid gate on every output of the heads (Kimi-K3)
    head_gate: bool = False  # one per head: hidden weights each (Ling-3.0)
    window: int = 0  # tokens a query sees; 0 = all
    weight: WeightFormat = BF16
    o_weight: WeightFormat | None = None  # o_proj, where its format differs from the rest

    @property
    def label(self) -> str:
        return "mla"

    def in_format(self, fmt: WeightFormat) -> "LatentAttention":
        return replace(self, weight=fmt, o_weight=None)

    def count(self, hidden: int) -> PartCount:
        heads, rank = self.n_heads, self.q_lora_rank
        query, source = heads * (self.qk_nope_head_dim + self.qk_rope_head_dim), hidden
        source *= self.input_mult
        matrices = source * rank + rank * query if rank else source * query
        matrices += source * (self.kv_lora_rank + self.qk_rope_head_dim)
        matrices += self.kv_lora_rank * heads * (self.qk_nope_head_dim + self.v_head_dim)
        matrices += heads * self.v_head_dim * hidden * (2 if self.gated else 1)
        plain = rank + self.kv_lora_rank  # the two latent norms
        plain += hidden * heads if self.head_gate else 0
        if self.index_heads:
            matrices += (rank or source) * self.index_heads * self.index_head_dim
            matrices += hidden * self.index_head_dim
            # head weights, LayerNorm
            plain += hidden * self.index_heads + 2 * self.index_head_dim
            plain += self.pool_weights(hidden)
        return PartCount(matrices, plain)

    def pool_weights(self, hidden: int) -> int:
        """Of the projection, and of the offset per position, that weigh index keys in a pool."""
        pooled = self.index_heads and self.index_ratio > 1
        return (hidden + self.index_ratio) * self.index_head_dim if pooled else 0

    def weight_bytes(self, hidden: int, active: bool = False) -> float:
        size = super(LatentAttention, self).weight_bytes(hidden)
        if self.o_weight is not None:
            out = self.n_heads * self.v_head_dim * hidden
            size += out * (self.o_weight.bytes_per_weight - self.weight.bytes_per_weight)
        return size

    def cache_row(self, element: float) -> CacheRow:
        row = (self.kv_lora_rank + self.qk_rope_head_dim) * element
        if self.index_topk and element == 1.0:
            # vLLM's fp8_ds_mla: e4m3 with an fp32 scale per 128, rotary part in bf16.
            row = self.kv_lora_rank * (1 + 4 / 128) + 2.0 * self.qk_rope_head_dim
        index = self.index_head_dim * INDEX_KEY_BYTES_PER_128 / 128 / self.index_ratio
        return CacheRow(row, self.window, index)

    def heads(self) -> tuple[tuple[str, int], ...]:
        return (("attention heads", self.n_heads),)


@dataclass(frozen=True, slots=True)
class DeltaNet(Mixer):
    """Gated DeltaNet linear attention (Qwen3-Next, Qwen3.5/3.6)."""

    tag: ClassVar[str] = "delta_net"

    n_k_heads: int
    n_v_heads: int
    head_k_dim: int
    head_v_dim: int
    conv_kernel: int = 4
    state_dtype: str = "fp32"
    weight: WeightFormat = BF16  # in_proj_qkv, in_proj_z, out_proj; a, b and conv stay bf16

    @property
    def label(self) -> str:
        return "gdn"

    def widths(self) -> tuple[int, int]:
        """(key width, value width) of all heads together."""
        return self.n_k_heads * self.head_k_dim, self.n_v_heads * self.head_v_dim

    def count(self, hidden: int) -> PartCount:
        key, value = self.widths()
        matrices = hidden * (2 * key + 2 * value) + value * hidden
        small = hidden * 2 * self.n_v_heads + 2 * self.n_v_heads  # a and b, A_log and dt_bias
        conv = (2 * key + value) * self.conv_kernel
        return PartCount(matrices, small + conv + self.head_v_dim)

    def state(self) -> RecurrentState:
        key, value = self.widths()
        return RecurrentState(
            value * self.head_k_dim, self.state_dtype, 2 * key + value, self.conv_kernel
        )

    def heads(self) -> tuple[tuple[str, int], ...]:
        return (("linear-attention key heads", self.n_k_heads),
                ("linear-attention value heads", self.n_v_heads))


@dataclass(frozen=True, slots=True)
class DeltaAttention(Mixer):
    """Kimi delta attention (KDA; Kimi-Linear): a delta rule whose decay is per channel.

    Projections of q, k and v, the decay and the output gate through a rank of head_dim or, as
    `wide_gates` of them say, whole (Kimi-K3: the output gate, Ling-3.0: both); one write strength
    per head; short convolutions on q, k and v. Definition: the published `modeling_kimi.py` (MIT)
    and flash-linear-attention's KDA layer (MIT)."""

    tag: ClassVar[str] = "delta_attention"

    n_heads: int
    head_dim: int
    conv_kernel: int = 4
    state_dtype: str = "fp32"
    wide_gates: int = 0
    weight: WeightFormat = BF16  # q, k, v, out, wide gates; the rest stays bf16

    @property
    def label(self) -> str:
        return "kda"

    def count(self, hidden: int) -> PartCount:
        width = self.n_heads * self.head_dim
        # decay and gate, two steps each
        small = (2 - self.wide_gates) * (hidden * self.head_dim + self.head_dim * width)
        small += hidden * self.n_heads + 3 * width * self.conv_kernel  # strength; convolutions
        small += self.n_heads + width + self.head_dim  # A_log, dt_bias, the output norm
        return PartCount((4 + self.wide_gates) * hidden * width, small)

    def state(self) -> RecurrentState:
        width = self.n_heads * self.head_dim
        return RecurrentState(width * self.head_dim, self.state_dtype, 3 * width, self.conv_kernel)

    def heads(self) -> tuple[tuple[str, int], ...]:
        return (("linear-attention heads", self.n_heads),)


@dataclass(frozen=True, slots=True)
class Mamba2(Mixer):
    """Mamba-2 state space mixer (Nemotron-H family)."""

    tag: ClassVar[str] = "mamba2"

    n_heads: int
    head_dim: int
    n_groups: int
    state_size: int
    conv_kernel: int = 4
    state_dtype: str = "fp32"
    conv_bias: bool = True
    proj_bias: bool = False
    gate_norm: bool = True
    weight: WeightFormat = BF16

    @property
    def label(self) -> str:
        return "mamba"

    def widths(self) -> tuple[int, int]:
        """(inner width, width of the convolution = inner + 2 * groups * state size)."""
        inner = self.n_heads * self.head_dim
        return inner, inner + 2 * self.n_groups * self.state_size

    def count(self, hidden: int) -> PartCount:
        inner, conv_width = self.widths()
        matrices = hidden * (inner + conv_width + self.n_heads) + inner * hidden
        plain = conv_width * (self.conv_kernel + self.conv_bias)
        plain += 3 * self.n_heads + self.gate_norm * inner  # A, D and dt_bias
        if self.proj_bias:
            plain += inner + conv_width + self.n_heads + hidden
        return PartCount(matrices, plain)

    def state(self) -> RecurrentState:
        inner, conv_width = self.widths()
        return RecurrentState(
            inner * self.state_size, self.state_dtype, conv_width, self.conv_kernel
        )

    def heads(self) -> tuple[tuple[str, int], ...]:
        return (("state-space heads", self.n_heads),)


@dataclass(frozen=True, slots=True)
class ShortConvolution(Mixer):
    """Gated short convolution (LFM2): a token gives an input and two gates of the layer's width;
    the last kernel - 1 gated inputs are all that a sequence keeps."""

    tag: ClassVar[str] = "short_convolution"

    conv_kernel: int = 3
    bias: bool = False
    stream: int = 0  # the layer's width
    weight: WeightFormat = BF16

    @property
    def label(self) -> str:
        return "conv"

    def count(self, hidden: int) -> PartCount:
        biases = 5 * hidden if self.bias else 0  # of three inputs, the convolution and the output
        return PartCount(4 * hidden * hidden, hidden * self.conv_kernel + biases)

    def state(self) -> RecurrentState:
        return RecurrentState(0, "fp32", self.stream, self.conv_kernel)

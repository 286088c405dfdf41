"""ModelSpec: what a language model is, in shapes, with nothing about hardware.

A model is a list of *layer groups*. Every layer has one optional token mixer
(attention, latent attention, Gated DeltaNet, Mamba-2) and one optional feed-forward
part (dense or mixture of experts); layers that are alike in shape and dtype form one
group with a count, so that costs are computed once per group.

Widths are in elements, dtypes are the names of `specsim.units.DTYPE_BYTES`.
`WeightFormat` gives bytes per *weight* including block scales.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class WeightFormat:
    """How the weights of one part are stored and multiplied.

    name: 'bf16', 'fp8', 'fp8_block', 'nvfp4', 'mxfp4', 'int4', ...
    bytes_per_weight: with block scales (nvfp4 0.5625, mxfp4 0.53125, fp8_block 1 + 4/16384).
    compute: dtype of the multiplication ('bf16', 'fp8', 'fp4'); a weight-only format
        (W4A16) multiplies in 'bf16'.
    """

    name: str
    bytes_per_weight: float
    compute: str


BF16 = WeightFormat("bf16", 2.0, "bf16")


@dataclass(frozen=True, slots=True)
class Attention:
    """Grouped-query attention, full (window 0) or sliding window, per layer."""

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
    weight: WeightFormat = BF16


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek-V2 and later), with the optional sparse indexer."""

    n_heads: int
    q_lora_rank: int  # 0: q_proj is one dense matrix
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    index_heads: int = 0  # DSA indexer; 0 = none, or with a topk: reuses another layer's choice
    index_head_dim: int = 0
    index_topk: int = 0  # cached tokens a query attends to; 0 = all
    weight: WeightFormat = BF16
    o_weight: WeightFormat | None = None  # o_proj, where its format differs from the rest


@dataclass(frozen=True, slots=True)
class DeltaNet:
    """Gated DeltaNet linear attention (Qwen3-Next, Qwen3.5/3.6)."""

    n_k_heads: int
    n_v_heads: int
    head_k_dim: int
    head_v_dim: int
    conv_kernel: int = 4
    state_dtype: str = "fp32"
    weight: WeightFormat = BF16  # in_proj_qkv, in_proj_z, out_proj; a, b and conv stay bf16


@dataclass(frozen=True, slots=True)
class Mamba2:
    """Mamba-2 state space mixer (Nemotron-H family)."""

    n_heads: int
    head_dim: int
    n_groups: int
    state_size: int
    conv_kernel: int = 4
    state_dtype: str = "fp32"
    conv_bias: bool = True
    proj_bias: bool = False
    weight: WeightFormat = BF16


@dataclass(frozen=True, slots=True)
class DenseMLP:
    intermediate: int
    gated: bool = True  # True: gate, up, down (3 matrices); False: up, down
    bias: bool = False
    weight: WeightFormat = BF16


@dataclass(frozen=True, slots=True)
class MoE:
    """Routed experts (+ optional always-on shared expert and a dense branch beside them)."""

    n_experts: int
    top_k: int
    intermediate: int  # of one routed expert
    gated: bool = True
    shared_intermediate: int = 0  # 0: no shared expert
    shared_gate: bool = False  # sigmoid gate of the shared expert: hidden weights
    latent: int = 0  # routed experts work on this width, fc1/fc2 project (Nemotron-3 Super)
    router_bias: bool = False
    expert_bias: bool = False
    weight: WeightFormat = BF16  # routed experts
    shared_weight: WeightFormat = BF16  # shared expert, latent projections


Mixer = Attention | LatentAttention | DeltaNet | Mamba2
FeedForward = DenseMLP | MoE


@dataclass(frozen=True, slots=True)
class LayerGroup:
    """`count` layers of one shape.

    norm_weights: norm (and scalar) weights that belong to the layer itself. What a mixer or a
    feed-forward part owns (q/k norms, latent norms, sinks, convolutions, biases, router) follows
    from its fields and is counted there, see `specsim.model.counts`.
    """

    count: int
    mixer: Mixer | None
    ffn: FeedForward | tuple[FeedForward, ...] | None  # tuple: parallel branches (Gemma-4 MoE)
    norm_weights: int = 0


@dataclass(frozen=True, slots=True)
class Drafter:
    """A small network that proposes tokens for a target, or the target's own MTP head.

    kind: 'mtp' | 'eagle' | 'eagle3' | 'p-eagle' | 'medusa' | 'dflash' | 'dspark'
        | 'gemma-assistant' | 'model'
    hidden, layers, ...: its own shapes; `layers` is what ONE pass runs. `fc_in`/`fc_out`: the
    projection that joins the target's hidden state and the token embedding (0: none).
    draft_vocab: rows of the head it multiplies (EAGLE-3: 32000); own_head/own_embed: whether
    these weights are its own or the target's; tied_embeddings: one matrix serves as both.
    n_predict: physical copies of `layers` and fc (MTP modules), one per draft position;
    block_size: tokens of one block drafter pass.
    """

    name: str
    kind: str
    hidden: int
    layers: tuple[LayerGroup, ...]
    vocab: int
    draft_vocab: int
    own_head: bool
    own_embed: bool
    fc_in: int = 0
    fc_out: int = 0
    extra_weights: int = 0  # norms and other vectors outside layers
    n_predict: int = 1
    block_size: int = 0
    head_weight: WeightFormat = BF16
    fc_weight: WeightFormat = BF16
    n_heads_medusa: int = 0  # medusa: number of parallel heads
    extra_matrices: tuple[tuple[int, int], ...] = ()  # further (in, out) linears, once per pass
    tied_embeddings: bool = False  # own_head and own_embed are one matrix
    lookup_weights: int = 0  # further tables of which a pass reads single rows
    target: str = ""  # model it was trained for ('' = any)
    source: str = ""
    notes: tuple[str, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A target model. All counts are per whole model, before any tensor parallelism."""

    name: str  # canonical name, e.g. 'Qwen3.6-27B-FP8'
    family: str  # e.g. 'qwen3.5', 'llama'
    hidden: int
    vocab: int
    layers: tuple[LayerGroup, ...]
    tied_embeddings: bool = False
    final_norm_weights: int = 0
    extra_weights: int = 0  # embeddings of other kinds, learned scalars outside layers
    vision_params: int = 0
    embed_weight: WeightFormat = BF16
    head_weight: WeightFormat = BF16
    mtp: Drafter | None = None  # the head shipped in the checkpoint
    weights: str = "bf16"  # what people call the checkpoint: 'bf16', 'fp8', 'nvfp4', ...
    default_kv_dtype: str = "bf16"
    max_position: int = 0
    source: str = ""  # where the config came from
    notes: tuple[str, ...] = field(default=())

    @property
    def n_layers(self) -> int:
        return sum(group.count for group in self.layers)

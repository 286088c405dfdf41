"""What a kernel is called with: one shape per kernel family, numbers per GPU, after sharding.

The operations of a forward pass carry one each (`ops.op.OpCost`), and `specsim.roofline` has one
function that prices each. A kernel of another kind is a class here, or in a plug-in, and a
function registered with `roofline.prices`.

Counts are of rows, sequences and tokens (means, so they may be fractional); sizes are bytes.
Named tuples rather than dataclasses: hundreds are made per prediction.
"""

from typing import NamedTuple

from specsim.ops.spread import Contexts


class Gemm(NamedTuple):
    """y[m, n] = x[m, k] W[k, n]. weight_bytes: of the stored weights where they differ from the
    usual ones of the format `fmt`; 0: the usual ones."""

    m: float
    n: float
    k: float
    fmt: str = "bf16"
    weight_bytes: float = 0.0


class AttentionDecode(NamedTuple):
    """`seqs` sequences of q_len new tokens each over `ctx` cached ones (the mean over sequences,
    any window applied). contexts: how they differ (None: they are equal). fmt: of the cache.
    beside_prompts: prompt chunks run in the same call, for prompt_s seconds (0: not looked at).
    windowed: a query sees the last ones alone.
    kv_read_amplification: how often a kernel reads the cache that does not pack the queries of a
    group."""

    seqs: float
    q_len: int
    heads: float
    kv_heads: float
    head_dim: int
    ctx: float
    fmt: str = "bf16"
    beside_prompts: bool = False
    kv_read_amplification: float = 1.0
    contexts: Contexts | None = None
    windowed: bool = False
    prompt_s: float = 0.0


class AttentionPrefill(NamedTuple):
    """`seqs` chunks of `new` tokens each, causal, after `cached` tokens each. window: tokens that
    a query sees, 0: all. shared_launch: part of a call whose launch another op pays."""

    new: float
    cached: float
    heads: float
    kv_heads: float
    head_dim: int
    window: int = 0
    fmt: str = "bf16"
    seqs: float = 1
    shared_launch: bool = False


class LatentDecode(NamedTuple):
    """Absorbed latent attention: every query head reads one latent of kv_lora_rank + rope_dim
    numbers per token. kv_lora_rank 0: keys without values, as of a sparse indexer. apart: each
    query attends to tokens of its own choice, so that the queries of a sequence share no tile."""

    seqs: float
    q_len: int
    heads: float
    kv_lora_rank: int
    rope_dim: int
    ctx: float
    fmt: str = "bf16"
    kv_read_amplification: float = 1.0
    apart: bool = False


class LatentPrefill(NamedTuple):
    """Expanded latent attention: keys of qk_head_dim and values of v_head_dim for every head.
    pairs: query-key pairs of one chunk where they are fewer than causal (sparse); 0: causal."""

    new: float
    cached: float
    heads: float
    qk_head_dim: int
    v_head_dim: int
    seqs: float = 1
    pairs: float = 0.0
    fmt: str = "bf16"
    shared_launch: bool = False


class SparsePrefill(NamedTuple):
    """One chunk of `new` tokens whose query heads attend to `keys` tokens each (the mean) of one
    latent that is key and value. head_dim: mean numbers of either. cache_bytes: read, written."""

    new: float
    keys: float
    heads: float
    head_dim: float
    cache_bytes: float
    fmt: str = "bf16"
    shared_launch: bool = False


class Experts(NamedTuple):
    """`tokens` tokens routed to top_k of `experts`, of which local_experts (0: all) are on this
    GPU with `inter` columns each. distribution: how rows spread over the experts, 'power_law',
    'uniform' or 'balanced'. distinct: experts that the tokens choose, of all GPUs; 0: as in the
    kernel benchmark under that distribution. bytes_per_weight: where a checkpoint's block scales
    are not the usual ones of `fmt`; 0: the usual. sent: a GPU receives the rows of its own experts
    alone, not those of all."""

    tokens: float
    hidden: float
    inter: float
    top_k: float
    experts: float
    fmt: str = "bf16"
    gated: bool = True
    local_experts: float = 0
    distribution: str = "power_law"
    distinct: float = 0.0
    bytes_per_weight: float = 0.0
    sent: bool = False


class StateDecode(NamedTuple):
    """Recurrent state of `state_elems` elements per sequence, read once and written for each of
    q_len tokens, with a short convolution over conv_channels. flops_per_elem: per token.
    state_traffic: bytes of state moved in all, where an engine moves more than one read and
    q_len writes; 0: just those."""

    seqs: float
    q_len: int
    state_elems: float
    conv_channels: float
    flops_per_elem: float = 8.0
    conv_kernel: int = 4
    state_bytes_per_elem: float = 4.0
    state_traffic: float = 0.0


class StatePrefill(NamedTuple):
    """Chunked prefill of a gated delta rule: `seqs` prompts of `tokens` tokens each through
    n_v_heads states of dk x dv. launches: kernels of the convolution and the scan."""

    tokens: float
    n_k_heads: float
    n_v_heads: float
    dk: int
    dv: int
    seqs: float = 1
    launches: int = 1


class Sample(NamedTuple):
    """Choosing a token from each row of fp32 logits. passes: how often the logits are read or
    written; 0: the table's."""

    rows: float
    vocab: int
    passes: float = 0.0


class AllReduce(NamedTuple):
    """Sum of a buffer of one GPU over `gpus` in `nodes` nodes; every GPU ends with the result.
    path: whose kernel: 'custom' the engine's own, 'fused' one that also adds the residual and
    normalises, 'nccl' the library's."""

    buffer_bytes: float
    gpus: int
    path: str = "custom"
    nodes: int = 1


class ExpertExchange(NamedTuple):
    """Rows of several attention groups to the experts and their results back. gathered_bytes: of
    the rows of all groups, which every GPU receives and sums within a node; sent_bytes: what one
    GPU sends in both directions where each row goes to its own experts only, copies of it; prompts:
    whether a node gets one copy of a row, which is handed on inside it."""

    gathered_bytes: float
    sent_bytes: float
    gpus: int
    copies: int = 1
    prompts: bool = False
    groups: int = 1
    top_groups: int = 1


class Elementwise(NamedTuple):
    """A kernel that only moves bytes. after: the sum over GPUs whose result it normalises."""

    moved_bytes: float
    after: AllReduce | None = None


class AllGather(NamedTuple):
    """buffer_bytes: the gathered buffer; (g - 1) / g of it arrives over the link."""

    buffer_bytes: float
    gpus: int
    nodes: int = 1


class AllToAll(NamedTuple):
    """buffer_bytes: what one GPU sends in total, its own share included. crossing: share of it
    that goes through network cards where all would, but for what stays in the node."""

    buffer_bytes: float
    gpus: int
    nodes: int = 1
    crossing: float = 1.0


# What reports call the families; a plug-in's shape goes by the name of its class.
_KINDS: dict[type, str] = {
    Gemm: "gemm", AttentionDecode: "attn_decode", AttentionPrefill: "attn_prefill",
    LatentDecode: "attn_decode", LatentPrefill: "attn_prefill", SparsePrefill: "attn_prefill",
    Experts: "moe",
    StateDecode: "recurrent", StatePrefill: "recurrent", Elementwise: "elementwise",
    Sample: "sample", AllReduce: "all_reduce", ExpertExchange: "all_reduce",
    AllGather: "all_gather", AllToAll: "all_to_all",
}


def kind_of(shape: object) -> str:
    return _KINDS.get(type(shape)) or type(shape).__name__.lower()

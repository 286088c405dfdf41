"""Ops of whole networks: layer groups, the target with its head, a drafter's pass.

Order of a forward pass: embedding, layer groups (mixer, all-reduce, feed-forward, all-reduce),
final norm, output head over `head_rows` rows. One read of the weights serves every token of the
pass, decode rows and prefill rows together.

A layer group's ops come in two parts, because most of a step does not depend on the contexts of
its sequences: `group_rows` (linears, norms, experts, all-reduces; priced once per number of
rows) and `group_context` (attention over the cache, recurrent state).
"""

from collections.abc import Callable
from typing import NamedTuple

from specsim.methods.base import method_of
from specsim.model.feedforward import MoE
from specsim.model.mixers import (
    Attention,
    ConvolvedAttention,
    DeltaAttention,
    DeltaNet,
    LatentAttention,
    Mamba2,
    Mixer,
    ShortConvolution,
)
from specsim.model.part import BF16, PLAIN_BYTES, WeightFormat
from specsim.model.sparse_mixers import CompressedAttention, SparseAttention
from specsim.model.spec import Drafter, LayerGroup, ModelSpec
from specsim.model.state_mixers import LightningAttention, Mamba1
from specsim.ops.attention import (
    attention_context,
    attention_rows,
    latent_context,
    latent_rows,
)
from specsim.ops.convolved import (
    convolved_context,
    convolved_rows,
    short_context,
    short_rows,
)
from specsim.ops.extras import EXTRAS
from specsim.ops.ffn import ffn_ops
from specsim.ops.linear import ACT_BYTES, elementwise, gemm
from specsim.ops.op import OpCost
from specsim.ops.recurrent import (
    delta_attention_context,
    delta_attention_rows,
    delta_net_context,
    delta_net_rows,
    lightning_context,
    lightning_rows,
    mamba1_context,
    mamba1_rows,
    mamba2_context,
    mamba2_rows,
)
from specsim.ops.shapes import AllGather, AllReduce, AllToAll, Elementwise, ExpertExchange
from specsim.ops.sparse import (
    compressed_context,
    compressed_rows,
    sparse_context,
    sparse_rows,
)
from specsim.ops.work import Parallel, Routing, Rows, Work, clumping


class MixerOps(NamedTuple):
    """The operations of one kind of mixer.

    rows(mixer, hidden, rows, tp, count, name): (before, after) its work on cache or state.
    context(mixer, work, tp, kv_dtype, count, name, state_copies): that work, for one attention
    group; state_copies: writes of a recurrent state beyond the first.
    """

    rows: Callable[..., Rows]
    context: Callable[..., list[OpCost]]


# A mixer of another kind (a subclass of `model.mixers.Mixer`) is entered here.
MIXERS: dict[type[Mixer], MixerOps] = {
    Attention: MixerOps(attention_rows, attention_context),
    ConvolvedAttention: MixerOps(convolved_rows, convolved_context),
    LatentAttention: MixerOps(latent_rows, latent_context),
    CompressedAttention: MixerOps(compressed_rows, compressed_context),
    SparseAttention: MixerOps(sparse_rows, sparse_context),
    DeltaNet: MixerOps(delta_net_rows, delta_net_context),
    DeltaAttention: MixerOps(delta_attention_rows, delta_attention_context),
    Mamba2: MixerOps(mamba2_rows, mamba2_context),
    ShortConvolution: MixerOps(short_rows, short_context),
    LightningAttention: MixerOps(lightning_rows, lightning_context),
    Mamba1: MixerOps(mamba1_rows, mamba1_context),
}


def all_reduce(name: str, num_bytes: float, gpus: int, count: float) -> OpCost:
    """Sum of one activation tensor over `gpus` GPUs; bytes are the tensor's size."""
    return OpCost(name, AllReduce(num_bytes, gpus), act_bytes=num_bytes, count=count)


def group_rows(
    group: LayerGroup,
    hidden: int,
    rows: float,
    own: float,
    seqs: float,
    par: Parallel,
    routing: Routing,
    prefix: str = "",
    prompts: bool = False,
) -> Rows:
    """(ops before, ops after) the work on cache and state of one group of identical layers.

    rows: of all attention groups together (what routed experts see); own: of one attention
    group; seqs: independent sequences among `rows`; prompts: some are of prompts. Each op's count
    is the number of layers.
    """
    count = float(group.count)
    mixer, parts = group.mixer, group.branches
    norms = (mixer is not None) + len(parts)
    own_bytes = ACT_BYTES * own * hidden
    # A norm reads the residual and the update and writes both back in place.
    norm = elementwise(
        f"{prefix}norm", 3 * own_bytes, count, group.norm_weights * PLAIN_BYTES / max(1, norms)
    )
    summed = norm  # the same right after a sum over GPUs, whose kernel may do it
    apart = any(extra.parts_sum_and_norm for extra in group.extras)
    if par.tp > 1 and par.attention_dp == 1 and not apart:
        after_sum = Elementwise(norm.bytes, AllReduce(own_bytes, par.tp))
        summed = norm.called(after_sum, count)
    before: list[OpCost] = []
    after: list[OpCost] = []
    if mixer is not None:
        name = f"{prefix}{mixer.label}"
        before.append(summed)
        first, last = MIXERS[type(mixer)].rows(mixer, hidden, own, par.tp, count, name)
        before += first
        after += last
        if par.tp > 1:
            after.append(all_reduce(f"{prefix}mixer_all_reduce", own_bytes, par.tp, count))
    for index, part in enumerate(parts):
        after.append(norm if index else summed)
        after += ffn_ops(part, hidden, rows, par, count, prefix, routing, seqs, own)
    experts = [part for part in parts if isinstance(part, MoE)]
    if experts and par.attention_dp > 1:
        gathered = ACT_BYTES * rows * hidden
        # Each row goes to as many GPUs as it has experts at most: there in 8 bit, back in 16.
        part = experts[0]
        sent = own_bytes * 1.5 * min(part.top_k, par.gpus)
        # All wait for the GPU whose experts are asked most, which receives and returns more.
        limit = part.groups, part.top_groups
        sent *= routing.busiest(
            part.n_experts / par.ep, par.ep, rows * part.top_k,
            clumping(par.ep, part.top_k, *limit),
        )
        copies = min(part.top_k, par.gpus)
        exchange = ExpertExchange(gathered, sent, par.gpus, copies, prompts, *limit)
        after.append(OpCost(f"{prefix}ffn_all_reduce", exchange, act_bytes=gathered, count=count))
    elif parts and par.tp > 1:
        # A norm of the experts' latent sum needs that whole: it travels beside the shared part.
        latents = sum(part.latent for part in experts if part.latent_norm)
        summed_bytes = own_bytes * (1 + latents / hidden)
        after.append(all_reduce(f"{prefix}ffn_all_reduce", summed_bytes, par.tp, count))
    for extra in group.extras:
        after += EXTRAS[type(extra)](extra, hidden, own, count, prefix)
    return tuple(before), tuple(after)


def group_context(
    group: LayerGroup,
    share: Work,
    par: Parallel,
    kv_dtype: str,
    state_copies: float,
    prefix: str = "",
) -> list[OpCost]:
    """Work of one attention group (`share`) on the cache or the state of a layer group."""
    mixer = group.mixer
    if mixer is None:
        return []
    return MIXERS[type(mixer)].context(
        mixer, share, par.tp, kv_dtype, float(group.count), f"{prefix}{mixer.label}", state_copies
    )


def sequences(work: Work) -> float:
    """Independent sequences of a pass, for the likeness of expert choices."""
    return max(1.0, work.seqs + len(work.prefill))


def head_ops(
    hidden: int, vocab: int, rows: float, fmt: WeightFormat, par: Parallel, prefix: str = ""
) -> list[OpCost]:
    """Output head on `rows` rows of one attention group; the vocabulary is sharded over tp and
    every GPU gathers the logits."""
    if rows <= 0:
        return []
    ops = [gemm(f"{prefix}lm_head", rows, vocab / par.tp, hidden, fmt)]
    if par.tp > 1:
        logits = ACT_BYTES * rows * vocab
        ops.append(OpCost(f"{prefix}logits_gather", AllGather(logits, par.tp), act_bytes=logits))
    return ops


def target_head(spec: ModelSpec) -> WeightFormat:
    """Format in which the target's output head is stored: a tied one as the embedding is."""
    return spec.embed_weight if spec.tied_embeddings else spec.head_weight


def target_ends(
    spec: ModelSpec, own: float, head_rows: float, par: Parallel
) -> tuple[list[OpCost], list[OpCost]]:
    """(ops before, ops after) the layers of the target, for one attention group."""
    moved = ACT_BYTES * own * 2 * spec.hidden
    gathered = ACT_BYTES * own * 2 * sum(width for _, width in spec.tables)
    first = [elementwise("embed", moved + gathered)]
    if par.tp > 1:
        # The vocabulary is sharded: every GPU looks up its own rows, the others are zero.
        first.append(all_reduce("embed_all_reduce", (moved + gathered) / 2, par.tp, 1.0))
    for fan_in, fan_out in spec.extra_matrices:
        first.append(gemm("embed_projection", own, fan_out, fan_in, BF16))
    last = [elementwise("final_norm", moved, 1.0, spec.final_norm_weights * PLAIN_BYTES)]
    last += head_ops(spec.hidden, spec.vocab, head_rows, target_head(spec), par)
    return first, last


def drafter_ends(
    drafter: Drafter,
    own: float,
    head_rows: float,
    par: Parallel,
    prefix: str = "draft.",
    *,
    later: bool = False,
) -> tuple[list[OpCost], list[OpCost]]:
    """(ops before, ops after) the layers of a drafter's pass: embedding, join projections, and
    ITS OUTPUT HEAD. later: a pass after the first of a step, which for EAGLE-3 continues from the
    drafter's own hidden state and joins nothing.

    The head is the larger part of a pass for most MTP heads, and it is read in every pass
    whether the weights are shared with the target or not. The matrices of a head
    that walks the block position by position (DSpark, Domino) are in `markov_ops`.
    """
    h, fc = drafter.hidden, drafter.fc_weight
    first = [
        elementwise(
            f"{prefix}embed", ACT_BYTES * own * 4 * h, 1.0, drafter.extra_weights * PLAIN_BYTES
        )
    ]
    if par.tp > 1:  # the vocabulary is sharded, and no norm is there to fuse the sum with
        first.append(all_reduce(f"{prefix}embed_all_reduce", ACT_BYTES * own * h, par.tp, 1.0))
    # Block drafters join hidden states only for the tokens they attend to: `context_kv_ops`.
    method = method_of(drafter)
    if drafter.fc_in and not method.block and not (later and method.joins_once):
        first.append(gemm(f"{prefix}fc", own, drafter.fc_out, drafter.fc_in, fc))
    last: list[OpCost] = []
    if not drafter.walks_block:
        for fan_in, fan_out in drafter.extra_matrices:
            last.append(gemm(f"{prefix}proj", own, fan_out, fan_in, fc))
    heads = drafter.n_heads_medusa
    if heads:
        # Each Medusa head has a residual block and an output matrix of its own.
        if head_rows > 0:
            last.append(gemm(f"{prefix}block", head_rows, h, h, drafter.head_weight, heads))
            last += [
                repeat(op, heads)
                for op in head_ops(
                    h, drafter.draft_vocab, head_rows, drafter.head_weight, par, prefix
                )
            ]
        return first, last
    if drafter.clustered:
        return first, last + clustered_head_ops(drafter, head_rows, prefix)
    last += head_ops(h, drafter.draft_vocab, head_rows, drafter.head_weight, par, prefix)
    if drafter.candidates and head_rows > 0:
        # DFlash2: rows of both tables for the best tokens of every position, scores of all pairs
        # of neighbours, a walk along them: three kernels (SGLang 0.5.23 dflash.py).
        row = drafter.lookup_weights / drafter.vocab
        moved = ACT_BYTES * head_rows * drafter.candidates * (row + 2 * drafter.candidates)
        last.append(elementwise(f"{prefix}selector", moved / 3, 3.0))
    return first, last


def clustered_head_ops(drafter: Drafter, rows: float, prefix: str) -> list[OpCost]:
    """Gemma's head over the tokens of the best clusters: rows of the matrix for each draft, the
    other logits filled in. The clusters' scores are one of the drafter's further linears."""
    if rows <= 0:
        return []
    read = min(rows * drafter.candidates, drafter.draft_vocab) * drafter.hidden
    logits = ACT_BYTES * rows * (drafter.draft_vocab + 2 * drafter.candidates)
    stored = read * drafter.head_weight.bytes_per_weight
    return [elementwise(f"{prefix}lm_head_rows", logits, 1.0, stored)]


def handover(hidden: int, rows: float, tp: int, nodes: int) -> list[OpCost]:
    """Hidden states and residual of `rows` rows from one pipeline stage to the next, in the same
    node or another: every GPU sends its share, and the next stage gathers them."""
    moved = 2 * ACT_BYTES * rows * hidden
    # An exchange of two keeps half of its buffer at home.
    ops = [OpCost("stage_send", AllToAll(2 * moved / tp, 2, nodes), act_bytes=moved / tp)]
    if tp > 1:
        ops.append(OpCost("stage_gather", AllGather(moved, tp), act_bytes=moved))
    return ops


def markov_ops(drafter: Drafter, rows: float, k: int, prefix: str = "draft.") -> list[OpCost]:
    """The sequential head of a block (DSpark, Domino): k walks of `rows` rows through its
    matrices."""
    if not drafter.walks_block:
        return []
    return [
        gemm(f"{prefix}markov", rows, fan_out, fan_in, drafter.fc_weight, float(k))
        for fan_in, fan_out in drafter.extra_matrices
    ]


def context_kv_ops(
    drafter: Drafter, rows: float, par: Parallel, prefix: str = "draft."
) -> list[OpCost]:
    """What a block drafter (DFlash, DSpark) computes of `rows` tokens that it only attends to:
    the join projection and each layer's keys and values, written to its cache."""
    if rows <= 0:
        return []
    ops = []
    if drafter.fc_in:
        ops.append(gemm(f"{prefix}fc", rows, drafter.fc_out, drafter.fc_in, drafter.fc_weight))
    for group in drafter.layers:
        a = group.mixer
        if isinstance(a, Attention) and a.owns_kv:
            width = 2 * max(1.0, a.n_kv_heads / par.tp) * a.mean_dim
        elif isinstance(a, LatentAttention):
            width = float(a.kv_lora_rank + a.qk_rope_head_dim)  # every GPU keeps the whole
        elif isinstance(a, CompressedAttention):
            width = float(a.head_dim)
        else:
            continue
        source, count = drafter.hidden * getattr(a, "input_mult", 1), float(group.count)
        ops.append(gemm(f"{prefix}ctx_kv", rows, width, source, a.weight, count))
    return ops


def repeat(op: OpCost, times: float) -> OpCost:
    """The op called `times` as often."""
    return op.called(op.shape, op.count * times)

"""A whole forward pass as a list of ops: target networks and drafters alike.

Order: embedding, layer groups (mixer, all-reduce, feed-forward, all-reduce), final norm, output
head over `head_rows` rows, sampling input. One read of the weights serves every token of the
pass, decode rows and prefill rows together.
"""

from collections.abc import Iterable

from specsim.model.spec import (
    Attention,
    DeltaNet,
    Drafter,
    LatentAttention,
    LayerGroup,
    Mamba2,
    ModelSpec,
    MoE,
    WeightFormat,
)
from specsim.ops.attention import attention_ops, latent_attention_ops
from specsim.ops.ffn import ffn_ops
from specsim.ops.linear import ACT_BYTES, elementwise, gemm
from specsim.ops.op import OpCost
from specsim.ops.recurrent import delta_net_ops, mamba2_ops
from specsim.ops.work import UNIFORM, Parallel, Routing, Work


def all_reduce(name: str, num_bytes: float, gpus: int, count: float) -> OpCost:
    """Sum of one activation tensor over `gpus` GPUs; bytes are the tensor's size."""
    return OpCost(name, "all_reduce", act_bytes=num_bytes, count=count, dims={"gpus": gpus})


def layer_ops(
    group: LayerGroup,
    hidden: int,
    work: Work,
    par: Parallel,
    kv_dtype: str,
    routing: Routing,
    state_copies: float,
    prefix: str = "",
) -> list[OpCost]:
    """Ops of one group of identical layers (each op's count is the number of layers)."""
    count = float(group.count)
    ops: list[OpCost] = []
    mixer = group.mixer
    tensor_bytes = ACT_BYTES * work.rows * hidden
    norm_bytes = 3 * tensor_bytes  # read the residual and the update, write both back in place
    seqs = max(1.0, work.seqs + len(work.prefill))
    if mixer is not None:
        ops.append(elementwise(f"{prefix}norm", norm_bytes, count))
        if isinstance(mixer, Attention):
            kind = "swa" if mixer.window else "attn"
            ops += attention_ops(mixer, hidden, work, par, kv_dtype, count, f"{prefix}{kind}")
        elif isinstance(mixer, LatentAttention):
            ops += latent_attention_ops(mixer, hidden, work, par, kv_dtype, count, f"{prefix}mla")
        elif isinstance(mixer, DeltaNet):
            ops += delta_net_ops(mixer, hidden, work, par, count, f"{prefix}gdn", state_copies)
        elif isinstance(mixer, Mamba2):
            ops += mamba2_ops(mixer, hidden, work, par, count, f"{prefix}mamba", state_copies)
        if par.tp > 1:
            ops.append(all_reduce(f"{prefix}mixer_all_reduce", tensor_bytes, par.tp, count))
    parts = group.ffn if isinstance(group.ffn, tuple) else (group.ffn,)
    for part in parts:
        if part is None:
            continue
        ops.append(elementwise(f"{prefix}norm", norm_bytes, count))
        ops += ffn_ops(part, hidden, work, par, count, prefix, routing, seqs)
    if group.ffn is not None:
        gpus = par.gpus if any(isinstance(p, MoE) for p in parts) else par.tp
        if gpus > 1:
            ops.append(all_reduce(f"{prefix}ffn_all_reduce", tensor_bytes, gpus, count))
    return ops


def head_ops(
    hidden: int, vocab: int, rows: float, fmt: WeightFormat, par: Parallel, prefix: str = ""
) -> list[OpCost]:
    """Output head on `rows` rows; the vocabulary is sharded over tp and gathered."""
    if rows <= 0:
        return []
    ops = [gemm(f"{prefix}lm_head", rows, vocab / par.tp, hidden, fmt)]
    if par.tp > 1:
        ops.append(all_reduce(f"{prefix}logits_gather", 2.0 * rows * vocab / par.tp, par.tp, 1))
    return ops


def network_ops(
    hidden: int,
    layers: Iterable[LayerGroup],
    work: Work,
    par: Parallel,
    kv_dtype: str,
    routing: Routing,
    state_copies: float,
    prefix: str = "",
) -> list[OpCost]:
    ops: list[OpCost] = []
    for group in layers:
        ops += layer_ops(group, hidden, work, par, kv_dtype, routing, state_copies, prefix)
    return ops


def target_ops(
    spec: ModelSpec,
    work: Work,
    par: Parallel,
    kv_dtype: str,
    routing: Routing = UNIFORM,
    state_copies: float = 0.0,
) -> list[OpCost]:
    """One forward pass of the target, output head included."""
    ops = [elementwise("embed", ACT_BYTES * work.rows * 2 * spec.hidden)]
    ops += network_ops(spec.hidden, spec.layers, work, par, kv_dtype, routing, state_copies)
    ops.append(elementwise("final_norm", ACT_BYTES * work.rows * 2 * spec.hidden))
    ops += head_ops(spec.hidden, spec.vocab, work.head_rows, spec.head_weight, par)
    return ops


def drafter_ops(
    drafter: Drafter,
    work: Work,
    par: Parallel,
    kv_dtype: str,
    routing: Routing = UNIFORM,
    prefix: str = "draft.",
) -> list[OpCost]:
    """One pass of a drafter: join projection, its layers, and ITS OUTPUT HEAD.

    The head is the larger part of a pass for most MTP heads, and it is read in every pass
    whether the weights are shared with the target or not.
    """
    h = drafter.hidden
    ops = [elementwise(f"{prefix}embed", ACT_BYTES * work.rows * 4 * h)]
    if drafter.fc_in:
        ops.append(gemm(f"{prefix}fc", work.rows, drafter.fc_out, drafter.fc_in,
                        drafter.fc_weight))
    for fan_in, fan_out in drafter.extra_matrices:
        ops.append(gemm(f"{prefix}proj", work.rows, fan_out, fan_in, drafter.fc_weight))
    ops += network_ops(h, drafter.layers, work, par, kv_dtype, routing, 0.0, prefix)
    heads = max(1, drafter.n_heads_medusa)
    for _ in range(heads):
        if drafter.kind == "medusa":
            ops.append(gemm(f"{prefix}block", work.head_rows, h, h, drafter.head_weight))
        ops += head_ops(h, drafter.draft_vocab, work.head_rows, drafter.head_weight, par, prefix)
    return ops

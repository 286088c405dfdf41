"""Recurrent token mixers: Gated DeltaNet and Mamba-2.

Their state has a fixed size per sequence whatever the context. Decoding one token reads and
writes it once. Verifying q tokens reads ONE state and stores q snapshots (the engine keeps a
state per draft position and rolls back by choosing one). Engines that copy the accepted snapshot
back add `state_copies` more passes (SGLang: 2). The convolution's window of conv_kernel - 1
inputs is kept q - 1 columns wider, read and written as a whole.
Source: vLLM 0.25.1 fused_recurrent and causal_conv1d kernels (slots = 1 + k), SGLang 0.5.23
memory pool; measured: KDA verify rows on an H200 fit (1 + q) / 2 of a decode.
"""

from specsim.model.counts import PLAIN_BYTES, mixer_count
from specsim.model.spec import BF16, DeltaNet, Mamba2
from specsim.ops.linear import ACT_BYTES, elementwise, gemm
from specsim.ops.op import OpCost
from specsim.ops.work import Rows, Work, shard
from specsim.units import DTYPE_BYTES

CONV_BYTES = 2.0  # the convolution's window is kept in the model's 16-bit dtype


def _state_ops(
    work: Work,
    state_elems: float,
    state_dtype: str,
    conv_width: float,
    conv_kernel: int,
    flops_per_token: float,
    act_width: float,
    count: float,
    prefix: str,
    dims: dict[str, float],
    state_copies: float,
) -> list[OpCost]:
    ops: list[OpCost] = []
    element = DTYPE_BYTES[state_dtype]
    state = state_elems * element
    dims = {**dims, "state_elems": state_elems, "conv_kernel": conv_kernel,
            "state_bytes_per_elem": element}
    if work.seqs > 0:
        q = work.q_len
        copies = state_copies if q > 1 else 0.0
        window = conv_kernel - 1 + q - 1
        conv = work.seqs * 2 * window * conv_width * CONV_BYTES
        ops.append(
            OpCost(
                f"{prefix}.decode",
                "recurrent",
                flops=flops_per_token * work.seqs * q,
                state_bytes=work.seqs * state * (1 + q + copies) + conv,
                act_bytes=ACT_BYTES * work.seqs * q * act_width,
                count=count,
                fmt=state_dtype,
                dims={**dims, "seqs": work.seqs, "q_len": q, "conv_bytes": conv},
            )
        )
    if work.prefill:
        new, prompts = work.prefill_tokens, len(work.prefill)
        conv = prompts * 2 * (conv_kernel - 1) * conv_width * CONV_BYTES
        ops.append(
            OpCost(
                f"{prefix}.prefill",
                "recurrent",
                flops=flops_per_token * new,
                state_bytes=prompts * 2 * state + conv,
                act_bytes=ACT_BYTES * new * act_width,
                count=count,
                fmt=state_dtype,
                dims={**dims, "seqs": prompts, "tokens": new, "prefill": 1, "conv_bytes": conv},
            )
        )
    return ops


def delta_net_rows(
    a: DeltaNet, hidden: int, rows: float, tp: int, count: float, prefix: str
) -> Rows:
    """Projections and the gated norm of `count` Gated DeltaNet layers on one of `tp` GPUs."""
    nk, nv = shard(a.n_k_heads, tp), shard(a.n_v_heads, tp)
    kd, vd = nk * a.head_k_dim, nv * a.head_v_dim
    small = (mixer_count(a, hidden).plain - hidden * 2 * a.n_v_heads) * PLAIN_BYTES / tp
    before = (
        gemm(f"{prefix}.in_qkvz", rows, 2 * kd + 2 * vd, hidden, a.weight, count),
        # beta and decay inputs stay in bf16 in every checkpoint format
        gemm(f"{prefix}.in_ba", rows, 2 * nv, hidden, BF16, count),
        # The products come out interleaved by head: q, k, v and z are put in order, and beta and
        # the decay are computed, by kernels of their own (vLLM qwen3_next.py).
        elementwise(f"{prefix}.arrange", ACT_BYTES * rows * 2 * (2 * kd + 2 * vd), count),
        elementwise(f"{prefix}.gating", ACT_BYTES * rows * 6 * nv, count),
    )
    after = (
        elementwise(f"{prefix}.gate_norm", ACT_BYTES * rows * 3 * vd, count, small),
        gemm(f"{prefix}.out", rows, hidden, vd, a.weight, count),
    )
    return before, after


def delta_net_context(
    a: DeltaNet, work: Work, tp: int, count: float, prefix: str, state_copies: float = 0.0
) -> list[OpCost]:
    """Convolution and recurrence. State: v heads x d_k x d_v, about 8 FLOP per element."""
    nk, nv = shard(a.n_k_heads, tp), shard(a.n_v_heads, tp)
    kd, vd = nk * a.head_k_dim, nv * a.head_v_dim
    elems = nv * a.head_k_dim * a.head_v_dim
    return _state_ops(
        work,
        state_elems=elems,
        state_dtype=a.state_dtype,
        conv_width=2 * kd + vd,
        conv_kernel=a.conv_kernel,
        flops_per_token=8.0 * elems,
        act_width=2 * (2 * kd + 2 * vd),
        count=count,
        prefix=prefix,
        dims={"gdn": 1, "n_k_heads": nk, "n_v_heads": nv, "dk": a.head_k_dim, "dv": a.head_v_dim},
        state_copies=state_copies,
    )


def mamba2_rows(
    a: Mamba2, hidden: int, rows: float, tp: int, count: float, prefix: str
) -> Rows:
    """Projections and the gated norm of `count` Mamba-2 layers on one of `tp` GPUs."""
    heads, groups = shard(a.n_heads, tp), shard(a.n_groups, tp)
    inner = heads * a.head_dim
    width = inner + (inner + 2 * groups * a.state_size) + heads
    small = mixer_count(a, hidden).plain * PLAIN_BYTES / tp
    before = (gemm(f"{prefix}.in", rows, width, hidden, a.weight, count),)
    after = (
        elementwise(f"{prefix}.gate_norm", ACT_BYTES * rows * 3 * inner, count, small),
        gemm(f"{prefix}.out", rows, hidden, inner, a.weight, count),
    )
    return before, after


def mamba2_context(
    a: Mamba2, work: Work, tp: int, count: float, prefix: str, state_copies: float = 0.0
) -> list[OpCost]:
    """Convolution and scan. State: heads x head_dim x state_size, about 6 FLOP per element."""
    heads, groups = shard(a.n_heads, tp), shard(a.n_groups, tp)
    inner = heads * a.head_dim
    conv_width = inner + 2 * groups * a.state_size
    elems = inner * a.state_size
    return _state_ops(
        work,
        state_elems=elems,
        state_dtype=a.state_dtype,
        conv_width=conv_width,
        conv_kernel=a.conv_kernel,
        flops_per_token=6.0 * elems,
        act_width=2 * (inner + conv_width),
        count=count,
        prefix=prefix,
        dims={"mamba": 1, "n_heads": heads, "head_dim": a.head_dim, "state_size": a.state_size,
              "n_groups": groups},
        state_copies=state_copies,
    )

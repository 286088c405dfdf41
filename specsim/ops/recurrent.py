"""Recurrent token mixers: Gated DeltaNet and Mamba-2.

Their state has a fixed size per sequence whatever the context. Decoding one token reads and
writes it once. Verifying q tokens reads ONE state and stores q snapshots (the engine keeps a
state per draft position and rolls back by choosing one): `state_writes` = q_len. Engines that
copy the accepted snapshot back add `state_copies` more passes (SGLang: 2).
Source: vLLM 0.25.1 fused_recurrent kernels (slots = 1 + k), SGLang 0.5.23 memory pool;
measured: KDA verify rows on an H200 fit (1 + q) / 2 of a decode.
"""

from specsim.model.spec import BF16, DeltaNet, Mamba2
from specsim.ops.linear import ACT_BYTES, elementwise, gemm
from specsim.ops.op import OpCost
from specsim.ops.work import Parallel, Work, attention_share, shard
from specsim.units import DTYPE_BYTES


def _state_ops(
    w: Work,
    state_elems: float,
    state_bytes_each: float,
    conv_bytes: float,
    flops_per_token: float,
    act_width: float,
    count: float,
    prefix: str,
    dims: dict[str, float],
    state_copies: float,
) -> list[OpCost]:
    ops: list[OpCost] = []
    state = state_elems * state_bytes_each
    if w.seqs > 0:
        copies = state_copies if w.q_len > 1 else 0.0
        ops.append(
            OpCost(
                f"{prefix}.decode",
                "recurrent",
                flops=flops_per_token * w.seqs * w.q_len,
                state_bytes=w.seqs * (state * (1 + w.q_len + copies) + 2 * conv_bytes),
                act_bytes=ACT_BYTES * w.seqs * w.q_len * act_width,
                count=count,
                fmt="fp32",
                dims={**dims, "seqs": w.seqs, "q_len": w.q_len, "state_elems": state_elems},
            )
        )
    if w.prefill:
        new = w.prefill_tokens
        ops.append(
            OpCost(
                f"{prefix}.prefill",
                "recurrent",
                flops=flops_per_token * new,
                state_bytes=len(w.prefill) * 2 * (state + conv_bytes),
                act_bytes=ACT_BYTES * new * act_width,
                count=count,
                fmt="fp32",
                dims={**dims, "seqs": len(w.prefill), "tokens": new, "prefill": 1,
                      "state_elems": state_elems},
            )
        )
    return ops


def delta_net_ops(
    a: DeltaNet,
    hidden: int,
    work: Work,
    par: Parallel,
    count: float,
    prefix: str,
    state_copies: float = 0.0,
) -> list[OpCost]:
    """Ops of `count` Gated DeltaNet layers on one GPU. State: v heads x d_k x d_v."""
    w = attention_share(work, par)
    nk, nv = shard(a.n_k_heads, par.tp), shard(a.n_v_heads, par.tp)
    kd, vd = nk * a.head_k_dim, nv * a.head_v_dim
    ops = [
        gemm(f"{prefix}.in_qkvz", w.rows, 2 * kd + 2 * vd, hidden, a.weight, count),
        # beta and decay inputs stay in bf16 in every checkpoint format
        gemm(f"{prefix}.in_ba", w.rows, 2 * nv, hidden, BF16, count),
    ]
    ops += _state_ops(
        w,
        state_elems=nv * a.head_k_dim * a.head_v_dim,
        state_bytes_each=DTYPE_BYTES[a.state_dtype],
        conv_bytes=(2 * kd + vd) * (a.conv_kernel - 1) * 2.0,
        flops_per_token=8.0 * nv * a.head_k_dim * a.head_v_dim,
        act_width=2 * (2 * kd + 2 * vd),
        count=count,
        prefix=prefix,
        dims={"gdn": 1, "n_k_heads": nk, "n_v_heads": nv, "dk": a.head_k_dim, "dv": a.head_v_dim},
        state_copies=state_copies,
    )
    ops.append(elementwise(f"{prefix}.gate_norm", ACT_BYTES * w.rows * 3 * vd, count))
    ops.append(gemm(f"{prefix}.out", w.rows, hidden, vd, a.weight, count))
    return ops


def mamba2_ops(
    a: Mamba2,
    hidden: int,
    work: Work,
    par: Parallel,
    count: float,
    prefix: str,
    state_copies: float = 0.0,
) -> list[OpCost]:
    """Ops of `count` Mamba-2 layers on one GPU. State: heads x head_dim x state_size."""
    w = attention_share(work, par)
    heads, groups = shard(a.n_heads, par.tp), shard(a.n_groups, par.tp)
    inner = heads * a.head_dim
    conv_width = inner + 2 * groups * a.state_size
    ops = [gemm(f"{prefix}.in", w.rows, inner + conv_width + heads, hidden, a.weight, count)]
    ops += _state_ops(
        w,
        state_elems=heads * a.head_dim * a.state_size,
        state_bytes_each=DTYPE_BYTES[a.state_dtype],
        conv_bytes=conv_width * (a.conv_kernel - 1) * 2.0,
        flops_per_token=6.0 * heads * a.head_dim * a.state_size,
        act_width=2 * (inner + conv_width),
        count=count,
        prefix=prefix,
        dims={"mamba": 1, "n_heads": heads, "head_dim": a.head_dim, "state_size": a.state_size,
              "n_groups": groups},
        state_copies=state_copies,
    )
    ops.append(elementwise(f"{prefix}.gate_norm", ACT_BYTES * w.rows * 3 * inner, count))
    ops.append(gemm(f"{prefix}.out", w.rows, hidden, inner, a.weight, count))
    return ops

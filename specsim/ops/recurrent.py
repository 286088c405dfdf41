"""Recurrent token mixers: Gated DeltaNet, Kimi delta attention, Mamba-1 and 2, lightning attention.

Their state has a fixed size per sequence whatever the context. Decoding one token reads and
writes it once. Verifying q tokens reads ONE state and stores q snapshots (the engine keeps a
state per draft position and rolls back by choosing one). Engines that copy the accepted snapshot
back add `state_copies` more passes (SGLang: 2). The convolution's window of conv_kernel - 1
inputs is kept q - 1 columns wider, read and written as a whole.
Source: vLLM 0.25.1 fused_recurrent and causal_conv1d kernels (slots = 1 + k), SGLang 0.5.23
memory pool; measured: KDA verify rows on an H200 fit (1 + q) / 2 of a decode.
"""

from dataclasses import dataclass

from specsim.model.mixers import DeltaAttention, DeltaNet, Mamba2
from specsim.model.part import BF16, PLAIN_BYTES, WeightFormat
from specsim.model.state_mixers import LightningAttention, Mamba1
from specsim.ops.linear import ACT_BYTES, elementwise, gemm
from specsim.ops.op import OpCost
from specsim.ops.shapes import AllReduce, StateDecode, StatePrefill
from specsim.ops.work import Rows, Work, shard
from specsim.units import DTYPE_BYTES

# Kernels of a prompt's convolution and scan in SGLang 0.5.23: two norms, cumulative sum, products
# solved, w and u, states, outputs (fla/chunk.py); Mamba-2's five (ssd_combined.py). Lightning
# attention's four are those of vLLM 0.25.1 (lightning_attn.py), Mamba-1's scan is one kernel.
DELTA_LAUNCHES, MAMBA_LAUNCHES, LIGHTNING_LAUNCHES, SCAN_LAUNCHES = 8, 6, 4, 2
CONV_BYTES = 2.0  # the convolution's window is kept in the model's 16-bit dtype


@dataclass(frozen=True, slots=True)
class _State:
    """The recurrent state of one layer on one GPU, of one sequence: elements, the convolution's
    width, arithmetic per element and token, activations per token; heads as a prefill takes
    them, a gated delta rule of n_v_heads states of dk x dv."""

    elems: float
    dtype: str
    conv_width: float
    conv_kernel: int
    flops_per_elem: float
    act_width: float
    heads: tuple[float, float, int, int]  # n_k_heads, n_v_heads, dk, dv
    launches: int = DELTA_LAUNCHES

    def ops(self, work: Work, count: float, prefix: str, state_copies: float) -> list[OpCost]:
        """Convolution and recurrence of `count` layers."""
        ops: list[OpCost] = []
        element = DTYPE_BYTES[self.dtype]
        state, flops = self.elems * element, self.flops_per_elem * self.elems
        if work.seqs > 0:
            q = work.q_len
            copies = state_copies if q > 1 else 0.0
            window = self.conv_kernel - 1 + q - 1
            conv = work.seqs * 2 * window * self.conv_width * CONV_BYTES
            moved = work.seqs * state * (1 + q + copies) + conv
            shape = StateDecode(
                work.seqs, q, self.elems, self.conv_width, self.flops_per_elem, self.conv_kernel,
                element, moved - conv,
            )
            ops.append(
                OpCost(
                    f"{prefix}.decode",
                    shape,
                    flops=flops * work.seqs * q,
                    state_bytes=moved,
                    act_bytes=ACT_BYTES * work.seqs * q * self.act_width,
                    count=count,
                )
            )
        if work.prefill:
            new, prompts = work.prefill_tokens, len(work.prefill)
            conv = prompts * 2 * (self.conv_kernel - 1) * self.conv_width * CONV_BYTES
            ops.append(
                OpCost(
                    f"{prefix}.prefill",
                    StatePrefill(new / prompts, *self.heads, prompts, self.launches),
                    flops=flops * new,
                    state_bytes=prompts * 2 * state + conv,
                    act_bytes=ACT_BYTES * new * self.act_width,
                    count=count,
                )
            )
        return ops


def _gated_out(
    weight: WeightFormat, hidden: int, rows: float, width: float, small: float, count: float,
    prefix: str,
) -> tuple[OpCost, ...]:
    """What follows the recurrence of `width` channels on this GPU: its norm under a gate, with
    `small` bytes of parameters, and the product back to the hidden width."""
    return (
        elementwise(f"{prefix}.gate_norm", ACT_BYTES * rows * 3 * width, count, small),
        gemm(f"{prefix}.out", rows, hidden, width, weight, count),
    )


def delta_net_rows(
    a: DeltaNet, hidden: int, rows: float, tp: int, count: float, prefix: str
) -> Rows:
    """Projections and the gated norm of `count` Gated DeltaNet layers on one of `tp` GPUs."""
    nk, nv = shard(a.n_k_heads, tp), shard(a.n_v_heads, tp)
    kd, vd = nk * a.head_k_dim, nv * a.head_v_dim
    small = (a.count(hidden).plain - hidden * 2 * a.n_v_heads) * PLAIN_BYTES / tp
    before = (
        gemm(f"{prefix}.in_qkvz", rows, 2 * kd + 2 * vd, hidden, a.weight, count),
        # beta and decay inputs stay in bf16 in every checkpoint format
        gemm(f"{prefix}.in_ba", rows, 2 * nv, hidden, BF16, count),
        # The products come out interleaved by head: q, k, v and z are put in order, and beta and
        # the decay are computed, by kernels of their own (vLLM qwen3_next.py).
        elementwise(f"{prefix}.arrange", ACT_BYTES * rows * 2 * (2 * kd + 2 * vd), count),
        elementwise(f"{prefix}.gating", ACT_BYTES * rows * 6 * nv, count),
    )
    return before, _gated_out(a.weight, hidden, rows, vd, small, count, prefix)


def delta_net_context(
    a: DeltaNet, work: Work, tp: int, kv_dtype: str, count: float, prefix: str,
    state_copies: float = 0.0,
) -> list[OpCost]:
    """Convolution and recurrence. State: v heads x d_k x d_v, about 8 FLOP per element."""
    nk, nv = shard(a.n_k_heads, tp), shard(a.n_v_heads, tp)
    kd, vd = nk * a.head_k_dim, nv * a.head_v_dim
    elems = nv * a.head_k_dim * a.head_v_dim
    state = _State(
        elems, a.state_dtype, 2 * kd + vd, a.conv_kernel, 8.0, 2 * (2 * kd + 2 * vd),
        (nk, nv, a.head_k_dim, a.head_v_dim),
    )
    return state.ops(work, count, prefix, state_copies)


def delta_attention_rows(
    a: DeltaAttention, hidden: int, rows: float, tp: int, count: float, prefix: str
) -> Rows:
    """Projections, decay and gate, and the gated norm of `count` KDA layers. The first step of a
    gate of two is not sharded: every GPU needs the whole rank."""
    heads, d = shard(a.n_heads, tp), a.head_dim
    width = heads * d
    vectors = 3 * width * a.conv_kernel + heads + width + d
    thin = 2 - a.wide_gates  # the wide ones join q, k and v
    before = (
        gemm(f"{prefix}.in_qkv", rows, (3 + a.wide_gates) * width, hidden, a.weight, count),
        gemm(f"{prefix}.gates_a", rows, thin * d + heads, hidden, BF16, count),
        *(gemm(f"{prefix}.{name}", rows, width, d, BF16, count)
          for name in ("decay_b", "gate_b")[:thin]),
        elementwise(f"{prefix}.gating", ACT_BYTES * rows * 3 * width, count),
    )
    small = vectors * PLAIN_BYTES
    return before, _gated_out(a.weight, hidden, rows, width, small, count, prefix)


def delta_attention_context(
    a: DeltaAttention, work: Work, tp: int, kv_dtype: str, count: float, prefix: str,
    state_copies: float = 0.0,
) -> list[OpCost]:
    """Convolution and recurrence. State: heads x d x d, about 8 FLOP per element."""
    heads, d = shard(a.n_heads, tp), a.head_dim
    width = heads * d
    state = _State(
        width * d, a.state_dtype, 3 * width, a.conv_kernel, 8.0, 10 * width, (heads, heads, d, d)
    )
    return state.ops(work, count, prefix, state_copies)


def mamba2_rows(
    a: Mamba2, hidden: int, rows: float, tp: int, count: float, prefix: str
) -> Rows:
    """Projections and the gated norm of `count` Mamba-2 layers on one of `tp` GPUs."""
    heads, groups = shard(a.n_heads, tp), shard(a.n_groups, tp)
    inner = heads * a.head_dim
    width = inner + (inner + 2 * groups * a.state_size) + heads
    small = a.count(hidden).plain * PLAIN_BYTES / tp
    before = (gemm(f"{prefix}.in", rows, width, hidden, a.weight, count),)
    return before, _gated_out(a.weight, hidden, rows, inner, small, count, prefix)


def mamba2_context(
    a: Mamba2, work: Work, tp: int, kv_dtype: str, count: float, prefix: str,
    state_copies: float = 0.0,
) -> list[OpCost]:
    """Convolution and scan. State: heads x head_dim x state_size, about 6 FLOP per element."""
    heads, groups = shard(a.n_heads, tp), shard(a.n_groups, tp)
    inner = heads * a.head_dim
    conv_width = inner + 2 * groups * a.state_size
    elems = inner * a.state_size
    state = _State(
        elems, a.state_dtype, conv_width, a.conv_kernel, 6.0, 2 * (inner + conv_width),
        (groups, heads, a.state_size, a.head_dim), MAMBA_LAUNCHES,
    )
    return state.ops(work, count, prefix, state_copies)


def mamba1_rows(
    a: Mamba1, hidden: int, rows: float, tp: int, count: float, prefix: str
) -> Rows:
    """Projections of `count` Mamba-1 layers on one of `tp` GPUs. The product that makes the state
    space depend on the token takes all channels, so it is summed over the GPUs (vLLM 0.25.1
    mamba_mixer.py)."""
    inner = a.inner / tp
    small = (a.count(hidden).plain - a.inner * (a.selection + a.rank)) * PLAIN_BYTES / tp
    before = [
        gemm(f"{prefix}.in", rows, 2 * inner, hidden, a.weight, count),
        gemm(f"{prefix}.select", rows, a.selection, inner, BF16, count),
        gemm(f"{prefix}.step", rows, inner, a.rank, BF16, count),
    ]
    if tp > 1:
        moved = ACT_BYTES * rows * a.selection
        summed = AllReduce(moved, tp)
        before.append(OpCost(f"{prefix}.select_sum", summed, act_bytes=moved, count=count))
    if a.norms:
        moved = ACT_BYTES * rows * 2 * a.selection / 3  # the three together read and write it once
        before.append(elementwise(f"{prefix}.norms", moved, 3 * count))
    after = (
        elementwise(f"{prefix}.gate", ACT_BYTES * rows * 3 * inner, count, small),
        gemm(f"{prefix}.out", rows, hidden, inner, a.weight, count),
    )
    return tuple(before), after


def mamba1_context(
    a: Mamba1, work: Work, tp: int, kv_dtype: str, count: float, prefix: str,
    state_copies: float = 0.0,
) -> list[OpCost]:
    """Convolution and scan. State: channels x state_size, about 6 FLOP per element. A prompt's
    scan has no measured table: it is taken as one of heads of 64 channels."""
    inner = a.inner / tp
    state = _State(
        inner * a.state_size, a.state_dtype, inner, a.conv_kernel, 6.0, 4 * inner,
        (1, inner / 64, a.state_size, 64), SCAN_LAUNCHES,
    )
    return state.ops(work, count, prefix, state_copies)


def lightning_rows(
    a: LightningAttention, hidden: int, rows: float, tp: int, count: float, prefix: str
) -> Rows:
    """Projections, the norm and the gate of `count` lightning attention layers."""
    width = shard(a.n_heads, tp) * a.head_dim
    small = width * PLAIN_BYTES
    before = (
        gemm(f"{prefix}.in_qkv", rows, 3 * width, hidden, a.weight, count),
        elementwise(f"{prefix}.act", ACT_BYTES * rows * 6 * width, count),
        gemm(f"{prefix}.gate", rows, width, hidden, a.weight, count),
    )
    return before, _gated_out(a.weight, hidden, rows, width, small, count, prefix)


def lightning_context(
    a: LightningAttention, work: Work, tp: int, kv_dtype: str, count: float, prefix: str,
    state_copies: float = 0.0,
) -> list[OpCost]:
    """The recurrence. State: heads x d x d, 5 FLOP per element (decay, k v added, q applied)."""
    heads, d = shard(a.n_heads, tp), a.head_dim
    width = heads * d
    state = _State(
        width * d, a.state_dtype, 0, 1, 5.0, 4 * width, (heads, heads, d, d), LIGHTNING_LAUNCHES
    )
    return state.ops(work, count, prefix, state_copies)

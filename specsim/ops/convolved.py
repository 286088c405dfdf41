"""Attention with short convolutions and biases by distance (Inkling; SGLang 0.5.23 inkling.py), and
gated short convolutions alone (LFM2; vLLM 0.25.1 short_conv.py).

A step keeps of every convolution the last kernel - 1 inputs of a sequence. The biases of a row,
one per head and distance, are a product of their own, written and read again by the attention.
"""

from specsim.model.mixers import ConvolvedAttention, ShortConvolution
from specsim.model.part import PLAIN_BYTES
from specsim.ops.attention import attention_context, attention_rows
from specsim.ops.linear import ACT_BYTES, elementwise, gemm
from specsim.ops.op import OpCost
from specsim.ops.work import Rows, Work, shard

_KERNELS = 3  # keys and values in one with their norms, attention's result, feed-forward's


def convolved_rows(
    a: ConvolvedAttention, hidden: int, rows: float, tp: int, count: float, prefix: str
) -> Rows:
    """As attention, with the bias states and what they give, and kernels of convolutions."""
    before, after = attention_rows(a, hidden, rows, tp, count, prefix)
    heads, widths = shard(a.n_heads, tp), a.projected(hidden) / hidden / tp
    moved = ACT_BYTES * rows * heads * (a.bias_dim + 2 * a.bias_extent)
    more = (
        gemm(f"{prefix}.bias_states", rows, widths, hidden, a.weight, count),
        elementwise(f"{prefix}.biases", moved, count),  # the profiles: read with the small weights
    )
    return (*before, *more), after


def convolved_context(
    a: ConvolvedAttention, work: Work, tp: int, kv_dtype: str, count: float, prefix: str,
    state_copies: float = 0.0,
) -> list[OpCost]:
    """The attention, and its convolutions over the windows that sequences keep."""
    ops = attention_context(a, work, tp, kv_dtype, count, prefix)
    inner, stream = a.conv_widths()
    width = inner / min(tp, a.n_kv_heads) + stream
    moved = _convolved_bytes(work, width, a.conv_kernel, state_copies)
    ops.append(elementwise(f"{prefix}.convs", moved / _KERNELS, _KERNELS * count))
    return ops


def _convolved_bytes(work: Work, width: float, kernel: int, state_copies: float) -> float:
    """Bytes of a convolution of `width`: its rows, and the windows of sequences."""
    window, rows = kernel - 1, work.seqs * work.q_len + work.prefill_tokens
    kept = work.seqs * (window + work.q_len - 1) + len(work.prefill) * window
    copies = state_copies * work.seqs * window if work.q_len > 1 else 0.0
    return ACT_BYTES * width * (2 * rows + 2 * kept + copies)


def short_rows(
    a: ShortConvolution, hidden: int, rows: float, tp: int, count: float, prefix: str
) -> Rows:
    """Input and gates of `count` layers, and what follows them."""
    width = hidden / tp
    small = a.count(hidden).plain * PLAIN_BYTES / tp
    before = (
        gemm(f"{prefix}.in", rows, 3 * width, hidden, a.weight, count),
        elementwise(f"{prefix}.gate_in", ACT_BYTES * rows * 3 * width, count, small),
    )
    after = (
        elementwise(f"{prefix}.gate_out", ACT_BYTES * rows * 3 * width, count),
        gemm(f"{prefix}.out", rows, hidden, width, a.weight, count),
    )
    return before, after


def short_context(
    a: ShortConvolution, work: Work, tp: int, kv_dtype: str, count: float, prefix: str,
    state_copies: float = 0.0,
) -> list[OpCost]:
    """The convolution over the windows that sequences keep."""
    moved = _convolved_bytes(work, a.stream / tp, a.conv_kernel, state_copies)
    return [elementwise(f"{prefix}.conv", moved, count)]

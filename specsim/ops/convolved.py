"""Attention with short convolutions and biases by distance (Inkling; SGLang 0.5.23 inkling.py).

A step keeps of every convolution the last kernel - 1 inputs of a sequence. The biases of a row,
one per head and distance, are a product of their own, written and read again by the attention.
"""

from specsim.model.mixers import ConvolvedAttention
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
    window, rows = a.conv_kernel - 1, work.seqs * work.q_len + work.prefill_tokens
    kept = work.seqs * (window + work.q_len - 1) + len(work.prefill) * window
    copies = state_copies * work.seqs * window if work.q_len > 1 else 0.0
    moved = ACT_BYTES * width * (2 * rows + 2 * kept + copies)
    ops.append(elementwise(f"{prefix}.convs", moved / _KERNELS, _KERNELS * count))
    return ops

"""CUDA graphs: which token counts replay a captured graph, and how far they are padded.

vLLM captures 1, 2, 4, then steps of 8 up to 256 tokens and of 16 above, and pads a batch up to
the next captured size (vLLM 0.25.1 and 0.33.0, config of compilation sizes). For verify batches of
uniform query length q (B * q tokens) every size is rounded up to a multiple of q before it is
captured, so that a single sequence finds a graph of exactly q tokens. Above the largest size
decode runs eagerly.
"""

import math


def padded_tokens(tokens: float, q_len: int, limit: int) -> float:
    """Rows that the linears really multiply; `tokens` itself above the largest graph."""
    if tokens > limit:
        return tokens
    if q_len <= 1:
        return float(_captured(tokens))
    # The smallest size whose multiple of q holds the batch is the first above its last multiple.
    size = _captured((math.ceil(tokens / q_len) - 1) * q_len + 1)
    return float(math.ceil(size / q_len) * q_len)


def _captured(tokens: float) -> int:
    """The smallest size of the grid that holds `tokens`."""
    for size in (1, 2, 4):
        if tokens <= size:
            return size
    step = 8 if tokens <= 256 else 16
    return math.ceil(tokens / step) * step

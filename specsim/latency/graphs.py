"""CUDA graphs: which token counts replay a captured graph, and how far they are padded.

vLLM captures 1, 2, 4, then steps of 8 up to 256 tokens and of 16 above, and pads a batch up to
the next captured size (vLLM 0.25.1 and 0.33.0, config of compilation sizes). A verify batch of
uniform query length q counts B * q tokens. Above the largest size decode runs eagerly.
"""

import math


def padded_tokens(tokens: float, q_len: int, limit: int) -> float:
    """Rows that the linears really multiply; `tokens` itself above the largest graph."""
    if tokens > limit:
        return tokens
    if tokens <= 1:
        size = 1
    elif tokens <= 2:
        size = 2
    elif tokens <= 4:
        size = 4
    elif tokens <= 256:
        size = math.ceil(tokens / 8) * 8
    else:
        size = math.ceil(tokens / 16) * 16
    if q_len > 1:
        size = math.ceil(size / q_len) * q_len
    return float(max(size, tokens))

"""Attention on a kernel that gives one block of threads a whole context: vLLM's Triton attention.

vLLM runs models on it whose head widths its FlashAttention does not take (Gemma-4: 256 and 512).
Read from the wheel of vLLM 0.25.1 (Apache-2.0; v1/attention/ops/triton_unified_attention.py and
v1/attention/backends/triton_attn.py):

* a block takes 16 query rows of one KV head, that is 16 // (query heads per KV head) queries of
  one sequence, and walks the keys that they see, tile after tile;
* the keys are split over further blocks only where every sequence has a single query and there
  are at most 128 / KV heads of them: never in a verify step and never in a step with a prompt.

Blocks that fit on the device walk at the same time, the others follow in waves:

    decode   cached tokens * waves * s_per_token,  waves = ceil(blocks / slots)
             (blocks / slots, at least 1, where a prompt's blocks fill the rest of the last wave)
    prompts  max(longest walk, walked tokens of all blocks / slots) * s_per_token
    slots    SMs * floor(blocks_per_sm * 256 / head width)

The tiles and accumulators of a block grow with the head width and fill an SM, hence the last line.
The prompt chunks of a step run in the same call as its decoding sequences (`shared_launch`), whose
longest walk they do not pay again.
"""

from math import ceil, floor

from specsim.ops.op import OpCost
from specsim.ops.shapes import AttentionDecode, AttentionPrefill

BLOCK_ROWS = 16  # query rows of a block
SMALLEST_GRID = 128  # blocks from which single queries are no longer split
WIDTH = 256  # head width that blocks_per_sm is stated for


def unsplit_attention_s(
    op: OpCost, sms: float, s_per_token: float, blocks_per_sm: float
) -> float:
    """Seconds of one attention call; 0.0 where the kernel splits the cache, and for other ops.

    s_per_token: what one block takes per cached token. blocks_per_sm: how many blocks of heads
    256 wide an SM runs at the same time."""
    shape = op.shape
    if not isinstance(shape, AttentionDecode | AttentionPrefill):
        return 0.0
    queries = max(1, int(BLOCK_ROWS * shape.kv_heads // shape.heads))  # of one block
    at_once = sms * max(1, floor(blocks_per_sm * WIDTH / shape.head_dim))  # blocks
    if isinstance(shape, AttentionDecode):
        mixed = shape.beside_prompts
        if shape.q_len == 1 and not mixed and shape.seqs * shape.kv_heads <= SMALLEST_GRID:
            return 0.0
        blocks = shape.seqs * shape.kv_heads * ceil(shape.q_len / queries)
        waves = max(1.0, blocks / at_once) if mixed else ceil(blocks / at_once)
        return shape.ctx * waves * s_per_token
    new, window = shape.new, shape.window
    longest = 0.0 if shape.shared_launch else shape.cached + new
    keys = shape.cached + 0.5 * (new + 1)
    if window:
        longest, keys = min(longest, window), min(keys, window)
    blocks = shape.kv_heads * ceil(new / queries)
    return max(longest, blocks * keys / at_once) * s_per_token

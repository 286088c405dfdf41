"""Attention on kernels that give one block of threads a whole context: vLLM's Triton attention,
FlashAttention 2, and vLLM's kernel for prompts under ROCm.

**Triton.** vLLM runs models on it whose head widths its FlashAttention does not take (Gemma-4: 256
and 512). Read from the wheel of vLLM 0.25.1 (Apache-2.0;
v1/attention/ops/triton_unified_attention.py and v1/attention/backends/triton_attn.py):

* a block takes 16 query rows of one KV head, that is 16 // (query heads per KV head) queries of
  one sequence, and walks the keys that they see, tile after tile;
* the keys are split over further blocks only where every sequence has a single query and there
  are at most 128 / KV heads of them: never in a verify step and never in a step with a prompt;
* blocks are numbered by sequence first, then by KV head.

Blocks that fit on the device (SMs * blocks_per_sm) walk at the same time; the next one starts where
one has ended, so a call takes the makespan of that list:

    equal contexts    cached tokens * ceil(blocks / slots) * s_per_token
    unequal contexts  mean makespan of batches drawn from their law (`ops.spread`); while all
                      blocks fit, the longest context of the batch
    prompts           max(longest walk, walked tokens of all blocks / slots) * s_per_token

The prompt chunks of a step run in the same call as its decoding sequences (`shared_launch`). Heads
come one after the other, of each head the decoding sequences first, then the prompts, so that the
walks of the last head start late: when all W seconds of work but the last head's are through, less
what walks of earlier heads still have to go. The call ends one walk later, or with the work:

    R = blocks of a head * sum over j of (walk - j W / heads)    of walks that last so long
    T = max(W, W (1 - 1 / heads) - R / slots + walk)

(`beside_prompts_s`; played out block by block for 13 such steps, T is off by 2.5% in the median and
8% at most, the work with the longest walk behind it by 5% and 16%).

What a token takes is measured for heads 512 wide and, as is assumed, a 16-bit cache. A block has
one warp on each scheduler of its SM, so elsewhere it is taken in proportion to the instructions of
the loop over keys: those of this kernel compiled for sm_90 (Triton 3.6, 4 warps, tiles of 32 keys)
are 817 and 892 for a 16-bit cache at widths 256 and 512, 867 and 1371 for an fp8 cache with fp8
queries. The same compilation gives the registers, 174 to 255 a thread, of which two blocks fit on
an SM. The narrower of these layers have a window, whose masks are instructions too.

Models whose layers all have sinks (gpt-oss) run on it before Hopper and on RTX Blackwell as well:
FlashAttention 2 has none, FlashInfer on data-centre Blackwell alone (`supports_sink` in
flash_attn.py and flashinfer.py). Their loops, compiled so, are in SINK_LOOPS. Their registers, 59
to 96, leave room for more blocks than schedulers can issue for: four loops of 250 instructions take
about the cycles that one lasts. Their prompts stay at the kernel model's price.

**FlashAttention 2** is what vLLM runs before Hopper and on RTX Blackwell with a 16-bit cache and no
sinks (`flash2_arches`; fa_utils.py, flash_attn_interface.py of the same wheel, and its kernel
tables of the A100, L40S and RTX PRO 6000). Read from flash-attn 2.8.3 (BSD; flash_api.cpp,
mha_varlen_fwd; flash_fwd_launch_template.h); the wheel's build says that it splits no paged cache
of several queries, its flash_attn.py that single queries are packed specially:

* the cache is split, and the query heads of a KV head are packed into one block, only where every
  sequence has a single query, no window, and there are fewer KV heads than query heads;
* else a block takes up to 64 queries of one query head, padded to 64, and walks what they see.

So a token takes a block 4 * 64 * head_dim FLOP at the SM's peak and what lies between the products.
Prompts of one head, 1k to 4k tokens, whose blocks all run at once, take 24, 19 and 20 ns a token of
heads 128 wide on those three (9 more than the products on average: FLASH2_S), of four heads and 16k
tokens, which fill the device, 23 to 25 ns on all (12.6 more: FLASH2_FULL_S), and in proportion to
the width (validation/data/other_gpus/attn_prefill.csv.gz). One block fills an SM: two that fit, on
the A100, finish no sooner.

**ROCm.** There vLLM gives sequences of several queries to its kernel for prompts behind a cached
prefix (`rocm_arches`; the same wheel: rocm.py, chunked_prefill_paged_decode.py,
prefix_prefill.py): a block takes up to 128 queries of one query head, padded to 128 (32 where
recurrent layers make cache blocks of odd sizes). Single queries go to paged attention, which splits
where its native kernel takes them (`use_rocm_custom_paged_attention`: no window, even blocks, up to
16 query heads on a KV head; CDNA heads 64 or 128 wide, RDNA 128 wide, at least 3 heads, 16-bit
cache), else to a kernel where a block takes the heads of a KV head, padded to 16, over the whole
context. Nothing of it was measured: a token takes its products at the peak, at least.
"""

from collections.abc import Sequence
from functools import lru_cache
from heapq import heapreplace
from math import ceil, floor, log2

from specsim.ops.op import OpCost
from specsim.ops.shapes import AttentionDecode, AttentionPrefill
from specsim.ops.spread import Contexts, batches

# Instructions of the loop over keys per tile: constant, and per 256 columns of a head.
LOOP_INSTRUCTIONS = {"bf16": (742.0, 75.0), "fp8": (363.0, 504.0)}
MEASURED = ("bf16", 512)  # what s_per_token is stated for
# The same by dtype of the cache and whether there is a window, and of MEASURED in that compilation.
SINK_LOOPS = {
    ("bf16", False): (142.0, 423.0), ("bf16", True): (150.0, 712.0),
    ("fp8", False): (151.0, 613.0), ("fp8", True): (167.0, 721.0),
}
SINK_MEASURED, SINK_BLOCKS = 988.0, 4
BLOCK_ROWS = 16  # query rows of a block
SMALLEST_GRID = 128  # blocks from which single queries are no longer split
FLASH2_ROWS = 64  # queries of a block of FlashAttention 2
FLASH2_WIDTHS = (32, 64, 96, 128, 192, 256)  # of heads: others are padded to the next
ROCM_ROWS, ROCM_ODD_ROWS = 128, 32  # and of vLLM's kernel for prompts under ROCm
# Seconds a token beside the products, heads 128 wide: while all blocks run at once, and beyond.
FLASH2_S, FLASH2_FULL_S = 8.9e-9, 12.6e-9
NODES = 8  # windows an octave at which makespans are played out


def flash2_attention_s(op: OpCost, sms: float, peak: float) -> float:
    """Seconds of one call of FlashAttention 2 on decoding sequences; 0.0 where it splits the cache,
    and for other ops. peak: of 16-bit products on the whole device, FLOP/s."""
    shape = op.shape
    if not isinstance(shape, AttentionDecode):
        return 0.0
    packed = shape.heads > shape.kv_heads and not shape.windowed
    if shape.q_len == 1 and packed and not shape.beside_prompts:
        return 0.0
    heads_of_one = max(1, round(shape.heads / shape.kv_heads))
    blocks = heads_of_one * ceil(shape.q_len / FLASH2_ROWS)
    full = shape.beside_prompts or shape.seqs * shape.kv_heads * blocks > sms
    beside_s = (FLASH2_FULL_S if full else FLASH2_S) / 128
    width = next((w for w in FLASH2_WIDTHS if w >= shape.head_dim), shape.head_dim)
    s_per_token = width * (4 * FLASH2_ROWS * sms / peak + beside_s)
    if shape.prompt_s:
        return beside_prompts_s(shape, blocks, floor(sms), s_per_token, turns=shape.heads)
    return decode_tokens(shape, blocks, floor(sms)) * s_per_token


def rocm_attention_s(op: OpCost, sms: float, peak: float, *, cdna: bool, odd: bool) -> float:
    """Seconds, at least, of vLLM's attention to the cache under ROCm; 0.0 where it is split, and
    for other ops. peak: of 16-bit products on the whole device, FLOP/s. odd: cache blocks are no
    power of two."""
    shape = op.shape
    if not isinstance(shape, AttentionDecode):
        return 0.0
    shared = max(1, round(shape.heads / shape.kv_heads))
    if shape.q_len > 1:
        rows = ROCM_ODD_ROWS if odd else ROCM_ROWS
        blocks = shared * ceil(shape.q_len / rows)
    else:
        if cdna:
            fits = shape.head_dim in (64, 128) and shared <= 16
        else:
            fits = shape.head_dim == 128 and 3 <= shared <= 16 and shape.fmt == "bf16"
        if fits and not (odd or shape.windowed):
            return 0.0
        blocks, rows = 1, max(BLOCK_ROWS, 2 ** ceil(log2(shared)))
    s_per_token = shape.head_dim * 4 * rows * sms / peak
    if shape.prompt_s and shape.q_len > 1:  # there the first queries of all sequences come first
        return beside_prompts_s(shape, blocks, floor(sms), s_per_token, turns=1)
    return decode_tokens(shape, blocks, floor(sms)) * s_per_token


def unsplit_attention_s(
    op: OpCost, sms: float, s_per_token: float, blocks_per_sm: float
) -> float:
    """Seconds of one attention call; 0.0 where the kernel splits the cache, and for other ops.

    s_per_token: what one block takes per cached token where the call is as MEASURED.
    blocks_per_sm: how many blocks an SM runs at the same time."""
    shape = op.shape
    if not isinstance(shape, AttentionDecode | AttentionPrefill):
        return 0.0
    slots = max(1, floor(sms * blocks_per_sm))
    s_per_token *= _instructions(shape.fmt, shape.head_dim) / _instructions(*MEASURED)
    if isinstance(shape, AttentionDecode):
        return _triton_s(shape, slots, s_per_token)
    queries = _queries(shape)
    new, window = shape.new, shape.window
    longest = 0.0 if shape.shared_launch else shape.cached + new
    keys = shape.cached + 0.5 * (new + 1)
    if window:
        longest, keys = min(longest, window), min(keys, window)
    blocks = shape.kv_heads * ceil(new / queries)
    return max(longest, blocks * keys / slots) * s_per_token


def sinks_attention_s(op: OpCost, sms: float, s_per_token: float) -> float:
    """The same for decoding sequences of a model with sinks; 0.0 for other ops."""
    shape = op.shape
    if not isinstance(shape, AttentionDecode):
        return 0.0
    fmt = "fp8" if shape.fmt == "fp8" else "bf16"
    constant, per_256 = SINK_LOOPS[fmt, shape.windowed]
    s_per_token *= (constant + per_256 * shape.head_dim / 256) / SINK_MEASURED
    return _triton_s(shape, max(1, floor(sms * SINK_BLOCKS)), s_per_token)


def _queries(shape: AttentionDecode | AttentionPrefill) -> int:
    """Of one block of Triton attention."""
    return max(1, int(BLOCK_ROWS * shape.kv_heads // shape.heads))


def _triton_s(shape: AttentionDecode, slots: int, s_per_token: float) -> float:
    """Seconds of Triton attention on decoding sequences; 0.0 where it splits the cache."""
    few = shape.seqs * shape.kv_heads <= SMALLEST_GRID
    if shape.q_len == 1 and not shape.beside_prompts and few:
        return 0.0
    blocks = ceil(shape.q_len / _queries(shape))
    if shape.prompt_s:
        return beside_prompts_s(shape, blocks, slots, s_per_token, turns=shape.kv_heads)
    return decode_tokens(shape, blocks, slots) * s_per_token


def beside_prompts_s(
    shape: AttentionDecode, blocks_per_head: int, slots: int, s_per_token: float, turns: float
) -> float:
    """What decoding sequences add to the prompts that run in the same call. turns: heads that are
    taken up one after the other; 1: all walks of decoding start before the prompts."""
    spread, longest = shape.contexts, shape.ctx
    if spread is not None and spread.mean > 0:
        seqs = ceil(shape.seqs)
        longest = _spread_makespan(spread, seqs, 1, 1, seqs)
    blocks = shape.seqs * shape.kv_heads * blocks_per_head
    walk_s, mean_s = longest * s_per_token, shape.ctx * s_per_token
    work_s = shape.prompt_s + blocks * mean_s / slots
    turn_s = work_s / turns
    lasting = min(ceil(turns) - 1, floor(mean_s / turn_s))
    left_s = blocks / turns * (lasting * mean_s - turn_s * lasting * (lasting + 1) / 2) / slots
    starts_s = max(0.0, work_s - turn_s - left_s)
    return max(work_s, starts_s + walk_s) - shape.prompt_s


def _instructions(fmt: str, head_dim: float) -> float:
    constant, per_256 = LOOP_INSTRUCTIONS.get(fmt, LOOP_INSTRUCTIONS["bf16"])
    return constant + per_256 * head_dim / 256


def decode_tokens(shape: AttentionDecode, blocks_per_head: int, slots: int) -> float:
    """Tokens that are walked one after the other in a call of decoding sequences."""
    blocks = shape.seqs * shape.kv_heads * blocks_per_head
    spread, longest = shape.contexts, shape.ctx
    if spread is not None and spread.mean > 0:
        seqs, heads = ceil(shape.seqs), ceil(shape.kv_heads)
        if not shape.beside_prompts:
            return _spread_makespan(spread, seqs, heads, blocks_per_head, slots)
        longest = _spread_makespan(spread, seqs, 1, 1, seqs)
    if shape.beside_prompts:
        return max(longest, shape.ctx * blocks / slots)
    return longest * ceil(blocks / slots)


def _spread_makespan(
    contexts: Contexts, seqs: int, heads: int, blocks_per_head: int, slots: int
) -> float:
    """`_mean_makespan` of contexts of any mean, read between windows of NODES an octave (in units
    of the mean): steps at ever new means share what was played out. Within 0.3 % (tested)."""
    ratio = contexts.window / contexts.mean

    def unit(window: float) -> float:
        one = Contexts(1.0, contexts.variation, window)
        return _mean_makespan(one, seqs, heads, blocks_per_head, slots)

    if not ratio:
        return contexts.mean * unit(0.0)
    place = NODES * log2(ratio)
    low, high = 2 ** (floor(place) / NODES), 2 ** ((floor(place) + 1) / NODES)
    share = (ratio - low) / (high - low)
    return contexts.mean * ((1 - share) * unit(low) + share * unit(high))


@lru_cache(maxsize=16384)
def _mean_makespan(
    contexts: Contexts, seqs: int, heads: int, blocks_per_head: int, slots: int
) -> float:
    """Mean over batches of `seqs` such contexts of the time after which their blocks, each as long
    as its context, have run on so many slots."""
    found = [
        _makespan([min(x, contexts.window) if contexts.window else x for x in batch],
                  heads, blocks_per_head, slots)
        for batch in batches(seqs, contexts.variation)
    ]
    return sum(found) / len(found)


def _makespan(
    lengths: Sequence[float], heads: int, blocks_per_head: int, slots: int
) -> float:
    if len(lengths) * heads * blocks_per_head <= slots:
        return max(lengths)
    ends = [0.0] * slots
    for _ in range(heads):
        for length in lengths:
            for _ in range(blocks_per_head):
                heapreplace(ends, ends[0] + length)
    return max(ends)

"""Layers that attend to a chosen part of their cache: compressed sparse attention (DeepSeek-V4) and
grouped heads with an indexer (MiniMax-M3).

What a query attends to no longer grows with the context once the indexer has a choice; its scores,
and the entries of layers without one, do. A verify step reads the choices of its queries once, as
neighbouring tokens choose much the same; what it computes, each query computes apart.
"""

from dataclasses import replace

from specsim.model.part import BF16, PLAIN_BYTES
from specsim.model.sparse_mixers import CompressedAttention, SparseAttention
from specsim.ops.attention import attention_context, attention_rows
from specsim.ops.indexer import index_scores
from specsim.ops.linear import ACT_BYTES, elementwise, gemm
from specsim.ops.op import OpCost
from specsim.ops.shapes import LatentDecode, SparsePrefill
from specsim.ops.spread import causal_keys, mean_seen
from specsim.ops.work import Rows, Work, shard
from specsim.units import DTYPE_BYTES


def compressed_rows(
    a: CompressedAttention, hidden: int, rows: float, tp: int, count: float, prefix: str
) -> Rows:
    """Projections of `count` layers. Heads and output groups are dealt out over tp; the latents,
    compressors and the indexer are on every GPU."""
    heads, groups, rank, d = shard(a.n_heads, tp), shard(a.o_groups, tp), a.q_lora_rank, a.head_dim
    before = [
        gemm(f"{prefix}.qkv_a", rows, rank + d, hidden, a.weight, count),
        gemm(f"{prefix}.q_b", rows, heads * d, rank, a.weight, count),
    ]
    compressor = a.compressor_width()
    small = a.count(hidden).plain - hidden * (compressor + a.index_heads)
    moved = ACT_BYTES * rows * 2 * (rank + d + heads * d)
    before.append(elementwise(f"{prefix}.rope_norm", moved, count, small * PLAIN_BYTES))
    if compressor:
        before.append(gemm(f"{prefix}.compressor", rows, compressor, hidden, BF16, count))
        # Written to the open windows in fp32, and read back when these close.
        moved = 4.0 * rows * compressor * (1 + a.overlap)
        before.append(elementwise(f"{prefix}.compress", moved, count))
    if a.index_heads:
        width = a.index_heads * a.index_head_dim
        before.append(gemm(f"{prefix}.index_q", rows, width, rank, a.weight, count))
        before.append(gemm(f"{prefix}.index_w", rows, a.index_heads, hidden, BF16, count))
    grouped = groups * a.o_lora_rank
    after = (
        gemm(f"{prefix}.out_a", rows, grouped, a.n_heads * d / a.o_groups, a.weight, count),
        gemm(f"{prefix}.out_b", rows, hidden, grouped, a.weight, count),
    )
    return tuple(before), after


def compressed_context(
    a: CompressedAttention, work: Work, tp: int, kv_dtype: str, count: float, prefix: str,
    state_copies: float = 0.0,
) -> list[OpCost]:
    """Scores of the indexer, then window and entries in one call: all heads read one latent."""
    heads, d, ratio = shard(a.n_heads, tp), a.head_dim, a.ratio
    row = a.entry_bytes(DTYPE_BYTES[kv_dtype])
    written = 1.0 + (1.0 / ratio if ratio else 0.0)  # of every new token
    ops = index_scores(a, work, count, prefix) if a.index_heads else []
    if work.seqs > 0:
        m = work.seqs * work.q_len
        seen = mean_seen(work.ctx, work.variation, a.window)
        entries = 0.0
        if ratio:
            entries = mean_seen(work.ctx, work.variation, a.index_topk * ratio) / ratio
        keys = causal_keys(seen, work.q_len, a.window) + entries
        ops.append(
            OpCost(
                f"{prefix}.decode",
                LatentDecode(
                    work.seqs, work.q_len, heads, d, 0, seen + entries, kv_dtype,
                    kv_read_amplification=row / (d * DTYPE_BYTES[kv_dtype]), apart=True,
                ),
                flops=4.0 * m * keys * heads * d,
                kv_bytes=row * (work.seqs * (seen + entries + work.q_len) + m * written),
                act_bytes=ACT_BYTES * m * heads * 2 * d,
                count=count,
            )
        )
    for new, cached, shared, alike in work.chunks():
        keys, held = causal_keys(cached, new, a.window), min(cached, float(a.window)) + new
        if ratio:
            keys += causal_keys(cached, new, a.index_topk * ratio) / ratio
            held += (cached + new) / ratio
        moved = row * (held + new * written)
        ops.append(
            OpCost(
                f"{prefix}.prefill",
                SparsePrefill(new, keys, heads, d, moved, kv_dtype, shared_launch=shared),
                flops=4.0 * new * keys * heads * d,
                kv_bytes=moved,
                act_bytes=ACT_BYTES * new * heads * 2 * d,
                count=count * alike,
            )
        )
    return ops


def sparse_rows(
    a: SparseAttention, hidden: int, rows: float, tp: int, count: float, prefix: str
) -> Rows:
    """Those of grouped-query attention, and the indexer's: its queries are split as the KV heads
    are, its key is not."""
    before, after = attention_rows(a, hidden, rows, tp, count, prefix)
    width = (shard(a.index_heads, tp) + 1) * a.index_head_dim
    return (*before, gemm(f"{prefix}.index_qk", rows, width, hidden, a.weight, count)), after


def sparse_context(
    a: SparseAttention, work: Work, tp: int, kv_dtype: str, count: float, prefix: str,
    state_copies: float = 0.0,
) -> list[OpCost]:
    """Scores in 16 bits, then attention to as many tokens as a window of index_topk has."""
    scores = index_scores(
        a, work, count, prefix, heads=shard(a.index_heads, tp), fmt="bf16"
    )
    chosen = replace(a, window=a.index_topk)
    return scores + attention_context(chosen, work, tp, kv_dtype, count, prefix)

"""Attention layers: grouped-query (full, sliding, gated) and latent (MLA) with sparse indexing.

`q_len` new tokens of a sequence attend to its `ctx` cached tokens and causally to each other.
The cache is read ONCE for all q_len queries (a verify step costs one read, not k + 1); new keys
and values are written once. Rotary embedding, norms and the residual are elementwise bytes.

FLOP per query over c keys: 2 c H (d_k + d_v) (scores and weighted values).
"""

from specsim.model.spec import BF16, Attention, LatentAttention, WeightFormat
from specsim.ops.linear import ACT_BYTES, elementwise, gemm
from specsim.ops.op import OpCost
from specsim.ops.work import Parallel, Work, attention_share, shard
from specsim.units import DTYPE_BYTES

INDEX_KEY_BYTES = 1.0 + 4.0 / 128  # DSA index keys: fp8 with one fp32 scale per 128 values
INDEX_FORMAT = WeightFormat("fp8", 1.0, "fp8")


def _causal_keys(cached: float, new: float) -> float:
    """Mean keys seen by one of `new` causal queries after `cached` tokens."""
    return cached + (new + 1) / 2


def attention_ops(
    a: Attention, hidden: int, work: Work, par: Parallel, kv_dtype: str, count: float, prefix: str
) -> list[OpCost]:
    """Ops of `count` identical GQA layers on one GPU."""
    w = attention_share(work, par)
    heads, kv_heads = shard(a.n_heads, par.tp), shard(a.n_kv_heads, par.tp)
    d, kvb = a.head_dim, DTYPE_BYTES[kv_dtype]
    # A layer without its own K and V weights (owns_kv False) still reads somebody's cache.
    # With k_eq_v engines load the K weights into both slots, so both are multiplied.
    kv_out = 2 * kv_heads * d if a.owns_kv else 0.0
    q_out = heads * d * (2 if a.gated else 1)
    k_in = hidden * a.input_mult
    ops = [gemm(f"{prefix}.qkv", w.rows, q_out + kv_out, k_in, a.weight, count)]
    rope_bytes = ACT_BYTES * w.rows * 2 * (q_out + kv_out)
    ops.append(elementwise(f"{prefix}.rope_norm", rope_bytes, count))
    if w.seqs > 0:
        cached = min(w.ctx, float(a.window)) if a.window else w.ctx
        keys = _causal_keys(cached, w.q_len)
        written = w.seqs * w.q_len if a.owns_kv else 0.0
        kv = 2 * kv_heads * d * kvb * (w.seqs * (cached + w.q_len) + written)
        ops.append(
            OpCost(
                f"{prefix}.decode",
                "attn_decode",
                flops=4.0 * w.seqs * w.q_len * keys * heads * d,
                kv_bytes=kv,
                act_bytes=ACT_BYTES * w.seqs * w.q_len * 2 * heads * d,
                count=count,
                fmt=kv_dtype,
                dims={
                    "seqs": w.seqs,
                    "q_len": w.q_len,
                    "heads": heads,
                    "kv_heads": kv_heads,
                    "head_dim": d,
                    "ctx": cached,
                    "window": a.window,
                },
            )
        )
    for new, cached_before in w.prefill:
        cached = min(cached_before, a.window) if a.window else cached_before
        keys = _causal_keys(cached, new)
        if a.window:
            keys = min(keys, float(a.window))
        ops.append(
            OpCost(
                f"{prefix}.prefill",
                "attn_prefill",
                flops=4.0 * new * keys * heads * d,
                kv_bytes=2 * kv_heads * d * kvb * (cached + 2 * new),
                act_bytes=ACT_BYTES * new * 2 * heads * d,
                count=count,
                fmt=kv_dtype,
                dims={
                    "new": new,
                    "cached": cached,
                    "heads": heads,
                    "kv_heads": kv_heads,
                    "head_dim": d,
                    "window": a.window,
                },
            )
        )
    ops.append(gemm(f"{prefix}.out", w.rows, hidden, heads * d, a.weight, count))
    return ops


def latent_attention_ops(
    a: LatentAttention,
    hidden: int,
    work: Work,
    par: Parallel,
    kv_dtype: str,
    count: float,
    prefix: str,
) -> list[OpCost]:
    """Ops of `count` MLA layers: absorbed form for decode, expanded form for prefill.

    The latent cache (kv_lora_rank + rope per token) is one head that every query head shares,
    so tensor parallelism divides the heads but not the cache.
    """
    w = attention_share(work, par)
    heads = shard(a.n_heads, par.tp)
    nope, rope, vd, kl = a.qk_nope_head_dim, a.qk_rope_head_dim, a.v_head_dim, a.kv_lora_rank
    latent, kvb, rows = kl + rope, DTYPE_BYTES[kv_dtype], w.rows
    ops: list[OpCost] = []
    if a.q_lora_rank:
        ops.append(gemm(f"{prefix}.qkv_a", rows, a.q_lora_rank + latent, hidden, a.weight, count))
        q_in = a.q_lora_rank
    else:
        ops.append(gemm(f"{prefix}.kv_a", rows, latent, hidden, a.weight, count))
        q_in = hidden
    ops.append(gemm(f"{prefix}.q_b", rows, heads * (nope + rope), q_in, a.weight, count))
    ops.append(
        elementwise(f"{prefix}.rope_norm", ACT_BYTES * rows * 2 * (q_in + latent), count)
    )
    attended = w.ctx
    if a.index_topk:
        ops += _indexer_ops(a, hidden, w, count, prefix, q_in)
        attended = min(w.ctx, float(a.index_topk))
    if w.seqs > 0:
        m = w.seqs * w.q_len
        # Absorbed: q_nope W_uk and attn W_uv are per-head products; FLOPs and weight bytes
        # equal those of one product of width heads * width.
        for name, width in (("absorb_k", nope), ("absorb_v", vd)):
            ops.append(gemm(f"{prefix}.{name}", m, heads * width, kl, BF16, count))
        keys = _causal_keys(attended, w.q_len)
        ops.append(
            OpCost(
                f"{prefix}.decode",
                "attn_decode",
                flops=2.0 * m * keys * heads * (2 * kl + rope),
                kv_bytes=latent * kvb * w.seqs * (attended + 2 * w.q_len),
                act_bytes=ACT_BYTES * m * heads * (2 * kl + rope),
                count=count,
                fmt=kv_dtype,
                dims={
                    "seqs": w.seqs,
                    "q_len": w.q_len,
                    "heads": heads,
                    "kv_heads": 1,
                    "head_dim": latent,
                    "ctx": attended,
                    "mla": 1,
                    "kv_lora_rank": kl,
                    "rope_dim": rope,
                },
            )
        )
    for new, cached in w.prefill:
        keys = _causal_keys(cached, new)
        if a.index_topk:
            keys = min(keys, float(a.index_topk))
        # Expanded: the latent is decompressed to full heads once per chunk.
        ops.append(gemm(f"{prefix}.kv_b", new, heads * (nope + vd), kl, a.weight, count))
        ops.append(
            OpCost(
                f"{prefix}.prefill",
                "attn_prefill",
                flops=2.0 * new * keys * heads * (nope + rope + vd),
                kv_bytes=latent * kvb * (cached + 2 * new),
                act_bytes=ACT_BYTES * new * heads * (nope + rope + 2 * vd),
                count=count,
                fmt=kv_dtype,
                dims={
                    "new": new,
                    "cached": cached,
                    "heads": heads,
                    "kv_heads": heads,
                    "head_dim": nope + rope,
                    "qk_head_dim": nope + rope,
                    "v_head_dim": vd,
                    "window": 0,
                    "mla": 1,
                },
            )
        )
    ops.append(gemm(f"{prefix}.out", rows, hidden, heads * vd, a.weight, count))
    return ops


def _indexer_ops(
    a: LatentAttention, hidden: int, w: Work, count: float, prefix: str, q_in: int
) -> list[OpCost]:
    """The DSA indexer: small projections, then a score of every cached token (not sharded)."""
    width = a.index_heads * a.index_head_dim
    ops = [
        gemm(f"{prefix}.index_q", w.rows, width, q_in, a.weight, count),
        gemm(f"{prefix}.index_k", w.rows, a.index_head_dim + a.index_heads, hidden, a.weight,
             count),
    ]
    if w.seqs > 0:
        # Scoring the cached keys streams them once per sequence; the products hide behind it.
        ops.append(
            OpCost(
                f"{prefix}.index_scores",
                "elementwise",
                flops=2.0 * w.seqs * w.q_len * w.ctx * width,
                kv_bytes=w.seqs * w.ctx * a.index_head_dim * INDEX_KEY_BYTES,
                count=count,
            )
        )
    for new, cached in w.prefill:
        keys = _causal_keys(cached, new)
        ops.append(gemm(f"{prefix}.index_prefill", new, keys, width, INDEX_FORMAT, count))
    return ops

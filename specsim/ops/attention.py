"""Attention layers: grouped-query (full, sliding, gated) and latent (MLA) with sparse indexing.

`q_len` new tokens of a sequence attend to its `ctx` cached tokens and causally to each other.
The cache is read ONCE for all q_len queries (a verify step costs one read, not k + 1); new keys
and values are written once. Rotary embedding, norms and the residual are elementwise bytes.

FLOP per query over c keys: 2 c H (d_k + d_v) (scores and weighted values).

Each mixer gives its ops in two parts: `*_rows` what depends on the number of rows alone (before
and after the core), `*_context` what depends on sequences, query length and cache.
"""

from specsim.model.mixers import Attention, LatentAttention
from specsim.model.part import BF16, PLAIN_BYTES
from specsim.ops.indexer import index_scores
from specsim.ops.linear import ACT_BYTES, elementwise, gemm
from specsim.ops.op import OpCost
from specsim.ops.shapes import (
    AttentionDecode,
    AttentionPrefill,
    LatentDecode,
    LatentPrefill,
    SparsePrefill,
)
from specsim.ops.spread import Contexts, causal_keys, mean_seen
from specsim.ops.work import Rows, Work, shard
from specsim.units import DTYPE_BYTES


def attention_rows(
    a: Attention, hidden: int, rows: float, tp: int, count: float, prefix: str
) -> Rows:
    """Projections of `count` identical GQA layers on one of `tp` GPUs, for `rows` rows."""
    heads, kv_heads, d = shard(a.n_heads, tp), shard(a.n_kv_heads, tp), a.head_dim
    values = heads * (a.v_head_dim or d)
    # A layer without its own K and V weights (owns_kv False) still reads somebody's cache.
    # With k_eq_v engines load the K weights into both slots, so both are multiplied.
    kv_out = 2 * kv_heads * a.mean_dim if a.owns_kv else 0.0
    q_out = heads * d * (2 if a.gated else 1)
    k_in = hidden * a.input_mult
    small = a.count(hidden).plain * PLAIN_BYTES / tp
    rope_bytes = ACT_BYTES * rows * 2 * (q_out + kv_out)
    before = (
        gemm(f"{prefix}.qkv", rows, q_out + kv_out, k_in, a.weight, count),
        elementwise(f"{prefix}.rope_norm", rope_bytes, count, small),
    )
    return before, (gemm(f"{prefix}.out", rows, hidden, values, a.weight, count),)


def attention_context(
    a: Attention, work: Work, tp: int, kv_dtype: str, count: float, prefix: str,
    state_copies: float = 0.0,
) -> list[OpCost]:
    """The attention itself: decoding sequences, and one op per prompt chunk. Engines run them in
    one call of variable lengths, so all but the first share its launch."""
    heads, kv_heads = shard(a.n_heads, tp), shard(a.n_kv_heads, tp)
    d, kvb = a.mean_dim, DTYPE_BYTES[kv_dtype]
    ops: list[OpCost] = []
    if work.seqs > 0:
        cached = mean_seen(work.ctx, work.variation, a.window)
        keys = causal_keys(cached, work.q_len)
        if a.window:
            keys = min(keys, float(a.window))
        written = work.seqs * work.q_len if a.owns_kv else 0.0
        kv = 2 * kv_heads * d * kvb * (work.seqs * (cached + work.q_len) + written)
        ops.append(
            OpCost(
                f"{prefix}.decode",
                AttentionDecode(
                    work.seqs, work.q_len, heads, kv_heads, d, cached, kv_dtype,
                    beside_prompts=bool(work.prefill),
                    contexts=(
                        Contexts(work.ctx, work.variation, a.window) if work.variation else None
                    ),
                    windowed=bool(a.window),
                ),
                flops=4.0 * work.seqs * work.q_len * keys * heads * d,
                kv_bytes=kv,
                act_bytes=ACT_BYTES * work.seqs * work.q_len * 2 * heads * d,
                count=count,
            )
        )
    for new, cached_before, shared, alike in work.chunks(shared=bool(ops)):
        cached = min(cached_before, a.window) if a.window else cached_before
        keys = causal_keys(cached, new)
        if a.window:
            keys = min(keys, float(a.window))
        written = new if a.owns_kv else 0.0
        ops.append(
            OpCost(
                f"{prefix}.prefill",
                AttentionPrefill(
                    new, cached, heads, kv_heads, d, a.window, kv_dtype, shared_launch=shared
                ),
                flops=4.0 * new * keys * heads * d,
                kv_bytes=2 * kv_heads * d * kvb * (cached + new + written),
                act_bytes=ACT_BYTES * new * 2 * heads * d,
                count=count * alike,
            )
        )
    return ops


def latent_rows(
    a: LatentAttention, hidden: int, rows: float, tp: int, count: float, prefix: str
) -> Rows:
    """Projections of `count` MLA layers, and of the sparse indexer where a layer has one."""
    heads = shard(a.n_heads, tp)
    qk, latent = a.qk_nope_head_dim + a.qk_rope_head_dim, a.kv_lora_rank + a.qk_rope_head_dim
    before: list[OpCost] = []
    source, pooling = hidden * a.input_mult, a.pool_weights(hidden)
    small = a.count(hidden).plain - hidden * a.index_heads - pooling
    small -= hidden * a.n_heads if a.head_gate else 0
    if a.q_lora_rank:
        width = a.q_lora_rank + latent
        before.append(gemm(f"{prefix}.qkv_a", rows, width, source, a.weight, count))
        q_in = a.q_lora_rank
    else:
        before.append(gemm(f"{prefix}.kv_a", rows, latent, source, a.weight, count))
        q_in = source
    before.append(gemm(f"{prefix}.q_b", rows, heads * qk, q_in, a.weight, count))
    moved = ACT_BYTES * rows * 2 * (q_in + latent)
    before.append(elementwise(f"{prefix}.rope_norm", moved, count, small * PLAIN_BYTES))
    if a.index_heads:
        # The indexer is not sharded; the weights of its heads stay in 16 bits.
        width = a.index_heads * a.index_head_dim
        before.append(gemm(f"{prefix}.index_q", rows, width, q_in, a.weight, count))
        before.append(
            gemm(f"{prefix}.index_k", rows, a.index_head_dim, hidden, a.weight, count)
        )
        before.append(gemm(f"{prefix}.index_w", rows, a.index_heads, hidden, BF16, count))
        if pooling:
            columns = pooling / hidden  # the offsets with them
            before.append(gemm(f"{prefix}.index_pool", rows, columns, hidden, BF16, count))
    values = heads * a.v_head_dim
    after: list[OpCost] = []
    if a.gated or a.head_gate:
        gates = values if a.gated else heads
        fmt = a.weight if a.gated else BF16
        before.append(gemm(f"{prefix}.gate", rows, gates, hidden, fmt, count))
        moved = ACT_BYTES * rows * (2 * values + gates)
        after.append(elementwise(f"{prefix}.gate_mul", moved, count))
    after.append(gemm(f"{prefix}.out", rows, hidden, values, a.o_weight or a.weight, count))
    return tuple(before), tuple(after)


def latent_context(
    a: LatentAttention, work: Work, tp: int, kv_dtype: str, count: float, prefix: str,
    state_copies: float = 0.0,
) -> list[OpCost]:
    """MLA over the cache: absorbed form for decode and where prompts choose what they attend to,
    expanded form for other prompts.

    The latent cache (kv_lora_rank + rope per token) is one head that every query head shares,
    so tensor parallelism divides the heads but not the cache.
    """
    heads = shard(a.n_heads, tp)
    nope, rope, vd, kl = a.qk_nope_head_dim, a.qk_rope_head_dim, a.v_head_dim, a.kv_lora_rank
    latent, kvb = kl + rope, DTYPE_BYTES[kv_dtype]
    ops = index_scores(a, work, count, prefix) if a.index_heads else []

    def absorbed(rows: float) -> list[OpCost]:
        # q_nope W_uk and attn W_uv are per-head products; FLOPs and weight bytes equal those of
        # one product of width heads * width. Engines keep both in 16 bits.
        return [gemm(f"{prefix}.{name}", rows, heads * width, kl, BF16, count)
                for name, width in (("absorb_k", nope), ("absorb_v", vd))]

    if work.seqs > 0:
        attended = mean_seen(work.ctx, work.variation, a.window)
        attended = min(attended, float(a.index_topk)) if a.index_topk else attended
        m = work.seqs * work.q_len
        ops += absorbed(m)
        keys = causal_keys(attended, work.q_len, a.window)
        ops.append(
            OpCost(
                f"{prefix}.decode",
                LatentDecode(
                    work.seqs, work.q_len, heads, kl, rope, attended, kv_dtype,
                    apart=a.index_topk > 0,
                ),
                flops=2.0 * m * keys * heads * (2 * kl + rope),
                kv_bytes=latent * kvb * work.seqs * (attended + 2 * work.q_len),
                act_bytes=ACT_BYTES * m * heads * (2 * kl + rope),
                count=count,
            )
        )
    picking = held = 0  # tokens that choose; latents that become full heads for the others
    for new, cached, shared, alike in work.chunks():
        keys = causal_keys(cached, new, a.index_topk or a.window)
        moved = latent * kvb * (cached + 2 * new)
        shape: SparsePrefill | LatentPrefill
        if 0 < a.index_topk < new + cached:
            picking, width = picking + new * alike, 2 * kl + rope
            shape = SparsePrefill(new, keys, heads, width / 2, moved, kv_dtype, shared)
        else:
            held, width = held + (new + cached) * alike, nope + rope + vd
            shape = LatentPrefill(
                new, cached, heads, nope + rope, vd, 1, new * keys, kv_dtype, shared
            )
        ops.append(
            OpCost(
                f"{prefix}.prefill", shape, flops=2.0 * new * keys * heads * width,
                kv_bytes=moved, act_bytes=ACT_BYTES * new * heads * (nope + rope + 2 * vd),
                count=count * alike,
            )
        )
    ops += absorbed(picking) if picking else []
    if held:
        ops.append(gemm(f"{prefix}.kv_b", held, heads * (nope + vd), kl, a.weight, count))
    return ops

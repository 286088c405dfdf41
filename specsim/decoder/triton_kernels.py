"""The fused kernels in Triton. Same functions, same signatures as the twins in `kernels`.

Imported only where Triton is used: on CUDA, or in Triton's interpreter (TRITON_INTERPRET=1 set
before the import). Accumulation is fp32 everywhere.

verify_attention is split-KV ("flash decoding") with the whole query group of a kv head and all
q_len positions packed into one tile of group * q_len rows: during verification every key is read
once for (k + 1) * group queries. Grid (batch, kv_heads, splits); each program walks its key range
by pages; a second kernel merges the splits by their log-sum-exp. Lengths are read on the device,
so a captured graph serves any lengths; a split without keys exits at once and is not merged.
"""

# mypy: disable-error-code="no-untyped-def,untyped-decorator,no-untyped-call"

import torch
import triton
import triton.language as tl
from torch import Tensor

from specsim.decoder.kernels import TorchOps
from specsim.decoder.layers import Linear, RMSNorm

_LOG2E = 1.4426950408889634


@triton.jit
def _attention_kernel(
    q_ptr, kv_ptr, pages_ptr, lengths_ptr, out_ptr, acc_ptr, top_ptr, sum_ptr, scale_log2,
    q_stride_b, q_stride_q, q_stride_h, pages_stride, Q: tl.constexpr, GROUP: tl.constexpr,
    KV_HEADS: tl.constexpr, D: tl.constexpr, PAGE: tl.constexpr, SPLITS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr, IEEE: tl.constexpr,
):
    row = tl.program_id(0)
    head = tl.program_id(1)
    split = tl.program_id(2)
    length = tl.load(lengths_ptr + row)
    per_split = tl.cdiv(tl.cdiv(length, SPLITS), BLOCK_N) * BLOCK_N
    first = split * per_split
    stop = tl.minimum(length, first + per_split)
    if first >= stop:
        return

    m = tl.arange(0, BLOCK_M)
    d = tl.arange(0, BLOCK_D)
    live = m < GROUP * Q
    query = m // GROUP
    q_head = head * GROUP + m % GROUP
    q_at = row.to(tl.int64) * q_stride_b + query * q_stride_q + q_head * q_stride_h
    in_tile = live[:, None] & (d[None, :] < D)
    q = tl.load(q_ptr + q_at[:, None] + d[None, :], mask=in_tile, other=0.0)
    last_seen = length - Q + query

    top = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    for start in range(first, stop, BLOCK_N):
        key = start + tl.arange(0, BLOCK_N)
        valid = key < stop
        page = tl.load(pages_ptr + row * pages_stride + key // PAGE, mask=valid, other=0)
        at = ((page.to(tl.int64) * 2 * KV_HEADS + head) * PAGE + key % PAGE) * D
        tile = valid[:, None] & (d[None, :] < D)
        k = tl.load(kv_ptr + at[:, None] + d[None, :], mask=tile, other=0.0)
        v = tl.load(kv_ptr + KV_HEADS * PAGE * D + at[:, None] + d[None, :], mask=tile, other=0.0)
        if IEEE:
            scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale_log2
        else:
            scores = tl.dot(q, tl.trans(k)) * scale_log2
        seen = valid[None, :] & (key[None, :] <= last_seen[:, None])
        scores = tl.where(seen, scores, float("-inf"))
        new_top = tl.maximum(top, tl.max(scores, 1))
        # A query may see no key of this split: keep exp2(-inf - -inf) from becoming NaN.
        base = tl.where(new_top == float("-inf"), 0.0, new_top)
        weight = tl.exp2(scores - base[:, None])
        decay = tl.exp2(top - base)
        total = total * decay + tl.sum(weight, 1)
        acc = acc * decay[:, None]
        if IEEE:
            acc += tl.dot(weight, v, input_precision="ieee")
        else:
            acc += tl.dot(weight.to(v.dtype), v)
        top = new_top

    if SPLITS == 1:
        out_at = ((row.to(tl.int64) * Q + query) * (KV_HEADS * GROUP) + q_head) * D
        tl.store(out_ptr + out_at[:, None] + d[None, :], acc / total[:, None], mask=in_tile)
    else:
        slot = ((row.to(tl.int64) * KV_HEADS + head) * SPLITS + split) * (GROUP * Q) + m
        tl.store(acc_ptr + slot[:, None] * D + d[None, :], acc, mask=in_tile)
        tl.store(top_ptr + slot, top, mask=live)
        tl.store(sum_ptr + slot, total, mask=live)


@triton.jit
def _merge_kernel(
    acc_ptr, top_ptr, sum_ptr, lengths_ptr, out_ptr,
    Q: tl.constexpr, GROUP: tl.constexpr, KV_HEADS: tl.constexpr, D: tl.constexpr,
    SPLITS: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):
    row = tl.program_id(0)
    head = tl.program_id(1)
    m = tl.program_id(2)
    length = tl.load(lengths_ptr + row)
    per_split = tl.cdiv(tl.cdiv(length, SPLITS), BLOCK_N) * BLOCK_N
    used = tl.cdiv(length, per_split)
    d = tl.arange(0, BLOCK_D)
    top = tl.full([1], float("-inf"), tl.float32)
    total = tl.zeros([1], tl.float32)
    acc = tl.zeros([BLOCK_D], tl.float32)
    for split in range(used):
        slot = ((row.to(tl.int64) * KV_HEADS + head) * SPLITS + split) * (GROUP * Q) + m
        part_top = tl.load(top_ptr + slot)
        part_sum = tl.load(sum_ptr + slot)
        part = tl.load(acc_ptr + slot * D + d, mask=d < D, other=0.0)
        new_top = tl.maximum(top, part_top)
        base = tl.where(new_top == float("-inf"), 0.0, new_top)
        keep = tl.exp2(top - base)
        add = tl.exp2(part_top - base)
        total = total * keep + part_sum * add
        acc = acc * keep + part * add
        top = new_top
    query = m // GROUP
    q_head = head * GROUP + m % GROUP
    out_at = ((row.to(tl.int64) * Q + query) * (KV_HEADS * GROUP) + q_head) * D
    tl.store(out_ptr + out_at + d, acc / total, mask=d < D)


def verify_attention(
    q: Tensor, kv: Tensor, pages: Tensor, lengths: Tensor, scale: float, splits: int
) -> Tensor:
    """See `kernels.verify_attention_torch`. Lengths must be at least Q."""
    batch, q_len, heads, dim = q.shape
    _, _, kv_heads, page, _ = kv.shape
    group = heads // kv_heads
    rows = group * q_len
    out = torch.empty((batch, q_len, heads, dim), dtype=q.dtype, device=q.device)
    if splits > 1:
        shape = (batch, kv_heads, splits, rows)
        acc = torch.empty((*shape, dim), dtype=torch.float32, device=q.device)
        top = torch.empty(shape, dtype=torch.float32, device=q.device)
        total = torch.empty_like(top)
    else:
        acc = top = total = lengths  # never touched
    block_n, block_d = 64, triton.next_power_of_2(dim)
    _attention_kernel[(batch, kv_heads, splits)](
        q, kv, pages, lengths, out, acc, top, total, scale * _LOG2E, q.stride(0), q.stride(1),
        q.stride(2), pages.stride(0), Q=q_len, GROUP=group, KV_HEADS=kv_heads, D=dim, PAGE=page,
        SPLITS=splits, BLOCK_M=max(16, triton.next_power_of_2(rows)), BLOCK_N=block_n,
        BLOCK_D=max(16, block_d), IEEE=q.dtype == torch.float32, num_warps=4, num_stages=2,
    )
    if splits > 1:
        _merge_kernel[(batch, kv_heads, rows)](
            acc, top, total, lengths, out, Q=q_len, GROUP=group, KV_HEADS=kv_heads, D=dim,
            SPLITS=splits, BLOCK_N=block_n, BLOCK_D=max(16, block_d), num_warps=1,
        )
    return out


@triton.jit
def _add_norm_kernel(
    x_ptr, delta_ptr, weight_ptr, out_ptr, width, eps, HAS_DELTA: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    col = tl.arange(0, BLOCK)
    inside = col < width
    x = tl.load(x_ptr + row * width + col, mask=inside, other=0.0)
    if HAS_DELTA:
        x = (x.to(tl.float32) + tl.load(delta_ptr + row * width + col, mask=inside, other=0.0)).to(
            x.dtype
        )
        tl.store(x_ptr + row * width + col, x, mask=inside)
    wide = x.to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(wide * wide, 0) / width + eps)
    weight = tl.load(weight_ptr + col, mask=inside, other=0.0)
    tl.store(out_ptr + row * width + col, (wide * scale * weight).to(x.dtype), mask=inside)


@triton.jit
def _qkv_kernel(
    qkv_ptr, angles_ptr, norm_ptr, q_ptr, cache_ptr, store_ptr, eps, HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr, D: tl.constexpr, HALF: tl.constexpr, NORM: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    pair = tl.arange(0, HALF)
    inside = pair < D // 2
    source = (token * (HEADS + 2 * KV_HEADS) + head) * D + 2 * pair
    even = tl.load(qkv_ptr + source, mask=inside, other=0.0)
    odd = tl.load(qkv_ptr + source + 1, mask=inside, other=0.0)
    dtype = even.dtype
    a = even.to(tl.float32)
    b = odd.to(tl.float32)
    if NORM:  # noqa: SIM102 - NORM is decided when compiling, the next line on the device
        if head < HEADS + KV_HEADS:
            scale = 1.0 / tl.sqrt((tl.sum(a * a, 0) + tl.sum(b * b, 0)) / D + eps)
            wa = tl.load(norm_ptr + head * D + 2 * pair, mask=inside, other=0.0)
            wb = tl.load(norm_ptr + head * D + 2 * pair + 1, mask=inside, other=0.0)
            a = (a * scale * wa).to(dtype).to(tl.float32)
            b = (b * scale * wb).to(dtype).to(tl.float32)
    # The angles of v's heads are 1 + 0i: one path for all heads.
    cos = tl.load(angles_ptr + source, mask=inside, other=0.0)
    sin = tl.load(angles_ptr + source + 1, mask=inside, other=0.0)
    even = (a * cos - b * sin).to(dtype)
    odd = (a * sin + b * cos).to(dtype)
    if head < HEADS:
        at = (token * HEADS + head) * D + 2 * pair
        tl.store(q_ptr + at, even, mask=inside)
        tl.store(q_ptr + at + 1, odd, mask=inside)
    else:
        at = tl.load(store_ptr + token * 2 * KV_HEADS + head - HEADS) * D + 2 * pair
        tl.store(cache_ptr + at, even, mask=inside)
        tl.store(cache_ptr + at + 1, odd, mask=inside)


@triton.jit
def _silu_mul_kernel(in_ptr, out_ptr, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    col = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = col < width
    gate = tl.load(in_ptr + row * 2 * width + col, mask=inside, other=0.0)
    up = tl.load(in_ptr + row * 2 * width + width + col, mask=inside, other=0.0)
    wide = gate.to(tl.float32)
    silu = (wide / (1.0 + tl.exp(-wide))).to(gate.dtype)
    tl.store(out_ptr + row * width + col, silu * up, mask=inside)


class TritonOps(TorchOps):
    """One kernel each for what `TorchOps` does in several."""

    def rms_norm(self, x: Tensor, norm: RMSNorm) -> Tensor:
        return self._norm(x, None, norm)

    def project_add_norm(
        self, linear: Linear, y: Tensor, x: Tensor, norm: RMSNorm
    ) -> tuple[Tensor, Tensor]:
        return x, self._norm(x, linear(y), norm)

    def _norm(self, x: Tensor, delta: Tensor | None, norm: RMSNorm) -> Tensor:
        """x [T, H] += delta in place, then its norm."""
        rows, width = x.shape
        out = torch.empty_like(x)
        _add_norm_kernel[(rows,)](
            x, x if delta is None else delta, norm.weight, out, width, norm.eps,
            HAS_DELTA=delta is not None, BLOCK=triton.next_power_of_2(width),
            num_warps=4 if width <= 2048 else 8,
        )
        return out

    def qk_norm_rope_store(
        self, qkv: Tensor, angles: Tensor, qk_norm: RMSNorm | None, flat: Tensor, store: Tensor,
        heads: int,
    ) -> Tensor:
        tokens, kv_heads = store.shape[0], store.shape[1] // 2
        dim = flat.shape[-1]
        q = torch.empty((tokens, heads, dim), dtype=qkv.dtype, device=qkv.device)
        _qkv_kernel[(tokens, heads + 2 * kv_heads)](
            qkv, torch.view_as_real(angles), qkv if qk_norm is None else qk_norm.weight, q, flat,
            store, 0.0 if qk_norm is None else qk_norm.eps, HEADS=heads, KV_HEADS=kv_heads, D=dim,
            HALF=triton.next_power_of_2(dim // 2), NORM=qk_norm is not None, num_warps=1,
        )
        return q

    def silu_mul(self, gate_up: Tensor) -> Tensor:
        rows, width = gate_up.shape[0], gate_up.shape[1] // 2
        out = torch.empty((rows, width), dtype=gate_up.dtype, device=gate_up.device)
        block = min(1024, triton.next_power_of_2(width))
        _silu_mul_kernel[(rows, triton.cdiv(width, block))](
            gate_up, out, width, BLOCK=block, num_warps=4
        )
        return out

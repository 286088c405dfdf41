"""The fused kernels of a layer, as plain torch: the CPU's code, and the twin of each Triton kernel.

    verify_attention_torch attention of q_len tokens per row through a block table
    project_add_norm       residual + linear, then RMS norm (Triton: the sum fused into the norm)
    qk_norm_rope_store     per-head norm and rotary embedding of q and k, k and v into the cache
    silu_mul               silu(gate) * up

`ops_for` picks the set a model runs with: these, Triton's (`triton_kernels`), or numba's
(`native_ops`, CPU). The tests compare them with each other.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from specsim.decoder.attention import PassPlan, VerifyAttention, gather
from specsim.decoder.layers import Linear, RMSNorm, rotate


class TorchOps:
    """What a transformer layer needs besides matrix products, in plain torch with as few small
    kernels as it can be done in; other sets of kernels override it.

    Norm, rotation and storing are one call here, attention the next; a set of kernels that does
    all in one overrides `prepare` and `attend`.
    """

    def rms_norm(self, x: Tensor, norm: RMSNorm) -> Tensor:
        return norm(x)

    def project_add_norm(
        self, linear: Linear, y: Tensor, x: Tensor, norm: RMSNorm
    ) -> tuple[Tensor, Tensor]:
        """x + linear(y), and its norm. x may be overwritten."""
        x = linear.add(y, x)
        return x, norm(x)

    def silu_mul(self, gate_up: Tensor) -> Tensor:
        """[T, 2I] -> silu(first half) * second half, [T, I]."""
        half = gate_up.shape[-1] // 2
        return F.silu(gate_up[:, :half]).mul_(gate_up[:, half:])

    def qk_norm_rope_store(
        self, qkv: Tensor, angles: Tensor, qk_norm: RMSNorm | None, flat: Tensor, store: Tensor,
        heads: int,
    ) -> Tensor:
        """qkv [T, (heads + 2 kv_heads) * D] -> rotated q [T, heads, D]; k, v go to the cache.

        angles [T, heads + 2 kv_heads, D/2] are 1 for v's heads, so that one product rotates q and
        k and copies v, and one kernel stores k and v. qk_norm's weight is [heads + kv_heads, D].
        flat: rows of one cache layer; store [T, 2 kv_heads] says which.
        """
        split = qkv.view(angles.shape[0], angles.shape[1], -1)
        if qk_norm is not None:
            normed = qk_norm.weight.shape[0]
            split = torch.cat((qk_norm(split[:, :normed]), split[:, normed:]), dim=1)
        split = rotate(split, angles)
        flat.index_put_((store,), split[:, heads:])
        return split[:, :heads]

    def prepare(self, plan: PassPlan, angles: Tensor, heads: int) -> None:
        """Fill in what `attend` will need of the plan. angles: complex [positions, D/2]."""
        cache = plan.cache
        steps = torch.arange(plan.q_len, device=plan.start.device)
        positions = plan.start.unsqueeze(1) + steps
        # A padded or finished row may stand past the end; its values are never read.
        safe = positions.clamp(0, angles.shape[0] - 1).view(-1)
        plan.angles = head_angles(angles[safe], heads, cache.kv_heads)
        plan.store = cache.table.store_index(plan.rows.index, positions, cache.kv_heads)
        cache.attention.prepare(plan, heads // cache.kv_heads)

    def attend(
        self, qkv: Tensor, plan: PassPlan, qk_norm: RMSNorm | None, layer: int, heads: int
    ) -> Tensor:
        """qkv [T, (heads + 2 kv_heads) * D] -> attention's output [T, heads * D].

        Norm, rotation, storing keys and values, and attending.
        """
        assert plan.angles is not None and plan.store is not None
        flat = plan.cache.flat[layer]
        q = self.qk_norm_rope_store(qkv, plan.angles, qk_norm, flat, plan.store, heads)
        return plan.cache.attention(q, layer, plan)


def head_angles(angles: Tensor, heads: int, kv_heads: int) -> Tensor:
    """Angles [T, D/2] for all heads, 1 for v's: complex [T, heads + 2 kv_heads, D/2]."""
    turned = angles.unsqueeze(1).expand(-1, heads + kv_heads, -1)
    still = torch.ones(1, 1, 1, dtype=angles.dtype, device=angles.device)
    return torch.cat((turned, still.expand(angles.shape[0], kv_heads, angles.shape[1])), dim=1)


def verify_attention_torch(
    q: Tensor, kv: Tensor, pages: Tensor, lengths: Tensor, scale: float, splits: int
) -> Tensor:
    """Attention of the last Q positions of each row.

    q [B, Q, heads, D]; kv [pages, 2, kv_heads, page, D] of one layer; pages [B, P]; lengths [B]
    counts the row's positions, these Q included: query i sees keys 0 .. lengths - Q + i.
    Returns [B, Q, heads, D] in q's dtype, computed in fp32. Values at unseen positions, NaN
    included, do not reach the result. `splits` changes the order of work only, and is ignored.
    """
    batch, q_len, heads, dim = q.shape
    _, _, kv_heads, page, _ = kv.shape
    group = heads // kv_heads
    key, value = gather(kv, pages)
    keys = torch.arange(pages.shape[1] * page, device=q.device)
    last_seen = lengths.long().unsqueeze(1) - q_len + torch.arange(q_len, device=q.device)
    seen = keys.view(1, 1, -1) <= last_seen.unsqueeze(-1)  # [B, Q, S]
    unused = (keys.view(1, -1) >= lengths.long().unsqueeze(1)).view(batch, 1, -1, 1)
    key, value = (part.float().masked_fill(unused, 0.0) for part in (key, value))
    query = q.float().view(batch, q_len, kv_heads, group, dim)
    scores = torch.einsum("bqhgd,bhsd->bhgqs", query, key) * scale
    scores = scores.masked_fill(~seen.view(batch, 1, 1, q_len, -1), float("-inf"))
    out = torch.einsum("bhgqs,bhsd->bqhgd", scores.softmax(-1), value)
    return out.reshape(batch, q_len, heads, dim).to(q.dtype)


def ops_for(
    device: torch.device, dtype: torch.dtype, use_triton: bool | None = None, native: bool = False
) -> TorchOps:
    """Which set of fused kernels a model runs with; what is not chosen is not imported.

    Triton's fused kernels on CUDA (`use_triton` overrides), numba's where `native`, else torch.

    Raises UsageError when native kernels are asked for and numba is missing.
    """
    if use_triton if use_triton is not None else device.type == "cuda":
        from specsim.decoder.triton_kernels import TritonOps

        return TritonOps()
    if native:
        from specsim.decoder.native_ops import NativeOps

        return NativeOps(dtype)
    return TorchOps()


def verify_attention(use_triton: bool) -> VerifyAttention:
    """The split-KV kernel (CUDA, or Triton's interpreter), else its torch twin."""
    if use_triton:
        from specsim.decoder.triton_kernels import verify_attention as kernel

        return kernel
    return verify_attention_torch

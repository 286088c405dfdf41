"""The CPU's fused kernels in a model: numba's small functions around torch's matrix products.

Rotation, storing and attention of a step are one call per layer while the attention is small. A
large one goes to torch's attention, which uses all threads and the CPU's matrix units, after the
native kernel has rotated and stored; so do prompts. Where the line lies was measured on a two-core
Xeon with AMX: the native kernel runs at 36 GFLOP/s; torch's costs 100 us from cold and then runs at
45 GFLOP/s with one query per row and 110 with five.
"""

import ctypes
import importlib
from dataclasses import dataclass
from importlib.util import find_spec

import torch
from torch import Tensor

from specsim.decoder.attention import PassPlan, SlotAttention
from specsim.decoder.kernels import TorchOps
from specsim.decoder.layers import Linear, RMSNorm
from specsim.errors import UsageError

_MOST_FLOP_ONE_QUERY = 16e6
_MOST_FLOP = 6e6


def native_available() -> bool:
    """Whether numba is installed and can be imported here."""
    if find_spec("numba") is None:
        return False
    try:
        importlib.import_module("numba")
    except ImportError:  # installed, but not for this numpy
        return False
    return True


def native_by_default(device: str) -> bool:
    """Whether a model on this device runs the compiled kernels when nothing else is said."""
    return device == "cpu" and native_available()


@dataclass(slots=True)
class NativePlan:
    """The parameter block, what it points to, and the address of each layer's cache."""

    block: ctypes.Array[ctypes.c_int64]
    address: int
    keep: tuple[Tensor, ...]
    layers: list[int]
    attending: bool


class NativeOps(TorchOps):
    """TorchOps with native norms and, for steps over whole-slot caches, native attention."""

    def __init__(self, dtype: torch.dtype) -> None:
        if not native_available():
            raise UsageError(
                "native kernels need numba: pip install 'specsim-llm[fast]', or load the model "
                "with native=False"
            )
        from specsim.decoder import native

        self._native = native
        self._norm, self._attend = native.kernels(dtype == torch.bfloat16)
        self._work = torch.empty(0)

    def rms_norm(self, x: Tensor, norm: RMSNorm) -> Tensor:
        out = torch.empty_like(x)
        width = x.shape[-1]
        self._norm(x.data_ptr(), norm.weight.data_ptr(), out.data_ptr(), x.numel() // width,
                   width, norm.eps)
        return out

    def project_add_norm(
        self, linear: Linear, y: Tensor, x: Tensor, norm: RMSNorm
    ) -> tuple[Tensor, Tensor]:
        x = linear.add(y, x)
        return x, self.rms_norm(x, norm)

    def prepare(self, plan: PassPlan, angles: Tensor, heads: int) -> None:
        cache, page = plan.cache, plan.cache.table.page_size
        whole = isinstance(cache.attention, SlotAttention) and page <= angles.shape[0]
        if plan.prompt or not whole:
            super().prepare(plan, angles, heads)
            return
        n, data = self._native, cache.data
        batch, dim = plan.rows.size, data.shape[-1]
        group = heads // cache.kv_heads
        flop = 4.0 * batch * plan.q_len * plan.kv_len * heads * dim
        attending = flop <= (_MOST_FLOP_ONE_QUERY if plan.q_len == 1 else _MOST_FLOP)
        if not attending:
            cache.attention.prepare(plan, group)
        need = group * (page + 2 * dim)
        if self._work.numel() < need:
            self._work = torch.empty(need)
        start = plan.start.contiguous()
        block = (ctypes.c_int64 * n.PARAMS)()
        block[n.P_BATCH], block[n.P_Q] = batch, plan.q_len
        block[n.P_HEADS], block[n.P_KV_HEADS] = heads, cache.kv_heads
        block[n.P_DIM], block[n.P_PAGE] = dim, page
        block[n.P_START], block[n.P_ROWS] = start.data_ptr(), plan.rows.index.data_ptr()
        block[n.P_ANGLES], block[n.P_WORK] = angles.data_ptr(), self._work.data_ptr()
        block[n.P_ATTEND] = attending
        first, step = data.data_ptr(), data.stride(0) * data.element_size()
        plan.native = NativePlan(
            block, ctypes.addressof(block), (start, plan.rows.index, angles, self._work),
            [first + i * step for i in range(data.shape[0])], attending,
        )

    def attend(
        self, qkv: Tensor, plan: PassPlan, qk_norm: RMSNorm | None, layer: int, heads: int
    ) -> Tensor:
        native = plan.native
        if not isinstance(native, NativePlan):
            return super().attend(qkv, plan, qk_norm, layer, heads)
        tokens, dim = qkv.shape[0], plan.cache.data.shape[-1]
        out = torch.empty((tokens, heads * dim), dtype=qkv.dtype)
        native.block[self._native.P_NORMED] = qk_norm is not None
        self._attend(
            native.address, qkv.data_ptr(), 0 if qk_norm is None else qk_norm.weight.data_ptr(),
            native.layers[layer], out.data_ptr(), 0.0 if qk_norm is None else qk_norm.eps,
        )
        if native.attending:
            return out
        return plan.cache.attention(out.view(tokens, heads, dim), layer, plan)

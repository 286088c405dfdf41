"""Matrix products, norms and experts of the transformer, on activations [tokens, width].

Linear comes in two kinds with one interface, `linear(x: [T, in]) -> [T, out]` and
`linear.add(x, residual) -> residual + linear(x)`:

PlainLinear   torch.nn.functional.linear.
PackedLinear  weights reordered once into oneDNN's blocked layout (CPU). Plain F.linear re-reads
              them in an order that reaches half the memory bandwidth in bf16, and in fp32 goes
              through an sgemm that is 2-4 times slower at 4-8 rows. The ops are private to torch,
              and refuse bf16 on a CPU without AVX-512 or AVX-NE-CONVERT, so `packing_works` tries
              them once and PlainLinear is the fallback. Sums, silu and products with another
              tensor ride along as post-ops: after a product has streamed its weights through the
              caches every further small kernel starts cold and costs 10-20 us instead of the
              1-2 us it costs in a loop, so kernels are worth saving.
"""

import math
from collections.abc import Callable
from functools import cache
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from specsim.decoder.config import ModelConfig
from specsim.errors import UsageError

_PACK_ROWS = 8  # batch size the blocked layout is chosen for; any batch may use it


class Linear(Protocol):
    """y = x W^T + b. `weight_bytes` is what one call reads."""

    weight_bytes: int

    def __call__(self, x: Tensor) -> Tensor: ...

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        """residual + linear(x); residual may be overwritten."""
        ...


class PlainLinear:
    __slots__ = ("bias", "weight", "weight_bytes")

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.weight, self.bias = weight, bias  # [out, in], [out]
        self.weight_bytes = weight.numel() * weight.element_size()

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight, self.bias)

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        return residual.add_(F.linear(x, self.weight, self.bias))


class PackedLinear:
    __slots__ = ("_binary", "_op", "bias", "packed", "weight_bytes")

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.weight_bytes = weight.numel() * weight.element_size()
        self.packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), _PACK_ROWS)
        self.bias = bias
        self._op = torch.ops.mkldnn._linear_pointwise.default
        self._binary = torch.ops.mkldnn._linear_pointwise.binary

    def __call__(self, x: Tensor) -> Tensor:
        out: Tensor = self._op(x, self.packed, self.bias, "none", [], "")
        return out

    def add(self, x: Tensor, residual: Tensor) -> Tensor:
        out: Tensor = self._binary(x, residual, self.packed, self.bias, "add")
        return out

    def silu(self, x: Tensor) -> Tensor:
        """silu(linear(x))"""
        out: Tensor = self._op(x, self.packed, self.bias, "swish", [], "")
        return out

    def mul(self, x: Tensor, other: Tensor) -> Tensor:
        """other * linear(x)"""
        out: Tensor = self._binary(x, other, self.packed, self.bias, "mul")
        return out


@cache
def packing_works(dtype: torch.dtype) -> bool:
    """Whether the private oneDNN ops exist here and give F.linear's values in this dtype."""
    if not torch._C._has_mkldnn:
        return False
    weight = torch.linspace(-1, 1, 48 * 32).view(48, 32).to(dtype)
    x = torch.linspace(-1, 1, 3 * 32).view(3, 32).to(dtype)
    want = F.linear(x.float(), weight.float())
    try:
        with torch.no_grad():
            packed = PackedLinear(weight)
            pairs = [
                (packed(x), want),
                (packed.add(x, want.to(dtype)), 2 * want),
                (packed.silu(x), F.silu(want)),
                (packed.mul(x, want.to(dtype)), want * want),
            ]
    except (AttributeError, RuntimeError, TypeError):
        return False
    tolerance = 1e-4 if dtype == torch.float32 else 2.0**-6
    return all(
        bool(((got.float() - ref).abs() <= tolerance * ref.abs().clamp(min=1.0)).all())
        for got, ref in pairs
    )


def linear_factory(kind: str, device: torch.device, dtype: torch.dtype) -> Callable[..., Linear]:
    """The class for `kind`: 'auto' | 'plain' | 'packed'.

    'auto' is packed on a CPU where packing works in this dtype, plain elsewhere.
    """
    if kind == "auto":
        packed = device.type == "cpu" and packing_works(dtype)
        return PackedLinear if packed else PlainLinear
    if kind == "plain":
        return PlainLinear
    if kind == "packed":
        if device.type != "cpu" or not packing_works(dtype):
            raise UsageError(
                f"packed weights need oneDNN in torch and a CPU that it packs {dtype} for; on "
                f"{device} here they do not work; use linear='auto'"
            )
        return PackedLinear
    raise UsageError(f"unknown linear kind {kind!r}; choose auto, plain or packed")


class RMSNorm:
    """y = x / sqrt(mean(x^2) + eps) * weight over the last axis, in fp32, rounded once at the end.

    Four small kernels instead of the six of torch's own composite:
    sqrt(mean + eps) * sqrt(d) is hypot(||x||, sqrt(d eps)), and sqrt(d) is kept in the weight.
    """

    __slots__ = ("_eps_root", "_scaled", "eps", "weight")

    def __init__(self, weight: Tensor, eps: float) -> None:
        width = weight.shape[-1]
        self.weight, self.eps = weight, eps  # [d], or [heads, d] with a weight per head
        self._scaled = weight.float() * width**0.5
        self._eps_root = torch.full((1,), (width * eps) ** 0.5, device=weight.device)

    def __call__(self, x: Tensor) -> Tensor:
        root = torch.linalg.vector_norm(x, 2, -1, True, dtype=torch.float32)
        unit = torch.div(x, torch.hypot(root, self._eps_root))
        if x.dtype == torch.float32:
            return unit.mul_(self._scaled)
        return torch.mul(unit, self._scaled, out=torch.empty_like(x))


class GateUp:
    """silu(x W_gate^T) * (x W_up^T), the first half of a gated MLP. weight [2I, H]: gate, then up.

    Packed: two products, silu and the multiplication as their post-ops. Otherwise one product
    over both halves, then `silu_mul`.
    """

    __slots__ = ("_gate", "_joint", "_up", "silu_mul", "weight_bytes")

    def __init__(
        self, weight: Tensor, make: Callable[..., Linear], silu_mul: Callable[[Tensor], Tensor]
    ) -> None:
        self.silu_mul = silu_mul
        self._gate = self._up = self._joint = None
        if make is PackedLinear:
            gate, up = weight.chunk(2)
            self._gate, self._up = PackedLinear(gate), PackedLinear(up)
            self.weight_bytes = self._gate.weight_bytes + self._up.weight_bytes
        else:
            self._joint = make(weight)
            self.weight_bytes = self._joint.weight_bytes

    def __call__(self, x: Tensor) -> Tensor:
        if self._gate is not None and self._up is not None:
            return self._up.mul(x, self._gate.silu(x))
        assert self._joint is not None
        return self.silu_mul(self._joint(x))


def rotate(x: Tensor, angles: Tensor) -> Tensor:
    """Rotary embedding of adjacent pairs. x [T, heads, D], angles complex [T, heads or 1, D/2].

    Checkpoints pair element i with i + D/2; their q and k rows are reordered at load
    (`weights.pair_rows`), which leaves every q.k unchanged and makes this one complex product.
    """
    pairs = torch.view_as_complex(x.float().view(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * angles).flatten(-2).to(x.dtype)


def inverse_frequencies(config: ModelConfig) -> Tensor:
    """Rotary angle per position of each pair, radians, fp32 [head_dim / 2].

    In fp32 throughout, as transformers does it: one unit in the last place of the second
    frequency is 2e-4 radians at position 8,000.
    """
    exponent = torch.arange(0, config.head_dim, 2, dtype=torch.int64).float() / config.head_dim
    base = 1.0 / (config.rope_theta**exponent)
    scaling = config.rope_scaling
    if scaling is None:
        return base
    if scaling.kind == "linear":
        return base / scaling.factor
    # Llama 3.1: wavelengths beyond the original context are stretched by `factor`, short ones
    # kept, and those between interpolated in 1 / wavelength.
    wavelength = 2 * math.pi / base
    original = scaling.original_max_position
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    smooth = ((original / wavelength - low) / (high - low)).clamp(0.0, 1.0)
    between = (1 - smooth) * base / scaling.factor + smooth * base
    stretched = torch.where(wavelength > original / low, base / scaling.factor, between)
    return torch.where(wavelength < original / high, base, stretched)


def rope_table(config: ModelConfig, positions: int, device: torch.device) -> Tensor:
    """exp(i * position * frequency), complex64 [positions, head_dim / 2]."""
    steps = torch.arange(positions, dtype=torch.float32)
    angles = steps[:, None] * inverse_frequencies(config)[None, :]
    return torch.polar(torch.ones_like(angles), angles).to(device)


# Public since torch 2.10; the same op under its private name before.
_grouped_mm: Callable[..., Tensor] = getattr(F, "grouped_mm", None) or torch._grouped_mm


class ExpertLayer:
    """Mixture of experts (Qwen3-MoE): softmax router, top-k experts, gated products per expert.

    Two forms of one function, chosen by device and checked against each other by the tests:
    `grouped` has static shapes and no host sync (two grouped matrix products); `looped` asks the
    host which experts have work, which on the CPU costs nothing and reads only those experts'
    weights. router [E, H]; gate_up [E, 2I, H]; down [E, H, I]. Call: [T, H] -> [T, H]."""

    __slots__ = ("down", "gate_up", "grouped", "normalise", "router", "top_k", "weight_bytes")

    def __init__(
        self, router: Tensor, gate_up: Tensor, down: Tensor, top_k: int, normalise: bool,
        grouped: bool,
    ) -> None:
        self.router, self.gate_up, self.down = router, gate_up, down
        self.top_k, self.normalise, self.grouped = top_k, normalise, grouped
        self.weight_bytes = sum(w.numel() * w.element_size() for w in (router, gate_up, down))

    def __call__(self, x: Tensor) -> Tensor:
        probs = F.softmax(F.linear(x, self.router), dim=-1, dtype=torch.float32)
        weights, experts = torch.topk(probs, self.top_k, dim=-1)  # [T, top_k]
        if self.normalise:
            weights = weights / weights.sum(dim=-1, keepdim=True)
        weights = weights.to(x.dtype)
        order = experts.flatten().argsort(stable=True)  # token copies, sorted by expert
        token = order // self.top_k
        run = self._grouped if self.grouped else self._looped
        out = run(x[token], experts.flatten()[order])
        out = out * weights.flatten()[order].unsqueeze(-1)
        return torch.zeros_like(x).index_add_(0, token, out)

    def _grouped(self, x: Tensor, experts: Tensor) -> Tensor:
        """x [C, H] copies sorted by expert id experts [C] -> [C, H]."""
        ends = torch.searchsorted(
            experts, torch.arange(self.router.shape[0], device=x.device), right=True
        ).to(torch.int32)
        gate_up = _grouped_mm(x, self.gate_up.transpose(1, 2), offs=ends)
        gate, up = gate_up.chunk(2, dim=-1)
        return _grouped_mm(F.silu(gate) * up, self.down.transpose(1, 2), offs=ends)

    def _looped(self, x: Tensor, experts: Tensor) -> Tensor:
        out = torch.empty_like(x)
        start = 0
        for expert, count in enumerate(torch.bincount(experts).tolist()):
            if not count:
                continue
            part = x[start : start + count]
            gate, up = F.linear(part, self.gate_up[expert]).chunk(2, dim=-1)
            out[start : start + count] = F.linear(F.silu(gate) * up, self.down[expert])
            start += count
        return out

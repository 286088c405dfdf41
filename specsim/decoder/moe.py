"""Mixture of experts (Qwen3-MoE): softmax router, top-k experts, gated products per expert.

Two forms of one function, chosen by device and checked against each other by the tests:
`grouped` has static shapes and no host sync (two grouped matrix products); `looped` asks the host
which experts have work, which on the CPU costs nothing and reads only those experts' weights.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

# Public since torch 2.10; the same op under its private name before.
_grouped_mm: Callable[..., Tensor] = getattr(F, "grouped_mm", None) or torch._grouped_mm


class ExpertLayer:
    """router [E, H]; gate_up [E, 2I, H]; down [E, H, I]. Call: [T, H] -> [T, H]."""

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

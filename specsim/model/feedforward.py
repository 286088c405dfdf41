"""Feed-forward parts of a layer: dense MLP and mixture of experts, with their parameters."""

from dataclasses import dataclass, replace
from typing import ClassVar

from specsim.model.part import BF16, PLAIN_BYTES, Part, PartCount, WeightFormat, bytes_of


@dataclass(frozen=True, slots=True)
class ExpertCount:
    """Parameters of a mixture of experts; `routed` is all experts, `per_expert` one of them."""

    per_expert: int
    routed: int
    shared: int  # always-on expert and latent projections
    plain: int  # router, biases, shared gate


class FeedForward(Part):
    """A branch of a layer's feed-forward part."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class DenseMLP(FeedForward):
    tag: ClassVar[str] = "mlp"

    intermediate: int
    gated: bool = True  # True: gate, up, down (3 matrices); False: up, down
    bias: bool = False
    weight: WeightFormat = BF16

    def count(self, hidden: int) -> PartCount:
        matrices = (3 if self.gated else 2) * hidden * self.intermediate
        bias = (self.intermediate * (2 if self.gated else 1) + hidden) if self.bias else 0
        return PartCount(matrices, bias)

    def parameters(self, hidden: int, active: bool = False) -> int:
        return self.count(hidden).total

    def weight_bytes(self, hidden: int, active: bool = False) -> float:
        return bytes_of(self.count(hidden), self.weight)


@dataclass(frozen=True, slots=True)
class MoE(FeedForward):
    """Routed experts (+ optional always-on shared expert and a dense branch beside them)."""

    tag: ClassVar[str] = "moe"

    n_experts: int
    top_k: int
    intermediate: int  # of one routed expert
    gated: bool = True
    shared_intermediate: int = 0  # 0: no shared expert
    shared_gate: bool = False  # sigmoid gate of the shared expert: hidden weights
    latent: int = 0  # routed experts work on this width, fc1/fc2 project (Nemotron-3 Super)
    latent_norm: bool = False  # of their sum, before it is projected back (Kimi-K3)
    router_bias: bool = False
    expert_bias: bool = False
    groups: int = 1  # of experts, of which a token's lie in top_groups (DeepSeek-V3: 4 of 8)
    top_groups: int = 1
    layers_per_bank: int = 1  # layers that share routed experts and router (Intern-S2-Mobius)
    weight: WeightFormat = BF16  # routed experts
    shared_weight: WeightFormat = BF16  # shared expert, latent projections

    def in_format(self, fmt: WeightFormat) -> "MoE":
        return replace(self, weight=fmt, shared_weight=fmt)

    def count(self, hidden: int) -> ExpertCount:
        """Expert biases count as part of each expert; of a shared bank a layer has its share."""
        width = self.latent or hidden
        projections = 3 if self.gated else 2
        per_expert = projections * width * self.intermediate
        if self.expert_bias:
            per_expert += (projections - 1) * self.intermediate + width
        shared = projections * hidden * self.shared_intermediate + 2 * hidden * self.latent
        plain = self._router(hidden) // self.layers_per_bank
        plain += hidden if self.shared_gate else 0
        plain += self.latent if self.latent_norm else 0
        routed = self.n_experts * per_expert // self.layers_per_bank
        return ExpertCount(per_expert, routed, shared, plain)

    def _router(self, hidden: int) -> int:
        return self.n_experts * (hidden + self.router_bias)

    def _once(self, hidden: int, active: bool) -> tuple[int, int]:
        """(routed, plain) parameters, or with `active` those that one token passes through."""
        count = self.count(hidden)
        if not active:
            return count.routed, count.plain
        shared = self._router(hidden) // self.layers_per_bank
        return self.top_k * count.per_expert, count.plain - shared + self._router(hidden)

    def parameters(self, hidden: int, active: bool = False) -> int:
        routed, plain = self._once(hidden, active)
        return routed + self.count(hidden).shared + plain

    def weight_bytes(self, hidden: int, active: bool = False) -> float:
        routed, plain = self._once(hidden, active)
        size = routed * self.weight.bytes_per_weight + plain * PLAIN_BYTES
        return size + self.count(hidden).shared * self.shared_weight.bytes_per_weight

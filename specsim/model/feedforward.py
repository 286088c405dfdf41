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
    weight: WeightFormat = BF16  # routed experts
    shared_weight: WeightFormat = BF16  # shared expert, latent projections

    def in_format(self, fmt: WeightFormat) -> "MoE":
        return replace(self, weight=fmt, shared_weight=fmt)

    def count(self, hidden: int) -> ExpertCount:
        """Expert biases count as part of each expert."""
        width = self.latent or hidden
        projections = 3 if self.gated else 2
        per_expert = projections * width * self.intermediate
        if self.expert_bias:
            per_expert += (projections - 1) * self.intermediate + width
        shared = projections * hidden * self.shared_intermediate + 2 * hidden * self.latent
        plain = hidden * self.n_experts
        plain += self.n_experts if self.router_bias else 0
        plain += hidden if self.shared_gate else 0
        plain += self.latent if self.latent_norm else 0
        return ExpertCount(per_expert, self.n_experts * per_expert, shared, plain)

    def parameters(self, hidden: int, active: bool = False) -> int:
        count = self.count(hidden)
        routed = self.top_k * count.per_expert if active else count.routed
        return routed + count.shared + count.plain

    def weight_bytes(self, hidden: int, active: bool = False) -> float:
        count = self.count(hidden)
        routed = self.top_k * count.per_expert if active else count.routed
        size = routed * self.weight.bytes_per_weight
        return size + count.shared * self.shared_weight.bytes_per_weight + count.plain * PLAIN_BYTES

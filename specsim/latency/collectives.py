"""Which kernel sums a buffer over GPUs by an engine's rules, and how long the last GPU is awaited.

The first rule is taken whose words all hold and whose limit the buffer keeps, whether or not
another kernel would be faster; where none holds, the engine's own kernel. A rule is

    where   words that must all hold: the device's name, its arch, those of its kind of link
            ('nvlink', 'pcie', 'infinity', 'ethernet', 'no-p2p'), 'moe' or 'dense'; '' everywhere
    path    see `ops.shapes.AllReduce`
    limits  (up to this many GPUs, buffers up to this many MiB), ...; none: all
"""

from collections.abc import Iterable
from math import ceil
from typing import NamedTuple

from specsim.hardware.profile import HardwareProfile
from specsim.latency.engine_profile import SumRule
from specsim.model.spec import LayerGroup, ModelSpec
from specsim.ops.op import OpCost
from specsim.ops.shapes import (
    AllGather,
    AllReduce,
    AllToAll,
    Elementwise,
    ExpertExchange,
    Experts,
)
from specsim.ops.work import Parallel, blom, groups_here

MIB = 2.0**20
# Rows of all attention groups are gathered among so many GPUs; among more of them, and between
# nodes, each goes to those of its experts alone (wide expert parallelism with DeepEP; TensorRT-LLM
# sends rows where there are more GPUs than experts of a row; both recalled).
GATHERED = 8


class Collectives(NamedTuple):
    """The rules that hold on one device and for one model. node: GPUs joined by its link."""

    rules: tuple[SumRule, ...]
    node: int

    @classmethod
    def of(
        cls, rules: tuple[SumRule, ...], profile: HardwareProfile, spec: ModelSpec
    ) -> "Collectives":
        """Those of an engine's rules that can hold here."""
        kind = "moe" if spec.has_experts else "dense"
        words = {profile.name, profile.arch, kind, *profile.link_kind.lower().split()}
        holding = tuple(rule for rule in rules if words.issuperset(rule[0].split()))
        return cls(holding, profile.gpus_per_node)

    def path(self, num_bytes: float, gpus: int) -> str:
        """The kernel that sums a buffer."""
        for _, path, limits in self.rules:
            if not limits:
                return path
            for most, mib in limits:
                if gpus <= most:
                    if num_bytes <= mib * MIB:
                        return path
                    break
        return "custom"

    def as_run(self, op: OpCost) -> OpCost:
        """The op on the engine's path: a sum by its kernel; no norm of its own after a fused sum;
        rows to their own experts alone where the GPUs are many or in several nodes."""
        shape = op.shape
        if isinstance(shape, Elementwise):
            after = shape.after
            if after and self.nodes(after.gpus) == 1 and self.path(*after[:2]) == "fused":
                return op.called(shape, 0.0)
            return op
        if isinstance(shape, AllReduce):
            path, nodes = self.path(*shape[:2]), self.nodes(shape.gpus)
            if (path, nodes) == shape[2:]:
                return op
            return op.called(shape._replace(path=path, nodes=nodes), op.count)
        if isinstance(shape, AllGather | AllToAll):
            nodes = self.nodes(shape.gpus)
            if nodes == shape.nodes:
                return op
            return op.called(shape._replace(nodes=nodes), op.count)
        if isinstance(shape, Experts):
            ranks = round(shape.experts / (shape.local_experts or shape.experts))
            if not shape.sent or self.sends(ranks):
                return op
            return op.called(shape._replace(sent=False), op.count)
        if isinstance(shape, ExpertExchange):
            gathered, sent, gpus, copies, prompts, *limit = shape
            nodes = self.nodes(gpus)
            if self.sends(gpus):
                crossing = nodes_reached(copies, nodes, *limit) / copies if prompts else 1.0
                there = AllToAll(sent / 2, gpus, nodes, crossing)
                return op.called(there, 2 * op.count)
            return op.called(AllReduce(gathered, gpus, self.path(gathered, gpus)), op.count)
        return op

    def sends(self, gpus: int) -> bool:
        """Whether rows go to their own experts alone."""
        return gpus > GATHERED or self.nodes(gpus) > 1

    def nodes(self, gpus: int) -> int:
        return ceil(gpus / self.node)


def nodes_reached(copies: int, nodes: int, groups: int = 1, top_groups: int = 1) -> float:
    """Mean number of nodes in which a row has experts, all in top_groups of the groups. Where a
    pass holds prompts, DeepEP sends a row to each of them once and hands it on over their links;
    few rows of decoding go straight to each expert (DeepSeek-V3 report, 2412.19437, sections 2.1.2
    and 3.4)."""
    parts = [(1.0, 1.0 / nodes)]
    if groups > top_groups:
        parts = groups_here(nodes, groups, top_groups)
    return nodes * sum(p * (1.0 - (1.0 - share) ** copies) for p, share in parts)


def waits(layers: Iterable[LayerGroup], parallel: Parallel) -> float:
    """Waits for the last GPU in a pass, in those of 8 GPUs: after every mixer, after every
    feed-forward part."""
    after_mixer, after_ffn = wait_share(parallel.tp), wait_share(parallel.gpus)
    return sum(
        g.count * ((g.mixer is not None) * after_mixer + (g.ffn is not None) * after_ffn)
        for g in layers
    )


def wait_share(gpus: int) -> float:
    """How long the last of some GPUs is awaited, as a share of what it is for 8.

    The mean of the largest of g normal numbers, by Blom's formula: 0.41 of it for 2, 0.73 for 4,
    1.23 for 16."""
    if gpus <= 1:
        return 0.0
    return blom(gpus) / blom(8)

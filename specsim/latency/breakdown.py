"""What a priced step is made of: its total by phase, by what it waits for, and op by op.

Seconds are wall time; bytes and FLOPs are per GPU.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from specsim.jsonable import picked
from specsim.ops.op import OpCost
from specsim.roofline.result import KernelTime


class OpTime(NamedTuple):
    """One row of a breakdown: `seconds` covers all `op.count` calls. phase: 'target' | 'sample' |
    'draft'."""

    op: OpCost
    time: KernelTime
    phase: str

    @property
    def seconds(self) -> float:
        return self.time.seconds * self.op.count

    def scaled(self, factor: float) -> "OpTime":
        """The same call at `factor` times its seconds."""
        time = self.time
        return self._replace(
            time=time._replace(
                seconds=time.seconds * factor,
                mem_s=time.mem_s * factor,
                compute_s=time.compute_s * factor,
                floor_s=time.floor_s * factor,
            )
        )


@dataclass(frozen=True, slots=True)
class StepLatency:
    """total_s = target_s + sample_s + draft_s + host_s + pipeline_s. Bytes and FLOPs are per GPU.

    target_s: kernels (or eager launches) of the target pass with its output head.
    draft_s: the drafter's passes with the gaps between them. host_s: exposed host time.
    memory_s, compute_s: parts of the total in which kernels stream memory or multiply.
    idle_s: of target_s, when the device waits for launches. launch_s: of the host, for all launches
    of an eager pass; 0 for a CUDA graph. pipeline_s: transfers between stages and bubbles.
    kernel_s: of the total, while kernels run; moved_bytes: to and from device memory; peak_s: what
    their arithmetic would take at the datasheet's peaks.
    breakdown: makes `ops`; a simulation prices many steps and looks into few.
    """

    total_s: float
    target_s: float
    sample_s: float
    draft_s: float
    host_s: float
    memory_s: float
    compute_s: float
    rows: float
    graphed: bool
    idle_s: float
    launch_s: float
    breakdown: Callable[[], tuple[OpTime, ...]] = field(repr=False, compare=False)
    pipeline_s: float = 0.0
    kernel_s: float = 0.0
    moved_bytes: float = 0.0
    peak_s: float = 0.0

    @property
    def ops(self) -> tuple[OpTime, ...]:
        """Every kind of call of the step with its price, in order."""
        return self.breakdown()

    @property
    def bytes(self) -> float:
        return sum(t.op.bytes * t.op.count for t in self.ops)

    @property
    def flops(self) -> float:
        return sum(t.op.flops * t.op.count for t in self.ops)

    @property
    def bound(self) -> str:
        """What most of the step waits for: 'memory', 'compute' or 'latency' (kernel floors, gaps
        between kernels, host)."""
        latency_s = self.total_s - self.memory_s - self.compute_s
        if latency_s > max(self.memory_s, self.compute_s):
            return "latency"
        return "compute" if self.compute_s > self.memory_s else "memory"

    def to_dict(self) -> dict[str, object]:
        return {
            **picked(self, "total_s target_s sample_s draft_s host_s"),
            **({"pipeline_s": self.pipeline_s} if self.pipeline_s else {}),
            **picked(self, "memory_s compute_s rows cuda_graph=graphed bytes flops bound"),
        }

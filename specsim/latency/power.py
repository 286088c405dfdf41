"""Watts of a GPU from what its kernels do.

    P / board limit = idle + (busy - idle) x share of the time in which kernels run
                    + stream x bytes per second / peak + multiply x FLOP/s / peak,   at most 1

The four shares are the profile's kernel table `power`. stream x limit / peak is an energy per byte
of device memory, multiply x limit / peak of a dtype one per FLOP in it. Kernel times were measured
under the board's limit, so that a kernel that reaches it has its lower clock in its seconds
already: the limit caps watts and changes no time. Links, hosts, fans and power supplies are not
counted (`HardwareProfile.host_w` adds the host's share). Joules and watts are of one GPU.
"""

from dataclasses import dataclass
from typing import NamedTuple

from specsim.hardware.profile import HardwareProfile
from specsim.latency.breakdown import StepLatency

TABLE = "power"
Z90 = 1.645  # standard deviations from the middle to an end of a 90 % interval


class KernelDemand(NamedTuple):
    """What kernels ask of one GPU: memory traffic (that of links is none), seconds of arithmetic at
    the peak, seconds that they run, and wall seconds of the steps they are part of."""

    bytes: float = 0.0
    peak_s: float = 0.0
    kernel_s: float = 0.0
    wall_s: float = 0.0

    def times(self, factor: float) -> "KernelDemand":
        return KernelDemand(*(value * factor for value in self))

    def plus(self, other: "KernelDemand") -> "KernelDemand":
        return KernelDemand(*(a + b for a, b in zip(self, other, strict=True)))


def demand(step: StepLatency, share: float = 1.0) -> KernelDemand:
    """What `share` of a step's kernels ask."""
    kernel_s = min(share * step.kernel_s, step.total_s)
    return KernelDemand(share * step.moved_bytes, share * step.peak_s, kernel_s, step.total_s)


@dataclass(frozen=True, slots=True)
class Power:
    """How a device turns work into watts. idle, busy, stream, multiply: shares of limit_w (see
    above). spread, pair_spread: standard deviations of ln(measured / predicted) of the watts of a
    load, and of the ratio of two loads on one GPU. assumed: the shares are another device's."""

    limit_w: float
    bytes_per_s: float
    idle: float
    busy: float
    stream: float
    multiply: float
    spread: float
    pair_spread: float
    assumed: bool

    @classmethod
    def of(cls, profile: HardwareProfile) -> "Power | None":
        """None where the profile has no power limit, or no table of shares."""
        table = profile.kernels.get(TABLE)
        if profile.power_w is None or table is None:
            return None
        shares = {name: table[name] for name in (
            "idle", "busy", "stream", "multiply", "spread", "pair_spread")}
        return cls(
            profile.power_w, profile.mem_bytes_per_s, **shares, assumed=table.assumed
        )

    @property
    def idle_w(self) -> float:
        return self.idle * self.limit_w

    def above_idle_j(self, asked: KernelDemand) -> float:
        """Joules beyond those of a GPU that idles through the same time."""
        share = (
            (self.busy - self.idle) * asked.kernel_s
            + self.stream * asked.bytes / self.bytes_per_s + self.multiply * asked.peak_s
        )
        return self.limit_w * max(0.0, min((1 - self.idle) * asked.wall_s, share))

    def watts(self, asked: KernelDemand) -> float:
        """Mean over the wall time of what is asked."""
        if not asked.wall_s:
            return self.idle_w
        return self.idle_w + self.above_idle_j(asked) / asked.wall_s


def board_watts(profile: HardwareProfile, gpus: int, asked: KernelDemand) -> float | None:
    """Watts of so many GPUs that are each asked that, with `host_w` of each."""
    power = Power.of(profile)
    return None if power is None else gpus * (power.watts(asked) + profile.host_w)

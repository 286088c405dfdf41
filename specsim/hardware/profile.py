"""HardwareProfile: what one accelerator can do, with the source of every number.

A profile has two parts. *Peaks* are datasheet figures: bytes/s, FLOP/s per dtype (dense, a
multiply-add is 2 FLOP), bytes, seconds. *Kernel tables* say which fraction of those peaks and
which latency floors real kernels reach; their parameters are dimensionless fractions, counts or
seconds, so a table measured on one device can stand in for another, marked as assumed.

Rates are per device, link rates per direction. GB is 1e9 bytes; capacities are exact bytes.
A CPU uses the same type: `sms` counts cores, `l2_bytes` is its last-level cache.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches

from specsim.errors import ProfileError, UsageError
from specsim.jsonable import picked


@dataclass(frozen=True, slots=True)
class KernelTable:
    """Fitted parameters of one kernel family, e.g. 'gemm.bf16' or 'gemm.fp8@sglang'.

    params: floats; names ending in `_s` are seconds, the rest is dimensionless.
    measured_on: device and software of the measurement, None when nothing was measured.
    assumed: True when the numbers were not measured on this profile's own device.
    inherited_from: profile whose device was measured, None for an own table.
    """

    name: str
    params: Mapping[str, float]
    source: str
    measured_on: str | None = None
    assumed: bool = False
    inherited_from: str | None = None

    def __getitem__(self, param: str) -> float:
        """One parameter; ProfileError when the table lacks it (a hand-made profile can)."""
        try:
            return self.params[param]
        except KeyError:
            raise ProfileError(
                f"kernel table {self.name!r} lacks the parameter {param!r} "
                f"(it has {', '.join(sorted(self.params)) or 'none'}); add it to the table or "
                'inherit the table with [kernels] inherit = "h200-sxm"'
            ) from None

    def to_dict(self) -> dict[str, object]:
        return picked(self, "params source measured_on assumed inherited_from")


@dataclass(frozen=True, slots=True)
class HardwareProfile:
    """One device. `sources` and `assumed` speak of fields by name, peaks as 'flops.<dtype>'.

    mem_bytes: capacity a program can see; `mem_note` says what was counted, and
        `mem_marketing_gb` is the figure in the device's name.
    mem_bytes_per_s: peak of the device memory.
    flops: dense peak FLOP/s by dtype; a dtype that is absent has no unit on this device. bf16
        is always there: without bf16 units it is the rate of fp16 or fp32, which then runs.
    link_bytes_per_s: per direction and per device; 0 with link_kind 'none' means no link.
    bridge_bytes_per_s: the same over the NVLink bridge that a pair of such cards can have.
    allreduce_latency_s: all-reduce of a few bytes over the devices of one node.
    gpus_per_node: devices the link joins.
    power_w: board power limit, None where unknown. host_w: what a GPU's share of its host (CPUs,
        memory, fans, network cards) draws beside it; 0: not counted.
    """

    name: str
    title: str
    arch: str
    kind: str
    mem_bytes_per_s: float
    mem_bytes: int
    flops: Mapping[str, float]
    sms: int
    l2_bytes: int
    aliases: tuple[str, ...] = ()
    vendor: str = ""
    mem_marketing_gb: float | None = None
    mem_note: str = ""
    link_kind: str = "none"
    link_bytes_per_s: float = 0.0
    bridge_bytes_per_s: float | None = None
    allreduce_latency_s: float = 0.0
    power_w: float | None = None
    host_w: float = 0.0
    gpus_per_node: int = 1
    kernels: Mapping[str, KernelTable] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    assumed: frozenset[str] = frozenset()
    origin: str = field(default="", compare=False)  # the file it was read from

    def __hash__(self) -> int:
        # Mappings are not hashable; the name and the peaks tell profiles apart well enough
        # for caches, and equality still compares everything.
        return hash((self.name, self.mem_bytes_per_s, self.mem_bytes, self.link_bytes_per_s))

    def kernel(self, name: str) -> KernelTable:
        """The kernel table `name`; ProfileError naming profile and table when absent."""
        try:
            return self.kernels[name]
        except KeyError:
            near = get_close_matches(name, self.kernels, n=3, cutoff=0.5)
            hint = f"near matches: {', '.join(near)}" if near else self._kernel_hint()
            raise ProfileError(
                f"profile {self.name!r} has no kernel table {name!r}; {hint}"
            ) from None

    def _kernel_hint(self) -> str:
        if self.kernels:
            return f"it has {', '.join(sorted(self.kernels))}"
        return 'add [kernels] inherit = "h200-sxm" to take measured tables as an assumption'

    def require_link(self, gpus: int) -> None:
        """UsageError when `gpus` devices of this kind cannot work on one model together."""
        if gpus > 1 and self.link_bytes_per_s <= 0:
            raise UsageError(
                f"{gpus} x {self.name}: the profile states no link between devices, so tp and ep "
                "must be 1; add [link] bytes_per_s to a profile of your own to price one"
            )

    @property
    def kernels_known(self) -> str:
        """'measured' where the matrix products in bf16 were measured on the device itself, for
        they stand for the whole of it; 'partly measured' where only other
        kernels were in full; 'assumed' where none was."""
        products = self.kernels.get("gemm.bf16")
        if products is not None and not products.assumed:
            return "measured"
        some = any(not table.assumed for table in self.kernels.values())
        return "partly measured" if some else "assumed"

    def is_assumed(self, field_name: str) -> bool:
        return field_name in self.assumed

    def to_dict(self) -> dict[str, object]:
        """Everything as JSON-ready values (`specsim gpus NAME --json`)."""
        result: dict[str, object] = {f.name: getattr(self, f.name) for f in fields(self)}
        result["aliases"] = list(self.aliases)
        result["flops"] = dict(self.flops)
        result["kernels"] = {name: table.to_dict() for name, table in self.kernels.items()}
        result["sources"] = dict(self.sources)
        result["assumed"] = sorted(self.assumed)
        del result["origin"]
        return result

"""Hardware profiles as tables."""

from collections.abc import Sequence

from specsim.hardware.profile import HardwareProfile
from specsim.latency.power import Power
from specsim.report.blocks import Lines, Section
from specsim.report.tables import Table

_LEGEND = (
    "memory: GB, billions of bytes, all that the driver shows (151 for a card sold as 141 GB)",
    "bf16, fp8: dense peaks; link: one direction",
    "kernels: whether efficiencies were measured on the device itself; partly: some, the others "
    "(or their shape) are another device's",
)


def profiles_section(profiles: Sequence[HardwareProfile]) -> Section:
    """The list of devices."""
    headers = ["gpu", "memory", "bandwidth", "bf16", "fp8", "link", "kernels", "SMs"]
    units = ["", "GB", "TB/s", "TFLOP/s", "TFLOP/s", "GB/s", "", ""]
    return Section("", "", [
        Table(headers, [_row(profile) for profile in profiles], units=units, detail=1),
        Lines(_LEGEND),
    ])


def _scaled(value: float | None, factor: float, digits: str) -> str:
    return f"{value / factor:{digits}}" if value else "-"


def _row(profile: HardwareProfile) -> list[str]:
    """One line of the list: GB, TB/s, TFLOP/s, link GB/s, how the kernels are known, SMs."""
    return [
        profile.name,
        _scaled(profile.mem_bytes, 1e9, ".0f"),
        _scaled(profile.mem_bytes_per_s, 1e12, ".3g"),
        _scaled(profile.flops.get("bf16"), 1e12, ".4g"),
        _scaled(profile.flops.get("fp8"), 1e12, ".4g"),
        _scaled(profile.link_bytes_per_s, 1e9, ".0f"),
        profile.kernels_known,
        str(profile.sms),
    ]


def profile_section(profile: HardwareProfile) -> Section:
    """Every peak with its source, then the kernel tables."""
    return Section("", "", [
        Lines([profile.title]),
        Table(["field", "value", "source"], profile_values(profile), left=3),
        kernel_table(profile) if profile.kernels else None,
    ])


def profile_values(profile: HardwareProfile) -> list[list[str]]:
    """Rows of (field, value, where it is from)."""
    values = {
        "mem_bytes": f"{profile.mem_bytes / 1e9:.2f} GB ({profile.mem_note})",
        "mem_bytes_per_s": f"{profile.mem_bytes_per_s / 1e12:.4g} TB/s",
        **{f"flops.{k}": f"{v / 1e12:.4g} TFLOP/s dense" for k, v in profile.flops.items()},
        "sms": str(profile.sms),
        "l2_bytes": f"{profile.l2_bytes / 1e6:.0f} MB",
        "link_bytes_per_s": f"{profile.link_bytes_per_s / 1e9:.0f} GB/s ({profile.link_kind})",
        "allreduce_latency_s": f"{profile.allreduce_latency_s * 1e6:.1f} us",
        "gpus_per_node": str(profile.gpus_per_node),
        **({} if profile.bridge_bytes_per_s is None else {
            "bridge_bytes_per_s": f"{profile.bridge_bytes_per_s / 1e9:.4g} GB/s (NVLink, a pair)"
        }),
        "power_w": "-" if profile.power_w is None else f"{profile.power_w:.0f} W",
        **({} if (power := Power.of(profile)) is None else {
            "power": f"of power_w: idle {power.idle:.0%}, in kernels {power.busy:.0%}, memory at "
                     f"its peak +{power.stream:.0%}, arithmetic at its peak +{power.multiply:.0%}"
        }),
    }
    return [
        [name, value,
         ("assumed: " if profile.is_assumed(name) else "") + profile.sources.get(name, "")]
        for name, value in values.items()
    ]


def kernel_table(profile: HardwareProfile) -> Table:
    """The kernel tables, and how each is known."""
    rows = [
        [table.name, "assumed" if table.assumed else "measured", table.inherited_from or "",
         table.source]
        for table in profile.kernels.values()
    ]
    return Table(["kernel table", "", "from", "source"], rows, left=4)

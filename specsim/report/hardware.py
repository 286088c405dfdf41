"""Hardware profiles as tables."""

from specsim.hardware.profile import HardwareProfile
from specsim.report.blocks import Lines, Section
from specsim.report.tables import Table
from specsim.report.text import section_text

ROW_LEGEND = (
    "memory: GB of 1e9 bytes, all that the driver shows (151 for a card sold as 141 GB)\n"
    "bf16, fp8: dense TFLOP/s; link: one direction\n"
    "kernels: whether efficiencies were measured on the device itself; partly: some, the\n"
    "others (or their shape) are another device's"
)


def _tera(value: float | None) -> str:
    return "-" if not value else f"{value / 1e12:.4g} T"


def profile_row(profile: HardwareProfile) -> list[str]:
    """One line of the list: GB, TB/s, TFLOP/s, link GB/s, how the kernels are known."""
    return [
        profile.name,
        f"{profile.mem_bytes / 1e9:.0f} GB",
        f"{profile.mem_bytes_per_s / 1e12:.3g} TB/s",
        _tera(profile.flops.get("bf16")),
        _tera(profile.flops.get("fp8")),
        str(profile.sms),
        f"{profile.link_bytes_per_s / 1e9:.0f} GB/s" if profile.link_bytes_per_s else "-",
        profile.kernels_known,
    ]


def profile_text(profile: HardwareProfile) -> str:
    """Every peak with its source, then the kernel tables."""
    return section_text(Section("", "", [
        Lines([profile.title]),
        Table(["field", "value", "source"], profile_values(profile), left=3),
        kernel_table(profile) if profile.kernels else None,
    ]))


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
        "power_w": "-" if profile.power_w is None else f"{profile.power_w:.0f} W",
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

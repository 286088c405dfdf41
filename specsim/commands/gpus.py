"""`specsim gpus`: the hardware profiles, or one of them with the source of every number."""

from specsim.commands.bind import command
from specsim.commands.output import write
from specsim.options.listing import GpusCommand
from specsim.report.tables import printable, table


@command(GpusCommand)
def gpus(options: GpusCommand) -> None:
    """List the hardware profiles, or show one with its sources."""
    from specsim.hardware.store import list_profiles, load_profile
    from specsim.options.values import profile_folder
    from specsim.report.hardware import ROW_LEGEND, profile_row, profile_text

    folder = profile_folder(options.profiles)
    if options.name is not None:
        profile = load_profile(options.name, folder)
        write(options, profile.to_dict, lambda: profile_text(profile))
        return
    found = [load_profile(entry.name, folder) for entry in list_profiles(folder)]

    def text() -> str:
        headers = ["gpu", "memory", "bandwidth", "bf16", "fp8", "SMs", "link", "kernels"]
        rows = table(headers, [profile_row(p) for p in found])
        return f"{printable(rows)}\n\n{ROW_LEGEND}"

    write(options, lambda: [profile.to_dict() for profile in found], text)

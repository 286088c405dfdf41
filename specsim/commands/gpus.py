"""`specsim gpus`: the hardware profiles, or one of them with the source of every number."""

import sys
from typing import Annotated

import typer

from specsim.commands import options as o


def register(app: typer.Typer) -> None:
    app.command(name="gpus")(gpus)


def gpus(
    name: Annotated[str | None, typer.Argument(help="A profile to show, or a .toml.")] = None,
    profiles: o.Profiles = None,
    json_out: o.JsonOut = False,
) -> None:
    """List the hardware profiles, or show one with its sources."""
    from specsim.hardware.store import list_profiles, load_profile
    from specsim.report.hardware import ROW_LEGEND, profile_row, profile_text
    from specsim.report.tables import printable, table, to_json

    o.profile_folder(profiles)
    if name is not None:
        profile = load_profile(name, profiles)
        text = to_json(profile.to_dict()) if json_out else printable(profile_text(profile))
        sys.stdout.write(text + "\n")
        return
    found = [load_profile(entry.name, profiles) for entry in list_profiles(profiles)]
    if json_out:
        sys.stdout.write(to_json([profile.to_dict() for profile in found]) + "\n")
        return
    headers = ["gpu", "memory", "bandwidth", "bf16", "fp8", "SMs", "link", "kernels"]
    rows = table(headers, [profile_row(p) for p in found])
    sys.stdout.write(printable(rows) + f"\n\n{ROW_LEGEND}\n")

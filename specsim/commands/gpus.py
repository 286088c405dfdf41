"""`specsim gpus`: the hardware profiles, or one of them with the source of every number."""

from specsim.commands.bind import command
from specsim.commands.output import text_of, write
from specsim.options.listing import GpusCommand


@command(
    GpusCommand,
    "specsim gpus",
    "specsim gpus h200-sxm",
)
def gpus(options: GpusCommand) -> None:
    """List the hardware profiles, or show one with its sources."""
    from specsim.hardware.store import list_profiles, load_profile
    from specsim.options.values import profile_folder
    from specsim.report.hardware import profile_section, profiles_section

    folder = profile_folder(options.profiles)
    if options.name is not None:
        profile = load_profile(options.name, folder)
        write(options, profile.to_dict, lambda: text_of(profile_section(profile), options))
        return
    found = [load_profile(entry.name, folder) for entry in list_profiles(folder)]
    write(options, lambda: [profile.to_dict() for profile in found],
          lambda: text_of(profiles_section(found), options))

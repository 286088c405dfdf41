"""`specsim.gpus`: the hardware profiles, or one with the source of every number."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, overload

from specsim.api.results import Listing, Result
from specsim.hardware.profile import HardwareProfile
from specsim.hardware.store import list_profiles, load_profile
from specsim.jsonable import Key
from specsim.options.declare import repeat
from specsim.options.listing import GpusOptions
from specsim.options.values import profile_folder
from specsim.report.blocks import Section
from specsim.report.catalogue import profile_section, profile_values, profiles_section


@dataclass(frozen=True, repr=False)
class Gpu(Result):
    """One GPU with its peaks (units in their names), `sources` and `kernels`; all as `profile`."""

    profile: HardwareProfile
    command: str

    name = title = arch = vendor = mem_note = link_kind = Key[str]()
    mem_bytes = sms = l2_bytes = gpus_per_node = Key[int]()
    mem_bytes_per_s = link_bytes_per_s = allreduce_latency_s = host_w = Key[float]()
    mem_marketing_gb = bridge_bytes_per_s = power_w = Key[float | None]()
    flops = Key[dict[str, float]]()
    kernels = sources = Key[dict[str, Any]]()
    aliases = assumed = Key[list[str]]()

    def to_dict(self) -> dict[str, object]:
        return self.profile.to_dict()

    to_json = to_dict

    def to_rows(self) -> list[dict[str, object]]:
        """One row per field, with its source."""
        names = ("field", "value", "source")
        return [dict(zip(names, row, strict=True)) for row in profile_values(self.profile)]

    def section(self) -> Section:
        return profile_section(self.profile)


class Gpus(Listing[HardwareProfile]):
    """The hardware profiles, in the order of their names."""

    def to_json(self) -> list[object]:
        return [profile.to_dict() for profile in self.entries]

    def section(self) -> Section:
        return profiles_section(self.entries)


def run(options: GpusOptions) -> Gpu | Gpus:
    folder = profile_folder(options.profiles)
    if options.name is not None:
        return Gpu(load_profile(options.name, folder), repeat(options))
    names = (entry.name for entry in list_profiles(folder))
    return Gpus(tuple(load_profile(name, folder) for name in names), repeat(options))


@overload
def gpus(name: None = None, *, profiles: str | Path | None = None) -> Gpus: ...
@overload
def gpus(name: str, *, profiles: str | Path | None = None) -> Gpu: ...
def gpus(name: str | None = None, *, profiles: str | Path | None = None) -> Gpu | Gpus:
    """The hardware profiles (those of the folder `profiles` among them), or the one of a `name`.

    Raises `specsim.errors.SpecSimError` for whatever a caller can correct."""
    given = {"name": name, "profiles": profiles}
    return run(GpusOptions.of_values(
        {key: value for key, value in given.items() if value is not None}))

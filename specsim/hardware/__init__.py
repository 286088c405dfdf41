"""Hardware profiles: what a device can do, where each number comes from, how to load one."""

from specsim.hardware.profile import HardwareProfile, KernelTable
from specsim.hardware.store import (
    ProfileEntry,
    find_profile,
    list_profiles,
    load_profile,
    load_profile_text,
)
from specsim.hardware.toml_file import to_toml, with_overrides

__all__ = [
    "HardwareProfile",
    "KernelTable",
    "ProfileEntry",
    "find_profile",
    "list_profiles",
    "load_profile",
    "load_profile_text",
    "to_toml",
    "with_overrides",
]

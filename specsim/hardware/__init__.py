"""Hardware profiles: what a device can do, where each number comes from, how to load one."""

from specsim.hardware.profile import HardwareProfile, KernelTable
from specsim.hardware.store import (
    ProfileEntry,
    find_profile,
    list_profiles,
    load_profile,
)
from specsim.hardware.toml_file import to_toml

__all__ = [
    "HardwareProfile",
    "KernelTable",
    "ProfileEntry",
    "find_profile",
    "list_profiles",
    "load_profile",
    "to_toml",
]

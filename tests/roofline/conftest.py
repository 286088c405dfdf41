"""Devices for the kernel tests: the shipped H200 and one with nothing but peaks."""

from dataclasses import replace
from types import MappingProxyType

import pytest

from specsim.hardware.profile import HardwareProfile
from specsim.hardware.store import load_profile


@pytest.fixture(scope="session")
def h200() -> HardwareProfile:
    return load_profile("h200-sxm")


@pytest.fixture(scope="session")
def bare(h200: HardwareProfile) -> HardwareProfile:
    """An H200 without kernel tables: the assumed parameters price it."""
    return replace(h200, kernels=MappingProxyType({}))

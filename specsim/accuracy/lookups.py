"""Names in measurement files -> profiles and models, remembered.

Rows name few devices and models many times over, and looking a name up reads and checks files:
without memory that is most of the time of scoring a long file.
"""

from functools import lru_cache

from specsim.errors import SpecSimError
from specsim.hardware.profile import HardwareProfile
from specsim.hardware.store import load_profile
from specsim.model.catalogue import find_model, variant
from specsim.model.spec import ModelSpec


@lru_cache(maxsize=256)
def profile_of(name: str) -> HardwareProfile | None:
    """The profile of a name, None when there is none."""
    try:
        return load_profile(name)
    except SpecSimError:
        return None


@lru_cache(maxsize=1024)
def model_of(name: str, weights: str = "") -> ModelSpec | None:
    """The model of a name, in other weights where some are named; None when there is none.

    UsageError for weights the model cannot have."""
    try:
        spec = find_model(name)
    except SpecSimError:
        return None
    return variant(spec, weights) if weights else spec


def forget() -> None:
    """Names are looked up anew: profile files may have changed."""
    profile_of.cache_clear()
    model_of.cache_clear()

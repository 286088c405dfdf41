"""An engine instance: what the cost of a step and the use of memory follow from."""

from dataclasses import dataclass

from specsim.hardware.profile import HardwareProfile
from specsim.latency.engine_profile import EngineProfile
from specsim.methods.base import SpecSetup
from specsim.model.spec import ModelSpec
from specsim.ops.work import Parallel


@dataclass(frozen=True)
class Instance:
    """One model on GPUs of one kind under one engine, with what drafts for it.

    kv_dtype: dtype of the KV cache. Traffic, limits and acceptance are not part of it."""

    spec: ModelSpec
    profile: HardwareProfile
    engine: EngineProfile
    parallel: Parallel = Parallel()
    kv_dtype: str = "bf16"
    setup: SpecSetup = SpecSetup()

    def __post_init__(self) -> None:
        object.__setattr__(self, "spec", self.engine.keeps(self.spec))

"""System: everything a prediction needs to know about one deployment, without its load."""

from dataclasses import dataclass, replace
from functools import cached_property

from specsim.hardware.profile import HardwareProfile
from specsim.latency.engine import EngineProfile, Overheads
from specsim.latency.memory import MemoryPlan, plan_memory
from specsim.latency.step import LatencyModel
from specsim.methods.base import SpecSetup
from specsim.model.spec import ModelSpec
from specsim.ops.work import Parallel, Routing
from specsim.speculation.acceptance import Acceptance


@dataclass(frozen=True)
class System:
    """One replica: a model on a device under an engine, with or without speculation.

    acceptance: None exactly when setup.method is 'none'. Limits of 0 mean the engine's default
    (with speculation on, the engine's own lower default where it has one). routing: how the
    traffic chooses experts (None: the default of the fidelity).
    """

    spec: ModelSpec
    profile: HardwareProfile
    engine: EngineProfile
    parallel: Parallel = Parallel()
    kv_dtype: str = "bf16"
    setup: SpecSetup = SpecSetup()
    acceptance: Acceptance | None = None
    max_num_seqs: int = 0
    max_num_batched_tokens: int = 0
    gpu_memory_utilization: float = 0.0
    routing: Routing | None = None
    fidelity: str = "calibrated"

    @cached_property
    def latency(self) -> LatencyModel:
        return LatencyModel(
            self.spec,
            self.profile,
            self.engine,
            parallel=self.parallel,
            kv_dtype=self.kv_dtype,
            setup=self.setup,
            routing=self.routing,
            fidelity=self.fidelity,
        )

    @cached_property
    def memory(self) -> MemoryPlan:
        return plan_memory(
            self.spec,
            self.profile,
            self.engine,
            self.parallel,
            self.kv_dtype,
            self.setup,
            gpu_memory_utilization=self.gpu_memory_utilization or None,
            max_num_batched_tokens=self.batched_tokens,
        )

    @property
    def speculative(self) -> bool:
        return self.setup.speculates and self.setup.k > 0

    @property
    def seqs_limit(self) -> int:
        """max_num_seqs that holds for this deployment."""
        if self.max_num_seqs:
            return self.max_num_seqs
        if self.speculative and self.engine.spec_max_num_seqs:
            return self.engine.spec_max_num_seqs
        return self.engine.max_num_seqs

    @property
    def mixes(self) -> bool:
        """Whether prompt chunks share their steps with decoding sequences."""
        return self.engine.mixed_steps and self.engine.chunked_prefill

    @property
    def batched_tokens(self) -> int:
        return self.max_num_batched_tokens or self.engine.max_num_batched_tokens

    @property
    def tokens_per_step(self) -> float:
        """Mean tokens a sequence gains per step (1 without speculation)."""
        if not self.speculative or self.acceptance is None:
            return 1.0
        return self.acceptance.tokens_per_step(self.setup.k)

    @cached_property
    def _plain(self) -> "System":
        return replace(self, setup=SpecSetup(), acceptance=None)

    def plain(self) -> "System":
        """The same deployment without speculation (one object, so its priced steps are kept)."""
        return self._plain if self.setup.speculates else self

    def with_overheads(self, overheads: Overheads, **scales: float) -> "System":
        """The same deployment with other engine overheads and `kernel_scale`, `drafter_scale`,
        `expert_scale` (not given: the same); priced kernels are shared."""
        latency = self.latency.with_overheads(overheads, **scales)
        other = replace(self, engine=latency.engine)
        other.__dict__["latency"] = latency
        if self.setup.speculates:
            plain = replace(self._plain, engine=latency.engine)
            plain.__dict__["latency"] = self._plain.latency.with_overheads(overheads, **scales)
            other.__dict__["_plain"] = plain
        return other

    def with_k(self, k: int) -> "System":
        """The same deployment at another draft length (chain)."""
        return replace(self, setup=replace(self.setup, k=k, tree_tokens=0, tree_topk=1))

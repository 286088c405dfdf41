"""System: everything a prediction needs to know about one deployment, without its load."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypedDict, Unpack

from specsim.analytic.prices import PriceCache
from specsim.hardware.profile import HardwareProfile
from specsim.jsonable import picked
from specsim.latency.engine_profile import EngineProfile
from specsim.latency.instance import Instance
from specsim.latency.memory import MemoryPlan, plan_memory
from specsim.latency.overheads import Overheads
from specsim.latency.shape import StepShape, decode_shape
from specsim.latency.step import LatencyModel
from specsim.methods.base import SpecSetup
from specsim.model.spec import ModelSpec
from specsim.ops.work import Parallel, Routing
from specsim.speculation.acceptance import Acceptance

# Settings of a deployment by their names in the JSON of results.
_SETTINGS = (
    "model=spec.name gpu=profile.name tp=parallel.tp ep=parallel.ep "
    "attention_dp=parallel.attention_dp weights=spec.weights kv_dtype engine=engine.name "
    "engine_version=engine.version fidelity method=setup.method draft=setup.drafter.name k=setup.k "
    "acceptance_length acceptance"
)


class Changes(TypedDict, total=False):
    """What `System.with_` may change, each as the field of that name."""

    spec: ModelSpec
    profile: HardwareProfile
    engine: EngineProfile
    parallel: Parallel
    kv_dtype: str
    setup: SpecSetup
    acceptance: Acceptance | None
    max_num_seqs: int
    max_num_batched_tokens: int
    gpu_memory_utilization: float
    routing: Routing | None
    fidelity: str


@dataclass(frozen=True)
class System(Instance):
    """One replica: a model on a device under an engine, with or without speculation.

    acceptance: None exactly when setup.method is 'none'. Limits of 0 mean the engine's default
    (with speculation on, the engine's own lower default where it has one). routing: how the
    traffic chooses experts (None: the default of the fidelity).
    """

    acceptance: Acceptance | None = None
    max_num_seqs: int = 0
    max_num_batched_tokens: int = 0
    gpu_memory_utilization: float = 0.0
    routing: Routing | None = None
    fidelity: str = "calibrated"

    prices: PriceCache = field(default_factory=PriceCache, repr=False, compare=False)

    @cached_property
    def latency(self) -> LatencyModel:
        """Prices of this deployment's steps, shared with every system derived from the same one
        whose steps cost the same (see `analytic.prices`)."""
        return self.prices.latency(self, self.routing, self.fidelity,
                                   self.group_tokens * self.parallel.attention_dp)

    @cached_property
    def states(self) -> dict[object, Any]:
        """Results at the loads asked for so far (see `analytic.prices`)."""
        return {} if self.setup.speculates else self.prices.states(self)

    @cached_property
    def memory(self) -> MemoryPlan:
        """What the deployment keeps in device memory. CapacityError where it does not fit."""
        return plan_memory(
            self, gpu_memory_utilization=self.gpu_memory_utilization or None,
            max_num_batched_tokens=self.group_tokens,
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
        return self.engine.max_num_seqs * self.parallel.attention_dp  # a scheduler in each group

    @property
    def mixes(self) -> bool:
        """Whether prompt chunks share their steps with decoding sequences."""
        return self.engine.mixed_steps and self.engine.chunked_prefill

    @cached_property
    def plans_ahead(self) -> bool:
        """Whether the next step is planned before this one's tokens are known."""
        return self.engine.plans_ahead(self.setup.method, self.spec, self.profile.kind)

    @property
    def batched_tokens(self) -> int:
        """The engine's token budget of a step, or of a microbatch where layers are split over
        stages, as its option has it."""
        return self.max_num_batched_tokens or self.engine.max_num_batched_tokens

    @property
    def group_tokens(self) -> int:
        """Token budget of one attention group: each schedules for itself."""
        shared = self.parallel.attention_dp if self.engine.groups_share_budget else 1
        return max(1, self.batched_tokens // shared)

    @property
    def round_tokens(self) -> int:
        """Token budget of a round: of all attention groups, in every microbatch under way."""
        return self.group_tokens * self.parallel.attention_dp * self.parallel.pp

    def prompts_at_once(self, room: float, tokens: float) -> float:
        """Prompts of so many tokens that are under way at once where they fill a round's room:
        at least one in each attention group."""
        return max(float(self.parallel.attention_dp), room / tokens)

    @property
    def prompt_prices(self) -> "System":
        """The system at whose prices prompts are computed: this one (`analytic.swapped`)."""
        return self

    def decode_shape(self, running: float, context: float) -> StepShape:
        """A pure decode (verify) step of `running` sequences with `context` cached tokens each."""
        setup = self.setup if self.speculative else None
        return decode_shape(max(1, round(running)), context, setup)

    @cached_property
    def draft_share(self) -> float:
        """Share of steps in which a sequence has a draft, as the setup or the acceptance has it."""
        accepted = self.acceptance.draft_probability if self.acceptance else 1.0
        return min(self.setup.draft_share, accepted)

    def decode_step_s(self, shape: StepShape) -> float:
        """Mean seconds of a step of that shape, over steps with and without drafts to verify."""
        mix = shape.by_drafts(self.draft_share)
        return sum(share * self.latency.seconds(step) for share, step in mix)

    def decoding_s(self, running: float, context: float, *, drafting: bool = True) -> float:
        """Mean seconds of a decode (verify) step of `running` sequences. drafting False:
        speculation is on but k is 0 in this step, so the drafter only keeps its cache up to date.
        """
        shape = self.decode_shape(running, context)
        return self.decode_step_s(shape if drafting else shape.bare())

    def summary(self, *names: str) -> dict[str, object]:
        """Those of a deployment's settings, as results name them in JSON."""
        known = picked(self, _SETTINGS)
        out = {name: known[name] for name in names}
        if self.parallel.pp > 1 and "tp" in out:
            out["pp"] = self.parallel.pp
        return out

    @property
    def acceptance_length(self) -> float | None:
        """Mean tokens of a verify step, bonus included; None without speculation."""
        return self.acceptance.expected_tokens(self.setup.k) if self.acceptance else None

    @property
    def tokens_per_step(self) -> float:
        """Mean tokens a sequence gains per step (1 without speculation)."""
        if not self.speculative or self.acceptance is None:
            return 1.0
        return self.acceptance.tokens_per_step(self.setup.k)

    def with_(self, *, k: int | None = None, **changes: Unpack[Changes]) -> "System":
        """The same deployment with other fields; k: with a chain of that draft length (0: plain
        decoding). Steps and memory plans that the changes leave as they are stay priced."""
        if k == 0:
            return self.plain().with_(**changes)
        if k is not None and k != self.setup.k:
            setup = changes.get("setup", self.setup)
            changes["setup"] = replace(setup, k=k, tree_tokens=0, tree_topk=1)
        return replace(self, **changes) if changes else self

    def with_overheads(self, overheads: Overheads, **scales: float) -> "System":
        """The same deployment with other engine overheads and `kernel_scale`, `drafter_scale`,
        `expert_scale` (not given: the same)."""
        engine = replace(self.engine, overheads=overheads, **scales)  # type: ignore[arg-type]
        return self.with_(engine=engine)

    @cached_property
    def _plain(self) -> "System":
        return self.with_(setup=SpecSetup(), acceptance=None)

    def plain(self) -> "System":
        """The same deployment without speculation."""
        return self._plain if self.setup.speculates else self

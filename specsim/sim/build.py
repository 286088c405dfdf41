"""From a deployment (`analytic.System`) to a simulation: rules, memory, speculation, step cost.

Scheduling rules are those of the deployment's `EngineProfile`, with its own limits. Times in
seconds.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from specsim.analytic.apart import Apart
from specsim.analytic.closed import request_overhead_s
from specsim.analytic.system import System
from specsim.errors import UsageError
from specsim.latency.launches import Launches, mean_launches
from specsim.latency.price import keep
from specsim.latency.shape import StepCost, StepShape
from specsim.latency.step import LatencyModel
from specsim.sim.cache_blocks import cache_blocks
from specsim.sim.config import SimConfig, SpeculationRules
from specsim.sim.engine_rules import EngineRules, PrefillPool
from specsim.sim.policies.adaptive import Tiers
from specsim.sim.policies.choice import LengthRules, PolicyChoice, length_rules
from specsim.sim.policies.table import BatchTable
from specsim.speculation.acceptance_spread import (
    INDEPENDENT,
    AcceptanceSpread,
    default_acceptance_spread,
)


def engine_rules(system: System, *, prefix_caching: bool | None = None) -> EngineRules:
    """Scheduling rules of the deployment's engine with the deployment's own limits.

    prefix_caching: None: as the engine does by default."""
    engine, scheduler = system.engine, system.engine.scheduler
    reserves = scheduler.reserve_full_isl
    return EngineRules(
        name=engine.name, max_num_seqs=min(system.seqs_limit, system.memory.state_requests),
        max_num_batched_tokens=system.round_tokens, block_size=cache_blocks(system).block_size,
        prefix_caching=caches_prefixes(system) if prefix_caching is None else prefix_caching,
        chunked_prefill=engine.chunked_prefill, prefill_first=not system.mixes,
        groups=system.parallel.attention_dp,
        reserve_full_isl=system.mixes if reserves is None else reserves,
        readback_lag_steps=int(system.plans_ahead), plan_ahead=system.plans_ahead,
        victim=scheduler.victim, output_reserve=scheduler.output_reserve,
        output_reserve_min=scheduler.output_reserve_min,
    )


def caches_prefixes(system: System) -> bool:
    """Whether the engine keeps prefixes when nobody asks."""
    scheduler = system.engine.scheduler
    stateless = system.memory.state_bytes_per_seq <= 0
    return scheduler.prefix_caching and (stateless or scheduler.prefix_caching_with_state)


def speculation_rules(
    system: System, *, per_batch_size: BatchTable = (), policy: PolicyChoice | None = None
) -> SpeculationRules:
    """What the deployment's speculation asks of the scheduler."""
    setup = system.setup
    if not system.speculative:
        return SpeculationRules()
    lengths: LengthRules = {"per_batch_size": per_batch_size}
    if policy is not None:
        lengths = length_rules(policy, setup.k, lambda: adaptive_tiers(system))
    return SpeculationRules(
        num_speculative_tokens=setup.k,
        verify_tokens=setup.verify_tokens if setup.tree_tokens else 0,
        num_lookahead_tokens=setup.lookahead_tokens, drop_last_cached_block=setup.drops_last_block,
        **lengths,
    )


def adaptive_tiers(system: System) -> Tiers:
    """The engine's adaptive draft lengths, up to k. UsageError where it has none."""
    tiers, setup = system.engine.scheduler.adaptive_tiers, system.setup
    if not tiers:
        raise UsageError(
            f"--adaptive is SGLang's, but the engine is {system.engine.name}; for vLLM give a "
            "table, such as --policy table,1=3,9=1"
        )
    if not setup.drafting.adapts or setup.tree_topk > 1:
        raise UsageError(
            "--adaptive needs eagle, eagle3 or mtp with chains, but the method is "
            f"{setup.method}{' with a tree' if setup.tree_topk > 1 else ''}"
        )
    return tuple(
        (batch, tuple(sorted({min(length, setup.k) for length in lengths})))
        for batch, lengths in tiers
    )


@dataclass(frozen=True)
class MixedCost:
    """Mean price of the steps that a step of the simulator stands for.

    draft_share: of the sequences that have a draft (n-gram, suffix); every one is planned at full
    width (see `StepShape.by_drafts`). variation: coefficient of variation of the sequences'
    contexts (see `specsim.ops.spread`). Seconds are kept, as replications ask for the same nodes of
    their tables."""

    latency: LatencyModel
    draft_share: float = 1.0
    variation: float = 0.0
    _seconds: dict[StepShape, float] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )

    def seconds(self, shape: StepShape) -> float:
        found = self._seconds.get(shape)
        if found is None:
            found = sum(share * self.latency.seconds(step) for share, step in self._steps(shape))
            keep(self._seconds, shape, found)
        return found

    def launches(self, shape: StepShape) -> Launches:
        return mean_launches(
            (share, self.latency.launches(step)) for share, step in self._steps(shape)
        )

    def power_w(self, shape: StepShape | None) -> float | None:
        """Watts of a replica, mean over the time of the steps."""
        if shape is None or self.latency.power_w(None) is None:
            return self.latency.power_w(None)
        steps = self._steps(shape)
        if len(steps) == 1:
            return self.latency.power_w(steps[0][1])
        joules = sum(
            share * self.latency.seconds(step) * (self.latency.power_w(step) or 0.0)
            for share, step in steps
        )
        return joules / self.seconds(shape)

    def parts(self, shape: StepShape) -> dict[str, float]:
        """Seconds by phase, for the shares of time."""
        mix = [(share, self.latency.parts(step)) for share, step in self._steps(shape)]
        return {name: sum(share * parts[name] for share, parts in mix) for name in mix[0][1]}

    def _steps(self, shape: StepShape) -> tuple[tuple[float, StepShape], ...]:
        if self.variation and shape.decode_seqs:
            shape = replace(shape, context_variation=self.variation)
        return shape.by_drafts(self.draft_share)


def step_cost(system: System, context_variation: float = 0.0) -> StepCost:
    """What prices the steps of a deployment. Prices are kept with the system, from run to run.

    context_variation: coefficient of variation of the contexts of a batch; it matters where layers
    see a window."""
    acceptance = system.acceptance
    share = acceptance.draft_probability if system.speculative and acceptance is not None else 1.0
    variation = context_variation if system.memory.windows else 0.0
    if share < 1.0 or variation > 0.0:
        return MixedCost(system.latency, share, variation)
    return system.latency


def acceptance_spread_of(system: System) -> AcceptanceSpread:
    """How acceptance varies between requests and steps: the fitted set for the method."""
    if not system.speculative or system.acceptance is None:
        return INDEPENDENT
    return default_acceptance_spread(system.setup.method, system.acceptance.draft_probability)


@dataclass(frozen=True)
class Deployment:
    """A system with the settings of its runs: gives config and step cost, with and without
    speculation. Run it with `simulate(deployment.config, load, deployment.cost, seed)`.

    context_variation: see `step_cost`.
    acceptance_spread: None: the fitted set of the method. prefix_caching: None: as the engine.
    per_batch_size: see `SpeculationRules`. policy: what decides on draft lengths instead.
    apart: replicas that compute the prompts, where those of `system` decode.
    settings: further fields of `SimConfig`, which replace what is built here.
    """

    system: System
    context_variation: float = 0.0
    acceptance_spread: AcceptanceSpread | None = None
    prefix_caching: bool | None = None
    per_batch_size: BatchTable = ()
    policy: PolicyChoice | None = None
    apart: Apart | None = None
    settings: tuple[tuple[str, object], ...] = ()

    @cached_property
    def config(self) -> SimConfig:
        """UsageError and CapacityError for what cannot be run."""
        system = self.system
        rules = engine_rules(system, prefix_caching=self.prefix_caching)
        blocks = cache_blocks(system, prefix_caching=rules.prefix_caching)
        settings: dict[str, Any] = dict(self.settings)
        longest = settings.pop("max_model_len", None)
        settings.setdefault("request_overhead_s", request_overhead_s(system))
        if self.apart is not None:
            settings["n_replicas"] = self.apart.decode_replicas
            settings["prefill"] = self._prefill_pool(self.apart)
        config = SimConfig(
            num_kv_blocks=blocks.num_kv_blocks,
            block_costs=blocks.costs,
            rules=rules,
            speculation=speculation_rules(
                system, per_batch_size=self.per_batch_size, policy=self.policy
            ),
            acceptance=system.acceptance if system.speculative else None,
            acceptance_spread=self.acceptance_spread or acceptance_spread_of(system),
            # Where every chunk is a pass or a microbatch of its own, a step's price jumps with
            # their number, and no table over tokens and spans can be read between its nodes.
            exact_cost=system.engine.separate_passes or system.parallel.pp > 1,
            drafter_blocks=self._drafter_blocks(rules, blocks.num_kv_blocks),
            **settings,
        )
        if longest is None:
            return config
        if system.memory.max_requests(longest) >= 1:
            # Whole blocks hold a little less than their bytes.
            longest = min(longest, max(1, config.longest_request))
        return replace(config, max_model_len=longest)

    def _drafter_blocks(self, rules: EngineRules, blocks: int) -> int:
        """Blocks that the drafter's memory is worth, where a policy unloads it."""
        policy = self.policy
        if policy is None or not policy.unloads or not self.system.speculative:
            return 0
        alone = cache_blocks(self.system.plain(), prefix_caching=rules.prefix_caching).num_kv_blocks
        if alone <= blocks:
            raise UsageError(
                f"policy {policy.text} unloads the drafter, but {self.system.setup.method} keeps "
                "none in memory; use another policy"
            )
        return alone - blocks

    def _prefill_pool(self, apart: Apart) -> PrefillPool:
        rules = engine_rules(apart.prefill, prefix_caching=self.prefix_caching)
        blocks = cache_blocks(apart.prefill, prefix_caching=rules.prefix_caching)
        return PrefillPool(
            apart.prefill_replicas, apart.link, rules, blocks.num_kv_blocks, blocks.costs
        )

    @property
    def cost(self) -> StepCost:
        return step_cost(self.system, self.context_variation)

    @property
    def prefill_cost(self) -> StepCost | None:
        """What prices the steps of prefill replicas; None where there are none."""
        return None if self.apart is None else step_cost(self.apart.prefill)

    def plain(self) -> "Deployment":
        """The same without speculation: its memory is without the drafter, and the engine's own
        limit of running requests under speculation does not hold."""
        settings = tuple(item for item in self.settings if item[0] != "recorded")
        return replace(
            self, system=self.system.plain(), per_batch_size=(), policy=None, settings=settings,
            apart=None if self.apart is None else self.apart.plain(),
        )

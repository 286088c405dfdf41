"""Prices that systems derived from one another share, found by comparing what they depend on.

A step's kernels depend on the instance and the routing of the traffic, not on the acceptance, the
limits or the length of a chain of drafts; the engine's overheads come on top and are added anew
each time. Memory depends on the instance, drafts included, and on two limits. Nobody says at the
call which change keeps prices: two systems share what is equal.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import TypeVar

from specsim.latency.engine_profile import EngineProfile, Overheads
from specsim.latency.instance import Instance
from specsim.latency.memory import MemoryPlan, plan_memory
from specsim.latency.step import LatencyModel
from specsim.ops.work import Routing

T = TypeVar("T")
KEPT = 64  # prices and plans each; the oldest goes first


class PriceCache:
    """Latency models and memory plans, each with the values it was made from."""

    def __init__(self) -> None:
        self._latency: list[tuple[tuple[object, ...], LatencyModel]] = []
        self._memory: list[tuple[tuple[object, ...], MemoryPlan]] = []

    def latency(
        self, instance: Instance, routing: Routing | None, fidelity: str, budget: int = 0
    ) -> LatencyModel:
        """The model of an instance's steps: kernels priced so far, under its own overheads.

        budget: tokens of a microbatch, which matters where layers are split over stages."""
        budget = budget if instance.parallel.pp > 1 else 0
        key = (*_kernel_parts(instance), routing, fidelity, budget)
        model = _kept(
            self._latency, key,
            lambda: LatencyModel(instance, routing=routing, fidelity=fidelity, budget=budget),
        )
        engine = instance.engine
        return model if model.engine == engine else model.under(engine)

    def memory(
        self, instance: Instance, gpu_memory_utilization: float, max_num_batched_tokens: int
    ) -> MemoryPlan:
        """The memory plan of an instance. CapacityError where it does not fit."""
        key = (
            instance.spec, instance.profile, _without_overheads(instance.engine),
            instance.parallel, instance.kv_dtype, instance.setup, gpu_memory_utilization,
            max_num_batched_tokens,
        )
        return _kept(
            self._memory, key,
            lambda: plan_memory(
                instance,
                gpu_memory_utilization=gpu_memory_utilization or None,
                max_num_batched_tokens=max_num_batched_tokens,
            ),
        )


def _kernel_parts(instance: Instance) -> tuple[object, ...]:
    """What the kernels of an instance's steps depend on. The number of drafts comes with each
    step, and the share of steps with a draft is the caller's to weigh."""
    setup = instance.setup
    if setup.k:
        setup = replace(setup, k=1, draft_share=1.0)
    return (
        instance.spec, instance.profile, _without_overheads(instance.engine), instance.parallel,
        instance.kv_dtype, setup,
    )


@lru_cache(maxsize=64)
def _without_overheads(engine: EngineProfile) -> EngineProfile:
    return replace(
        engine, overheads=Overheads(), kernel_scale=1.0, drafter_scale=1.0, expert_scale=1.0
    )


def _kept(
    known: list[tuple[tuple[object, ...], T]], key: tuple[object, ...], make: Callable[[], T]
) -> T:
    """The value kept for an equal key, else a new one. Few are kept and most keys hold the very
    same objects, so comparing them one by one is faster than hashing a whole model."""
    for kept, value in known:
        if kept == key:
            return value
    value = make()
    known.insert(0, (key, value))
    del known[KEPT:]
    return value

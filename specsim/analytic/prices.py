"""Prices that systems derived from one another share, found by comparing what they depend on.

A step's kernels depend on the instance and the routing of the traffic, not on the acceptance, the
limits or the length of a chain of drafts; the engine's overheads come on top and are added anew
each time. Nobody says at the call which change keeps prices: two systems share what is equal.
"""

from dataclasses import replace
from functools import lru_cache
from typing import Any

from specsim.latency.engine_profile import EngineProfile
from specsim.latency.instance import Instance
from specsim.latency.overheads import Overheads
from specsim.latency.step import LatencyModel
from specsim.ops.work import Routing

KEPT, FEW = 64, 8  # the oldest goes first


class PriceCache:
    """Latency models, each with the values it was made from."""

    def __init__(self) -> None:
        self._latency: list[tuple[tuple[object, ...], LatencyModel]] = []
        self._states: list[tuple[tuple[object, ...], dict[object, Any]]] = []

    def states(self, plain: Instance) -> dict[object, Any]:
        """What was found of plain decoding at its loads, one for all systems that are equal: it
        stands beside every draft length and every method."""
        # What a fit changes comes first: most comparisons end there.
        key = (plain.engine.overheads, plain)
        kept = next((states for known, states in self._states if known == key), None)
        if kept is None:
            kept = {}
            self._states.insert(0, (key, kept))
            del self._states[FEW:]
        return kept

    def __reduce__(self) -> tuple[type["PriceCache"], tuple[()]]:
        """Sent to another process it is empty there."""
        return PriceCache, ()

    def latency(
        self, instance: Instance, routing: Routing | None, fidelity: str, budget: int = 0
    ) -> LatencyModel:
        """The model of an instance's steps: kernels priced so far, under its own overheads.

        budget: tokens of a microbatch, which matters where layers are split over stages."""
        budget = budget if instance.parallel.pp > 1 else 0
        key = (*_kernel_parts(instance), routing, fidelity, budget)
        # Few are kept and most keys hold the very same objects, so comparing them one by one is
        # faster than hashing a whole model.
        model = next((value for kept, value in self._latency if kept == key), None)
        if model is None:
            model = LatencyModel(instance, routing=routing, fidelity=fidelity, budget=budget)
            self._latency.insert(0, (key, model))
            del self._latency[KEPT:]
        engine = instance.engine
        return model if model.engine == engine else model.under(engine)


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

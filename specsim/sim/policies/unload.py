"""The drafter leaves memory while the cache is short, and comes back when it is not.

Weights and cache of the drafter become cache blocks: as many as the same deployment without
speculation has more. That the blocks of running requests shed their drafter layers at once is
an idealisation. Back in memory, the drafter drafts after `reload_s` (reading weights and computing
its cache again); the time is assumed, not measured.
"""

from collections.abc import Sequence

from pydantic import Field
from pydantic.dataclasses import dataclass

from specsim.sim.policies.protocol import STRICT, Policy, PolicyState


@dataclass(kw_only=True, config=STRICT)
class Unload(Policy):
    """below, above: shares of the cache that are free: unload below the one, load again above the
    other (without the drafter's blocks). reload_s: seconds from then to the first draft."""

    unloads = True
    below: float = Field(0.1, ge=0, lt=1)
    above: float = Field(0.3, gt=0, le=1)
    reload_s: float = Field(1.0, ge=0, le=3600)

    def __post_init__(self) -> None:
        self._ready_s = 0.0

    def drafts(self, state: PolicyState) -> int | Sequence[int]:
        if state.drafter_loaded:
            if self.drafter_wanted and state.free_blocks < self.below * state.num_kv_blocks:
                self.drafter_wanted = False
        else:
            self._ready_s = state.now_s + self.reload_s
            free = state.free_blocks - state.drafter_blocks
            total = state.num_kv_blocks - state.drafter_blocks
            self.drafter_wanted = free > self.above * total
        ready = self.drafter_wanted and state.drafter_loaded and state.now_s >= self._ready_s
        return state.longest if ready else 0

"""What a cluster and its replicas share while a run lasts."""

from collections.abc import Callable
from dataclasses import dataclass

from specsim.latency.kv_link import KVLink
from specsim.sim.acceptance import DrawSource
from specsim.sim.clock import Clock
from specsim.sim.config import SimConfig
from specsim.sim.surface import Surface


@dataclass(frozen=True, slots=True)
class RunContext:
    """source: of accepted drafts, None without speculation. surface: prices of steps.

    coupled: somebody outside waits for finished requests, so engines may not run past one.
    compiled: the step loop is machine code. keep_trace: steps are kept. pulse: called now and then.
    clients: of a closed loop that runs inside the engine; 0: none does.
    link: over which prompts are handed over once computed; None: who computes one also decodes.
    """

    config: SimConfig
    source: DrawSource | None
    surface: Surface
    clock: Clock
    seed: int
    coupled: bool
    compiled: bool
    keep_trace: bool = False
    pulse: Callable[[], None] | None = None
    clients: int = 0
    link: KVLink | None = None

"""What a step planned ahead (asynchronous scheduling) hides of its launches.

The host launches an eager pass op by op, and the device waits where it is faster (`idle_s` of
`StepLatency`). A step that is planned while the one before it runs is launched meanwhile, in what
time that step leaves the host: all of it where it replays a CUDA graph, what the device takes
beyond the launches where it is eager itself. An engine that plans each step when the last has
ended hides nothing.
"""

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from specsim.latency.shape import StepShape


class Launches(NamedTuple):
    """Of one step, seconds. idle_s: in which the device waits for launches of a pass that holds
    prompts; free_s: in which the host could launch the next step."""

    idle_s: float
    free_s: float


def mean_launches(parts: Iterable[tuple[float, Launches]]) -> Launches:
    """Of (share, launches) pairs."""
    idle_s = free_s = 0.0
    for share, part in parts:
        idle_s += share * part.idle_s
        free_s += share * part.free_s
    return Launches(idle_s, free_s)


class Launching(Protocol):
    """A step cost that also says how its steps are launched."""

    def launches(self, shape: StepShape) -> Launches: ...


def hidden_s(idle_s: float, free_s: float) -> float:
    """Seconds that a step planned ahead saves behind a step that left the host `free_s`."""
    return min(idle_s, free_s)

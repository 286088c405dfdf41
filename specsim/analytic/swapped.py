"""A deployment with a part of another one: what would it do with that one's memory, or prompts?

A speculating deployment differs from the plain one in three parts: the room for requests, the
decode steps (their price and the tokens they yield), and the price of prompts, which pass through
the drafter and run beside wider steps. With all three exchanged it is the plain one, so that
exchanging one says what it costs. Nothing of this runs on a server.
"""

from dataclasses import dataclass, fields

from specsim.analytic.system import System
from specsim.latency.memory import MemoryPlan
from specsim.latency.shape import StepShape


@dataclass(frozen=True, kw_only=True)
class Swapped(System):
    """room: whose memory and request slots it has; prompts: at whose prices prompts are computed;
    slower: factor on its own decode steps."""

    room: System
    prompts: System
    slower: float = 1.0

    @property
    def memory(self) -> MemoryPlan:
        return self.room.memory

    @property
    def seqs_limit(self) -> int:
        return self.room.seqs_limit

    @property
    def prompt_prices(self) -> System:
        return self.prompts

    def decode_step_s(self, shape: StepShape) -> float:
        return super().decode_step_s(shape) * self.slower


def swapped(
    system: System, room: System | None = None, prompts: System | None = None, slower: float = 1.0
) -> Swapped:
    """`system` with parts of others (None: its own); see `Swapped`."""
    own = {item.name: getattr(system, item.name) for item in fields(System)}
    return Swapped(**own, room=room or system, prompts=prompts or system, slower=slower)

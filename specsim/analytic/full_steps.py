"""Where prompts fill the token budget of every step.

A request brings P prompt tokens, and q in each of its n decode steps; of the B tokens of a step
those that decode come first, and prompts take what is left, one after the other. With more clients
than that serves every step is full: R = B / (P + n q) requests per step go through, R n of them
decode, and few more are in the engine, whatever places and memory are left: the others wait. So a
token comes every step, and a request waits where one whose place is missing would.
"""

from typing import NamedTuple

from specsim.analytic.prompts import Beside, mean_passes
from specsim.analytic.system import System
from specsim.analytic.workload import Workload


class FullSteps(NamedTuple):
    """per_step: requests that end with each step. waits: steps from where a request comes to its
    first token. in_engine: requests that decode or whose prompts run, or that the next step takes
    up."""

    per_step: float
    waits: float
    in_engine: float


def full_steps(system: System, workload: Workload, steps: float) -> FullSteps:
    """Of requests with so many decode steps, without a price."""
    each = system.setup.verify_tokens if system.speculative else 1
    per_step = system.round_tokens / (workload.computed_input + steps * each)
    room = max(1, round(system.round_tokens - per_step * steps * each))
    waits = mean_passes(workload, room, system.parallel.attention_dp) + 0.5 + system.plans_ahead
    return FullSteps(per_step, waits, per_step * (steps + waits))


def full_step_s(
    system: System, workload: Workload, steps: float, full: FullSteps
) -> tuple[float, float]:
    """Seconds of one full step: (of those that decode alone, with prompts)."""
    decode = system.decode_shape(full.per_step * steps, workload.mean_context)
    room = max(1, system.round_tokens - decode.decode_seqs * decode.decode_q_len)
    decode_s = system.decode_step_s(decode)
    prompts = Beside(system, workload, decode, room)
    return decode_s, decode_s + prompts.full_s() * room / workload.computed_input

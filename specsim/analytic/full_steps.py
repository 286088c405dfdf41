"""Where prompts fill the token budget of every step.

A request brings P prompt tokens, and q in each of its n decode steps; of the B tokens of a step
those that decode come first, and prompts take what is left, one after the other. With more clients
than that serves every step is full: R = B / (P + n q) requests per step go through, R n of them
decode, and few more are in the engine, whatever places and memory are left: the others wait. So a
token comes every step, and a request waits where one whose place is missing would.
"""

from typing import NamedTuple

from specsim.analytic.prompts import beside, full_pass, mean_passes, prompt_shape
from specsim.analytic.system import System
from specsim.analytic.workload import Workload
from specsim.latency.launches import hidden_s


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


class FullSeconds(NamedTuple):
    """Of one full step. decoding_s: those that decode, without prompts; beside_s: a step in which
    somebody decodes; mean_s: of all steps, where there are some in which nobody does."""

    decoding_s: float
    beside_s: float
    mean_s: float


def full_seconds(
    system: System, workload: Workload, steps: float, full: FullSteps
) -> FullSeconds:
    """What full steps take."""
    decoding = full.per_step * steps
    decode = system.decode_shape(decoding, workload.mean_context)
    room = max(1, system.round_tokens - decode.decode_seqs * decode.decode_q_len)
    decode_s = system.decode_step_s(decode)
    prompts = beside(system, workload, decode, room)
    beside_s = decode_s + prompts.full_s() * room / workload.computed_input
    if decoding >= 1 or system.parallel.pp > 1:  # other prompts keep a pipeline filled
        return FullSeconds(decode_s, beside_s, beside_s)
    prices = system.prompt_prices
    alone = prompt_shape(
        prices, full_pass(workload, prices.round_tokens, prices.parallel.attention_dp)[0]
    )
    alone_s = prices.latency.seconds(alone)
    if prices.plans_ahead:
        alone_s -= hidden_s(*prices.latency.launches(alone))
    return FullSeconds(
        decoding * decode_s, beside_s, decoding * beside_s + (1 - decoding) * alone_s
    )

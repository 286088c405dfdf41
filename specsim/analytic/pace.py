"""How fast a batch decodes while requests come at a given rate, and how long a prompt then takes.

Prompts take their share of the time whatever the batch: they come at the rate of arrivals. With D a
decode step of n sequences, W the time per decode step with the prompts that fall to it, and
requests of S steps, T(n) = S W(n) (docs/model.md, Loads). Prompts beside decoding: W = D + rate W
e. Prompts first: those that come while a step runs get a step of their own, P, so that a decode
step is followed by x = (1 - exp(-rate D)) exp(rate P) of them. Where steps are planned ahead the
group comes one step later: two independent chains, and a share 1 / (1 + x) of the groups runs
behind a decode step, which hides their first launches.
"""

import math
from typing import NamedTuple

from specsim.analytic.closed import decode_steps, request_overhead_s
from specsim.analytic.prompts import (
    beside,
    each_packed_s,
    mean_passes,
    packed_s,
    room_beside,
    saved_s,
)
from specsim.analytic.system import System
from specsim.analytic.waves import group_sizes, joining
from specsim.analytic.workload import Workload

MOST_BUSY = 0.999  # with prompts
MOST_COMING = 20.0  # requests that come while a step of prompts runs
MANY = 1_000_000  # clients: a group is Poisson
ROUNDS = 8  # of a fixed point, or until it moves by less than
CLOSE = 3e-3  # of itself


class Pace(NamedTuple):
    """Seconds. decode_s: a request from its first token to the last; ttft_s: to the first, without
    a wait for a place. steepness: d ln decode_s / d ln rate, W / D - 1 where W = D + rate W e."""

    decode_s: float
    ttft_s: float
    steepness: float


def pace(system: System, workload: Workload, batch: int, rate: float) -> Pace:
    """Of a batch of sequences that decode at `rate` requests per second."""
    steps = decode_steps(system, workload.output_len)
    step_s = system.decoding_s(batch, workload.mean_context)
    if workload.computed_elsewhere:
        return Pace(max(1e-9, steps * step_s), 0.0, 0.0)
    found = _beside if system.mixes else _apart
    wall_s, ttft_s = found(system, workload, batch, rate, step_s)
    return Pace(
        max(1e-9, steps * wall_s), request_overhead_s(system) + ttft_s, wall_s / step_s - 1
    )


def _beside(
    system: System, workload: Workload, batch: int, rate: float, step_s: float
) -> tuple[float, float]:
    """(W, time to first token in the engine) where prompts share the steps that decode."""
    decode = system.decode_shape(batch, workload.mean_context)
    steps = max(1.0, decode_steps(system, workload.output_len))
    room = room_beside(system, decode, workload.computed_input / steps)
    prompts = beside(system, workload, decode, room)
    wall_s = step_s / (1 - min(0.5, rate * prompts.each_s([1.0])))
    groups = system.parallel.attention_dp
    own_steps = mean_passes(workload, room, groups)
    # Attention groups compute prompts beside each other, also those that came steps apart.
    coming = own_steps if groups > 1 else 1.0
    for _ in range(ROUNDS):
        without = math.exp(-rate * wall_s * own_steps)  # prompts, of the steps before
        sizes = group_sizes(MANY, 1 + rate * wall_s * coming)
        before_s, each_s = wall_s, prompts.each_s(sizes, without)
        wall_s = step_s / (1 - min(MOST_BUSY, rate * each_s))
        if abs(wall_s - before_s) < CLOSE * wall_s:
            break
    if batch == 1:  # nobody else is there
        return wall_s, packed_s(system, workload, 1.0)
    own_s = step_s * own_steps + (each_s if groups == 1 else prompts.each_s([1.0]))
    if system.parallel.pp > 1:  # through all stages
        own_s = max(own_s, packed_s(system, workload, 1.0))
    # A prompt waits for those ahead of it where they fill the budget of a step (M/D/1).
    fill_s = step_s * workload.computed_input / room + each_s
    busy = min(MOST_BUSY, rate * fill_s)
    ahead_s = busy * fill_s / (2 * (1 - busy))
    # What is left of the step in progress: E(s^2) / 2 E(s) with Poisson prompts in it.
    left_s = (wall_s + rate * each_s**2) / 2
    return wall_s, left_s + system.plans_ahead * wall_s + ahead_s + own_s


def _apart(
    system: System, workload: Workload, batch: int, rate: float, step_s: float
) -> tuple[float, float]:
    """(W, time to first token in the engine) where prompts run in steps of their own."""
    decode = system.decode_shape(batch, workload.mean_context)
    some = -math.expm1(-rate * step_s)
    size, first = 1.0, 1.0
    prompts_s = follow = 0.0
    for _ in range(ROUNDS):
        before_s, groups = prompts_s, group_sizes(MANY, joining(MANY, size))
        prompts_s = each_packed_s(system, workload, groups) * size
        if system.plans_ahead:
            prompts_s -= first * saved_s(system, workload, groups, decode)
        follow = some * math.exp(min(MOST_COMING, rate * prompts_s))
        size = max(1.0, rate * (step_s + follow * prompts_s) / follow)
        first = 1 / (1 + follow)
        if abs(prompts_s - before_s) < CLOSE * prompts_s:
            break
    if batch == 1:
        return step_s + follow * prompts_s, packed_s(system, workload, 1.0)
    step_mean_s = (step_s + follow * prompts_s) / (1 + follow)
    left_s = (step_s**2 + follow * prompts_s**2) / (1 + follow) / (2 * step_mean_s)
    ahead_s = left_s + system.plans_ahead * step_mean_s
    return step_s + follow * prompts_s, ahead_s + prompts_s

"""Joules of a served load: of a request, of an output token, with and without speculation.

All GPUs idle through the time between two requests, and the steps that a request takes part in draw
more (`latency.power`): with R requests per second and G GPUs

    joules per request = G (idle power / R + its steps' joules above idle, decoding and prompt)

A prompt beside others' decoding is charged what it adds to their steps. Without load a replica
draws its idle power. Speculation changes both sides of a ratio on the same GPU, so most of what is
unknown of watts cancels: the interval of `joules_ratio` has the pair's spread, not twice one's own.
Boards alone, and `host_w` for each where the deployment states it (`--host-w`).
"""

import math
from dataclasses import dataclass
from typing import ClassVar

from specsim.analytic.apart import Apart, decode_load
from specsim.analytic.closed import SteadyState
from specsim.analytic.intervals import interval_of
from specsim.analytic.open import OpenState
from specsim.analytic.system import System
from specsim.analytic.utilisation import Steps, served_steps
from specsim.analytic.workload import Workload
from specsim.jsonable import Jsonable
from specsim.latency.power import Z90, Power


@dataclass(frozen=True, slots=True)
class Energy(Jsonable):
    """Of a load on all GPUs of a deployment. power_w: mean of one GPU, host included if stated.
    joules_per_request = prefill + decode + idle + host, each of all GPUs and over one request;
    those of prefill and decoding hold the idle power of their own time. assumed: the shares of
    power were measured on another device."""

    also: ClassVar = ("joules_per_request",)

    gpus: int
    power_w: float
    power_limit_w: float
    joules_per_output_token: float
    prefill_joules_per_request: float
    decode_joules_per_request: float
    idle_joules_per_request: float
    host_joules_per_request: float
    assumed: bool

    @property
    def joules_per_request(self) -> float:
        return (
            self.prefill_joules_per_request + self.decode_joules_per_request
            + self.idle_joules_per_request + self.host_joules_per_request
        )


def energy_of(
    system: System, workload: Workload, found: SteadyState | OpenState,
    apart: Apart | None = None,
) -> Energy | None:
    """None where the device's power is not known. apart: prompts are computed by replicas of their
    own, at the rate of `found`."""
    power = Power.of(system.profile)
    if power is None:
        return None
    running, rate = found.running, found.request_rate
    if isinstance(found, OpenState):
        each = running / (1 if apart is None else apart.decode_replicas)
        running = each / -math.expm1(-each)  # while any does, of a Poisson number
        rate = min(rate, found.capacity_rate)  # beyond the capacity no more is served
    width = system.parallel.all_gpus
    gpus, prefill_width = width, width
    seen = workload
    if apart is not None:
        gpus, prefill_width = apart.gpus(system), apart.prefill.parallel.all_gpus
        seen = decode_load(workload)
    steps, prompts = served_steps(system, seen, running)
    decode_j, decode_s = _joules(system, power, steps)
    prefiller = system
    if apart is not None:
        prefiller = apart.prefill
        prompts = served_steps(prefiller, workload, 1)[1]
    prefill_j, prefill_s = _joules(prefiller, power, prompts)
    idle_s = max(0.0, gpus / rate - width * decode_s - prefill_width * prefill_s)
    prefill = prefill_width * (prefill_j + power.idle_w * prefill_s)
    decode = width * (decode_j + power.idle_w * decode_s)
    idle = power.idle_w * idle_s
    # Steps of mean sizes can take a little longer than the time there is: no board exceeds its
    # limit for that.
    fits = min(1.0, power.limit_w * gpus / rate / (prefill + decode + idle))
    parts = (fits * prefill, fits * decode, fits * idle, gpus * system.profile.host_w / rate)
    total = sum(parts)
    return Energy(
        gpus, total * rate / gpus, power.limit_w, total / workload.output_len, *parts,
        assumed=power.assumed,
    )


def _joules(system: System, power: Power, steps: Steps) -> tuple[float, float]:
    """(joules above idle, wall seconds) of one GPU in these steps."""
    joules = wall_s = 0.0
    for count, shape in steps:
        asked = system.latency.demand(shape)
        joules += count * power.above_idle_j(asked)
        wall_s += count * asked.wall_s
    return max(0.0, joules), max(0.0, wall_s)


def token_interval(
    system: System, found: Energy | None, tpot_s: float, paced: bool = False
) -> tuple[float, float] | None:
    """90 % interval of joules per output token: that of watts and that of the time per token, as
    independent errors, within what the limit lets a GPU draw over the longest of that time.
    paced: tokens come at a given rate, so that idle power and limit are bounds by themselves."""
    power, tpot = Power.of(system.profile), interval_of(system, "tpot", tpot_s)
    if found is None or power is None or tpot is None or tpot_s <= 0:
        return None
    watts = Z90 * power.spread
    low, high = (math.log(end / tpot_s) for end in tpot)
    joules = found.joules_per_output_token
    least, most = (
        (bound + system.profile.host_w) / found.power_w * joules
        for bound in (power.idle_w, power.limit_w)
    )
    if not paced:
        least, most = 0.0, most * math.exp(high)
    return min(joules, max(least, joules * math.exp(-math.hypot(low, watts)))), max(
        joules, min(most, joules * math.exp(math.hypot(high, watts)))
    )


def ratio_interval(
    system: System, ratio: float | None, speedup: float
) -> tuple[float, float] | None:
    """90 % interval of joules per token with speculation over those without: that of the speedup
    and that of a pair of loads on one GPU."""
    power, gain = Power.of(system.profile), interval_of(system, "speedup", speedup)
    if ratio is None or power is None or gain is None or speedup <= 0:
        return None
    pair = Z90 * power.pair_spread
    less, more = (math.log(end / speedup) for end in gain)
    return ratio * math.exp(-math.hypot(more, pair)), ratio * math.exp(math.hypot(less, pair))

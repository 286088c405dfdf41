"""What must hold for a prediction of any deployment, and by how much one misses it.

Of one prediction: figures are finite, intervals hold their point and stay in its range, shares are
shares, means lie within their extremes, the speedup stays below the tokens per step. Of two that
differ in one thing: a faster memory, link or unit, more acceptance, a larger memory never hurt,
and longer prompts never make the first token come sooner.
"""

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from specsim.analytic.closed import SteadyState, closed_loop, running_limit
from specsim.analytic.open import OpenState, open_loop
from specsim.analytic.predict import load_point
from specsim.analytic.system import System
from specsim.analytic.workload import Workload
from specsim.api.deployment import build_request
from specsim.errors import SpecSimError
from specsim.options.prediction import PredictOptions
from specsim.speculation.acceptance import Acceptance

EXACT = 1e-9  # of a value: rounding of sums
CLOSE = 5e-3  # between two predictions: open loops are iterated to 0.3% (`analytic.pace`)
MOST_FALL = 0.05  # per cent that TPOT falls where the rate rises by one
MORE = 1.25  # of what a deployment gets more
CHANGES = (
    "more memory rate", "more link rate", "more FLOP rate", "more memory", "more acceptance",
    "longer prompts",
)


@dataclass(frozen=True)
class Miss:
    """A property that does not hold. by: relative to what it should be at least or at most."""

    rule: str
    by: float
    text: str


def misses(given: PredictOptions, number: int) -> list[Miss]:
    """All that is wrong with the prediction of these options, and with two changes that the number
    draws. SpecSimError where it is refused."""
    request = build_request(given, unknown=True)
    load = request.workload
    if given.range_ratio:
        load = load.ranging(given.range_ratio)
    elif given.equal_lengths:
        load = replace(load, spread=0.0)
    load = replace(load, requests_per_client=given.requests_per_client)
    rate = None if given.rate is None else float(str(given.rate))
    clients = 1 if given.concurrency is None else int(str(given.concurrency))
    system = request.unknown or request.system
    changes = random.Random(number).sample(CHANGES, 2)
    return [*of_one(system, load, clients, rate), *of_two(system, load, clients, rate, changes)]


def of_one(
    system: System, load: Workload, clients: int, rate: float | None
) -> Iterator[Miss]:
    """Of one prediction by itself."""
    point = load_point(system, load, clients, rate)
    for name, value in point.to_dict().items():
        if not isinstance(value, float) or not point.stable:
            continue
        # Steps of more rows can be faster (kernels are measured), by little.
        least = -MOST_FALL if name == "steepness" else -EXACT
        if not (math.isfinite(value) and value >= least):
            yield Miss("finite and not negative", math.inf, f"{name} is {value}")
    joules = {"": point.energy, "baseline_": point.baseline_energy}
    parts = {f"{side}joules_per_output_token": found and found.joules_per_output_token
             for side, found in joules.items()}
    for name, pair in point.interval_90.items():
        value = parts[name] if name in parts else getattr(point, name)
        if pair is not None and not 0 <= pair[0] <= value <= pair[1]:
            yield Miss("the interval holds the point", 1, f"{name} {value}, {pair}")
    yield from below("running within the limit", point.running, running_limit(system, load))
    if rate is None:
        yield from below("running within the clients", point.running, clients)
    elif point.stable:
        yield from below("a stable load is below the capacity", point.utilisation or 0, 1)
    ahead = system.plans_ahead == system.plain().plans_ahead  # else plain prompts wait a step more
    # SGLang caches no prefixes of recurrent models with drafts, and so holds more requests.
    fits = running_limit(system, load) <= running_limit(system.plain(), load)
    if rate is None and ahead and fits:  # in an open loop faster requests leave smaller batches too
        yield from below("speedup within tokens per step", point.speedup, system.tokens_per_step)


def of_two(
    system: System, load: Workload, clients: int, rate: float | None, changes: Sequence[str]
) -> Iterator[Miss]:
    """Of this prediction and others that differ in one of `CHANGES` each."""
    here = state(system, load, clients, rate)
    for change in changes:
        if change == "longer prompts":
            longer = replace(load, input_len=math.ceil(load.input_len * MORE))
            try:
                there = state(system, longer, clients, rate)
            except SpecSimError:
                continue
            yield from below(f"{change}: TTFT", here.ttft_s, there.ttft_s, CLOSE)
        elif other := changed(system, change):
            there = state(other, load, clients, rate)
            served = here.output_tok_s, there.output_tok_s
            yield from below(f"{change}: tokens per second", *served, CLOSE)
            if change == "more memory":
                continue  # more clients then share a step
            if not getattr(here, "stable", True):
                continue  # what TPOT says is of the batch that serves most, here and there another
            yield from below(f"{change}: TPOT", there.tpot_s, here.tpot_s, CLOSE)
            if change != "more acceptance" or rate is not None:
                # Clients of a closed loop come back sooner, and meet more prompts.
                yield from below(f"{change}: TTFT", there.ttft_s, here.ttft_s, CLOSE)


def changed(system: System, change: str) -> System | None:
    """The same with more of one thing; None where there is nothing to have more of."""
    profile = system.profile
    if change == "more acceptance":
        if not system.speculative or system.acceptance is None:
            return None
        return system.with_(acceptance=raised(system.acceptance, system.setup.k))
    if change == "more memory rate":
        more = replace(profile, mem_bytes_per_s=profile.mem_bytes_per_s * MORE)
    elif change == "more link rate":
        if system.parallel.all_gpus == 1:
            return None
        more = replace(profile, link_bytes_per_s=profile.link_bytes_per_s * MORE)
    elif change == "more FLOP rate":
        more = replace(profile, flops={name: x * MORE for name, x in profile.flops.items()})
    else:
        more = replace(profile, mem_bytes=int(profile.mem_bytes * MORE))
    return system.with_(profile=more)


def raised(acceptance: Acceptance, k: int) -> Acceptance:
    """The same with every rejection half as likely, position by position."""
    rates = acceptance.probabilities(k)
    return replace(
        acceptance, unconditional=tuple(1 - (1 - rate) / 2 for rate in rates), measured_positions=k
    )


def state(
    system: System, load: Workload, clients: int, rate: float | None
) -> SteadyState | OpenState:
    return closed_loop(system, load, clients) if rate is None else open_loop(system, load, rate)


def below(rule: str, value: float, limit: float, within: float = EXACT) -> Iterator[Miss]:
    """A miss where a value is above its limit by more than this share of it."""
    if value > limit * (1 + within) + 1e-12:
        by = value / limit - 1 if limit > 0 else math.inf
        yield Miss(rule, by, f"{value:.6g} over {limit:.6g}")

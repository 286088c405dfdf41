"""How many prompts of a closed loop reach the engine together, where it runs prompts before
decoding (docs/model.md, Loads).

Two clients whose numbers of steps differ with standard deviation s each end in the same step with
probability 1 / (2 sqrt(pi) s) (two normals; at most 1); s grows with the root of the waves behind
them, and once they are spread over the whole cycle of n steps it is 1 / n. (Public P50 times of
SGLang with 16 clients and equal lengths, over those of one client: 7.7 to 9.1 where the acceptance
is pinned or there are no drafts, a whole wave being 8.5; 1.1 to 2.4 where it varies.)
"""

import math
from functools import lru_cache
from typing import NamedTuple

from specsim.analytic.system import System
from specsim.analytic.workload import Workload
from specsim.speculation.acceptance import Acceptance

# Lengths this unlike spread clients over the whole cycle within a wave, whatever the acceptance.
_UNLIKE = 0.3
_MOST_WAVES = 256  # of a long run; after them clients are as spread as they get
_SIZES = 5  # of a group that stand for all
_NEVER = 1e-280  # chance of a group of none from which sizes can no longer be counted up


def steps_spread(system: System, workload: Workload, steps: float) -> float:
    """Standard deviation of the number of decode steps between requests, over its mean."""
    lengths = workload.spread
    acceptance = system.acceptance
    if lengths >= _UNLIKE or workload.pinned or not system.speculative or acceptance is None:
        return lengths
    return math.hypot(lengths, _luck(acceptance, system.setup.method, system.setup.k, steps))


@lru_cache(maxsize=256)
def _luck(acceptance: Acceptance, method: str, k: int, steps: float) -> float:
    """The part of that from acceptance: requests differ, and so do the steps of one."""
    from specsim.speculation.acceptance_spread import build_tables, default_acceptance_spread

    spread = default_acceptance_spread(method, acceptance.draft_probability)
    tables = build_tables(acceptance, spread, k=k)
    shares = tables.request_weights()
    means = tables.tokens().mean(axis=1)
    mean = float(shares @ means)
    between = float(shares @ (means - mean) ** 2)
    memory = tables.persistence / (1 - tables.persistence)
    step = tables.token_variance() + 2 * memory * tables.tokens().var(axis=1)
    within = float(shares @ step) / max(1.0, steps)
    return math.sqrt(between + within) / mean


def together(running: int, steps: float, spread: float, waves: int) -> float:
    """Mean prompts that come at once (1 to running) after the start of a run.

    steps: decode steps of a request; spread: their standard deviation over their mean; waves:
    requests each client sends, 0 for a steady state."""
    if spread <= 0:
        return float(running)
    floor = 1 / max(1.0, steps)
    count = min(waves - 1, _MOST_WAVES)
    if count < 1:
        share = floor
    else:
        apart = [spread * steps * math.sqrt(wave) for wave in range(1, count + 1)]
        shares = [min(1.0, max(floor, 1 / (2 * math.sqrt(math.pi) * sd))) for sd in apart]
        share = sum(shares) / count
    return 1 + (running - 1) * min(1.0, share)


def group_sizes(running: int, together: float) -> list[float]:
    """Equally likely sizes of a group (means of equal shares of them), each group counted once.
    `together` counts each once per prompt, as a request meets them: it finds itself in a large
    group more often than large groups come.

    Each of `running` clients joins with probability p, 1 + (running - 1) p = together; groups of
    none are no groups. From one half on, or hundreds together, all groups are about as large as the
    mean."""
    if running <= 1 or together <= 1:
        return [1.0]
    joins = (together - 1) / (running - 1)
    none = running * math.log1p(-joins) if joins < 1 else -math.inf
    chance = math.exp(none)
    if joins >= 0.5 or chance < _NEVER:
        return [running * joins / (1 - chance)]
    each = -math.expm1(none) / _SIZES  # 1 - chance, which would be 0 for the rarest groups
    sizes: list[float] = []
    size, left, filled, total = 0, 0.0, 0.0, 0.0
    while len(sizes) < _SIZES:
        if left <= 0:
            if size == running:
                return [*sizes, total / filled] if filled > 0 else sizes
            chance *= joins / (1 - joins) * (running - size) / (size + 1)
            size, left = size + 1, chance
        take = min(left, each - filled)
        left, filled, total = left - take, filled + take, total + take * size
        if filled >= each * (1 - 1e-9) or (size > running * joins and chance < 1e-9 * each):
            sizes.append(total / filled)
            filled = total = 0.0
    return sizes


class Rounds(NamedTuple):
    """Of the groups of prompts of a steady closed loop whose requests end independently. size: mean
    prompts of one. first: share of groups that run right behind a decode step; the others follow
    another group. waited: decode steps of the others that run from a request's end to the prompt of
    its client's next one."""

    size: float
    first: float
    waited: float


def rounds(ends: float, most: float, delay_steps: float, plans_ahead: bool) -> Rounds:
    """How groups of prompts follow decode steps.

    ends: requests that end in a decode step, on average; most: prompts that a step holds;
    delay_steps: what a request spends before the engine's queue, in decode steps.

    Who follows a request of step i is in the queue during step i + c, c = 1 + floor(delay). Once a
    group runs nobody ends, so all who were on their way come into the queue together, the `fresh`
    ones of c steps. An engine that plans when a step has ended takes them next, and with them all
    are through. One that plans a step ahead runs first those of the step before (`mid`), and the
    fresh ones only after another group or a second step of prompts; else a decode step comes
    between, whose own requests then are the fresh ones.
    With p and f the probabilities that one and c steps end any request, q that a group needs a
    second step of prompts: counts per cycle of decode steps, of phases of prompts and of groups."""
    some = -math.expm1(-ends)
    count = 1 + math.floor(delay_steps)
    fresh = -math.expm1(-ends * count)
    if some <= 0:
        return Rounds(1.0, 1.0, float(count))
    if not plans_ahead:
        decodes, phases, groups = 1 / some + count, 1.0, 1 + fresh
        waited = count / some + count * (count - 1) / 2
    else:
        second = 1 - _poisson_up_to(ends, most) / some
        through = 1 - (1 - some) * (1 - second)
        more = (1 - through) * fresh / max(1e-12, 1 - (1 - second) * some)
        decodes, phases = 1 / some + count + 1 + more, 1 + more
        groups = 1 + some + through * fresh + more * (1 + second * some)
        waited = (count + 1) / some + count + count * ((count - 1) / 2 + 1 - through) + more
    size = max(1.0, ends * decodes / groups)
    return Rounds(size, min(1.0, phases / groups), waited / decodes)


def _poisson_up_to(mean: float, most: float) -> float:
    """Probability of 1 to `most` events."""
    if most >= mean + 10 * math.sqrt(mean) + 10:
        return -math.expm1(-mean)
    chance, total = math.exp(-mean), 0.0
    for size in range(1, int(most) + 1):
        chance *= mean / size
        total += chance
    return total


def joining(clients: int, size: float) -> float:
    """`together` of groups of that mean size, of clients that join independently."""
    share = size / clients
    for _ in range(50):
        share = size / clients * (1 - (1 - min(1.0, share)) ** clients)
    return 1 + (clients - 1) * min(1.0, share)

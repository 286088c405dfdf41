"""How many requests to let run together (max_num_seqs) so that every stream keeps a floor.

The floor is on the p10 of the streams' rates (tokens per second, 1 / TPOT of a request), with all
slots taken: more people than the slots serve, so that one is always waiting and the streams share
the engine with the prompts that keep coming. What holds then holds at any load. Fewer slots would
make people wait for no reason, more would let streams fall below the floor when it is busy.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from specsim.analytic.closed import closed_loop, running_limit
from specsim.analytic.system import System
from specsim.jsonable import Jsonable
from specsim.planning.capacity_loads import LoadShape, People
from specsim.planning.capacity_start import SPREAD_P10, turns_of, usual_workload
from specsim.search import first_between

GATE = "stream_tok_s_p10"
CROWDED = 1.25  # people, or arrivals, over what keeps the slots taken by formulas
MOST_SLOTS = 2048


@dataclass(frozen=True, slots=True)
class SlotTrial(Jsonable):
    """slots that were tried with `amount` of load: p10 of the streams (tokens/s), slots taken on
    average."""

    renamed: ClassVar = {"slots": "max_num_seqs", "amount": "load", "ok": "pass"}

    slots: int
    amount: float
    stream_tok_s_p10: float
    running_mean: float
    ok: bool


@dataclass(frozen=True, slots=True)
class SlotAdvice(Jsonable):
    """slots: largest max_num_seqs (of those tried: multiples of `step`) that keeps the floor; 0:
    not even the smallest does. held_by: 'floor', or 'cache' where no more fit."""

    renamed: ClassVar = {"floor_tok_s": "floor_stream_tok_s_p10", "slots": "max_num_seqs"}

    floor_tok_s: float
    slots: int
    held_by: str
    trials: tuple[SlotTrial, ...]


def step_of(slots: int) -> int:
    """Granularity that people give max_num_seqs in."""
    return 8 if slots >= 32 else 4 if slots >= 12 else 1


def crowd_for(system: System, shape: LoadShape, slots: int) -> float:
    """Load that keeps `slots` taken: Little's law at the formulas' time per request."""
    if isinstance(shape, People):
        turns = turns_of(shape)
        workload = turns.workload(0.3)
        limit = min(slots, running_limit(system, workload))
        state = closed_loop(system, workload, limit)
        think_s = turns.pause_s if shape.thinking else 0.0
        return float(math.ceil(CROWDED * (slots + state.request_rate * think_s)))
    limit = min(slots, running_limit(system, shape.workload))
    return CROWDED * closed_loop(system, shape.workload, limit).request_rate


def first_slots(system: System, shape: LoadShape, floor_tok_s: float) -> int:
    """Request slots that keep the floor by formulas, whatever max_num_seqs the system has."""
    system = system.with_(max_num_seqs=MOST_SLOTS)
    workload = usual_workload(shape)

    def misses(slots: int) -> bool:
        stream_tok_s = closed_loop(system, workload, slots).stream_tok_s
        return SPREAD_P10 * stream_tok_s < floor_tok_s

    return first_between(misses, 1, min(MOST_SLOTS, running_limit(system, workload)) + 1) - 1


def recommend_slots(
    guess: int, floor_tok_s: float, attempt: Callable[[int], SlotTrial], most: int = MOST_SLOTS
) -> SlotAdvice:
    """Largest slots that keep the floor. attempt(slots) runs them with all slots taken."""
    known: dict[int, SlotTrial] = {}
    step = step_of(guess)

    def keeps(slots: int) -> bool:
        if slots not in known:
            known[slots] = attempt(slots)
        return known[slots].ok

    def snapped(slots: float) -> int:
        return max(step, min(most // step * step, round(slots / step) * step))

    slots = snapped(guess)
    held_by = "floor"
    low, high = 0, 0
    if keeps(slots):
        low = slots
        while low < most // step * step:
            trial = known[low]
            if trial.running_mean < 0.8 * low:
                held_by = "cache"  # no more slots are ever taken
                break
            higher = snapped(max(low + step, low * 1.3))
            if not keeps(higher):
                high = higher
                break
            low = higher
    else:
        high = slots
        while high > step:
            lower = snapped(min(high - step, high / 1.3))
            if keeps(lower):
                low = lower
                break
            high = lower
    while high and high - low > step:
        middle = snapped((low + high) / 2)
        if middle in (low, high):
            break
        if keeps(middle):
            low = middle
        else:
            high = middle
    return SlotAdvice(floor_tok_s, low, held_by, tuple(known[n] for n in sorted(known)))

"""How many requests to let run together (max_num_seqs) so that every stream keeps a floor.

The floor is on the p10 of the streams' rates (tokens per second, 1 / TPOT of a request), with all
seats taken: more people than the seats serve, so that one is always waiting and the streams share
the engine with the prompts that keep coming. What holds then holds at any load. Fewer seats would
make people wait for no reason, more would let streams fall below the floor when it is busy.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from specsim.analytic.closed import closed_loop, running_limit
from specsim.analytic.system import System
from specsim.jsonable import Jsonable
from specsim.planning.capacity_loads import Arrivals, LoadShape, People
from specsim.planning.capacity_start import SPREAD_P10, turns_of, usual_workload
from specsim.search import first_between

GATE = "stream_tok_s_p10"
CROWDED = 1.25  # people, or arrivals, over what keeps the seats taken by formulas
MOST_SEATS = 2048


@dataclass(frozen=True, slots=True)
class SeatTrial(Jsonable):
    """seats that were tried with `amount` of load: p10 of the streams (tokens/s), seats taken on
    average."""

    renamed: ClassVar = {"seats": "max_num_seqs", "amount": "load", "ok": "pass"}

    seats: int
    amount: float
    stream_tok_s_p10: float
    running_mean: float
    ok: bool


@dataclass(frozen=True, slots=True)
class Seats(Jsonable):
    """seats: largest max_num_seqs (of those tried: multiples of `step`) that keeps the floor; 0:
    not even the smallest does. held_by: 'floor', or 'cache' where no more fit."""

    renamed: ClassVar = {"floor_tok_s": "floor_stream_tok_s_p10", "seats": "max_num_seqs"}

    floor_tok_s: float
    seats: int
    held_by: str
    trials: tuple[SeatTrial, ...]


def step_of(seats: int) -> int:
    """Granularity that people give max_num_seqs in."""
    return 8 if seats >= 32 else 4 if seats >= 12 else 1


def crowd_for(system: System, shape: LoadShape, seats: int) -> float:
    """Load that keeps `seats` taken: Little's law at the formulas' time per request."""
    if isinstance(shape, People):
        turns = turns_of(shape)
        workload = turns.workload(0.3)
        limit = min(seats, running_limit(system, workload))
        state = closed_loop(system, workload, limit)
        think_s = turns.pause_s if shape.thinking else 0.0
        return float(math.ceil(CROWDED * (seats + state.request_rate * think_s)))
    assert isinstance(shape, Arrivals)
    limit = min(seats, running_limit(system, shape.workload))
    return CROWDED * closed_loop(system, shape.workload, limit).request_rate


def first_seats(system: System, shape: LoadShape, floor_tok_s: float) -> int:
    """Seats that keep the floor by formulas, whatever max_num_seqs the system has."""
    system = system.with_(max_num_seqs=MOST_SEATS)
    workload = usual_workload(shape)

    def misses(seats: int) -> bool:
        stream_tok_s = closed_loop(system, workload, seats).stream_tok_s
        return SPREAD_P10 * stream_tok_s < floor_tok_s

    return first_between(misses, 1, min(MOST_SEATS, running_limit(system, workload)) + 1) - 1


def recommend_seats(
    guess: int,
    floor_tok_s: float,
    attempt: Callable[[int], SeatTrial],
    most: int = MOST_SEATS,
) -> Seats:
    """Largest seats that keep the floor. attempt(seats) runs them with all seats taken."""
    known: dict[int, SeatTrial] = {}
    step = step_of(guess)

    def keeps(seats: int) -> bool:
        if seats not in known:
            known[seats] = attempt(seats)
        return known[seats].ok

    def snapped(seats: float) -> int:
        return max(step, min(most // step * step, round(seats / step) * step))

    seats = snapped(guess)
    held_by = "floor"
    low, high = 0, 0
    if keeps(seats):
        low = seats
        while low < most // step * step:
            trial = known[low]
            if trial.running_mean < 0.8 * low:
                held_by = "cache"  # no more seats are ever taken
                break
            higher = snapped(max(low + step, low * 1.3))
            if not keeps(higher):
                high = higher
                break
            low = higher
    else:
        high = seats
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
    return Seats(floor_tok_s, low, held_by, tuple(known[n] for n in sorted(known)))

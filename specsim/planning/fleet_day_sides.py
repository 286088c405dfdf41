"""How a model of a fleet may be served through a day: with its draft length, with others, by the
table, and off; what a replica carries so, and the ends of that by the prediction's interval.

Intervals rest on those of the predictions (`analytic.intervals`). A deployment that is f times as
slow in everything is the same one seen on a clock that runs f times as slow: it carries 1/f of what
carries limits f times as tight. That is exact for requests at a rate, and holds for people as far
as they think much longer than they are served.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import NamedTuple

from specsim.analytic.closed import SteadyState, closed_loop
from specsim.analytic.energy import energy_of, token_interval
from specsim.analytic.intervals import interval_of
from specsim.analytic.open import OpenState, open_loop
from specsim.analytic.predict import candidate_k
from specsim.analytic.system import System
from specsim.errors import SpecSimError, UsageError
from specsim.planning.capacity_loads import LoadShape, People
from specsim.planning.capacity_start import (
    Crowd,
    CrowdModel,
    Turns,
    arrivals_at,
    estimate_capacity,
    usual_workload,
)
from specsim.planning.fleet_day_file import LONGEST_START_S, Autoscale
from specsim.planning.fleet_size import Sized
from specsim.planning.tune_dynamic import dynamic_table
from specsim.sim.slo import METRICS

CROWDED = 20.0  # times the capacity: nobody's slot stays empty


class Ends(NamedTuple):
    """Capacities over the predicted one were the prediction off by its interval; slow, fast."""

    slow: float
    fast: float


class Figures:
    """Figures of a replica at a load, by formulas; kept."""

    def __init__(self, system: System, shape: LoadShape) -> None:
        self._system, self._shape = system, shape
        self._turns: Turns | None = None
        if isinstance(shape, People):
            crowd = CrowdModel(system, shape)
            self._turns, self._at = crowd.turns, cache(crowd.at)
        else:
            self._at = cache(partial(arrivals_at, system, shape))

    def __call__(self, load: float) -> Crowd:
        load = max(load, self._shape.lowest)
        return self._at(float(round(load)) if self._shape.whole else load)

    def watts(self, load: float) -> tuple[float, float, float] | None:
        """Mean watts of a GPU with the ends of their 90 % interval (NaN: has none); None where not
        known."""
        found = self(load)
        state: SteadyState | OpenState
        if self._turns is not None:
            workload = self._turns.workload(found.hit)
            state = replace(closed_loop(self._system, workload, max(1, round(found.running))),
                            running=found.running, request_rate=found.request_rate)
        else:
            workload = usual_workload(self._shape)
            state = open_loop(self._system, workload, found.amount)
        energy = energy_of(self._system, workload, state)
        if energy is None:
            return None
        ends = token_interval(self._system, energy, found.tpot_s, paced=True)
        low, high = ends or (math.nan, math.nan)
        watts_per_joule = energy.power_w / energy.joules_per_output_token
        return energy.power_w, low * watts_per_joule, high * watts_per_joule


@dataclass(frozen=True)
class Setting:
    """A way to serve: load of a replica, its GPUs, and its figures at a load."""

    name: str
    capacity: float
    gpus: int
    at: Callable[[float], Crowd]


@dataclass(frozen=True)
class Side:
    """A model with or without speculation. most_rate, cycle_s: as of a `Stream`. ends: by the
    interval of its TPOT; gain_ends: by that of its speedup."""

    sized: Sized
    at: Figures
    most_rate: float
    cycle_s: float
    start_s: float
    ends: Ends | None
    gain_ends: Ends | None


def side_of(sized: Sized, rule: Autoscale, share: float) -> Side:
    """A sized model with what a day needs besides. UsageError for a start that takes too long."""
    system, shape, plan = sized.system, sized.study.shape, sized.system.memory
    at = Figures(system, shape)
    cycle_s = 0.0
    if isinstance(shape, People):
        usual = at(share * sized.capacity)
        cycle_s = usual.amount / usual.request_rate
        most = max(at(CROWDED * sized.capacity).request_rate, sized.capacity / cycle_s)
    else:
        most = open_loop(system, shape.workload, sized.capacity).capacity_rate
        most = max(most, sized.capacity)
    weights = (plan.weight_bytes + plan.drafter_bytes) * sized.gpus
    start_s = rule.start_s
    if start_s is None:
        start_s = rule.boot_s + weights / rule.load_bytes_per_s
    if start_s > LONGEST_START_S:
        raise UsageError(
            f"model {sized.name}: a replica takes {start_s:,.0f} s to start, its weights being "
            f"{weights / 1e9:,.0f} GB; a day is planned for starts of up to 43200 s: raise "
            "load_bytes_per_s, or give start_s"
        )
    time, gain = interval_of(system, "tpot", 1.0), interval_of(system, "speedup", 1.0)
    return Side(
        sized, at, most, cycle_s, start_s, _ends(sized, time[1], time[0]) if time else None,
        _ends(sized, 1 / gain[0], 1 / gain[1]) if gain else None,
    )


def _ends(sized: Sized, slow: float, fast: float) -> Ends | None:
    """None where formulas see no load that passes, whatever runs did."""
    if not sized.estimate > sized.study.shape.lowest:
        return None
    return Ends(*(
        stretched(sized.system, sized.study.shape, sized.study.slo, f) / sized.estimate
        for f in (slow, fast)
    ))


def stretched(system: System, shape: LoadShape, gates: Mapping[str, float], slower: float) -> float:
    """Capacity by formulas if everything took `slower` times as long; 0: no load passes."""
    limits = {}
    for gate, limit in gates.items():
        metric = gate.rpartition("_")[0]
        power = 0 if metric not in METRICS else 1 if metric == "stream_tok_s" else -1
        limits[gate] = limit * slower**power
    found = estimate_capacity(system, shape, limits)
    return found / slower if found > shape.lowest else 0.0


def settings_of(with_it: Side, without: Side) -> tuple[Setting, ...]:
    """Off, every draft length, and the table by batch size where the engine takes one."""
    plain, sized = without.sized, with_it.sized
    found = [Setting("off", plain.capacity, plain.gpus, without.at)]
    system, shape = sized.system, sized.study.shape
    if not system.speculative:
        return tuple(found)
    own = system.setup.k
    lengths = {own: Setting(f"k={own}", sized.capacity, sized.gpus, with_it.at)}
    for k in (k for k in candidate_k(system) if k != own):
        try:
            other = system.with_(k=k)
            most = estimate_capacity(other, shape, sized.study.slo)
        except SpecSimError:
            continue
        if most > shape.lowest:
            most *= sized.capacity / sized.estimate  # simulated over formulas
            lengths[k] = Setting(f"k={k}", most, sized.gpus, Figures(other, shape))
    found += [lengths[k] for k in sorted(lengths)]
    if len(lengths) > 1 and "draft_table" in system.engine.server.gained:
        found += _by_table(system, shape, plain, found[0], lengths)
    return tuple(found)


def _by_table(
    system: System, shape: LoadShape, plain: Sized, off: Setting, lengths: Mapping[int, Setting]
) -> list[Setting]:
    """The engine's table of draft lengths: at a load the length that it has for the batch that the
    plan's own length keeps running; k = 0 is off with the tax of a drafter that stays in memory."""
    try:
        table = dynamic_table(system, list(lengths), usual_workload(shape), system.setup.k)
    except SpecSimError:
        return []
    own, taxes = lengths[system.setup.k], {p.seqs: p.tax for p in table.points}

    def at(load: float) -> Crowd:
        seqs = round(own.at(min(load, own.capacity)).running)
        k = next((k for _, last, k in table.rows if seqs <= last), table.rows[-1][2])
        if k:
            return lengths[k].at(load)
        found = off.at(load)
        tax = taxes[min(taxes, key=lambda size: abs(size - seqs))]
        return replace(found, tpot_s=found.tpot_s * (1 + tax))

    used = {k for _, _, k in table.rows if k in lengths}
    most = max((lengths[k].capacity for k in used), default=0.0)
    if table.turns_off and plain.gpus == own.gpus:
        most = max(most, off.capacity / (1 + max(taxes.values())))
    return [Setting("table", most, own.gpus, at)] if most > 0 else []

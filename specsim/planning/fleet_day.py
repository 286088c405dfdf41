"""A fleet through a day: replicas and GPUs by the hour, with and without speculation, what they
cost, and how much of the demand meets its objectives (docs/capacity.md).

Each model is served as the plan has it, and beside that as it would be planned without speculation
on the same type of GPU. `fleet_flow` runs both days. Every hour is also looked at with each other
draft length, off, and the table by batch size: the best is the one that needs the fewest GPUs, of
those the fastest (TPOT).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from specsim.hardware.profile import HardwareProfile
from specsim.planning.fleet import replicas_needed
from specsim.planning.fleet_day_file import HOUR_S, HOURS, Autoscale, Day, demand_at
from specsim.planning.fleet_day_sides import Setting, Side, settings_of, side_of
from specsim.planning.fleet_file import FleetPlanFile, Wanted
from specsim.planning.fleet_flow import Flow, Scaling, Stream, run_day
from specsim.planning.fleet_result import (
    DayHour,
    DayModel,
    DaySetting,
    DaySide,
    Endpoint,
    FleetDay,
    FleetFigures,
)
from specsim.planning.fleet_size import Asked, Effort, Misfit, size_model

ENDS = ("fast", "slow")  # of a prediction's interval
# Running and waiting requests, as vLLM and SGLang call them.
VLLM_GAUGES = "vllm:num_requests_running", "vllm:num_requests_waiting"
GAUGES = {"sglang": ("sglang:num_running_reqs", "sglang:num_queue_reqs")}


@dataclass(frozen=True)
class _Model:
    """One model's day. demand: in each step. lost: replicas that fail together."""

    wanted: Wanted
    demand: list[float]
    rule: Autoscale
    with_it: Side
    without: Side
    settings: tuple[Setting, ...]
    lost: int


def check_day(file: FleetPlanFile) -> None:
    """UsageError for a model that has no demand by the hour, before anything is planned."""
    for model in file.models:
        if model.demand != "fill":
            _ = model.day_shares


def plan_day(
    file: FleetPlanFile, asked: Mapping[str, Asked], plan: FleetFigures,
    profiles: Mapping[str, HardwareProfile], effort: Effort,
    tell: Callable[[str], None] | None = None,
) -> FleetFigures:
    """The plan with its day. UsageError as from `check_day`."""
    day = file.day or Day()
    notes: list[str] = []
    models = []
    for endpoint in plan.endpoints:
        wanted = next(item for item in file.models if item.name == endpoint.name)
        if wanted.demand == "fill":
            notes.append(f"{wanted.name} fills what is left; it is no part of the day")
            continue
        if tell is not None:
            tell(f"{wanted.name} through the day")
        model = _model(file, day, wanted, asked[wanted.name], endpoint, profiles, effort)
        models.append(model)
        if model.without is model.with_it and endpoint.sized.system.speculative:
            notes.append(f"{wanted.name}: without speculation no load meets the objectives on "
                         f"{endpoint.sized.gpu}; nothing is compared")
        if endpoint.shares_gpu:
            notes.append(f"{wanted.name}: each GPU of a replica counts whole over the day")
    if not models:
        notes.append("no model with a demand is served: there is no day to show")
    found, more = _Planner(file, day, models).plan()
    return replace(plan, day=found, warnings=(*plan.warnings, *notes, *more))


def _model(
    file: FleetPlanFile, day: Day, wanted: Wanted, asked: Asked, endpoint: Endpoint,
    profiles: Mapping[str, HardwareProfile], effort: Effort,
) -> _Model:
    sized, rule = endpoint.sized, wanted.autoscale or Autoscale()
    demand = demand_at(wanted.day_shares, day.step_s, asked.demand)
    plain = sized
    if sized.system.speculative:
        other = replace(asked, build=lambda gpu, tp: asked.build(gpu, tp).plain(), k_fixed=True)
        found = size_model(other, sized.gpu, effort)
        plain = sized if isinstance(found, Misfit) or found.capacity <= 0 else found
    pool = file.pool(sized.gpu)
    node = pool.per_node or max(1, profiles[sized.gpu].gpus_per_node)
    with_it = side_of(sized, rule, file.operating_share)
    without = with_it if plain is sized else side_of(plain, rule, file.operating_share)
    return _Model(
        wanted, demand, rule, with_it, without, settings_of(with_it, without),
        max(1, node // sized.gpus) if day.lost == "node" else 1,
    )


@dataclass(frozen=True)
class _Planner:
    """The flows of all models, and what they add up to."""

    file: FleetPlanFile
    day: Day
    models: Sequence[_Model]

    def plan(self) -> tuple[FleetDay, list[str]]:
        """The day, and what to know about it."""
        run, sides = self._run, ("with_it", "without")
        main, plain = (run(side) for side in sides)
        free, base = (run(side, endless=True) for side in sides)
        mine, other = ([run(side, end, end, endless=True) for end in ENDS] for side in sides)
        gains = [run("with_it", end, end, gain=True, endless=True) for end in ENDS]
        relied, drill = [run("with_it", "", end) for end in ENDS], run("with_it", drill=True)
        found, notes = [], []
        for i, model in enumerate(self.models):
            one, two = model.with_it, model.without
            needs, needs_without = self._hours(free, i, one), self._hours(base, i, two)
            first, last, _ = self._fails(model)
            setup, shape = one.sized.system.setup, one.sized.study.shape
            ends, ends_without, saved = (
                [self._hours(flows, i, side) for flows in pair]
                for pair, side in ((mine, one), (other, two), (gains, one))
            )
            found.append(DayModel(
                model.wanted.name, shape.unit, setup.method, setup.k, self._autoscale(model),
                self._day_of(model, one, main[i], ends,
                             [flows[i].share() if flows else None for flows in relied]),
                self._day_of(model, two, plain[i], ends_without, []),
                needs_without - needs,
                _pair([needs_without - hours for hours in saved])
                if one.gain_ends or not one.sized.system.speculative else None,
                drill[i].share(first, last), self._by_setting(model),
                tuple(self._hour(model, hour, main[i], plain[i]) for hour in range(HOURS)),
            ))
            if main[i].replicas != free[i].replicas:
                notes.append(
                    f"{model.wanted.name}: at some hours the pool has fewer GPUs than its rule "
                    "asks for; intervals and savings are of what it asks for"
                )
        assumed = [m.wanted.name for m in self.models if m.rule.start_s is None]
        if assumed:
            notes.append(
                f"time that a replica takes to start is assumed for {', '.join(assumed)} (boot_s + "
                "weights / load_bytes_per_s); measure it and give start_s"
            )
        day = self.day
        return FleetDay(day.step_s, day.lost, day.timezone, tuple(found)), notes

    # --- flows ----------------------------------------------------------------------------------

    def _run(
        self, kind: str, believed: str = "", true: str = "", *, gain: bool = False,
        drill: bool = False, endless: bool = False,
    ) -> list[Flow]:
        """believed, true: capacities that the rules count on and that there are, the predicted or
        the 'slow' and 'fast' end of its interval. No flows where an end carries nothing, or there
        is no interval. endless: a pool without limits."""
        streams = []
        for model in self.models:
            side: Side = getattr(model, kind)
            ends = side.gain_ends if gain else side.ends
            if true and ends is None and not gain:
                return []
            counted, real = (
                getattr(ends, end) if end and ends is not None else 1.0 for end in (believed, true)
            )
            if not counted > 0:
                return []
            sized = side.sized
            streams.append(Stream(
                model.demand, sized.gpu, sized.gpus, sized.capacity * counted,
                sized.capacity * real, side.most_rate * real, self._scaling(model, side),
                side.cycle_s, partial(_waiting, side), self._fails(model) if drill else (0, 0, 0),
            ))

        def pool(gpu: str, step: int) -> float:
            if endless:
                return math.inf
            hour = step * self.day.step_s / HOUR_S
            away = sum(m.gpus for m in self.file.maintenance if m.type == gpu and m.covers(hour))
            return self.file.pool(gpu).count - away

        return run_day(streams, pool, self.day.step_s, self.day.give_up_s)

    def _scaling(self, model: _Model, side: Side) -> Scaling:
        rule, step_s = model.rule, self.day.step_s
        return Scaling(
            rule.target_utilisation or self.file.operating_share, rule.target_queue or 0.0,
            self._spares(model), model.wanted.min_replicas, rule.max_replicas or 10**9,
            *(math.ceil(s / step_s) for s in (side.start_s, rule.cool_down_s, rule.ahead_s)),
        )

    def _autoscale(self, model: _Model) -> dict[str, object]:
        """What an autoscaler is told: running requests at the load that is aimed at, or those
        that wait."""
        side, rule = model.with_it, self._scaling(model, model.with_it)
        pool = self.file.pool(side.sized.gpu)
        least = replicas_needed(0.0, 1.0, 1.0, rule.spares, rule.least)
        return {
            "metric": GAUGES.get(side.sized.system.engine.name, VLLM_GAUGES)[rule.queue > 0],
            "target": rule.queue or side.at(rule.share * side.sized.capacity).running,
            "min_replicas": least,
            "max_replicas": max(least, model.rule.max_replicas or pool.count // side.sized.gpus),
            "cool_down_s": model.rule.cool_down_s,
        }

    def _spares(self, model: _Model) -> int:
        """Replicas that fail together, where the demand is to survive that."""
        return model.lost if model.wanted.n_minus_1 else 0

    def _fails(self, model: _Model) -> tuple[int, int, int]:
        """What is lost at the peak, until another has started."""
        peak = max(range(len(model.demand)), key=lambda step: model.demand[step])
        away = max(1, math.ceil(model.with_it.start_s / self.day.step_s))
        return peak, min(peak + away, len(model.demand)), model.lost

    def _hours(self, flows: list[Flow], i: int, side: Side) -> float:
        """GPU-hours of a model; NaN without flows."""
        if not flows:
            return math.nan
        return math.fsum(flows[i].replicas) * side.sized.gpus * self.day.step_s / HOUR_S

    # --- figures --------------------------------------------------------------------------------

    def _slice(self, hour: int) -> slice:
        each = 3600 // self.day.step_s
        return slice(hour * each, (hour + 1) * each)

    def _load(self, side: Side, flow: Flow, demand: Sequence[float], hour: int) -> float:
        """A replica's mean load of the hour, at most its capacity."""
        part = self._slice(hour)
        return min(side.sized.capacity, sum(demand[part]) / max(1, sum(flow.ready[part])))

    def _day_of(
        self, model: _Model, side: Side, flow: Flow, ends: Sequence[float],
        shares: Sequence[float | None],
    ) -> DaySide:
        sized = side.sized
        hours = self._hours([flow], 0, side)
        price = self.file.pool(sized.gpu).price_per_gpu_hour
        joules = [0.0, 0.0, 0.0]
        for hour in range(HOURS):
            watts = side.at.watts(self._load(side, flow, model.demand, hour))
            gpu_s = sum(flow.replicas[self._slice(hour)]) * sized.gpus * self.day.step_s
            joules = [j + watt * gpu_s for j, watt in zip(joules, watts or (), strict=False)]
        energy: Sequence[float | None] = joules or [None, None, None]  # power may not be known
        peak = max(flow.replicas)
        return DaySide(
            sized.capacity, sized.gpus, side.start_s, peak, hours, _pair(ends),
            peak * sized.gpus * float(HOURS), None if price is None else price * hours,
            energy[0], _pair(energy[1:]), flow.share(), _pair(shares),
            flow.longest_wait_s(self.day.step_s), math.fsum(flow.given_up),
        )

    def _hour(self, model: _Model, hour: int, flow: Flow, plain: Flow) -> DayHour:
        part, one, two = self._slice(hour), model.with_it, model.without
        steps = len(flow.replicas[part])
        best = self._best(model, hour)
        return DayHour(
            hour, max(model.demand[part]), max(flow.replicas[part]),
            sum(flow.replicas[part]) * one.sized.gpus / steps,
            sum(plain.replicas[part]) * two.sized.gpus / steps,
            best.name, one.at(self._load(one, flow, model.demand, hour)).tpot_s,
            two.at(self._load(two, plain, model.demand, hour)).tpot_s,
            flow.share(part.start, part.stop), plain.share(part.start, part.stop),
            flow.longest_wait_s(self.day.step_s, part.start, part.stop),
        )

    def _needs(self, model: _Model, setting: Setting, hour: int) -> tuple[int, float]:
        """GPUs for the hour's largest demand, and TPOT at its mean."""
        part = self._slice(hour)
        share = model.rule.target_utilisation or self.file.operating_share
        count = replicas_needed(
            max(model.demand[part]), setting.capacity, share, self._spares(model),
            model.wanted.min_replicas,
        )
        mean = sum(model.demand[part]) / len(model.demand[part])
        return count * setting.gpus, setting.at(min(setting.capacity, mean / count)).tpot_s

    def _best(self, model: _Model, hour: int) -> Setting:
        return min(model.settings, key=lambda setting: self._needs(model, setting, hour))

    def _by_setting(self, model: _Model) -> tuple[DaySetting, ...]:
        """Each setting all day, and the best of every hour."""
        weights = [sum(model.demand[self._slice(hour)]) for hour in range(HOURS)]

        def of(name: str, capacity: float | None, chosen: list[Setting]) -> DaySetting:
            needs = [self._needs(model, setting, hour) for hour, setting in enumerate(chosen)]
            tpot_s = math.fsum(w * t for w, (_, t) in zip(weights, needs, strict=True))
            return DaySetting(
                name, capacity, sum(gpus for gpus, _ in needs), tpot_s / math.fsum(weights)
            )

        out = [of(one.name, one.capacity, [one] * HOURS) for one in model.settings]
        if len(out) > 1:
            chosen = [self._best(model, hour) for hour in range(HOURS)]
            out.append(of("best of each hour", None, chosen))
        return tuple(out)


def _waiting(side: Side, load: float) -> float:
    return min(1e9, side.at(load).waiting)


def _pair(ends: Sequence[float | None]) -> tuple[float, float] | None:
    known = [end for end in ends if end is not None and not math.isnan(end)]
    return (min(known), max(known)) if known and len(known) == len(ends) else None

"""A fleet: which endpoints, how many replicas, on which GPUs, and what happens when one fails
(docs/capacity.md).

Each model is sized on every type of GPU it may run on (`fleet_size`), gets ceil(demand / (share x
capacity)) replicas, with N - 1 at least ceil(demand / capacity) + 1, and all are packed onto the
pool (`fleet_pack`). Of all combinations of types (up to MOST_COMBINATIONS; beyond that each model
takes its cheapest) the one that leaves least demand unserved is taken, of those the cheapest.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from specsim.analytic.system import System
from specsim.errors import SpecSimError, UsageError
from specsim.hardware.profile import HardwareProfile
from specsim.planning.capacity_demand import whole
from specsim.planning.capacity_result import flags_of
from specsim.planning.capacity_runs import Trial
from specsim.planning.capacity_slots import GATE
from specsim.planning.cost import cost_of
from specsim.planning.fleet_file import FleetPlanFile, Wanted
from specsim.planning.fleet_pack import Piece, devices_of, pack
from specsim.planning.fleet_result import Endpoint, FleetFigures, Shortage
from specsim.planning.fleet_size import Asked, Effort, Misfit, Sized, point_at, size_model
from specsim.units import counted

MOST_COMBINATIONS = 512
Tell = Callable[[str], None]


@dataclass(frozen=True)
class _Choice:
    """A model on one type, with the replicas its demand needs."""

    wanted: Wanted
    sized: Sized
    demand: float
    replicas: int
    lean: int  # without N - 1

    @property
    def shares(self) -> bool:
        """Whether a replica may share its device with other models."""
        return self.wanted.share_gpu and self.sized.gpus == 1


def carried(replicas: int, capacity: float, share: float, n_minus_1: bool) -> float:
    """Load that so many replicas carry at the operating share, and after a failure if asked."""
    load = share * capacity * replicas
    return min(load, capacity * (replicas - 1)) if n_minus_1 else load


def replicas_needed(
    demand: float, capacity: float, share: float, spares: int, least: int = 1
) -> int:
    """Replicas whose `carried` load reaches the demand, also after `spares` of them are lost."""
    count = max(least, whole(demand / (share * capacity)))
    return max(count, whole(demand / capacity) + spares) if spares else count


def plan_fleet(
    file: FleetPlanFile, asked: Mapping[str, Asked], profiles: Mapping[str, HardwareProfile],
    effort: Effort, *, tell: Tell | None = None, warnings: Sequence[str] = (),
) -> FleetFigures:
    """Size every model, pack, and look at the load of each replica before and after a failure.

    asked: by the model's name; profiles: by type of GPU. UsageError for a model whose options no
    GPU of any size would accept."""
    return _Planner(file, asked, profiles, effort, tell, list(warnings)).plan()


@dataclass
class _Planner:
    """One plan in the making. cut: Ctrl-C came, and what follows is by formulas."""

    file: FleetPlanFile
    asked: Mapping[str, Asked]
    profiles: Mapping[str, HardwareProfile]
    effort: Effort
    tell: Tell | None
    notes: list[str]
    cut: bool = False
    misfits: list[Misfit] = field(default_factory=list)

    def plan(self) -> FleetFigures:
        file = self.file
        choices = []
        for model in file.models:
            sized = self._sizes(model)
            if sized:
                demand = self.asked[model.name].demand
                choices.append(
                    [_choice(model, option, demand, file.operating_share) for option in sized]
                )
        best, empty = _best(file, choices, self.profiles)
        endpoints = []
        for choice, places in best:
            quick = self.effort.quick or self.cut
            try:
                found = self._endpoint(choice, places, quick)
            except KeyboardInterrupt:
                self.cut = True
                found = self._endpoint(choice, places, True)
            endpoints.append(found)
        if self.cut:
            self._note("interrupted: what was not simulated until then is by formulas, or missing")
        return FleetFigures(
            file.name, file.operating_share, tuple(endpoints), tuple(self.misfits),
            _shortages(file, [choice for choice, _ in best]), empty, _price(file, endpoints),
            self.effort.quick, tuple(self.notes), self.cut,
        )

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def _say(self, text: str) -> None:
        if self.tell is not None:
            self.tell(text)

    def _sizes(self, model: Wanted) -> list[Sized]:
        """The model on every type that serves it; where none does, the misfits are kept."""
        sized: list[Sized] = []
        failed: list[Misfit] = []
        for gpu in model.gpus:
            where = f"{model.name} on {gpu}"
            self._say(where)

            def heard(trial: Trial, _: object, where: str = where) -> None:
                self._say(f"{where}: load {trial.amount:g}")

            effort = replace(self.effort, quick=self.effort.quick or self.cut)
            try:
                found = size_model(self.asked[model.name], gpu, effort, heard)
            except KeyboardInterrupt:
                self.cut = True
                found = size_model(self.asked[model.name], gpu, Effort(quick=True))
            if isinstance(found, Misfit):
                failed.append(found)
            elif found.capacity <= 0:
                limit = f" ({found.limit.name})" if found.limit else ""
                failed.append(
                    Misfit(model.name, gpu, f"no load meets the objectives on {gpu}{limit}")
                )
            else:
                sized.append(found)
                for note in found.notes:
                    self._note(note)
        if not sized:
            if all(found.refused for found in failed):
                raise UsageError(f"model {model.name}: {failed[0].reason}")
            self.misfits += failed
        return sized

    def _endpoint(self, choice: _Choice, places: list[tuple[str, ...]], quick: bool) -> Endpoint:
        sized, model = choice.sized, choice.wanted
        count = len(places)
        load = carried(count, sized.capacity, self.file.operating_share, model.n_minus_1)
        served = min(choice.demand, load) if choice.demand else load
        normal = failed = None
        shape, seed = sized.study.shape, self.effort.seed
        if not quick and count and served > 0:
            self._say(f"{sized.name}: {counted(count, 'replica')} at the demand")
            normal = point_at(sized, _amount(served / count, shape.whole), seed)
            if count > 1:
                failed = point_at(sized, _amount(served / (count - 1), shape.whole), seed)
        flags, no_flags = None, ""
        try:
            flags = flags_of(sized.study, _sharing(choice))
            for text in flags.warnings:
                self._note(f"{sized.name}: {text}")
        except SpecSimError as error:
            no_flags = str(error)
        if choice.shares:
            self.notes.append(
                f"{sized.name} may share its GPUs: time is assumed to be shared in proportion to "
                "load; its command has the part of the memory that it was given, its cost counts "
                "each GPU whole"
            )
        cost = None
        if normal is not None:
            rate = (normal.figures["output_tok_s"] or 0.0) * count
            price = self.file.pool(sized.gpu).price_per_gpu_hour
            joules = normal.figures["energy.joules_per_output_token"]
            cost = cost_of(rate, count * sized.gpus, sized.system.profile, price, joules)
        return Endpoint(
            sized, shape.unit, choice.demand, model.n_minus_1, choice.shares, choice.replicas,
            count, load, tuple(places), normal, failed, flags, no_flags, cost,
        )


def _choice(model: Wanted, sized: Sized, demand: float, share: float) -> _Choice:
    if model.demand == "fill":
        least = max(model.min_replicas, 2 if model.n_minus_1 else 1)
        return _Choice(model, sized, 0.0, least, model.min_replicas)
    count, lean = (
        replicas_needed(demand, sized.capacity, share, spare, model.min_replicas)
        for spare in (model.n_minus_1, False)
    )
    return _Choice(model, sized, demand, count, lean)


_Assigned = list[tuple[_Choice, list[tuple[str, ...]]]]


def _best(
    file: FleetPlanFile, choices: Sequence[Sequence[_Choice]],
    profiles: Mapping[str, HardwareProfile],
) -> tuple[_Assigned, dict[str, int]]:
    """The combination of types that leaves least unserved, then the cheapest."""
    prices = {pool.type: pool.price_per_gpu_hour or 1.0 for pool in file.gpus}

    def price(choice: _Choice) -> float:
        return choice.replicas * choice.sized.gpus * prices[choice.sized.gpu]

    if math.prod(len(options) for options in choices) > MOST_COMBINATIONS:
        choices = [[min(options, key=price)] for options in choices]
    best: tuple[tuple[float, float], _Assigned, dict[str, int]] | None = None
    for combination in itertools.product(*choices):
        assigned, empty = _assign(file, combination, profiles)
        missing = 0.0
        for choice, places in assigned:
            if choice.demand > 0:
                load = carried(
                    len(places), choice.sized.capacity, file.operating_share,
                    choice.wanted.n_minus_1,
                )
                missing += max(0.0, 1.0 - load / choice.demand)
            missing += 0.001 * max(0, choice.replicas - len(places))
        score = (round(missing, 9), sum(price(choice) for choice in combination))
        if best is None or score < best[0]:
            best = (score, assigned, empty)
    assert best is not None
    return best[1], best[2]


def _assign(
    file: FleetPlanFile, combination: Sequence[_Choice], profiles: Mapping[str, HardwareProfile]
) -> tuple[_Assigned, dict[str, int]]:
    """Pack a combination; if not all goes in, models in the order of the file, replica by replica.
    Then what fills."""
    usable: dict[str, float] = {}
    for choice in combination:
        room = choice.sized.system.memory.usable_bytes
        usable[choice.sized.gpu] = max(room, usable.get(choice.sized.gpu, 0.0))
    pools = [
        (pool.type, pool.count, pool.per_node or max(1, profiles[pool.type].gpus_per_node),
         usable.get(pool.type, 0.0))
        for pool in file.gpus
    ]
    present = {pool.type: pool.count for pool in file.gpus}
    # No pool holds more replicas than devices, however many a demand wants.
    short = any(choice.replicas > present[choice.sized.gpu] for choice in combination)
    pieces = [
        piece
        for choice in combination
        for piece in [_piece(choice)] * min(choice.replicas, present[choice.sized.gpu])
    ]
    devices = devices_of(pools)
    done = pack(devices, pieces, file.operating_share, in_order=short)
    if done.left and not short:
        devices = devices_of(pools)
        done = pack(devices, pieces, file.operating_share, in_order=True)
    places: dict[str, list[tuple[str, ...]]] = {c.wanted.name: [] for c in combination}
    for one in done.placed:
        places[one.piece.model].append(one.devices)
    for choice in combination:
        if choice.wanted.demand == "fill":
            more = pack(devices, [_piece(choice)] * present[choice.sized.gpu], file.operating_share)
            places[choice.wanted.name] += [one.devices for one in more.placed]
    empty = pack(devices, [], file.operating_share).empty
    return [(choice, places[choice.wanted.name]) for choice in combination], empty


def _piece(choice: _Choice) -> Piece:
    sized = choice.sized
    if not choice.shares:
        return Piece(sized.name, sized.gpu, sized.gpus)
    system = sized.system
    plan = system.memory
    # Cache for the requests that run with one replica lost, half as many again, each with its
    # context. Fewer run at less than capacity, at least in proportion.
    left = max(1, choice.replicas - choice.wanted.n_minus_1)
    busy = min(1.0, choice.demand / (left * sized.capacity)) if choice.demand else 1.0
    running = min(float(sized.slots), 1.5 * busy * sized.running + 1.0)
    held = running * plan.bytes_per_request(sized.study.shape.context_tokens)
    need = plan.weight_bytes + plan.drafter_bytes + plan.reserve_bytes + held
    load = choice.demand / (choice.replicas * sized.capacity)
    floor = sized.study.slo.get(GATE, 0.0)
    slack = max(0.0, 1.0 - floor / sized.stream_tok_s) if sized.stream_tok_s > 0 else 0.0
    return Piece(sized.name, sized.gpu, 1, True, need, load, slack)


def _sharing(choice: _Choice) -> System:
    """The system as it is started: with its part of the memory where it shares a device."""
    system = choice.sized.system
    if not choice.shares:
        return system
    part = _piece(choice).bytes_needed / system.memory.capacity_bytes
    return system.with_(gpu_memory_utilization=min(0.95, math.ceil(100 * part) / 100))


def _amount(load: float, whole_numbers: bool) -> float:
    """The load of the replica that has most."""
    return float(math.ceil(load - 1e-9)) if whole_numbers else load


def _shortages(file: FleetPlanFile, chosen: Sequence[_Choice]) -> tuple[Shortage, ...]:
    """GPUs that all models need by type, sharing left out of account."""
    out = []
    for pool in file.gpus:
        mine = [choice for choice in chosen if choice.sized.gpu == pool.type]
        out.append(
            Shortage(
                pool.type, sum(c.replicas * c.sized.gpus for c in mine), pool.count,
                sum(c.lean * c.sized.gpus for c in mine),
            )
        )
    return tuple(out)


def _price(file: FleetPlanFile, endpoints: Sequence[Endpoint]) -> float | None:
    """Price per hour of the devices that are used; None without prices."""
    prices = {pool.type: pool.price_per_gpu_hour for pool in file.gpus}
    used = {name for e in endpoints for names in e.devices for name in names}
    total = 0.0
    for name in used:
        price = prices[name.rpartition(":")[0]]
        if price is None:
            return None
        total += price
    return total if used else None

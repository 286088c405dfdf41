"""What a fleet plan answers: endpoints, GPUs that are short, its day by model and hour, the whole
(docs/capacity.md)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from specsim.jsonable import Jsonable, Key, jsonable, picked
from specsim.planning.capacity_result import Point
from specsim.planning.cost import Cost
from specsim.planning.flags import ReadyCommand
from specsim.planning.fleet_size import Misfit, Sized

Pair = tuple[float, float]


@dataclass(frozen=True, slots=True)
class DayHour(Jsonable):
    """One hour of one model. demand: its largest. replicas: most that are paid. gpus: mean over the
    hour, and without speculation. best_setting: fewest GPUs, then lowest TPOT. TPOT at the mean
    load; share of the demand within the objectives; longest wait in the queue."""

    hour: int
    demand: float
    replicas: int
    gpus: float
    gpus_without: float
    best_setting: str
    tpot_s: float
    tpot_without_s: float
    slo_share: float | None
    slo_share_without: float | None
    longest_wait_s: float


@dataclass(frozen=True, slots=True)
class DaySetting(Jsonable):
    """A setting all day. gpu_hours: GPUs that the largest demand of each hour needs, over all
    hours; tpot_s: mean over the demand."""

    setting: str
    capacity_per_replica: float | None
    gpu_hours: int
    tpot_s: float


@dataclass(frozen=True, slots=True)
class DaySide(Jsonable):
    """A model's day with or without speculation. gpu_hours_interval_90: were it planned at the ends
    of the prediction's interval; slo_share_interval_90: were this plan kept, and they true.
    gpu_hours_fixed: were the most replicas kept all day. energy_j: of the GPUs, hosts
    where stated. given_up: requests that waited too long."""

    capacity_per_replica: float
    gpus_per_replica: int
    start_s: float
    most_replicas: int
    gpu_hours: float
    gpu_hours_interval_90: Pair | None
    gpu_hours_fixed: float
    price: float | None
    energy_j: float | None
    energy_j_interval_90: Pair | None
    slo_share: float | None
    slo_share_interval_90: Pair | None
    longest_wait_s: float
    given_up: float


@dataclass(frozen=True)
class DayModel(Jsonable):
    """One model. autoscale: metric of vLLM and its target per replica, least and most replicas,
    cool_down_s. saved_gpu_hours: by speculation, what its rule asks for; below 0 it costs.
    slo_share_while_lost: from the loss of a replica or node at the peak until its replacement
    serves."""

    name: str
    unit: str
    method: str
    k: int
    autoscale: dict[str, object]
    with_speculation: DaySide
    without_speculation: DaySide
    saved_gpu_hours: float
    saved_gpu_hours_interval_90: Pair | None
    slo_share_while_lost: float | None
    settings: tuple[DaySetting, ...]
    hours: tuple[DayHour, ...]


@dataclass(frozen=True)
class FleetDay:
    """The day of all models. Sums of intervals are as if all predictions were off alike."""

    step_s: int
    lost: str
    timezone: str
    models: tuple[DayModel, ...]

    def rows(self) -> list[dict[str, object]]:
        """One row per model and hour."""
        return [{"name": m.name, **hour.to_dict()} for m in self.models for hour in m.hours]

    def to_dict(self) -> dict[str, object]:
        out = picked(self, "step_s lost timezone")
        sides = (("", [m.with_speculation for m in self.models]),
                 ("_without", [m.without_speculation for m in self.models]))
        for end, parts in sides:
            for key in ("gpu_hours", "gpu_hours_fixed", "price", "energy_j"):
                out[key + end] = _total([getattr(part, key) for part in parts])
            for key in ("gpu_hours", "energy_j"):
                pairs = [getattr(part, f"{key}_interval_90") for part in parts]
                out[f"{key}{end}_interval_90"] = _ends(pairs)
        saved = _ends([m.saved_gpu_hours_interval_90 for m in self.models])
        return {**out, "saved_gpu_hours": sum(m.saved_gpu_hours for m in self.models),
                "saved_gpu_hours_interval_90": saved, "models": jsonable(self.models)}


def _total(values: Sequence[float | None]) -> float | None:
    """None where one is not known."""
    return None if None in values else sum(value or 0.0 for value in values)


def _ends(pairs: Sequence[Pair | None]) -> list[float] | None:
    return None if None in pairs else [sum(pair[i] for pair in pairs if pair) for i in (0, 1)]


# Keys of an endpoint that no CSV cell holds, whether this one has them or not: the columns of all
# endpoints are the same.
NESTED = frozenset({"binding_limit", "devices", "at_demand", "after_a_failure", "cost", "flags"})


@dataclass(frozen=True)
class Endpoint:
    """A model as it is served. demand: load wanted, in `unit` (0: it fills). wanted: replicas that
    the demand needs; replicas: those placed. carries: load at the operating share that also
    survives a failure if that was asked for. normal, failed: figures of one replica at the
    demand, with all up and with one lost (None where not simulated or nothing is left)."""

    sized: Sized
    unit: str
    demand: float
    n_minus_1: bool
    shares_gpu: bool
    wanted: int
    replicas: int
    carries: float
    devices: tuple[tuple[str, ...], ...]
    normal: Point | None
    failed: Point | None
    flags: ReadyCommand | None
    no_flags: str
    cost: Cost | None

    name = model = gpu = weights = kv_dtype = method = max_num_seqs_from = Key[str]()
    tp = gpus_per_replica = gpus = k = max_num_seqs = replicas_wanted = Key[int]()
    capacity_per_replica = estimate_by_formulas = Key[float]()
    acceptance_length = load_per_replica = Key[float | None]()
    load_per_replica_after_a_failure = Key[float | None]()
    survives_a_failure = Key[bool]()
    binding_limit = at_demand = after_a_failure = Key[dict[str, Any] | None]()

    @property
    def served(self) -> float:
        """Load that is served within the rules: the demand, or as much as is carried."""
        return min(self.demand, self.carries) if self.demand else self.carries

    @property
    def survives(self) -> bool:
        """Whether the load served stays within capacity when one replica is lost."""
        return (self.replicas - 1) * self.sized.capacity >= self.served > 0

    @property
    def short(self) -> float:
        """Load that is not served."""
        return max(0.0, self.demand - self.carries)

    def row(self) -> dict[str, object]:
        """Flat, for CSV: what is not nested, and the command."""
        out = {key: value for key, value in self.to_dict().items() if key not in NESTED}
        out["command"] = self.flags.command if self.flags else None
        return out

    def to_dict(self) -> dict[str, object]:
        sized = self.sized
        each = self.served / self.replicas if self.replicas else None
        left = self.replicas - 1
        return {
            **picked(sized, "name model=system.spec.name gpu tp=system.parallel.tp "
                            "gpus_per_replica=gpus"),
            **sized.system.summary("weights", "kv_dtype", "method", "k", "acceptance_length"),
            **picked(sized, "max_num_seqs=slots max_num_seqs_from=slots_from"),
            "unit": self.unit,
            "demand": self.demand or None,
            **picked(sized, "capacity_per_replica=capacity estimate_by_formulas=estimate "
                            "binding_limit=limit"),
            "replicas_wanted": self.wanted,
            "replicas": self.replicas,
            "gpus": self.replicas * sized.gpus,
            "carries": self.carries,
            "short": self.short,
            "load_per_replica": each,
            "load_per_replica_after_a_failure": self.served / left if left > 0 else None,
            **picked(self, "n_minus_1 survives_a_failure=survives shares_gpu devices "
                           "at_demand=normal after_a_failure=failed cost flags"),
            "no_flags": self.no_flags or None,
        }


@dataclass(frozen=True)
class Shortage:
    """A type of GPU of which there are too few: how many all models need, and how many there are.
    without_spares: how many they would need without N - 1."""

    gpu: str
    needed: int
    present: int
    without_spares: int

    def to_dict(self) -> dict[str, object]:
        return {
            **picked(self, "gpu needed present"),
            "short": max(0, self.needed - self.present),
            "needed_without_n_minus_1": self.without_spares,
        }


@dataclass(frozen=True)
class FleetFigures:
    """The plan. misfits: models that fit none of their types. empty: GPUs left, by type."""

    name: str
    operating_share: float
    endpoints: tuple[Endpoint, ...]
    misfits: tuple[Misfit, ...]
    shortages: tuple[Shortage, ...]
    empty: dict[str, int]
    price_per_hour: float | None
    quick: bool
    warnings: tuple[str, ...]
    partial: bool = False
    day: FleetDay | None = None

    @property
    def fits(self) -> bool:
        return not self.misfits and all(
            e.short <= 0 and e.replicas >= e.wanted and e.replicas > 0 for e in self.endpoints
        )

    def to_dict(self) -> dict[str, object]:
        return {
            "kind": "fleet",
            **picked(self, "name fits operating_share"),
            "method": "formulas" if self.quick else "simulation",
            "endpoints": jsonable(self.endpoints),
            "does_not_fit": [picked(m, "name gpu reason") for m in self.misfits],
            **picked(self, "gpus=shortages empty_gpus=empty price_per_hour partial warnings"),
            **({"day": self.day.to_dict()} if self.day is not None else {}),
        }

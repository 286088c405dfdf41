"""What a day of a fleet answers: by model, by hour, and in all (docs/capacity.md)."""

from collections.abc import Sequence
from dataclasses import dataclass

from specsim.jsonable import Jsonable, jsonable, picked

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

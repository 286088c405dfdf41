"""What a capacity study is asked and what it answers: wishes, points, sides, the whole."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import cast

from specsim.analytic.system import System
from specsim.errors import SpecSimError
from specsim.jsonable import jsonable, picked
from specsim.planning.capacity_demand import Demand, Replicas
from specsim.planning.capacity_runs import WITH, Study
from specsim.planning.capacity_slots import SlotAdvice
from specsim.planning.cost import Cost
from specsim.planning.flags import ReadyCommand, ready_flags
from specsim.planning.ladder import Bracket
from specsim.planning.limits import Limit
from specsim.sim.passing import MOST, PassVerdict
from specsim.sim.stationarity import Stationarity

RULE = (
    "a load passes when at least half of its replications meet every SLO (the median does); it "
    "is sure when a binomial test or the margins say so at 1%, else too close to call"
)


def flags_of(study: Study, system: System) -> ReadyCommand:
    """What to type for `system` as the study ran it. UsageError where nothing starts it."""
    return ready_flags(
        system, max_model_len=cast(int, dict(study.settings).get("max_model_len", 0)),
        prefix_caching=study.prefix_caching is not False,
    )


@dataclass(frozen=True)
class Wishes:
    """How a capacity is looked for. ladder: stages to try, as a load test does; ladder_only: no
    search besides. resolution: width of the bracket, a share of the load. replications: most per
    load. share: of the capacity, at the operating point. floor_tok_s: least p10 of the streams for
    which slots are recommended, 0: none. quick: two runs per load and a wider answer."""

    replications: int = MOST
    seed: int = 0
    resolution: float = 0.05
    share: float = 0.8
    ladder: tuple[float, ...] = ()
    ladder_only: bool = False
    floor_tok_s: float = 0.0
    baseline: bool = True
    quick: bool = False
    price_per_gpu_hour: float | None = None
    demand: Demand | None = None


@dataclass(frozen=True)
class Point:
    """Median figures over `runs` replications at a load, their 95 % intervals, and whether the
    runs are stationary; names as in the summary."""

    amount: float
    runs: int
    figures: dict[str, float | None]
    verdict: PassVerdict
    confidence_95: dict[str, tuple[float, float]]
    stationarity: Stationarity

    def to_dict(self) -> dict[str, object]:
        return {
            "load": self.amount, **self.verdict.to_dict(), "figures": self.figures,
            "confidence_95": jsonable(self.confidence_95),
            "stationarity": self.stationarity.to_dict(),
        }


@dataclass(frozen=True)
class Side:
    """What one side carries with so many slots. estimate: by formulas. ladder: capacity on the
    ladder, None without one. at: figures at the capacity; operating: at the operating point."""

    side: str
    slots: int
    estimate: float
    bracket: Bracket
    ladder: float | None
    limit: Limit | None
    at: Point | None
    operating: Point | None
    relieved: Point | None = None  # the failing load with twice the slots
    cost: Cost | None = None

    @property
    def capacity(self) -> float:
        return self.bracket.capacity

    @property
    def sure_pass(self) -> float:
        """Largest load known to pass beyond doubt, the operating point among them; 0: none."""
        point = self.operating
        safe = point.amount if point and point.verdict.sure and point.verdict.ok else 0.0
        return max(self.bracket.sure_pass, safe)

    def to_dict(self) -> dict[str, object]:
        return picked(
            self, "capacity sure_pass sure_fail=bracket.sure_fail smallest_failing=bracket.fails "
                  "estimate_by_formulas=estimate max_num_seqs=slots ladder_capacity=ladder "
                  "trials=bracket.trials binding_limit=limit "
                  "failing_load_with_twice_the_slots=relieved at_capacity=at "
                  "operating_point=operating cost")



@dataclass(frozen=True)
class CapacityFigures:
    """The whole answer. partial: interrupted; then parts may be missing. other: for people, what
    carries the other question, settled service where the test as run was asked for or the other
    way round, coarser."""

    study: Study
    wishes: Wishes
    main: Side
    baseline: Side | None
    slots: SlotAdvice | None
    with_advised: Side | None
    replicas: Replicas | None
    runs: int
    partial: bool
    warnings: tuple[str, ...] = field(default=())
    reseated_replicas: Replicas | None = None  # for the demand, with the slots the floor allows
    other: Side | None = None

    @property
    def advised_slots(self) -> int:
        """max_num_seqs to serve with: the one the floor allows, unless it carries less."""
        if self.with_advised is None or self.with_advised.capacity < self.main.capacity:
            return self.main.slots
        return self.with_advised.slots

    @cached_property
    def _flags(self) -> tuple[ReadyCommand | None, str]:
        try:
            return flags_of(self.study, self.study.system_of(WITH, self.advised_slots)), ""
        except SpecSimError as error:
            return None, str(error)

    @property
    def flags(self) -> ReadyCommand | None:
        """What to type for it; None where no command line is known (`no_flags` says why)."""
        return self._flags[0]

    @property
    def no_flags(self) -> str:
        return self._flags[1]

    @property
    def gain(self) -> float | None:
        """Capacity with speculation over without."""
        if self.baseline is None or self.baseline.capacity <= 0:
            return None
        return self.main.capacity / self.baseline.capacity

    def rows(self) -> list[dict[str, object]]:
        """One flat row per load that was tried, for CSV."""
        sides = [("with", self.main)]
        if self.baseline is not None:
            sides.append(("without", self.baseline))
        if self.with_advised is not None:
            sides.append(("with recommended max_num_seqs", self.with_advised))
        return [
            {"side": name, "max_num_seqs": side.slots, "unit": self.study.shape.unit,
             **trial.to_dict()}
            for name, side in sides
            for trial in side.bracket.trials
        ]

    def to_dict(self) -> dict[str, object]:
        system, apart = self.study.system, self.study.apart
        return {
            "kind": "capacity",
            **system.summary("model", "gpu", "tp"),
            "gpus_per_replica": self.study.gpus,
            **({"apart": apart.to_dict()} if apart is not None else {}),
            **system.summary(
                "weights", "kv_dtype", "engine", "engine_version", "method", "k",
                "acceptance_length",
            ),
            "load": self.study.shape.to_dict(),
            "unit": self.study.shape.unit,
            "slo": dict(self.study.slo),
            "rule": RULE,
            **self.main.to_dict(),
            "baseline": jsonable(self.baseline),
            "gain": self.gain,
            "other_question": self.other and {
                "settled": not self.study.shape.to_dict()["settled"], **self.other.to_dict()
            },
            "stream_floor": jsonable(self.slots),
            "recommended_max_num_seqs": self.slots.slots if self.slots else None,
            **picked(self, "with_recommended_max_num_seqs=with_advised "
                           "advised_max_num_seqs=advised_slots flags"),
            "no_flags": self.no_flags or None,
            **picked(self, "demand=replicas demand_with_recommended_max_num_seqs=reseated_replicas "
                           "seed=wishes.seed replications_at_most=wishes.replications "
                           "quick=wishes.quick runs fidelity=study.system.fidelity partial "
                           "warnings"),
        }

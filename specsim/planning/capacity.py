"""Capacity of a deployment by simulation: the largest load within its objectives, and what to do
with it.

For each side (with speculation, without) the capacity is bracketed from an estimate by formulas
and bisected, each load judged by `capacity_verdict` over replications with the same seeds on both
sides and at all loads. Then: the limit that stops more load, the figures at the operating point
(a share of the capacity), the seats that keep a floor per stream and the capacity with them,
replicas for a demand, cost. Ctrl-C ends the study; what was found until then is kept.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from specsim.errors import SpecSimError, UsageError
from specsim.planning.capacity_demand import Demand, Replicas, replicas_for
from specsim.planning.capacity_loads import Arrivals
from specsim.planning.capacity_runs import (
    WITH,
    WITHOUT,
    Runner,
    Study,
    Summary,
    Trial,
    mean_of,
)
from specsim.planning.capacity_seats import (
    GATE,
    MOST_SEATS,
    Seats,
    SeatTrial,
    crowd_for,
    first_seats,
    recommend_seats,
)
from specsim.planning.capacity_start import estimate_capacity, lengthened
from specsim.planning.capacity_verdict import FEWEST, WAVE, Verdict, verdict_of
from specsim.planning.cost import Cost, cost_of
from specsim.planning.flags import Flags, ready_flags
from specsim.planning.ladder import Bracket, Prober, climb, search
from specsim.planning.limits import ADMISSION, Limit, name_limit
from specsim.sim.slo import judge

WAITING_GATE, WAITING_LIMIT_S = "queue_p95", 10.0  # where no gate is about waiting
RESEATED = 0.1  # resolution of the capacity with other seats, which is for orientation
GROWS_WITH_LOAD = ("output_tok_s", "request_rate")
# Figures that are reported at an operating point, by dotted name of the summary.
FIGURES = (
    "ttft_s.p50", "ttft_s.p95", "tpot_s.mean", "stream_tok_s.p50", "stream_tok_s.p10",
    "e2el_s.p95", "queue_s.p95", "output_tok_s", "request_rate", "running_mean", "waiting_max",
    "kv_usage_max", "prefix_hit_rate", "preemptions", "error_rate", "stall_rate",
)  # fmt: skip


@dataclass(frozen=True)
class Wishes:
    """How a capacity is looked for. ladder: stages to try, as a load test does; ladder_only: no
    search besides. resolution: width of the bracket, a share of the load. replications: most per
    load. share: of the capacity, at the operating point. floor_tok_s: least p10 of the streams for
    which seats are recommended, 0: none."""

    replications: int = 24
    seed: int = 0
    resolution: float = 0.05
    share: float = 0.8
    ladder: tuple[float, ...] = ()
    ladder_only: bool = False
    floor_tok_s: float = 0.0
    baseline: bool = True
    price_per_gpu_hour: float | None = None
    demand: Demand | None = None


@dataclass(frozen=True)
class Point:
    """Mean figures over `runs` replications at a load; names as in the summary."""

    amount: float
    runs: int
    figures: dict[str, float | None]
    verdict: Verdict

    def to_dict(self) -> dict[str, Any]:
        return {"load": self.amount, **self.verdict.to_dict(), "figures": self.figures}


@dataclass(frozen=True)
class Side:
    """What one side carries with so many seats. estimate: by formulas. ladder: capacity on the
    ladder, None without one. at: figures at the capacity; operating: at the operating point."""

    side: str
    seats: int
    estimate: float
    bracket: Bracket
    ladder: float | None
    limit: Limit | None
    at: Point | None
    operating: Point | None
    relieved: Point | None = None  # the failing load with twice the seats
    cost: Cost | None = None

    @property
    def capacity(self) -> float:
        return self.bracket.capacity

    def to_dict(self) -> dict[str, Any]:
        bracket = self.bracket
        return {
            "capacity": bracket.capacity,
            "sure_pass": bracket.sure_pass,
            "sure_fail": bracket.sure_fail,
            "smallest_failing": bracket.fails,
            "estimate_by_formulas": self.estimate,
            "max_num_seqs": self.seats,
            "ladder_capacity": self.ladder,
            "trials": [trial.to_dict() for trial in bracket.trials],
            "binding_limit": self.limit.to_dict() if self.limit else None,
            "failing_load_with_twice_the_seats": (
                self.relieved.to_dict() if self.relieved else None
            ),
            "at_capacity": self.at.to_dict() if self.at else None,
            "operating_point": self.operating.to_dict() if self.operating else None,
            "cost": self.cost.to_dict() if self.cost else None,
        }


@dataclass(frozen=True)
class Capacity:
    """The whole answer. partial: interrupted; then parts may be missing."""

    study: Study
    wishes: Wishes
    main: Side
    baseline: Side | None
    seats: Seats | None
    with_seats: Side | None
    replicas: Replicas | None
    runs: int
    partial: bool
    warnings: tuple[str, ...] = field(default=())

    @property
    def advised_seats(self) -> int:
        """max_num_seqs to serve with: the one the floor allows, unless it carries less."""
        if self.with_seats is None or self.with_seats.capacity < self.main.capacity:
            return self.main.seats
        return self.with_seats.seats

    @cached_property
    def flags(self) -> Flags | None:
        """What to type for it; None where no command line is known (`no_flags` says why)."""
        try:
            return ready_flags(self.study.system_of(WITH, self.advised_seats))
        except SpecSimError:
            return None

    @property
    def no_flags(self) -> str:
        try:
            ready_flags(self.study.system_of(WITH, self.advised_seats))
        except SpecSimError as error:
            return str(error)
        return ""

    @property
    def gain(self) -> float | None:
        """Capacity with speculation over without."""
        if self.baseline is None or self.baseline.capacity <= 0:
            return None
        return self.main.capacity / self.baseline.capacity

    def rows(self) -> list[dict[str, Any]]:
        """One flat row per load that was tried, for CSV."""
        sides = [("with", self.main)]
        if self.baseline is not None:
            sides.append(("without", self.baseline))
        if self.with_seats is not None:
            sides.append(("with recommended max_num_seqs", self.with_seats))
        return [
            {"side": name, "max_num_seqs": side.seats, "unit": self.study.shape.unit,
             **trial.to_dict()}
            for name, side in sides
            for trial in side.bracket.trials
        ]  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        system = self.study.system
        setup, acceptance = system.setup, system.acceptance
        main = self.main.to_dict()
        return {
            "kind": "capacity",
            "model": system.spec.name,
            "gpu": system.profile.name,
            "tp": system.parallel.tp,
            "gpus_per_replica": system.parallel.gpus,
            "weights": system.spec.weights,
            "kv_dtype": system.kv_dtype,
            "engine": system.engine.name,
            "engine_version": system.engine.version,
            "method": setup.method,
            "k": setup.k,
            "acceptance_length": acceptance.expected_tokens(setup.k) if acceptance else None,
            "load": self.study.shape.to_dict(),
            "unit": self.study.shape.unit,
            "slo": dict(self.study.slo),
            "rule": RULE,
            **main,
            "baseline": self.baseline.to_dict() if self.baseline else None,
            "gain": self.gain,
            "stream_floor": self.seats.to_dict() if self.seats else None,
            "recommended_max_num_seqs": self.seats.seats if self.seats else None,
            "with_recommended_max_num_seqs": (
                self.with_seats.to_dict() if self.with_seats else None
            ),
            "advised_max_num_seqs": self.advised_seats,
            "flags": self.flags.to_dict() if self.flags else None,
            "no_flags": self.no_flags or None,
            "demand": self.replicas.to_dict() if self.replicas else None,
            "seed": self.wishes.seed,
            "replications_at_most": self.wishes.replications,
            "runs": self.runs,
            "fidelity": system.fidelity,
            "partial": self.partial,
            "warnings": list(self.warnings),
        }


RULE = (
    "a load passes when at least half of its replications meet every gate (the median does); it "
    "is sure when a binomial test or the margins say so at 1 %, else too close to call"
)


def check_gates(slo: dict[str, float]) -> None:
    """Gates that bound a load: at least one, and none that more load makes easier."""
    if not slo:
        raise UsageError(
            "no objective is given, so every load would pass; give --slo, for example "
            "ttft_p95=2,stream_tok_s_p10=15"
        )
    for gate in slo:
        if gate in GROWS_WITH_LOAD:
            raise UsageError(
                f"SLO gate {gate!r} is easier to meet with more load, so it bounds no capacity; "
                "leave it out, and give the demand with --users or --rate"
            )


def with_waiting_gate(slo: dict[str, float]) -> dict[str, float]:
    """The gates, with one on waiting where there is none: without it more load only waits longer,
    and nothing bounds it."""
    if any(gate.startswith(("ttft", "queue", "e2el")) for gate in slo):
        return slo
    return {**slo, WAITING_GATE: WAITING_LIMIT_S}


class Finder:
    """Looks for capacities of one study."""

    def __init__(self, runner: Runner, wishes: Wishes) -> None:
        self.runner = runner
        self.study = runner.study
        self.wishes = wishes

    def runs_at(
        self, side: str, seats: int, amount: float, slo: dict[str, float], most: int
    ) -> tuple[list[Summary], Verdict]:
        """Replications until the verdict is sure, or `most` are done."""
        count = min(FEWEST, most)
        while True:
            trials = [
                Trial(side, seats, amount, self.wishes.seed + i) for i in range(count)
            ]
            runs = self.runner.summaries(trials)
            verdict = verdict_of([judge(slo, run) for run in runs])
            if verdict.sure or count >= most:
                return runs, verdict
            count = min(most, count + WAVE)

    def point(self, side: str, seats: int, amount: float, most: int = FEWEST) -> Point:
        runs, verdict = self.runs_at(side, seats, amount, self.study.slo, most)
        return Point(amount, len(runs), {path: mean_of(runs, path) for path in FIGURES}, verdict)

    def side(self, side: str, seats: int, guess: float | None = None) -> Side:
        """Bracket of one side with what follows from it."""
        study, wishes, shape = self.study, self.wishes, self.study.shape
        system = study.system_of(side, seats)
        estimate = estimate_capacity(system, shape, study.slo)
        most = wishes.replications
        searched = max(FEWEST, most // 2) if most > FEWEST else most

        def tried(load: float) -> Verdict:
            # Stages are what a measured ladder is compared with; a search needs less.
            count = most if load in wishes.ladder else searched
            return self.runs_at(side, seats, load, study.slo, count)[1]

        prober = Prober(tried)
        stages = None
        if wishes.ladder:
            stages = climb(prober, wishes.ladder)
        if wishes.ladder_only:
            bracket = prober.bracket()
        else:
            bracket = search(
                prober, guess or estimate, whole=shape.whole, resolution=wishes.resolution,
                lowest=shape.lowest, highest=shape.highest,
            )  # fmt: skip
        return self._complete(side, seats, estimate, bracket, stages)

    def _complete(
        self, side: str, seats: int, estimate: float, bracket: Bracket, stages: float | None
    ) -> Side:
        study, shape = self.study, self.study.shape
        limit, relieved, at, operating, cost = None, None, None, None, None
        config = study.deployment(side, seats).config
        failing = bracket.sure_fail or bracket.fails
        if failing is not None:
            runs, verdict = self.runs_at(side, seats, failing, study.slo, FEWEST)
            offered = failing if isinstance(shape, Arrivals) else None
            limit = name_limit(runs, config, verdict.worst, failing, offered)
            # With a floor, the capacity with the seats that it allows says the same and more.
            if limit.cause == ADMISSION and not self.wishes.floor_tok_s:
                relieved = self._relieved(side, config.rules.max_num_seqs, failing)
        if bracket.capacity > 0:
            # The runs that decided, which are known already.
            decided = next(t for t in bracket.trials if t.load == bracket.capacity)
            at = self.point(side, seats, bracket.capacity, decided.verdict.runs)
            amount = self.wishes.share * bracket.capacity
            if shape.whole:
                amount = float(max(1, int(amount)))
            operating = self.point(side, seats, amount)
            system = study.system
            cost = cost_of(
                operating.figures["output_tok_s"] or 0.0, system.parallel.gpus, system.profile,
                self.wishes.price_per_gpu_hour,
            )  # fmt: skip
        return Side(
            side, config.rules.max_num_seqs, estimate, bracket, stages, limit, at, operating,
            relieved, cost,
        )  # fmt: skip

    def _relieved(self, side: str, seats: int, amount: float) -> Point | None:
        """The failing load with twice the seats: whether admission is really what it fails for."""
        try:
            return self.point(side, 2 * seats, amount)
        except SpecSimError:
            return None

    def seats(self, side: str, floor_tok_s: float) -> Seats:
        """Seats that keep the floor with all of them taken."""
        system, shape = self.study.system_of(side), self.study.shape
        most = MOST_SEATS
        each = system.setup.verify_tokens if system.mixes else 1
        most = max(1, min(most, system.batched_tokens // max(1, each)))
        guess = first_seats(system, shape, floor_tok_s)
        return recommend_seats(
            guess, floor_tok_s, lambda n: self.seat_trial(side, n, floor_tok_s), most
        )

    def seat_trial(self, side: str, seats: int, floor_tok_s: float) -> SeatTrial:
        """So many seats with all of them taken."""
        study = self.study
        amount = crowd_for(study.system_of(side, seats), study.shape, seats)
        runs, verdict = self.runs_at(side, seats, amount, {GATE: floor_tok_s}, FEWEST)
        stream = mean_of(runs, "stream_tok_s.p10") or 0.0
        return SeatTrial(
            seats, amount, stream,
            mean_of(runs, "running_mean") or 0.0, verdict.ok and stream >= floor_tok_s,
        )  # fmt: skip


def find_capacity(
    study: Study,
    wishes: Wishes,
    *,
    jobs: int = 1,
    heard: Callable[[Trial, Summary], None] | None = None,
    warnings: Sequence[str] = (),
) -> Capacity:
    """The capacity of a study and all that hangs on it. UsageError where no gate bounds a load.

    heard(trial, summary) is told of every run."""
    check_gates(study.slo)
    shape = lengthened(study.system, study.shape, study.slo)
    study = replace(study, shapes=(shape, *study.shapes[1:]))
    sides = [WITH, WITHOUT] if wishes.baseline and study.system.speculative else [WITH]
    found: dict[str, Side] = {}
    seats: Seats | None = None
    reseated: Side | None = None
    partial = False
    with Runner(study, jobs, heard) as runner:
        finder = Finder(runner, wishes)
        try:
            for side in sides:
                found[side] = finder.side(side, 0)
            if wishes.floor_tok_s > 0:
                seats = finder.seats(WITH, wishes.floor_tok_s)
                if seats.seats and seats.seats != found[WITH].seats:
                    again = Finder(
                        runner,
                        replace(
                            wishes, ladder=(), ladder_only=False,
                            resolution=max(wishes.resolution, RESEATED),
                        ),
                    )  # fmt: skip
                    reseated = again.side(WITH, seats.seats)
        except KeyboardInterrupt:
            if WITH not in found:
                raise
            partial = True
        runs = runner.count
    main = found[WITH]
    replicas = None
    if wishes.demand is not None:
        carried = main.ladder if wishes.ladder_only and main.ladder else main.capacity
        replicas = replicas_for(wishes.demand, carried, wishes.share)
    return Capacity(
        study, wishes, main, found.get(WITHOUT), seats, reseated, replicas, runs, partial,
        (*warnings, *_notes(main, seats, reseated, partial)),
    )  # fmt: skip


def _notes(
    main: Side, seats: Seats | None, reseated: Side | None, partial: bool
) -> list[str]:
    notes = []
    bracket = main.bracket
    if bracket.capacity <= 0:
        notes.append("no load that was tried meets the objectives; see the binding limit")
    if bracket.fails is None:
        notes.append("no load that was tried fails: the capacity is at least what is given")
    if bracket.contradicted:
        notes.append(
            "a larger load passes where a smaller one fails: gates that do not bound a load from "
            "above, or a run too short to be steady"
        )
    if seats is not None and not seats.seats:
        notes.append(
            f"no max_num_seqs keeps {seats.floor_tok_s:g} tok/s per stream (p10) under this load"
        )
    if reseated is not None and reseated.capacity < main.capacity:
        notes.append(
            f"with max_num_seqs {reseated.seats}, which the floor allows, the capacity is "
            f"{reseated.capacity:g}, less than the {main.capacity:g} with {main.seats}: keep "
            f"{main.seats}"
        )
    if partial:
        notes.append("interrupted: what was not reached is missing")
    return notes

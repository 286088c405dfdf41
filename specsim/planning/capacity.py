"""Capacity of a deployment by simulation: the largest load within its objectives, and what to do
with it.

For each side (with speculation, without) the capacity is bracketed from an estimate by formulas
and bisected, each load judged by `sim.passing` over replications with the same seeds on both
sides and at all loads. Then: the limit that stops more load, the figures at the operating point
(a share of the capacity), the slots that keep a floor per stream and the capacity with them,
replicas for a demand, cost. Ctrl-C ends the study; what was found until then is kept.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

from specsim.errors import SpecSimError, UsageError
from specsim.planning.capacity_demand import replicas_for
from specsim.planning.capacity_loads import Arrivals
from specsim.planning.capacity_result import CapacityFigures, Point, Side, Wishes
from specsim.planning.capacity_runs import (
    WITH,
    WITHOUT,
    Runner,
    Study,
    Summary,
    Trial,
    mean_of,
)
from specsim.planning.capacity_slots import (
    GATE,
    MOST_SLOTS,
    SlotAdvice,
    SlotTrial,
    crowd_for,
    first_slots,
    recommend_slots,
)
from specsim.planning.capacity_start import estimate_capacity, lengthened
from specsim.planning.cost import cost_of
from specsim.planning.ladder import Bracket, Prober, climb, search, search_roughly
from specsim.planning.limits import ADMISSION, name_limit
from specsim.sim.compare import middle_of
from specsim.sim.figures import most_of, value_at
from specsim.sim.intervals import median_interval
from specsim.sim.passing import FEWEST, ROUGH_RUNS, WAVE, PassVerdict, enough, verdict_of
from specsim.sim.slo import judge
from specsim.sim.stationarity import judge_trends

WAITING_GATE, WAITING_LIMIT_S = "queue_p95", 10.0  # where no SLO limits waiting
COARSE = 0.1  # resolution of the capacities besides: with other slots, of the other question
SLOT_RUNS = 2  # with all slots taken, streams hardly differ between runs
GROWS_WITH_LOAD = ("output_tok_s", "request_rate")
# Figures that are reported at an operating point, by dotted name of the summary.
FIGURES = (
    "ttft_s.p50", "ttft_s.p95", "tpot_s.mean", "stream_tok_s.p50", "stream_tok_s.p10",
    "e2el_s.p95", "queue_s.p95", "output_tok_s", "request_rate", "running_mean", "waiting_max",
    "kv_usage_max", "prefix_hit_rate", "preemptions", "error_rate", "stall_rate",
    "energy.power_w", "energy.joules_per_output_token",
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
                f"SLO {gate!r} is easier to meet with more load, so it bounds no capacity; "
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

    def __init__(self, runner: Runner, wishes: Wishes, shape: int = 0) -> None:
        self.runner = runner
        self.study = runner.study
        self.wishes = wishes
        self.shape = runner.study.shapes[shape]
        self._index = shape
        self.interrupted = False  # Ctrl-C came; what was tried until then is kept

    def runs_at(
        self, side: str, slots: int, amount: float, slo: dict[str, float], most: int
    ) -> tuple[list[Summary], PassVerdict]:
        """Replications until the verdict is sure, or `most` are done."""
        rough = self.wishes.quick
        most = ROUGH_RUNS if rough else most
        count = min(FEWEST, most)
        while True:
            trials = [
                Trial(side, slots, amount, self.wishes.seed + i, self._index)
                for i in range(count)
            ]
            runs = self.runner.summaries(trials)
            judged = [judge(slo, run) for run in runs]
            if enough(judged, most):
                return runs, verdict_of(judged, rough=rough)
            count = min(most, count + WAVE)

    def point(self, side: str, slots: int, amount: float, most: int = FEWEST) -> Point:
        runs, verdict = self.runs_at(side, slots, amount, self.study.slo, most)
        figures = middle_of(runs)
        columns = {path: [value_at(run, path) for run in runs] for path in FIGURES}
        intervals = {
            path: median_interval([x for x in values if x is not None], most_of(path))
            for path, values in columns.items()
            if None not in values and not path.endswith("_max")
        }
        return Point(
            amount, len(runs), {path: value_at(figures, path) for path in FIGURES}, verdict,
            {path: pair for path, pair in intervals.items() if pair is not None},
            judge_trends(runs),
        )

    def side(self, side: str, slots: int, guess: float = 1.0) -> Side:
        """Bracket of one side with what follows from it. guess: capacity over what formulas say,
        as known from another side."""
        study, wishes, shape = self.study, self.wishes, self.shape
        system = study.system_of(side, slots)
        estimate = estimate_capacity(system, shape, study.slo, study.apart_of(side))
        most = wishes.replications
        searched = max(FEWEST, most // 2) if most > FEWEST else most

        def tried(load: float) -> PassVerdict:
            # Stages are what a measured ladder is compared with; a search needs less.
            count = most if load in wishes.ladder else searched
            return self.runs_at(side, slots, load, study.slo, count)[1]

        prober = Prober(tried)
        stages = None
        try:
            if wishes.ladder:
                stages = climb(prober, wishes.ladder)
            if wishes.quick:
                search_roughly(
                    prober, guess * estimate, whole=shape.whole, lowest=shape.lowest,
                    highest=shape.highest,
                )
            elif not wishes.ladder_only:
                search(
                    prober, guess * estimate, whole=shape.whole, resolution=wishes.resolution,
                    lowest=shape.lowest, highest=shape.highest,
                )
        except KeyboardInterrupt:
            self.interrupted = True
            if not prober.trials():
                raise
        bracket = prober.bracket()
        if self.interrupted:
            config = study.deployment(side, slots).config
            return Side(
                side, config.rules.max_num_seqs, estimate, bracket, stages, None, None, None
            )
        return self._complete(side, slots, estimate, bracket, stages)

    def _complete(
        self, side: str, slots: int, estimate: float, bracket: Bracket, stages: float | None
    ) -> Side:
        study, shape = self.study, self.shape
        limit, relieved, at, operating, cost = None, None, None, None, None
        config = study.deployment(side, slots).config
        failing = bracket.sure_fail or bracket.fails
        main = side == WITH and not self._index
        if failing is not None:
            runs, verdict = self.runs_at(side, slots, failing, study.slo, FEWEST)
            offered = failing if isinstance(shape, Arrivals) else None
            limit = name_limit(runs, config, verdict.worst, failing, offered)
            # With a floor, the capacity with the slots that it allows says the same and more.
            asked = main and not self.wishes.quick and not self.wishes.floor_tok_s
            if limit.cause == ADMISSION and asked:
                relieved = self._relieved(side, config.rules.max_num_seqs, failing)
        if bracket.capacity > 0:
            # The runs that decided, which are known already.
            decided = next(t for t in bracket.trials if t.load == bracket.capacity)
            at = self.point(side, slots, bracket.capacity, decided.verdict.runs)
        if bracket.capacity > 0 and main and not self.wishes.quick:
            amount = self.wishes.share * bracket.capacity
            if shape.whole:
                amount = float(max(1, int(amount)))
            operating = self.point(side, slots, amount)
            system = study.system
            cost = cost_of(
                operating.figures["output_tok_s"] or 0.0, study.gpus, system.profile,
                self.wishes.price_per_gpu_hour, operating.figures["energy.joules_per_output_token"],
            )
        return Side(
            side, config.rules.max_num_seqs, estimate, bracket, stages, limit, at, operating,
            relieved, cost,
        )

    def _relieved(self, side: str, slots: int, amount: float) -> Point | None:
        """The failing load with twice the slots: whether admission is really what it fails for."""
        try:
            return self.point(side, 2 * slots, amount)
        except SpecSimError:
            return None

    def slots(self, side: str, floor_tok_s: float) -> SlotAdvice:
        """Request slots that keep the floor with all of them taken."""
        system, shape = self.study.system_of(side), self.study.shape
        most = MOST_SLOTS
        each = system.setup.verify_tokens if system.mixes else 1
        most = max(1, min(most, system.round_tokens // max(1, each)))
        guess = first_slots(system, shape, floor_tok_s)
        return recommend_slots(
            guess, floor_tok_s, lambda n: self.slot_trial(side, n, floor_tok_s), most
        )

    def slot_trial(self, side: str, slots: int, floor_tok_s: float) -> SlotTrial:
        """So many slots with all of them taken."""
        study = self.study
        amount = crowd_for(study.system_of(side, slots), study.shape, slots)
        runs, verdict = self.runs_at(side, slots, amount, {GATE: floor_tok_s}, SLOT_RUNS)
        stream = mean_of(runs, "stream_tok_s.p10") or 0.0
        return SlotTrial(
            slots, amount, stream,
            mean_of(runs, "running_mean") or 0.0, verdict.ok and stream >= floor_tok_s,
        )


def find_capacity(
    study: Study, wishes: Wishes, *, jobs: int = 1,
    heard: Callable[[Trial, Summary], None] | None = None, warnings: Sequence[str] = (),
) -> CapacityFigures:
    """The capacity of a study and all that hangs on it. UsageError where no gate bounds a load.

    heard(trial, summary) is told of every run."""
    check_gates(study.slo)
    shape = lengthened(study.system, study.shape, study.slo, study.apart)
    study = replace(study, shapes=(shape, *study.shapes[1:]))
    sides = [WITH, WITHOUT] if wishes.baseline and study.system.speculative else [WITH]
    coarse = replace(
        wishes, ladder=wishes.ladder if wishes.ladder_only else (),
        replications=min(FEWEST, wishes.replications), resolution=max(wishes.resolution, COARSE),
    )
    found: dict[str, Side] = {}
    slots: SlotAdvice | None = None
    reseated: Side | None = None
    other: Side | None = None
    partial = False
    with Runner(study, jobs, heard) as runner:
        finder = Finder(runner, wishes)
        try:
            for side in sides:
                fewer = replace(coarse, resolution=wishes.resolution)
                finder = finder if side == WITH else Finder(runner, fewer)
                found[side] = finder.side(side, 0, _off(found))
                if finder.interrupted:
                    raise KeyboardInterrupt
            for index in range(1, len(study.shapes)):
                finder = Finder(runner, coarse, index)
                other = finder.side(WITH, 0, _off(found))
                if finder.interrupted:
                    raise KeyboardInterrupt
            if wishes.floor_tok_s > 0:
                slots = Finder(runner, wishes).slots(WITH, wishes.floor_tok_s)
                if slots.slots and slots.slots != found[WITH].slots:
                    again = Finder(runner, replace(coarse, ladder=(), ladder_only=False))
                    reseated = again.side(WITH, slots.slots, _off(found))
                    partial = again.interrupted
        except KeyboardInterrupt:
            if WITH not in found:
                raise
            partial = True
        runs = runner.count
    main = found[WITH]
    replicas = again_replicas = None
    if wishes.demand is not None:
        carried = main.ladder if wishes.ladder_only and main.ladder else main.capacity
        replicas = replicas_for(wishes.demand, carried, wishes.share)
        if reseated is not None:
            again_replicas = replicas_for(wishes.demand, reseated.capacity, wishes.share)
    return CapacityFigures(
        study, wishes, main, found.get(WITHOUT), slots, reseated, replicas, runs, partial,
        (*warnings, *_notes(main, slots, reseated, partial)), again_replicas, other,
    )


def _off(found: dict[str, Side]) -> float:
    """How many times the capacity is what formulas say, as far as it is known."""
    main = found.get(WITH)
    return main.capacity / main.estimate if main and main.capacity > 0 and main.estimate else 1.0


def _notes(main: Side, slots: SlotAdvice | None, reseated: Side | None, partial: bool) -> list[str]:
    notes = []
    bracket = main.bracket
    if main.at is not None and main.at.stationarity.stationary is False:
        notes.append(f"at {main.at.amount:g} the stage is {main.at.stationarity.sentence}")
    if bracket.capacity <= 0:
        notes.append("no load that was tried meets the objectives; see the binding limit")
    if bracket.fails is None:
        notes.append("no load that was tried fails: the capacity is at least what is given")
    if bracket.contradicted:
        notes.append(
            "a larger load passes where a smaller one fails: SLOs that do not bound a load from "
            "above, or a run too short to be steady"
        )
    if slots is not None and not slots.slots:
        notes.append(
            f"no max_num_seqs keeps {slots.floor_tok_s:g} tok/s per stream (p10) under this load"
        )
    if reseated is not None and reseated.capacity < main.capacity:
        notes.append(
            f"with max_num_seqs {reseated.slots}, which the floor allows, the capacity is "
            f"{reseated.capacity:g}, less than the {main.capacity:g} with {main.slots}: keep "
            f"{main.slots}"
        )
    if partial:
        notes.append("interrupted: what was not reached is missing")
    return notes

"""tune: which method with which draft length, at each load, and what to type for it.

Takes the systems that could be run (one per method, with its acceptance), looks at every draft
length each allows and at plain decoding, and returns per load the best under the objective and the
limits, with the reasons: the marginal rule and the robust choice.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from specsim.analytic.closed import running_limit
from specsim.analytic.system import System
from specsim.analytic.workload import Workload
from specsim.errors import SpecSimError, UsageError
from specsim.jsonable import jsonable, picked
from specsim.planning.flags import ReadyCommand, ServedNames, flags_of
from specsim.planning.run_plan import RunPlan
from specsim.planning.server_words import takes_table
from specsim.planning.tune_choices import (
    Candidate,
    OfferedLoad,
    best_of,
    draft_lengths,
    evaluate,
    mean_gates,
    score,
    tree_of,
)
from specsim.planning.tune_dynamic import DynamicTable, dynamic_table
from specsim.planning.tune_map import DraftMap, draft_map
from specsim.planning.tune_robust import Margin, Robust, TrafficCase, margins, robust_choice

WORTH_A_TABLE = 0.01  # least gain over one draft length for which a table is recommended


@dataclass(frozen=True)
class LoadAnswer:
    """One load. best: None when no choice meets the limits; nearest: then the choice that comes
    closest (sustains most, or is best by the objective). flags: for the best choice, None with a
    reason in `no_flags`."""

    load: OfferedLoad
    candidates: tuple[Candidate, ...]
    best: Candidate | None
    marginal: tuple[Margin, ...] = ()
    robust: Robust | None = None
    flags: ReadyCommand | None = None
    no_flags: str = ""
    nearest: Candidate | None = None

    @property
    def concurrency(self) -> int | None:
        return self.load.clients

    @property
    def rate(self) -> float | None:
        return self.load.rate

    @property
    def best_k(self) -> int | None:
        return self.best.k if self.best is not None else None

    @property
    def best_method(self) -> str | None:
        return self.best.method if self.best is not None else None

    def to_dict(self) -> dict[str, object]:
        named = "concurrency rate best_k best_method best nearest marginal robust flags"
        return {**picked(self, named), "no_flags": self.no_flags or None}


@dataclass(frozen=True)
class TuningFigures:
    """Result of `tune`. skipped: (method, why it was not looked at). dynamic: the table by batch
    size of the method that is best at the first load, None where the engine takes none. by_cell:
    the map of that method, None where none was asked for."""

    systems: tuple[System, ...]
    workload: Workload
    objective: str
    gates: Mapping[str, float]
    answers: tuple[LoadAnswer, ...]
    dynamic: DynamicTable | None = None
    dynamic_flags: ReadyCommand | None = None
    skipped: tuple[tuple[str, str], ...] = ()
    warnings: tuple[str, ...] = ()
    plain: System | None = field(default=None)
    trees: tuple[System, ...] = ()
    by_cell: DraftMap | None = None
    plan: RunPlan | None = None

    def by_load(self, values: Sequence[object]) -> object:
        """A value for one load, a mapping by load for several."""
        if len(self.answers) == 1:
            return values[0]
        return {a.load.label: v for a, v in zip(self.answers, values, strict=True)}

    def candidate_rows(self) -> list[dict[str, object]]:
        """Every choice at every load, flat."""
        return [
            {"concurrency": answer.load.clients, "rate": answer.load.rate, **choice.to_dict()}
            for answer in self.answers
            for choice in answer.candidates
        ]

    def to_dict(self) -> dict[str, object]:
        first = self.plain or self.systems[0]
        return {
            "kind": "tune",
            **first.summary(
                "model", "gpu", "tp", "ep", "attention_dp", "weights", "kv_dtype", "engine",
                "engine_version", "fidelity",
            ),
            **picked(self, "workload=workload.name input_len=workload.input_len "
                           "output_len=workload.output_len objective slo=gates"),
            "methods": [
                system.summary("method", "draft", "acceptance") for system in self.systems
            ],
            "skipped": [{"method": name, "reason": why} for name, why in self.skipped],
            "best_k": self.by_load([a.best_k for a in self.answers]),
            "best_method": self.by_load([a.best_method for a in self.answers]),
            "candidates": self.candidate_rows(),
            "answers": jsonable(self.answers),
            "flags": self.by_load([jsonable(a.flags) for a in self.answers]),
            "dynamic": self.dynamic and {
                **self.dynamic.to_dict(), "flags": jsonable(self.dynamic_flags)
            },
            "map": jsonable(self.by_cell),
            "plan": jsonable(self.plan),
            "warnings": list(self.warnings),
        }


@dataclass(frozen=True)
class Offer:
    """What can be chosen from, and what is known of it.

    systems: one per method, each with its acceptance. plain: the deployment without speculation
    (needed where `systems` is empty). scenarios: for the robust choice. spreads: range of the
    acceptance length by method, where one was given. skipped: (method, why it was not looked at).
    unknown: where no system has a known acceptance, one that would draft. trees: systems that draft
    trees, beside the chains of `systems`."""

    systems: Sequence[System]
    workload: Workload
    plain: System | None = None
    scenarios: Sequence[TrafficCase] = ()
    spreads: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    skipped: Sequence[tuple[str, str]] = ()
    warnings: Sequence[str] = ()
    names: ServedNames = ServedNames()
    unknown: System | None = None
    trees: Sequence[System] = ()


def tune(
    offer: Offer, loads: Sequence[OfferedLoad], *, objective: str = "throughput",
    gates: Mapping[str, float] | None = None, longest: int | None = None,
    contexts: Sequence[int] = (), report: Callable[[int, int], None] | None = None,
) -> TuningFigures:
    """The best choice at each load.

    gates: see `specsim.sim.slo`. longest: see `draft_lengths`. contexts: lengths of the
    prompts in a map, whose clients are those of the loads. report(done, total) hears of the loads
    that are done, and the cells of the map. UsageError for goodput without gates, and for a map
    of no known method.
    """
    limits = dict(gates or {})
    notes = list(offer.warnings)
    if objective == "goodput" and not limits:
        raise UsageError("objective 'goodput' counts requests within limits; give them with --slo")
    tails = mean_gates(limits)
    if tails:
        notes.append(
            f"{', '.join(tails)}: compared with predicted means; `specsim simulate --slo` and "
            "`specsim capacity` have the tails"
        )
    tuner = _Tuner(offer, objective, limits, longest)
    total, done = len(loads) * (1 + len(contexts)), count(1)

    def told() -> None:
        if report is not None:
            report(next(done), total)

    answers = []
    for load in loads:
        answers.append(tuner.answer(load))
        told()
    if any(c.extrapolated and c is a.best for a in answers for c in a.candidates):
        notes.append(
            "a best k lies beyond the positions whose acceptance was measured or given: there it "
            "is extrapolated"
        )
    table, table_flags = tuner.dynamic(answers)
    found_map = tuner.map(answers, contexts, table, told) if contexts else None
    if len(contexts) > 1:
        notes.append("the map takes acceptance to be alike at all lengths of the prompt")
    if table is not None and table.turns_off:
        notes.append(
            "the table's k = 0 still pays the drafter's pass; a second endpoint without "
            "speculation would not"
        )
    return TuningFigures(
        tuple(offer.systems), offer.workload, objective, limits, tuple(answers), table, table_flags,
        tuple(offer.skipped), tuple(notes), tuner.base, tuple(offer.trees), found_map,
    )


def choices_of(offer: Offer, longest: int | None = None) -> list[System]:
    """Everything that can be chosen, plain decoding first, in the order of the candidates."""
    base = offer.plain if offer.plain is not None else offer.systems[0].plain()
    chains = (system.with_(k=k) for system in offer.systems
              for k in draft_lengths(system, longest))
    return [base, *chains, *offer.trees]


class _Tuner:
    """An offer with what is wanted of it. base: plain decoding; choices: every other one."""

    def __init__(
        self, offer: Offer, objective: str, gates: Mapping[str, float], longest: int | None
    ) -> None:
        self.offer, self.workload = offer, offer.workload
        self.objective, self.gates, self.longest = objective, gates, longest
        self.base, *self.choices = choices_of(offer, longest)
        self.chains = tuple(c for c in self.choices if tree_of(c) is None)

    def answer(self, load: OfferedLoad) -> LoadAnswer:
        found = tuple(
            evaluate(side, self.workload, load, self.gates)
            for side in (self.base, *self.choices)
        )
        if not self.choices and self.offer.unknown is not None:
            # Plain decoding alone was looked at: it wins against nothing.
            return LoadAnswer(load, found, None, no_flags="no acceptance is known to choose by")
        best = best_of(found, self.objective)
        if best is None:
            able = [c for c in found if c.capacity_rate is not None]
            closest = max(able, key=lambda c: c.capacity_rate or 0.0) if able else max(
                found, key=lambda c: score(c, self.objective)
            )
            return LoadAnswer(
                load, found, None, no_flags="no choice meets the limits", nearest=closest
            )
        chosen = next(
            (c for c in self.choices
             if (c.setup.method, c.setup.k, tree_of(c)) == (best.method, best.k, best.tree)),
            self.base,
        )
        flags, why = flags_of(chosen, self.offer.names)
        return LoadAnswer(
            load, found, best, self._margins(found, best), self._robust(load), flags, why,
        )

    def _lead(self, best: Candidate) -> System | None:
        """The system of the best method; of the first, where plain decoding is best."""
        systems = self.offer.systems
        lead = next((s for s in systems if s.setup.method == best.method), None)
        return lead or (systems[0] if systems else None)

    def _margins(self, found: Sequence[Candidate], best: Candidate) -> tuple[Margin, ...]:
        lead = self._lead(best)
        if lead is None:
            return ()
        running = [c.running for c in found if c.k == 0 and c.running >= 1]
        seqs = max(1, round(best.running or (running[0] if running else 1)))
        lengths = draft_lengths(lead, self.longest)
        return margins(lead, lengths, seqs, self.workload.mean_context)

    def _robust(self, load: OfferedLoad) -> Robust | None:
        if not self.offer.scenarios or not self.offer.systems:
            return None
        return robust_choice(self.chains, self.offer.scenarios, load, self.objective)

    def _first(self, answers: Sequence[LoadAnswer]) -> tuple[System | None, Candidate | None]:
        """The method that is best at the first load where one is, with that choice."""
        best = next((a.best for a in answers if a.best is not None and a.best.k), None)
        systems = self.offer.systems
        lead = next((s for s in systems if best and s.setup.method == best.method), None)
        return lead, best

    def map(
        self, answers: Sequence[LoadAnswer], contexts: Sequence[int], table: DynamicTable | None,
        report: Callable[[], None],
    ) -> DraftMap:
        """The map of the table's method; of the first one, where plain decoding is best."""
        lead = self._first(answers)[0] or next(iter(self.offer.systems), None)
        if lead is None:
            raise UsageError(
                "--by needs a method whose acceptance is known; give one with --method and "
                "--acceptance-length"
            )
        clients = [answer.load.clients or 1 for answer in answers]
        lengths = draft_lengths(lead, self.longest)
        return draft_map(lead, lengths, self.workload, clients, contexts, table, report)

    def dynamic(
        self, answers: Sequence[LoadAnswer]
    ) -> tuple[DynamicTable | None, ReadyCommand | None]:
        """The table of the method that is best at the first load where one is, for engines that
        take tables; none where a chain of one length is all there is."""
        lead, best = self._first(answers)
        if lead is None or best is None or not takes_table(lead):
            return None, None
        lengths = draft_lengths(lead, self.longest)
        if len(lengths) < 2:
            return None, None
        try:
            running_limit(lead.with_(k=max(lengths)), self.workload)
            table = dynamic_table(lead, lengths, self.workload, best.k)
        except SpecSimError:
            return None, None
        if len(table.rows) < 2 or not any(k for _, _, k in table.rows):
            return table, None
        # The table ends at the batch it was made for, so no more may run.
        system = table.system
        if not system.max_num_seqs:
            limit = min(system.seqs_limit, table.rows[-1][1])
            system = system.with_(max_num_seqs=limit)
        flags, _ = flags_of(system, self.offer.names, table.rows)
        return table, flags

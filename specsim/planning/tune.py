"""tune: which method with which draft length, at each load, and what to type for it.

Takes the systems that could be run (one per method, with its acceptance), looks at every draft
length each allows and at plain decoding, and returns per load the best under the objective and the
limits, with the reasons: the marginal rule, the robust choice, what would change the answer.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from specsim.analytic.closed import running_limit
from specsim.analytic.system import System
from specsim.analytic.workload import Workload
from specsim.errors import SpecSimError, UsageError
from specsim.jsonable import jsonable
from specsim.planning.flags import LaunchCommand, ready_flags
from specsim.planning.tune_choices import (
    LONGEST,
    OBJECTIVES,
    Candidate,
    Load,
    best_of,
    draft_lengths,
    evaluate,
    mean_gates,
    score,
)
from specsim.planning.tune_dynamic import DynamicTable, dynamic_table
from specsim.planning.tune_marginal import Margin, margins
from specsim.planning.tune_robust import Robust, TrafficCase, robust_choice
from specsim.planning.tune_sensitivity import Choice, Sensitivity, sensitivity

WORTH_A_TABLE = 0.01  # least gain over one draft length for which a table is recommended


@dataclass(frozen=True)
class LoadAnswer:
    """One load. best: None when no choice meets the limits; nearest: then the choice that comes
    closest (sustains most, or is best by the objective). flags: for the best choice, None with a
    reason in `no_flags`."""

    load: Load
    candidates: tuple[Candidate, ...]
    best: Candidate | None
    margins: tuple[Margin, ...] = ()
    robust: Robust | None = None
    sensitivity: Sensitivity | None = None
    flags: LaunchCommand | None = None
    no_flags: str = ""
    nearest: Candidate | None = None

    @property
    def best_k(self) -> int | None:
        return self.best.k if self.best is not None else None

    def to_dict(self) -> dict[str, object]:
        return {
            "concurrency": self.load.clients,
            "rate": self.load.rate,
            "best_k": self.best_k,
            "best_method": self.best.method if self.best else None,
            "best": jsonable(self.best),
            "nearest": jsonable(self.nearest),
            "marginal": jsonable(self.margins),
            "robust": jsonable(self.robust),
            "sensitivity": jsonable(self.sensitivity),
            "flags": jsonable(self.flags),
            "no_flags": self.no_flags or None,
        }


@dataclass(frozen=True)
class Tuning:
    """Result of `tune`. skipped: (method, why it was not looked at). dynamic: the table by batch
    size of the method that is best at the first load, None where the engine takes none."""

    systems: tuple[System, ...]
    workload: Workload
    objective: str
    gates: Mapping[str, float]
    answers: tuple[LoadAnswer, ...]
    dynamic: DynamicTable | None = None
    dynamic_flags: LaunchCommand | None = None
    skipped: tuple[tuple[str, str], ...] = ()
    warnings: tuple[str, ...] = ()
    plain: System | None = field(default=None)

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
            "workload": self.workload.name,
            "input_len": self.workload.input_len,
            "output_len": self.workload.output_len,
            "objective": self.objective,
            "slo": dict(self.gates),
            "methods": [
                system.summary("method", "draft", "acceptance") for system in self.systems
            ],
            "skipped": [{"method": name, "reason": why} for name, why in self.skipped],
            "best_k": self.by_load([a.best_k for a in self.answers]),
            "best_method": self.by_load([a.best.method if a.best else None for a in self.answers]),
            "candidates": self.candidate_rows(),
            "answers": jsonable(self.answers),
            "flags": self.by_load([jsonable(a.flags) for a in self.answers]),
            "dynamic": None
            if self.dynamic is None
            else {
                **self.dynamic.to_dict(),
                "flags": jsonable(self.dynamic_flags),
            },
            "warnings": list(self.warnings),
        }


def tune(
    systems: Sequence[System],
    workload: Workload,
    loads: Sequence[Load],
    *,
    plain: System | None = None,
    objective: str = "throughput",
    gates: Mapping[str, float] | None = None,
    longest: int = LONGEST,
    scenarios: Sequence[TrafficCase] = (),
    spreads: Mapping[str, tuple[float, float]] | None = None,
    model: str | None = None,
    draft: str | None = None,
    version: str | None = None,
    skipped: Sequence[tuple[str, str]] = (),
    warnings: Sequence[str] = (),
    report: Callable[[int, int], None] | None = None,
) -> Tuning:
    """The best choice at each load.

    systems: one per method, each with its acceptance. plain: the deployment without speculation
    (needed where `systems` is empty). gates: see `specsim.sim.slo`. scenarios: for the robust
    choice. spreads: measured range of the acceptance length by method. model, draft, version: for
    the flags. report(done, total) hears of the loads that are done. UsageError for an
    objective that is not known or has no gates to work with.
    """
    limits = dict(gates or {})
    notes = list(warnings)
    if objective not in OBJECTIVES:
        raise UsageError(
            f"objective {objective!r} is not known; use one of {', '.join(OBJECTIVES)}"
        )
    if objective == "goodput" and not limits:
        raise UsageError("objective 'goodput' counts requests within gates; give them with --slo")
    tails = mean_gates(limits)
    if tails:
        notes.append(
            f"{', '.join(tails)}: compared with predicted means; `specsim simulate --slo` and "
            "`specsim capacity` have the tails"
        )
    base = plain if plain is not None else systems[0].plain()
    choices = [system.with_(k=k) for system in systems for k in draft_lengths(system, longest)]
    answers = []
    for load in loads:
        found = [evaluate(side, workload, load, limits) for side in (base, *choices)]
        best = best_of(found, objective)
        answers.append(
            _answer(systems, base, choices, workload, load, found, best, objective, longest,
                    scenarios, spreads, model, draft, version)
        )
        if report is not None:
            report(len(answers), len(loads))
    if any(c.extrapolated and c is a.best for a in answers for c in a.candidates):
        notes.append(
            "a best k lies beyond the positions whose acceptance was measured or given: there it "
            "is extrapolated (a conditional rate that falls by 3 % per position)"
        )
    table, table_flags = _dynamic(systems, answers, workload, longest, model, draft, version)
    if table is not None and table.turns_off:
        notes.append(
            "the table's k = 0 still pays the drafter's pass; a second endpoint without "
            "speculation would not"
        )
    return Tuning(
        tuple(systems), workload, objective, limits, tuple(answers), table, table_flags,
        tuple(skipped), tuple(notes), base,
    )


def _answer(
    systems: Sequence[System],
    base: System,
    choices: Sequence[System],
    workload: Workload,
    load: Load,
    found: Sequence[Candidate],
    best: Candidate | None,
    objective: str,
    longest: int,
    scenarios: Sequence[TrafficCase],
    spreads: Mapping[str, tuple[float, float]] | None,
    model: str | None,
    draft: str | None,
    version: str | None,
) -> LoadAnswer:
    if best is None:
        able = [c for c in found if c.capacity_rate is not None]
        closest = max(able, key=lambda c: c.capacity_rate or 0.0) if able else max(
            found, key=lambda c: score(c, objective)
        )
        return LoadAnswer(
            load, tuple(found), None, no_flags="no choice meets the limits", nearest=closest
        )
    running = [c.running for c in found if c.k == 0 and c.running >= 1]
    clients = load.clients or max(1, round(best.running))
    seqs = max(1, round(best.running or (running[0] if running else 1)))
    lead = next((s for s in systems if s.setup.method == best.method), None)
    lead = lead or (systems[0] if systems else None)
    rule: tuple[Margin, ...] = ()
    robust: Robust | None = None
    unknowns: Sensitivity | None = None
    if lead is not None:
        lengths = draft_lengths(lead, longest)
        rule = margins(lead, lengths, seqs, workload.mean_context)
        unknowns = sensitivity(
            choices, Choice(best.method, best.k), workload, clients,
            "tpot" if objective == "tpot" else "throughput", spreads, version,
            "given" if any(s.source.startswith("acceptance length") for s in scenarios)
            else "measured data sets",
        )
        if scenarios:
            robust = robust_choice(choices, scenarios, load, objective)
    chosen = next(
        (c for c in choices if (c.setup.method, c.setup.k) == (best.method, best.k)), base
    )
    flags, why = flags_of(chosen, model, draft, version)
    return LoadAnswer(load, tuple(found), best, rule, robust, unknowns, flags, why)


def flags_of(
    system: System,
    model: str | None,
    draft: str | None,
    version: str | None,
    table: Sequence[tuple[int, int, int]] = (),
) -> tuple[LaunchCommand | None, str]:
    """The flags, or None and why there are none."""
    drafter = system.setup.drafter
    named = draft if drafter is not None and drafter is not system.spec.mtp else None
    try:
        return ready_flags(system, table=table, model=model, draft=named, version=version), ""
    except SpecSimError as error:
        return None, str(error)


def _dynamic(
    systems: Sequence[System],
    answers: Sequence[LoadAnswer],
    workload: Workload,
    longest: int,
    model: str | None,
    draft: str | None,
    version: str | None,
) -> tuple[DynamicTable | None, LaunchCommand | None]:
    """The table of the method that is best at the first load where one is, for engines that take
    tables; none where a chain of one length is all there is."""
    best = next((a.best for a in answers if a.best is not None and a.best.k), None)
    lead = next((s for s in systems if best and s.setup.method == best.method), None)
    if lead is None or best is None or "draft_table" not in lead.engine.server.gained:
        return None, None
    lengths = draft_lengths(lead, longest)
    if len(lengths) < 2:
        return None, None
    try:
        running_limit(lead.with_(k=max(lengths)), workload)
        table = dynamic_table(lead, lengths, workload, best.k)
    except SpecSimError:
        return None, None
    if len(table.rows) < 2 or not any(k for _, _, k in table.rows):
        return table, None
    # The table ends at the batch it was made for, so no more may run.
    system = table.system
    if not system.max_num_seqs:
        limit = min(system.seqs_limit, table.rows[-1][1])
        system = system.with_(max_num_seqs=limit)
    flags, _ = flags_of(system, model, draft, version, table.rows)
    return table, flags

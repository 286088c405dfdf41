"""What a choice rests on: the one that holds when acceptance is not one number but a range, or
several kinds of work, each with its own acceptance, lengths and weight (docs/tune.md has expected
value and regret), and whether one more drafted token pays (`margins`)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import ClassVar

from specsim.analytic.system import System
from specsim.analytic.workload import Workload
from specsim.jsonable import Jsonable
from specsim.planning.tune_choices import Candidate, OfferedLoad, evaluate
from specsim.speculation.acceptance import Acceptance

RANGE_POINTS = 5


@dataclass(frozen=True)
class TrafficCase:
    """weight: share of the traffic, or of belief. acceptance: by method; a method that is not in
    it keeps its own."""

    name: str
    weight: float
    workload: Workload
    acceptance: Mapping[str, Acceptance] = field(default_factory=dict)
    source: str = ""


@dataclass(frozen=True, slots=True)
class RobustChoice(Jsonable):
    """A choice over all scenarios. speedups: by scenario, in their order."""

    method: str
    k: int
    speedups: tuple[float, ...]
    expected: float
    worst_regret: float


@dataclass(frozen=True)
class Robust:
    """scenarios: (name, weight, source). by_regret, by_expected: the two answers."""

    scenarios: tuple[tuple[str, float, str], ...]
    choices: tuple[RobustChoice, ...]
    by_regret: RobustChoice
    by_expected: RobustChoice

    def to_dict(self) -> dict[str, object]:
        return {
            "scenarios": [
                {"name": name, "weight": weight, "source": source}
                for name, weight, source in self.scenarios
            ],
            "minimax_regret": self.by_regret.to_dict(),
            "expected_value": self.by_expected.to_dict(),
            "choices": [choice.to_dict() for choice in self.choices],
        }


def range_scenarios(workload: Workload, low: float, high: float, k: int, method: str
                    ) -> tuple[TrafficCase, ...]:
    """Acceptance lengths at k drafts, evenly spaced from low to high, all equally likely."""
    out = []
    for i in range(RANGE_POINTS):
        length = low + (high - low) * i / (RANGE_POINTS - 1)
        found = Acceptance.from_mean_length(length, k)
        out.append(
            TrafficCase(
                f"{length:.2f} tokens/step", 1 / RANGE_POINTS, workload, {method: found},
                f"acceptance length {length:.3g} at k = {k}",
            )
        )
    return tuple(out)


def robust_choice(
    choices: Sequence[System], scenarios: Sequence[TrafficCase], load: OfferedLoad, objective: str
) -> Robust | None:
    """Both answers over `choices` (plain decoding is always one); None where nothing runs in
    every scenario."""
    table: dict[tuple[str, int], list[float]] = {}
    for side in [choices[0].plain(), *choices]:
        values = []
        for scenario in scenarios:
            accepted = scenario.acceptance.get(side.setup.method)
            system = side.with_(acceptance=accepted) if accepted and side.speculative else side
            found = evaluate(system, scenario.workload, load, {})
            if not found.feasible and load.rate is None:
                break
            values.append(_value(found, system, scenario.workload, load, objective))
        else:
            key = (side.setup.method if side.speculative else "none", side.setup.k)
            table[key] = values
    if not table:
        return None
    best = [max(values[i] for values in table.values()) for i in range(len(scenarios))]
    total = sum(scenario.weight for scenario in scenarios)
    entries = []
    for (method, k), values in table.items():
        expected = sum(s.weight * v for s, v in zip(scenarios, values, strict=True)) / total
        regret = max(1 - v / top for v, top in zip(values, best, strict=True))
        entries.append(RobustChoice(method, k, tuple(values), expected, regret))
    return Robust(
        tuple((s.name, s.weight / total, s.source) for s in scenarios), tuple(entries),
        min(entries, key=lambda c: (c.worst_regret, c.k)),
        max(entries, key=lambda c: (c.expected, -c.k)),
    )


def _value(
    found: Candidate, system: System, workload: Workload, load: OfferedLoad, objective: str
) -> float:
    """Speed over plain decoding by the objective."""
    if objective != "tpot" or not system.speculative:
        return found.speedup
    plain = evaluate(system.plain(), workload, load, {})
    return plain.tpot_s / found.tpot_s if found.tpot_s > 0 else 1.0


@dataclass(frozen=True, slots=True)
class Margin(Jsonable):
    """From `k` drafts to `next_k`. gain: relative gain of tokens per step; cost: of step time."""

    also: ClassVar = ("pays",)

    k: int
    next_k: int
    tokens_per_step: float
    step_s: float
    gain: float
    cost: float

    @property
    def pays(self) -> bool:
        return self.gain > self.cost


def margins(
    system: System, lengths: Sequence[int], seqs: int, context: float
) -> tuple[Margin, ...]:
    """Where one more drafted token adds more tokens than it costs time (docs/tune.md), from each
    draft length to the next, at a batch of `seqs` sequences:

        (AL(k') - AL(k)) / AL(k)  >  (T(k') - T(k)) / T(k)

    T(0) is a step of plain decoding, with speculation off. It speaks of decode steps; prompts that
    share the steps add a cost per token that does not depend on k, so that under load a little less
    than the rule says is gained."""
    sides = []
    for k in (0, *lengths):
        side = system.with_(k=k)
        sides.append((k, side.tokens_per_step, side.decoding_s(seqs, context)))
    return tuple(
        Margin(k, more, tokens, step_s, more_tokens / tokens - 1, more_s / step_s - 1)
        for (k, tokens, step_s), (more, more_tokens, more_s) in pairwise(sides)
    )

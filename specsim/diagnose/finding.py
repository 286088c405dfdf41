"""Findings: a verdict, the figures that carry it with their sources, and what to do next."""

from dataclasses import asdict, dataclass
from typing import Literal

from specsim.diagnose.evidence import Evidence
from specsim.diagnose.expected import Expected
from specsim.jsonable import picked

LEVELS = ("problem", "good", "notice")
Unit = Literal["s", "x", "share", "tokens", "count", "bytes"]  # x: a ratio
MEASURED, PREDICTED = "measured", "predicted"


@dataclass(frozen=True, slots=True)
class Fact:
    """One figure. source: measured (with where), predicted, or where else it is from."""

    what: str
    value: float
    unit: Unit
    source: str = MEASURED


def known(
    *figures: tuple[str, float | None, Unit] | tuple[str, float | None, Unit, str]
) -> tuple[Fact, ...]:
    """(what, value, unit, source) as facts, without those whose value is not known."""
    return tuple(
        Fact(what, value, unit, *source)
        for what, value, unit, *source in figures if value is not None
    )


@dataclass(frozen=True, slots=True)
class Finding:
    """rule: a stable name for programs. level: problem, good or notice. next: what to inspect or
    change, most promising first."""

    rule: str
    level: str
    verdict: str
    facts: tuple[Fact, ...]
    next: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, object]:
        return {
            "rule": self.rule, "level": self.level, "verdict": self.verdict,
            "evidence": [asdict(fact) for fact in self.facts], "next": list(self.next),
        }


@dataclass(frozen=True, slots=True)
class Missing:
    """What the evidence lacks, what could not be judged for that, and how to get it."""

    what: str
    unjudged: str
    how: str


@dataclass(frozen=True, slots=True)
class Case:
    """What rules look at. plain: the same load measured without speculation. would: prediction
    with speculation switched on, where it was off. usual_length: acceptance length that was
    measured in public for this model and method at this k. asked_plain: the options say that
    nothing drafts."""

    evidence: Evidence
    expected: Expected | None = None
    plain: Evidence | None = None
    would: Expected | None = None
    usual_length: float | None = None
    asked_plain: bool = False

    @property
    def displaced(self) -> bool:
        """Whether the cache is full and the drafter takes part of it: then the finding about memory
        holds the verdict about speculation too."""
        here, expected = self.evidence, self.expected
        return (
            expected is not None and here.speculates is True and expected.displaces
            and here.cache_full(expected.max_requests)
        )

    @property
    def speedup(self) -> tuple[float, str] | None:
        """Gain of speculation in tokens per second and stream, and how it is known: from the run
        without it where there is one, else predicted for the measured load and acceptance."""
        plain, here = self.plain, self.evidence
        if plain is not None and plain.tpot_s and here.tpot_s:
            return plain.tpot_s / here.tpot_s, f"{MEASURED}: TPOT without / with"
        drafts = self._drafting
        return (drafts.speedup, PREDICTED) if drafts else None

    @property
    def step_cost_ratio(self) -> tuple[float, str] | None:
        """r: a step with drafts over a plain step of the same sequences."""
        plain, here = self.plain, self.evidence
        if plain is not None and plain.step_s and here.step_s:
            return here.step_s / plain.step_s, f"{MEASURED}: step with / without"
        drafts = self._drafting
        return (drafts.step_cost_ratio, PREDICTED) if drafts else None

    @property
    def _drafting(self) -> Expected | None:
        """The prediction, where drafts may have been made."""
        return None if self.evidence.speculates is False else self.expected


@dataclass(frozen=True)
class Diagnosis:
    """Everything found about one run."""

    case: Case
    findings: tuple[Finding, ...]
    missing: tuple[Missing, ...]
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, object]:
        return {
            **picked(self, "source=case.evidence.source findings"),
            "missing": [asdict(item) for item in self.missing],
            **picked(self, "measured=case.evidence predicted=case.expected warnings"),
        }

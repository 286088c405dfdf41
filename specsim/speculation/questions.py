"""What is asked about acceptance, and what an answer holds; `resolve` answers."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from specsim.speculation.acceptance import Acceptance

Level = Literal["measured", "this drafter", "this model", "kind of drafter", "unknown"]


class TreeShape(NamedTuple):
    """Branches per drafted position and tokens verified per step, root included."""

    topk: int
    num_draft_tokens: int


@dataclass(frozen=True, slots=True)
class AcceptanceQuery:
    """Whose acceptance is asked for. None means not stated: the usual work (chat where it was
    measured), pooled over temperatures, thinking and languages, and over the known drafters.

    target: name or repository id in any weight format; method: as users or engines spell it;
    drafter: its name or repository id; work: one of `WORKS`, or a data set of the catalogue;
    language: en, zh or multi; draft_size: `acceptance_model.log_size` of a draft model.
    """

    target: str
    method: str
    drafter: str | None = None
    work: str | None = None
    temperature: float | None = None
    thinking: bool | None = None
    language: str | None = None
    draft_size: float | None = None


@dataclass(frozen=True, slots=True)
class AcceptanceEstimate:
    """Tokens per verify step (bonus counted, steps without a draft included) with the bounds of
    its 90 % interval, the acceptance by position behind it (positions beyond k as far as others
    were measured), and what it rests on."""

    tokens_per_step: float
    low_90: float
    high_90: float
    acceptance: Acceptance
    rests_on: tuple[str, ...]
    level: Level

    @property
    def conditional(self) -> tuple[float, ...]:
        """P(position i accepted | all before it accepted)."""
        return self.acceptance.conditional()

"""The one answer to "how many tokens does a verify step yield?", with an interval and its grounds.

    estimate = resolve(AcceptanceQuery("Qwen/Qwen3.6-27B", "mtp", work="code"), k=3)
    estimate.tokens_per_step, estimate.low_90, estimate.high_90, estimate.level, estimate.rests_on

Levels, best first: `measured` (this target, method, drafter and kind of work at this k: the value
itself, pooled over sources), `this drafter` (it was measured at another k or on other work),
`this model` (another drafter of the target was), `kind of drafter` (only drafters of that kind
for other targets were), `unknown` (nobody is known to have trained such a drafter for the target;
the numbers are the range of comparable drafters, not a prediction).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from specsim.methods.base import find_method
from specsim.methods.registry import method_name
from specsim.speculation.acceptance import Acceptance
from specsim.speculation.acceptance_catalogue import lookup, measurements, normalise_method
from specsim.speculation.checks import check_draft_length
from specsim.speculation.trees import eagle_tree_acceptance

Level = Literal["measured", "this drafter", "this model", "kind of drafter", "unknown"]


class TreeShape(NamedTuple):
    """Branches per drafted position and tokens verified per step, root included."""

    topk: int
    num_draft_tokens: int


@dataclass(frozen=True, slots=True)
class AcceptanceQuery:
    """Whose acceptance is asked for. None means not stated: the usual (chat, pooled over
    temperatures, thinking and languages).

    target: name or repository id in any weight format; method: as users or engines spell it;
    drafter: its name or repository id; work: one of the works of the catalogue (chat, code, math,
    ...); language: en, zh or multi.
    """

    target: str
    method: str
    drafter: str | None = None
    work: str | None = None
    temperature: float | None = None
    thinking: bool | None = None
    language: str | None = None


@dataclass(frozen=True, slots=True)
class AcceptanceEstimate:
    """Tokens per verify step (bonus counted, steps without a draft included) with the bounds of
    its 90 % interval, the acceptance by position behind it, and what it rests on."""

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


def resolve(query: AcceptanceQuery, k: int, tree: TreeShape | None = None) -> AcceptanceEstimate:
    """Acceptance of a query at k drafts (for a tree: its depth). UsageError for a method that does
    not exist or drafts nothing, or a k below 1."""
    check_draft_length(k)
    method = method_name(query.method)
    match = lookup(query.target, method, k=k, dataset=query.work, draft=query.drafter)
    match = match or lookup(query.target, method, k=k)
    if match is None:
        rows = [
            m for m in measurements() if m.method == normalise_method(method) and m.tree_topk == 1
        ]
        lengths = sorted(m.acceptance_length for m in rows if m.k == k) or [1.0, 1.0 + 0.5 * k]
        middle = lengths[len(lengths) // 2]
        acceptance = Acceptance.from_mean_length(middle, k, source="comparable drafters")
        level: Level = "kind of drafter" if find_method(method).in_checkpoint else "unknown"
        return AcceptanceEstimate(middle, lengths[0], lengths[-1], acceptance, (), level)
    acceptance = match.at(k)
    if tree is not None and tree.topk > 1:
        acceptance = eagle_tree_acceptance(acceptance, k, tree.topk, tree.num_draft_tokens)
    level = "measured" if any(point.k == k for point in match.points) else "this drafter"
    low, high = match.spread
    tokens = acceptance.tokens_per_step(k)
    rests_on = tuple(f"{p.set_id} {p.dataset} k={p.k}" for p in match.points)
    return AcceptanceEstimate(tokens, min(low, tokens), max(high, tokens), acceptance,
                              rests_on, level)

"""The catalogue's rows as the model of acceptance reads them: one number at one draft length."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from specsim.speculation.acceptance_catalogue import MeasuredPoint, telling
from specsim.speculation.acceptance_model import Condition, flat_logit, gain_at, skips_steps
from specsim.speculation.trees import TREE_ERROR_90

# Draft lengths at which per-position rates are read besides the row's own.
_POSITIONS = (1, 2, 3, 5, 8, 12)
# Standard deviation of ln(tokens per step) of a chain told from a tree of the same draft.
_TREE_SD = TREE_ERROR_90 / 1.6449


@dataclass(frozen=True, slots=True)
class MeasuredAcceptance:
    """Tokens of a step with a draft of a condition. line: the row's identity, one for all draft
    lengths read from it; own_k: whether it was measured at this length; tree: whether the chain's
    tokens were told from a tree's; relative: 1 % of the tokens, in logits."""

    condition: Condition
    z: float
    tokens: float
    line: str
    own_k: bool
    grade: str
    draft_share: float
    tree: bool = False

    @property
    def relative(self) -> float:
        return 0.01 * self.tokens / gain_at(self.z, self.condition.k)

    @property
    def tree_variance(self) -> float:
        """Of the logit, of the chain being told from a tree; 0 for a chain measured."""
        return (100.0 * _TREE_SD * self.relative) ** 2 if self.tree else 0.0


def condition_of(point: MeasuredPoint) -> Condition:
    """What a row of the catalogue was measured on."""
    return Condition(
        point.model, point.method, point.draft, point.dataset, point.work, point.k,
        point.temperature, point.thinking, point.language, point.set_id,
    )


def observations(points: Iterable[MeasuredPoint]) -> list[MeasuredAcceptance]:
    """Every chain on real text, at its own k and at some of the positions it tells of, and what
    the trees of other drafters tell of their chains."""
    found = []
    for point in telling(points):
        if skips_steps(point.method) and point.draft_probability == 1.0:
            continue  # counted over all steps: what a draft yields cannot be told
        lengths, total = {}, 1.0
        for position, rate in enumerate(point.per_position, start=1):
            total += rate
            if position in _POSITIONS and position < point.k:
                lengths[position] = total
        tree = point.tree_topk > 1
        lengths[point.k] = point.chain_length if tree else point.acceptance_length
        condition = condition_of(point)
        for k, tokens in lengths.items():
            found.append(MeasuredAcceptance(
                replace(condition, k=k), flat_logit(tokens, k), tokens,
                f"{point.rows[0]} k={point.k}", k == point.k and not tree, point.grade,
                point.draft_probability, tree,
            ))
    return found

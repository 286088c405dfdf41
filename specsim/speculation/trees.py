"""Tree drafts: how many tokens a verify step yields when several continuations are drafted.

A tree is a set of nodes; a node is the path of ranks from the root: (0,) is the draft's first
choice for the next token, (0, 2) its third choice after that. At most one child of an accepted node
can be right, so the mean number of accepted drafts is the sum over nodes of the product of the rank
probabilities along the path (Sequoia, arXiv 2402.12374, F(T)). A chain (topk = 1) is the special
case where every path is made of zeros; it gives P_1, P_1 + P_2, ... exactly.

Rank model, two numbers, for drafts of which only the chain is measured:

* rank 0 at depth d is right with the conditional rate c_d of the chain; of what is left, each
  further rank takes the share `sibling_share`: rank j has (1 - c_d) s (1 - s)^(j-1).
* The engine picks the nodes by the draft's own confidence, not by the truth, and drafts are too
  modest: logit(confidence) = logit(c_d) - `underconfidence`. That is why measured trees lose to
  chains of the same size when the draft is good: they spend nodes on siblings.

Both are fitted on 120 trees measured with SGLang (4 to 16 tokens, topk 3 and 4; seven targets; sets
SPECB, SFORGE, ASLIM of the catalogue) by `validation/scripts/fit_trees.py`: mean absolute error of
the tokens per step 7.5 %, of SFORGE and ASLIM left out of the fit 6 to 7 %. With an ideal draft
(underconfidence 0) the same trees come out 15 % off. The static tree of EAGLE 1, which nothing was
fitted to, gives the tokens per step of that paper's seven targets from their chains within 4 %.

Heads that see the target's hidden state alone (Medusa) spread over many candidates: with the 64
tokens of their own tree they yield no more than 2.4 (Spec-Bench, three sizes of Vicuna). With a
first head that is right in half of the cases (0.5 to 0.6: Medusa's paper, EAGLE's) a further rank
then takes 0.05 of what is left.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from specsim.errors import UsageError
from specsim.speculation.acceptance import Acceptance
from specsim.speculation.checks import check_draft_length, check_probability

Path = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RankModel:
    """Probability of the draft's further choices, and how modest its confidence is (logits)."""

    sibling_share: float = 0.3
    underconfidence: float = 1.5

    def __post_init__(self) -> None:
        check_probability(self.sibling_share, "sibling share")
        if not math.isfinite(self.underconfidence):
            raise UsageError(f"underconfidence is {self.underconfidence}, but it must be finite")

    def truth(self, first: float, topk: int) -> list[float]:
        """Probability that each of the topk ranks is right, given that rank 0 is with `first`."""
        left, share = 1.0 - first, self.sibling_share
        return [first] + [left * share * (1.0 - share) ** (j - 1) for j in range(1, topk)]

    def confidence(self, first: float, topk: int) -> list[float]:
        """The draft's own probabilities of the topk ranks."""
        if first <= 0.0 or first >= 1.0:
            return self.truth(first, topk)
        odds = first / (1.0 - first) * math.exp(-self.underconfidence)
        return self.truth(odds / (1.0 + odds), topk)


DEFAULT_RANKS = RankModel()
_RANKS = {"medusa": RankModel(sibling_share=0.05)}
# Logarithm of the factor within which nine of ten measured trees lie.
TREE_ERROR_90 = 0.16


def ranks_of(method: str) -> RankModel:
    """The rank model of a method's drafts."""
    return _RANKS.get(method, DEFAULT_RANKS)


def eagle_tree(
    acceptance: Acceptance,
    steps: int,
    topk: int,
    num_draft_tokens: int,
    ranks: RankModel = DEFAULT_RANKS,
) -> tuple[Path, ...]:
    """The nodes SGLang's EAGLE drafting verifies (`speculative-num-steps`, `-eagle-topk`,
    `-num-draft-tokens`; the last counts the root, so num_draft_tokens - 1 nodes).

    Each step keeps the topk most confident paths and expands each by its topk choices; at the end
    the most confident num_draft_tokens - 1 of all nodes seen are verified. Ties go to the shallower
    node, then to the lower rank.
    """
    check_draft_length(steps, name="steps")
    check_draft_length(topk, name="topk")
    check_draft_length(num_draft_tokens, minimum=2, name="num_draft_tokens")
    available = topk + (steps - 1) * topk * topk
    if num_draft_tokens - 1 > available:
        raise UsageError(
            f"num_draft_tokens is {num_draft_tokens}, but {steps} steps with topk {topk} draft "
            f"only {available} tokens; use at most {available + 1}"
        )
    rates = acceptance.at(steps).conditional()
    frontier: list[tuple[float, Path]] = [(1.0, ())]
    seen: list[tuple[float, Path]] = []
    for rate in rates:
        scores = ranks.confidence(rate, topk)
        grown = [
            (confidence * scores[rank], (*path, rank))
            for confidence, path in frontier
            for rank in range(topk)
        ]
        grown.sort(key=lambda node: (-node[0], node[1]))
        seen += grown
        frontier = grown[:topk]
    seen.sort(key=lambda node: (-node[0], len(node[1]), node[1]))
    return tuple(path for _, path in seen[: num_draft_tokens - 1])


def accepted_by_depth(
    tree: Sequence[Path], rank_probabilities: Sequence[Sequence[float]]
) -> tuple[float, ...]:
    """P(at least d tokens accepted) for d = 1..depth of the tree: at each depth, the sum over its
    nodes of the product of rank probabilities along the path."""
    if not tree:
        raise UsageError("the tree has no nodes; give at least one")
    members = set(tree)
    by_depth = [0.0] * max(len(path) for path in tree)
    for path in members:
        if len(path) > 1 and path[:-1] not in members:
            raise UsageError(f"node {path} has no parent in the tree; add {path[:-1]}")
        if len(path) > len(rank_probabilities) or any(
            rank >= len(rank_probabilities[depth]) for depth, rank in enumerate(path)
        ):
            raise UsageError(f"node {path} has no rank probability; give one for each depth")
        by_depth[len(path) - 1] += math.prod(
            rank_probabilities[depth][rank] for depth, rank in enumerate(path)
        )
    return tuple(by_depth)


def tree_acceptance(
    acceptance: Acceptance,
    tree: Sequence[Path],
    ranks: RankModel = DEFAULT_RANKS,
    steps: int = 0,
) -> Acceptance:
    """Acceptance by depth of a tree, from the measured acceptance of a chain of the same draft.

    Position d of the result is P(the accepted path is at least d tokens long); expected_tokens() is
    the tokens of a verify step. A chain gives the acceptance unchanged. steps: depth drafted, if
    more than the tree keeps: nothing is accepted behind its last node.
    """
    if not tree:
        raise UsageError("the tree has no nodes; give at least one")
    depth = max(len(path) for path in tree)
    width = 1 + max(max(path) for path in tree)
    deep = acceptance.at(max(depth, steps))
    if width == 1 and depth >= steps:
        return deep
    table = [ranks.truth(rate, width) for rate in deep.conditional()]
    rates, lowest = [], 1.0
    for rate in accepted_by_depth(tree, table):
        lowest = min(lowest, rate)
        rates.append(lowest)
    rates += [0.0] * (steps - depth)
    source = (
        f"{deep.source}; tree of {len(tree)} nodes, siblings take {ranks.sibling_share:g} of what "
        f"rank 1 leaves, draft {ranks.underconfidence:g} logits too modest"
    )
    return Acceptance(tuple(rates), source, "tree", deep.draft_probability, deep.measured_positions)


def eagle_tree_acceptance(
    acceptance: Acceptance,
    steps: int,
    topk: int,
    num_draft_tokens: int,
    ranks: RankModel = DEFAULT_RANKS,
) -> Acceptance:
    """`tree_acceptance` of `eagle_tree`: chain acceptance in, acceptance by depth out."""
    return tree_acceptance(
        acceptance, eagle_tree(acceptance, steps, topk, num_draft_tokens, ranks), ranks, steps
    )

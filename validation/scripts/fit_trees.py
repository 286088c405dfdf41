"""Fit the rank model of tree drafts to the measured SGLang trees and report its error.

    python validation/scripts/fit_trees.py

reads the trees of `catalog/acceptance.csv` whose branching is stated and whose chain was measured
with the same drafter and work; the chain's acceptance is what `resolve` answers (it never looks at
trees). Prints the error, sets weighted by the root of their trees, on a grid of the two numbers,
and for the best pair the error by set and with each set left out; `specsim.speculation.trees` holds
the chosen pair and its error.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass

import common  # noqa: F401  the checkout's own package

from specsim.speculation.acceptance import Acceptance
from specsim.speculation.acceptance_catalogue import measurements
from specsim.speculation.resolve import AcceptanceQuery, resolve
from specsim.speculation.trees import RankModel, eagle_tree_acceptance

SHARES = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6)
MODESTIES = (0.0, 0.5, 1.0, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.9, 2.2)
CHAIN_KNOWN = ("measured", "this drafter")


@dataclass(frozen=True, slots=True)
class Case:
    """One measured tree and the chain acceptance of the same draft on the same data."""

    set_id: str
    chain: Acceptance
    steps: int
    topk: int
    num_draft_tokens: int
    measured: float

    def error(self, ranks: RankModel) -> float:
        """Predicted over measured tokens per step, less one."""
        tree = eagle_tree_acceptance(
            self.chain, self.steps, self.topk, self.num_draft_tokens, ranks
        )
        return tree.expected_tokens() / self.measured - 1.0


def read_cases() -> list[Case]:
    """Every measured tree of known branching whose drafter was measured on chains."""
    cases = []
    chained = {(p.model, p.draft) for p in measurements() if p.tree_topk == 1}
    for p in measurements():
        if p.tree_topk > 1 and (p.model, p.draft) in chained:
            query = AcceptanceQuery(p.model, p.method, p.draft or None, p.dataset)
            chain = resolve(query, p.k)
            if chain.level in CHAIN_KNOWN:
                cases.append(Case(p.set_id, chain.acceptance, p.k, p.tree_topk,
                                  p.num_draft_tokens, p.acceptance_length))
    return cases


def by_set(cases: list[Case], ranks: RankModel) -> dict[str, float]:
    """Mean absolute relative error of the tokens per step of each set."""
    errors = defaultdict(list)
    for case in cases:
        errors[case.set_id].append(abs(case.error(ranks)))
    return {name: sum(found) / len(found) for name, found in errors.items()}


def mean_absolute(cases: list[Case], ranks: RankModel) -> float:
    """Mean over sets, weighted by the square root of their trees."""
    found = by_set(cases, ranks)
    weights = {name: math.sqrt(sum(c.set_id == name for c in cases)) for name in found}
    return sum(weights[n] * e for n, e in found.items()) / sum(weights.values())


def best(cases: list[Case]) -> RankModel:
    """The pair of the grid with the smallest mean absolute error."""
    grid = [RankModel(share, modesty) for share in SHARES for modesty in MODESTIES]
    return min(grid, key=lambda ranks: mean_absolute(cases, ranks))


def main() -> None:
    cases = read_cases()
    print(f"{len(cases)} trees; mean absolute error by sibling share and underconfidence")
    print("share   " + " ".join(f"{m:6.2f}" for m in MODESTIES))
    for share in SHARES:
        row = [mean_absolute(cases, RankModel(share, modesty)) for modesty in MODESTIES]
        print(f"{share:5.2f}   " + " ".join(f"{error:6.1%}" for error in row))
    chosen = best(cases)
    errors = sorted(abs(case.error(chosen)) for case in cases)
    bias = sum(case.error(chosen) for case in cases) / len(cases)
    median, p90 = errors[len(errors) // 2], errors[int(0.9 * len(errors))]
    print(f"best: {chosen}, mean {mean_absolute(cases, chosen):.1%}, median {median:.1%}")
    print(f"p90 {p90:.1%}, bias {bias:+.1%}, by set {by_set(cases, chosen)}")
    for left in sorted({case.set_id for case in cases}):
        ranks = best([case for case in cases if case.set_id != left])
        error = mean_absolute([case for case in cases if case.set_id == left], ranks)
        print(f"{left} left out: {ranks}, {error:.1%}")


if __name__ == "__main__":
    main()

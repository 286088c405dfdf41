"""Fit the rank model of tree drafts to the measured SGLang trees and report its error.

    python validation/scripts/fit_trees.py

reads the SPECB rows of `validation/data/published/published_measurements.csv`: for each target,
draft and data set the tokens per step of three chains (3, 5 and 7 drafts) and of two trees (steps 5
topk 3, 6 tokens; steps 7 topk 4, 8 tokens). The chains give the acceptance, the trees are predicted
from it. Prints the error on a grid of the two numbers and, for the best pair, the error with each
target model left out of the fit; `specsim.speculation.trees.RankModel` holds the chosen pair.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from common import PUBLISHED, read_csv

from specsim.speculation.acceptance import Acceptance
from specsim.speculation.trees import RankModel, eagle_tree_acceptance

SHARES = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4)
MODESTIES = (0.0, 0.5, 1.0, 1.3, 1.6, 1.75, 1.9, 2.05, 2.2, 2.5)


@dataclass(frozen=True, slots=True)
class Case:
    """One measured tree and the chain acceptance of the same draft on the same data."""

    target: str
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


def read_cases(path: Path = PUBLISHED) -> list[Case]:
    """Every measured tree whose three chains are measured too."""
    found: dict[tuple[str, str, str], dict[tuple[int, int, int], float]] = defaultdict(dict)
    for row in read_csv(path):
        shape = re.fullmatch(r"steps (\d+) topk (\d+) draft_tokens (\d+)", row["tree_topk"])
        if row["set_id"] != "SPECB" or shape is None or not row["mean_accepted_length"]:
            continue
        # The dashboard spells one draft in two ways.
        draft = re.sub(r"spec\s*for\s*ge", "specforge", row["draft_model"].lower())
        steps, topk, tokens = (int(x) for x in shape.groups())
        key = (row["target_model"], draft, row["dataset"])
        found[key][steps, topk, tokens] = float(row["mean_accepted_length"])
    cases = []
    for (target, _, _), lengths in sorted(found.items()):
        chains = {steps: al for (steps, topk, _), al in lengths.items() if topk == 1}
        if sorted(chains) != [3, 5, 7]:
            continue
        chain = Acceptance.from_curve(chains, tolerance=0.1)
        cases += [
            Case(target, chain, steps, topk, tokens, al)
            for (steps, topk, tokens), al in lengths.items()
            if topk > 1
        ]
    return cases


def mean_absolute(cases: list[Case], ranks: RankModel) -> float:
    """Mean absolute relative error of the tokens per step."""
    return sum(abs(case.error(ranks)) for case in cases) / len(cases)


def best(cases: list[Case]) -> RankModel:
    """The pair of the grid with the smallest mean absolute error."""
    grid = [RankModel(share, modesty) for share in SHARES for modesty in MODESTIES]
    return min(grid, key=lambda ranks: mean_absolute(cases, ranks))


def left_out_error(cases: list[Case]) -> float:
    """Mean absolute error when each target model is predicted without having been fitted."""
    total = 0.0
    for target in {case.target for case in cases}:
        ranks = best([case for case in cases if case.target != target])
        total += sum(abs(case.error(ranks)) for case in cases if case.target == target)
    return total / len(cases)


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
    print(f"p90 {p90:.1%}, bias {bias:+.1%}")
    print(f"target left out: {left_out_error(cases):.1%}")


if __name__ == "__main__":
    main()

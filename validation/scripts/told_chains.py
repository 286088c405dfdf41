"""What measurements that are no chains of one length tell of such chains.

Trees: `chain_length` finds the chain whose tree, by the rank model of `specsim.speculation.trees`,
yields what was measured. SGLang grows its trees by the drafts' confidence; the research code that
Spec-Bench ran has static ones (EAGLE: `mc_sim_7b_63` of its choices.py, 25 nodes; Medusa: that of
medusa_choices.py, 63 nodes).

Spec-Bench (`SPECBENCH` of the published measurements) states neither trees nor lengths; they are
the defaults of the code that it ran, as in `fit_transformers.py`. Its draft model (vicuna-68m) ran
under transformers' heuristic length: 5 drafts at first, 2 more after a step that took all, else 1
fewer.
"""

from functools import cache

import numpy as np
from fit_transformers import METHODS

from specsim.search import rising_root
from specsim.speculation.acceptance import Acceptance
from specsim.speculation.trees import eagle_tree_acceptance, ranks_of, tree_acceptance

# Tokens of the largest tree that the rank model was fitted to: SGLang's larger ones yield a seventh
# more than it says (EAGLE-2 on the heads of EAGLE).
LARGEST_FITTED = 16
# Nodes by their ranks.
STATIC = {
    "eagle": "0 1 2 3 00 01 02 10 11 20 21 30 000 001 002 010 011 020 021 100 0000 0001 0002 00000 "
             "00001",
    "medusa": "0 00 1 01 2 000 10 02 3 03 4 04 20 05 001 5 06 6 07 010 11 7 08 002 30 09 8 9 100 "
              "020 12 003 40 21 004 005 0000 011 006 030 50 13 007 008 009 60 040 14 70 012 200 31 "
              "22 80 050 15 101 021 90 060 0001 16 070",
}
SIZES = {"Vicuna-7B-v1.3": "7B", "Vicuna-13B-v1.3": "13B", "Vicuna-33B-v1.3": "33B"}
_LONGEST = 60  # drafts that the heuristic's chain of lengths is followed to


def spec_bench(method: str, target: str) -> tuple[str, str, tuple[int, int, int]] | None:
    """(method, drafter, (k, tree topk, tokens verified)) of a row of Spec-Bench; None for methods
    that are not modelled."""
    size = SIZES[target]
    drafts = {
        "EAGLE": ("eagle", f"yuhuili/EAGLE-Vicuna-{size}-v1.3"),
        "EAGLE2": ("eagle", f"yuhuili/EAGLE-Vicuna-{size}-v1.3"),
        "EAGLE3": ("eagle3", f"yuhuili/EAGLE3-Vicuna1.3-{size}"),
        "Medusa": ("medusa", f"FasterDecoding/medusa-vicuna-{size.lower()}-v1.3"),
        "PLD": ("ngram", "prompt lookup n=3..1"),
        "SpS": ("draft_model", "double7/vicuna-68m"),
    }
    if method not in drafts:
        return None
    if method == "SpS":
        return (*drafts[method], (3, 1, 4))
    options = METHODS[method]
    k = int(str(options["k"]))
    tree = options.get("tree", (1, k + 1))
    assert isinstance(tree, tuple)
    return (*drafts[method], (k, *tree))


def chain_length(
    tokens: float, method: str, shape: tuple[int, int, int], static: bool = False
) -> float:
    """Tokens per step of the chain of k drafts whose tree of that shape yields `tokens`; static:
    that of the method in `STATIC`."""
    def of_tree(drafts: float) -> float:
        return tree_tokens(1.0 + drafts, method, shape, static)

    return 1.0 + rising_root(of_tree, tokens, float(shape[0]), resolution=1e-6)


def tree_tokens(
    chain_tokens: float, method: str, shape: tuple[int, int, int], static: bool = False
) -> float:
    """Tokens per step of a tree of that shape, of a draft whose chain of its depth yields
    `chain_tokens`."""
    k, topk, verified = shape
    chain, ranks = Acceptance.from_mean_length(chain_tokens, k), ranks_of(method)
    if static:
        nodes = [tuple(map(int, path)) for path in STATIC[method].split()]
        return tree_acceptance(chain, nodes, ranks).expected_tokens()
    return eagle_tree_acceptance(chain, k, topk, verified, ranks).expected_tokens()


def heuristic_length(tokens: float, k: int) -> float:
    """Tokens per step at k drafts of the flat rate that yields `tokens` under transformers'
    heuristic draft length."""
    rate = rising_root(_heuristic_tokens, tokens, 0.99)
    return 1.0 + sum(rate**i for i in range(1, k + 1))


@cache
def _heuristic_tokens(rate: float) -> float:
    """Mean tokens per step in the long run: lengths are a Markov chain."""
    lengths = np.arange(1, _LONGEST + 1)
    moves = np.zeros((_LONGEST, _LONGEST))
    for i, k in enumerate(lengths):
        moves[i, min(_LONGEST - 1, i + 2)] += rate**k
        moves[i, max(0, i - 1)] += 1.0 - rate**k
    share = np.linalg.matrix_power(moves, 4096)[4]
    return float(share @ (1.0 - rate ** (lengths + 1)) / (1.0 - rate))

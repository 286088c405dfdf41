"""Tree drafts: the chain as special case, optimal trees against brute force, measured trees."""

import itertools
import math
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim.errors import UsageError
from specsim.speculation.acceptance import Acceptance
from specsim.speculation.acceptance_catalogue import measurements, tree_measurements
from specsim.speculation.trees import (
    RankModel,
    accepted_by_depth,
    best_tree,
    chain,
    eagle_tree,
    eagle_tree_acceptance,
    full_tree,
    tree_acceptance,
)

RATES = st.lists(st.floats(0.01, 0.99), min_size=1, max_size=8)


@given(RATES, st.integers(1, 10))
def test_topk_one_is_the_chain_exactly(rates: list[float], steps: int) -> None:
    acceptance = Acceptance.from_conditional(rates)
    nodes = eagle_tree(acceptance, steps, 1, steps + 1)
    assert nodes == chain(steps)
    tree = eagle_tree_acceptance(acceptance, steps, 1, steps + 1)
    assert tree.unconditional == acceptance.probabilities(steps)


def test_fewer_tokens_than_steps_cut_the_chain() -> None:
    acceptance = Acceptance.from_rate(0.7, 5)
    assert eagle_tree(acceptance, 5, 1, 3) == ((0,), (0, 0))


def test_expected_length_by_hand() -> None:
    # Two children of the root (0.6, 0.2), one grandchild of the first (0.5): 1 + 0.8 + 0.3.
    by_depth = accepted_by_depth([(0,), (1,), (0, 0)], [[0.6, 0.2], [0.5]])
    assert by_depth == pytest.approx((0.8, 0.3))


def test_full_tree_of_the_measured_shape() -> None:
    # Depth 3, branching 2: 2 + 4 + 8 nodes; depth 3 branching 4 without pruning: 84.
    assert len(full_tree([2, 2, 2])) == 14
    assert len(full_tree([4, 4, 4])) == 84
    # With every rank right with 1/4, some path is always right.
    assert accepted_by_depth(full_tree([4, 4]), [[0.25] * 4] * 2) == pytest.approx((1.0, 1.0))


@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0), st.integers(1, 8))
def test_rank_probabilities_never_exceed_one(first: float, share: float, topk: int) -> None:
    truth = RankModel(sibling_share=share).truth(first, topk)
    assert sum(truth) <= 1.0 + 1e-12
    assert all(0.0 <= p <= 1.0 for p in truth)


def brute_force_best(table: list[list[float]], nodes: int) -> float:
    """Best F over every tree with that many nodes, by trying all sets closed under parents."""
    everything = [
        path
        for depth in range(1, len(table) + 1)
        for path in itertools.product(*(range(len(row)) for row in table[:depth]))
    ]
    best = 0.0
    for chosen in itertools.combinations(everything, nodes):
        members = set(chosen)
        if all(len(path) == 1 or path[:-1] in members for path in members):
            value = sum(
                math.prod(table[d][rank] for d, rank in enumerate(path)) for path in members
            )
            best = max(best, value)
    return best


@pytest.mark.parametrize("nodes", [1, 2, 3, 5, 6])
@pytest.mark.parametrize(
    "table",
    [
        [[0.6, 0.2], [0.5, 0.3], [0.4, 0.1]],
        [[0.9, 0.05], [0.9, 0.05], [0.9, 0.05]],
        [[0.3, 0.3], [0.3, 0.29], [0.2, 0.2]],
    ],
)
def test_best_tree_is_optimal(table: list[list[float]], nodes: int) -> None:
    tree = best_tree(table, nodes)
    assert len(tree) == nodes == len(set(tree))
    assert sum(accepted_by_depth(tree, table)) == pytest.approx(brute_force_best(table, nodes))


@given(RATES, st.integers(2, 4), st.integers(2, 10))
def test_a_draft_that_knows_itself_never_loses_to_the_chain(
    rates: list[float], topk: int, tokens: int
) -> None:
    acceptance = Acceptance.from_conditional(rates)
    steps = tokens - 1
    honest = RankModel(sibling_share=0.3, underconfidence=0.0)
    tree = eagle_tree_acceptance(acceptance, steps, topk, tokens, honest)
    assert tree.expected_tokens() >= acceptance.expected_tokens(steps) - 1e-9
    assert tree.expected_tokens() <= tokens + 1e-9


def test_more_tokens_never_yield_less() -> None:
    acceptance = Acceptance.from_rate(0.7, 5)
    lengths = [eagle_tree_acceptance(acceptance, 5, 4, n).expected_tokens() for n in range(2, 60)]
    assert lengths == sorted(lengths)


def measured_trees() -> list[tuple[Acceptance, int, int, int, float]]:
    chains: dict[tuple[str, str, str], dict[int, float]] = defaultdict(dict)
    for m in measurements():
        if m.set_id == "SPECB" and m.tree_topk == 1:
            chains[m.model, m.draft, m.dataset][m.k] = m.acceptance_length
    return [
        (
            Acceptance.from_curve(chains[m.model, m.draft, m.dataset], tolerance=0.1),
            m.k,
            m.tree_topk,
            m.num_draft_tokens,
            m.acceptance_length,
        )
        for m in tree_measurements()
        if m.set_id == "SPECB"
    ]


def test_measured_trees_are_met_within_the_stated_error() -> None:
    cases = measured_trees()
    assert len(cases) == 116
    errors = [
        eagle_tree_acceptance(acceptance, steps, topk, tokens).expected_tokens() / al - 1.0
        for acceptance, steps, topk, tokens, al in cases
    ]
    assert sum(map(abs, errors)) / len(errors) < 0.076
    assert abs(sum(errors)) / len(errors) < 0.025
    # A draft that knew its own accuracy would gain from the same trees: the data say otherwise.
    honest = RankModel(underconfidence=0.0)
    ideal = [
        eagle_tree_acceptance(acceptance, steps, topk, tokens, honest).expected_tokens() / al - 1
        for acceptance, steps, topk, tokens, al in cases
    ]
    assert sum(ideal) / len(ideal) > 0.15


def test_trees_lose_to_chains_for_good_drafts_as_measured() -> None:
    # Llama-3.1-8B SpecForge, humaneval: chain of 5 gives 4.318, tree 5-3-6 gives 3.252.
    acceptance = Acceptance.from_curve({3: 3.34, 5: 4.318, 7: 4.91})
    tree = eagle_tree_acceptance(acceptance, 5, 3, 6)
    assert tree.expected_tokens() < acceptance.expected_tokens(5)


def test_source_states_the_assumption() -> None:
    acceptance = Acceptance.from_rate(0.7, 3, source="a test")
    tree = tree_acceptance(acceptance, full_tree([2, 1]))
    assert "a test; tree of 4 nodes" in tree.source
    assert tree.kind == "tree"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda a: eagle_tree(a, 3, 2, 30), "draft only 10 tokens; use at most 11"),
        (lambda a: eagle_tree(a, 0, 2, 3), "steps is 0"),
        (lambda a: eagle_tree(a, 3, 0, 3), "topk is 0"),
        (lambda a: eagle_tree(a, 3, 2, 1), "num_draft_tokens is 1"),
        (lambda a: full_tree([]), "branching is empty"),
        (lambda a: full_tree([2, 0]), "branching is 0"),
        (lambda a: tree_acceptance(a, []), "no nodes"),
        (lambda a: accepted_by_depth([], [[0.5]]), "no nodes"),
        (lambda a: accepted_by_depth([(0, 0)], [[0.5], [0.5]]), "no parent"),
        (lambda a: accepted_by_depth([(0,), (1,)], [[0.5]]), "no rank probability"),
        (lambda a: best_tree([], 3), "empty"),
        (lambda a: best_tree([[0.2, 0.5]], 2), "order the ranks"),
        (lambda a: best_tree([[1.2]], 2), "from 0 to 1"),
        (lambda a: RankModel(sibling_share=1.5), "sibling share is 1.5"),
        (lambda a: RankModel(underconfidence=math.nan), "must be finite"),
    ],
)
def test_bad_input(call, words: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UsageError, match=words):
        call(Acceptance.from_rate(0.7, 3))

"""Tree drafts: the chain as special case, measured trees."""

import math
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

import specsim
from specsim.errors import UsageError
from specsim.speculation.acceptance import Acceptance
from specsim.speculation.acceptance_catalogue import measurements
from specsim.speculation.trees import (
    RankModel,
    accepted_by_depth,
    eagle_tree,
    eagle_tree_acceptance,
    tree_acceptance,
)

RATES = st.lists(st.floats(0.01, 0.99), min_size=1, max_size=8)


@given(RATES, st.integers(1, 10))
def test_topk_one_is_the_chain_exactly(rates: list[float], steps: int) -> None:
    acceptance = Acceptance.from_conditional(rates)
    nodes = eagle_tree(acceptance, steps, 1, steps + 1)
    assert nodes == tuple((0,) * depth for depth in range(1, steps + 1))
    tree = eagle_tree_acceptance(acceptance, steps, 1, steps + 1)
    assert tree.unconditional == acceptance.probabilities(steps)


def test_fewer_tokens_than_steps_cut_the_chain() -> None:
    acceptance = Acceptance.from_rate(0.7, 5)
    assert eagle_tree(acceptance, 5, 1, 3) == ((0,), (0, 0))


def test_expected_length_by_hand() -> None:
    # Two children of the root (0.6, 0.2), one grandchild of the first (0.5): 1 + 0.8 + 0.3.
    by_depth = accepted_by_depth([(0,), (1,), (0, 0)], [[0.6, 0.2], [0.5]])
    assert by_depth == pytest.approx((0.8, 0.3))


@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0), st.integers(1, 8))
def test_rank_probabilities_never_exceed_one(first: float, share: float, topk: int) -> None:
    truth = RankModel(sibling_share=share).truth(first, topk)
    assert sum(truth) <= 1.0 + 1e-12
    assert all(0.0 <= p <= 1.0 for p in truth)


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
        for m in measurements()
        if m.set_id == "SPECB" and m.tree_topk > 1
    ]


def test_measured_trees_are_met_within_the_stated_error() -> None:
    cases = measured_trees()
    assert len(cases) == 116
    errors = [
        eagle_tree_acceptance(acceptance, steps, topk, tokens).expected_tokens() / al - 1.0
        for acceptance, steps, topk, tokens, al in cases
    ]
    assert sum(map(abs, errors)) / len(errors) < 0.09
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
    tree = tree_acceptance(acceptance, [(0,), (1,), (0, 0), (1, 0)])
    assert "a test; tree of 4 nodes" in tree.source
    assert tree.kind == "tree"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda a: eagle_tree(a, 3, 2, 30), "draft only 10 tokens; use at most 11"),
        (lambda a: eagle_tree(a, 0, 2, 3), "steps is 0"),
        (lambda a: eagle_tree(a, 3, 0, 3), "topk is 0"),
        (lambda a: eagle_tree(a, 3, 2, 1), "num_draft_tokens is 1"),
        (lambda a: tree_acceptance(a, []), "no nodes"),
        (lambda a: accepted_by_depth([], [[0.5]]), "no nodes"),
        (lambda a: accepted_by_depth([(0, 0)], [[0.5], [0.5]]), "no parent"),
        (lambda a: accepted_by_depth([(0,), (1,)], [[0.5]]), "no rank probability"),
        (lambda a: RankModel(sibling_share=1.5), "sibling share is 1.5"),
        (lambda a: RankModel(underconfidence=math.nan), "must be finite"),
    ],
)
def test_bad_input(call, words: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UsageError, match=words):
        call(Acceptance.from_rate(0.7, 3))


def test_a_prediction_with_a_tree_takes_the_measured_chain_to_it() -> None:
    options = {"engine": "sglang", "method": "eagle3", "k": 5, "concurrency": 1}
    chain = specsim.predict("llama-3.1-8b", **options).system.acceptance
    tree = specsim.predict("llama-3.1-8b", **options, tree="4,16").system.acceptance
    assert chain.kind == "catalogue" and tree.kind == "tree"
    expected = eagle_tree_acceptance(chain.at(5), 5, 4, 16)
    assert tree.unconditional == expected.unconditional and len(tree.unconditional) == 5
    # What is given by position is meant as it stands.
    given = specsim.predict(
        "llama-3.1-8b", **options, tree="4,16", acceptance=[0.8, 0.6, 0.5, 0.4, 0.3]
    )
    assert given.system.acceptance.unconditional == (0.8, 0.6, 0.5, 0.4, 0.3)


def test_nothing_is_accepted_behind_the_last_node() -> None:
    tree = eagle_tree_acceptance(Acceptance.from_rate(0.5, 6), 6, 4, 5)
    assert len(tree.unconditional) == 6 and tree.unconditional[-1] == 0.0
    assert not tree.extrapolated

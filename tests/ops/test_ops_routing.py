"""Distinct experts of real traffic: captures, bounds, concavity."""

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from specsim.ops.work import UNIFORM, Routing

SIZES = st.sampled_from([(8, 2), (64, 6), (128, 8), (256, 8), (512, 22), (128, 1)])
ROUTINGS = st.builds(
    Routing, beta=st.floats(0.0, 1.0), shape=st.floats(0.1, 50.0) | st.just(math.inf)
)


# E (1 - (1 - 8/256)^T), the column of uniform routing in the kernel notes
@pytest.mark.parametrize(
    ("tokens", "experts"),
    [(1, 8), (2, 16), (4, 31), (8, 57), (16, 102), (32, 163), (48, 200), (64, 222), (128, 252)],
)
def test_uniform_choice(tokens: int, experts: int) -> None:
    assert round(UNIFORM.distinct(256, 8, tokens, 1)) == experts
    assert UNIFORM.distinct(256, 8, tokens, tokens) == pytest.approx(
        UNIFORM.distinct(256, 8, tokens, 1)
    )


@pytest.mark.parametrize(
    ("seqs", "tokens", "counted"), [(1, 4, 25.27), (4, 4, 29.71), (16, 16, 93.03), (4, 16, 81.71)]
)
def test_one_pair_holds_for_sequences_and_batches(seqs: int, tokens: int, counted: float) -> None:
    """GLM-5.2 (256 experts, 8 chosen), one capture: 1 x 4, 4 x 1, 16 x 1 and 4 x 4 tokens."""
    found = Routing(beta=0.855, shape=1.8).distinct(256, 8, tokens, seqs)
    assert found == pytest.approx(counted, rel=0.004)


def test_one_sequence_by_hand() -> None:
    # 4^(1/2) = 2 independent tokens' worth, whatever the popularity over sequences
    for shape in (0.3, 2.0, math.inf):
        assert Routing(0.5, shape).distinct(256, 8, 4, 1) == pytest.approx(
            256 * (1 - (1 - 8 / 256) ** 2)
        )
    assert Routing(0.0, 1.0).distinct(256, 8, 9, 1) == pytest.approx(8)  # all choose alike


def test_edges() -> None:
    served = Routing(0.7, 0.8)
    assert served.distinct(8, 8, 5, 1) == 8  # all of them, always
    assert served.distinct(256, 8, 0.5, 1) == pytest.approx(4)  # half of the steps hold a token
    assert served.distinct(128, 8, 4096, 1) == pytest.approx(128, rel=1e-3)  # a whole prompt
    assert Routing(1.0, 0.01).distinct(8, 2, 1_000_000, 3) == pytest.approx(8)  # no overflow


@given(SIZES, ROUTINGS, st.integers(1, 5000), st.integers(1, 300))
def test_bounds(size: tuple[int, int], routing: Routing, tokens: int, seqs: int) -> None:
    experts, top_k = size
    found = routing.distinct(experts, top_k, tokens, seqs)
    most = UNIFORM.distinct(experts, top_k, tokens, seqs)
    assert top_k * (1 - 1e-9) <= found <= most * (1 + 1e-9) <= experts * (1 + 1e-9)
    assert routing.distinct(experts, top_k, 1, seqs) == pytest.approx(top_k)


@given(SIZES, ROUTINGS, st.floats(1, 3000), st.floats(0.5, 64), st.integers(1, 64))
def test_grows_ever_more_slowly_along_sequences_and_with_their_number(
    size: tuple[int, int], routing: Routing, tokens: float, step: float, seqs: int
) -> None:
    assume(tokens >= seqs)
    longer = [routing.distinct(*size, tokens + i * step, seqs) for i in range(3)]
    wider = [routing.distinct(*size, 3.0 * (seqs + i), seqs + i) for i in range(3)]
    for low, middle, high in (longer, wider):
        assert low <= middle * (1 + 1e-9)
        assert high - middle <= middle - low + 1e-6 * size[0]


@given(SIZES, st.integers(2, 200), st.floats(0.1, 0.9), st.floats(0.2, 5.0))
def test_likeness_and_popularity_save_experts(
    size: tuple[int, int], tokens: int, beta: float, shape: float
) -> None:
    def distinct(beta: float, shape: float, seqs: int) -> float:
        return Routing(beta, shape).distinct(*size, tokens, seqs)

    assert distinct(beta, shape, 1) <= distinct(beta + 0.1, shape, 1)
    assert distinct(beta, shape, tokens) <= distinct(beta, 2 * shape, tokens) * (1 + 1e-9)
    assert distinct(1.0, 1e9, tokens) == pytest.approx(UNIFORM.distinct(*size, tokens, 1), rel=1e-4)

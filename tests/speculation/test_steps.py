"""Steps that an output takes: by hand, and as random sequences of steps have them."""

from dataclasses import replace

import numpy as np
import pytest

from specsim.speculation.acceptance import Acceptance
from specsim.speculation.steps import EXACT_STEPS, steps_to


def test_by_hand() -> None:
    assert steps_to(200, None, 0) == steps_to(200, Acceptance.from_rate(0.9, 3), 0) == 200
    sure = Acceptance.from_rate(1.0, 1)  # two tokens in every step
    assert [steps_to(n, sure, 1) for n in (0, 1, 2, 3)] == [0, 1, 1, 2]
    # Odd and even numbers of tokens in the mean: half a step of two is left over in half of them
    assert steps_to(201, sure, 1) == 201 / 2 + 1 / 4
    # One token in a quarter of the steps, else two: 1, 1.25, then 1 + 0.25 x 1.25 + 0.75 x 1
    half = replace(Acceptance.from_rate(0.75, 1), draft_probability=1.0)
    assert [steps_to(n, half, 1) for n in (1, 2, 3)] == [1, 1.25, 2.0625]


@pytest.mark.parametrize("tokens", [1, 5, 7, 20, 63, 64, 65, 300])
@pytest.mark.parametrize(("rate", "drafted"), [(0.7, 1.0), (0.9, 0.5)])
def test_as_random_steps(tokens: int, rate: float, drafted: float) -> None:
    acceptance = replace(Acceptance.from_rate(rate, 7), draft_probability=drafted)
    assert EXACT_STEPS * 8 == 64  # where the recursion ends
    draw = np.random.default_rng(tokens)
    accepted = np.cumprod(draw.random((4000, tokens, 7)) < rate, axis=2).sum(axis=2)
    given = 1 + accepted * (draw.random((4000, tokens)) < drafted)
    needed = 1 + (given.cumsum(axis=1) < tokens).sum(axis=1)
    error = needed.std() / np.sqrt(len(needed))
    assert steps_to(tokens, acceptance, 7) == pytest.approx(needed.mean(), abs=4 * error + 1e-9)


def test_never_fewer_than_the_tokens_ask() -> None:
    for rate in (0.0, 0.3, 1.0):
        acceptance = Acceptance.from_rate(rate, 5)
        for tokens in range(1, 120):
            assert steps_to(tokens, acceptance, 5) >= tokens / acceptance.expected_tokens(5) - 1e-9

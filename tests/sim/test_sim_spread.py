"""Steps of batches whose contexts differ, against arithmetic."""

from dataclasses import replace

import numpy as np
import pytest

from specsim.latency.shape import PrefillChunk, StepShape
from specsim.sim.behaviour import ChatBehaviour
from specsim.sim.lengths import Constant, Uniform
from specsim.sim.spread import SpreadCost, chat_contexts, spread_factors


class Windowed:
    """1 us per cached token up to 1000 of each sequence, 1 us per new token."""

    def seconds(self, shape: StepShape) -> float:
        each = shape.decode_context_tokens / max(1, shape.decode_seqs)
        return 1e-6 * (shape.decode_seqs * min(each, 1000.0) + shape.prefill_tokens)

    def parts(self, shape: StepShape) -> dict[str, float]:
        bare = self.seconds(replace(shape, prefill=()))
        return {"verify": bare, "prefill": self.seconds(shape) - bare}


def test_factors_are_a_law_of_mean_one() -> None:
    for variation in (0.1, 0.5, 0.7, 1.0):
        factors = spread_factors(variation)
        assert sum(factors) / len(factors) == pytest.approx(1.0)
        assert list(factors) == sorted(factors)
        # Means of parts spread less than what is in them.
        assert 0.75 * variation < np.std(factors) < variation
    assert spread_factors(0.0) == (1.0,)


def test_linear_costs_stay_and_windows_see_less() -> None:
    cost = SpreadCost(Windowed(), 0.7)
    short = StepShape(8, 1, 8 * 200.0, (PrefillChunk(64),))
    assert cost.seconds(short) == pytest.approx(Windowed().seconds(short))
    # A gamma law of mean 1000 and this spread has E min(X, 1000) = 726.
    full = StepShape(8, 1, 8 * 1000.0)
    assert cost.seconds(full) == pytest.approx(8 * 726e-6, rel=0.03)
    assert cost.seconds(StepShape(0, 1, 0.0, (PrefillChunk(64),))) == pytest.approx(64e-6)
    parts = cost.parts(replace(full, prefill=(PrefillChunk(64),)))
    assert parts["prefill"] == pytest.approx(64e-6)
    assert sum(parts.values()) == pytest.approx(cost.seconds(full) + 64e-6)


def test_contexts_of_conversations() -> None:
    one = ChatBehaviour(Constant(100.0), Constant(10.0), Constant(200.0), Constant(1.0),
                        system_tokens=50)
    assert chat_contexts(one, 0.0, 100.0) == (250.0, 0.0)
    # Two turns at 200 / 40 + 200 / 15 + 1 s each: 250 and 460 tokens in turn.
    two = replace(one, another_turn=0.999999, max_turns=2)
    mean, variation = chat_contexts(two, 0.0, 3000.0)
    assert mean == pytest.approx(355.0, rel=0.01)
    assert variation == pytest.approx(105 / 355, rel=0.01)
    # Nobody has written yet: the first message.
    late = replace(one, start_s=Uniform(50.0, 60.0))
    assert chat_contexts(late, 0.0, 10.0) == (250.0, 0.0)

"""Steps of batches whose contexts differ, against arithmetic."""

from dataclasses import replace

import numpy as np
import pytest

from specsim.latency.shape import PrefillChunk, StepShape
from specsim.ops.spread import batches, mean_seen, spread_factors
from specsim.sim.behaviour import ChatBehaviour, chat_contexts
from specsim.sim.build import MixedCost
from specsim.sim.lengths import Constant, Uniform


def test_factors_are_a_law_of_mean_one() -> None:
    for variation in (0.1, 0.5, 0.7, 1.0):
        for parts in (4, 16, 100):
            factors = spread_factors(variation, parts)
            assert sum(factors) / len(factors) == pytest.approx(1.0)
            assert list(factors) == sorted(factors)
            # Means of parts spread less than what is in them.
            assert 0.75 * variation < np.std(factors) < variation
    assert set(spread_factors(0.0, 4)) == {1.0}


def test_windows_see_less_of_unequal_contexts() -> None:
    assert mean_seen(200.0, 0.7, 0) == 200.0
    assert mean_seen(2000.0, 0.0, 1000) == 1000.0
    # E min(X, 1000) of a gamma law of mean 1000 and this spread, by numerical integration.
    assert mean_seen(1000.0, 0.7, 1000) == pytest.approx(731.83, rel=1e-4)
    one = spread_factors(0.7, 1000)
    assert mean_seen(1.0, 0.7, 0.4) == pytest.approx(np.mean(np.minimum(one, 0.4)), rel=1e-3)
    assert mean_seen(0.0, 0.7, 1000) == 0.0


def test_batches_hold_the_law_once() -> None:
    for seqs in (1, 7, 48, 300):
        dealt = batches(seqs, 0.7)
        assert {len(batch) for batch in dealt} == {seqs}
        together = sorted(x for batch in dealt for x in batch)
        assert together == pytest.approx(spread_factors(0.7, len(together)))


class Varied:
    """1 s where contexts vary; parts likewise."""

    def seconds(self, shape: StepShape) -> float:
        return float(shape.context_variation > 0)

    def parts(self, shape: StepShape) -> dict[str, float]:
        return {"verify": self.seconds(shape)}


def test_only_steps_with_decoding_sequences_have_a_spread() -> None:
    cost = MixedCost(Varied(), variation=0.7)
    prompt = (PrefillChunk(64),)
    assert cost.seconds(StepShape(8, 1, 800.0, prompt)) == 1.0
    assert cost.parts(StepShape(8, 1, 800.0)) == {"verify": 1.0}
    assert cost.seconds(StepShape(prefill=prompt)) == 0.0


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

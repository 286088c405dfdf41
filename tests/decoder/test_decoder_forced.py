"""Forced acceptance: the given rates come out, through the real test's code and the engine."""

import math

import pytest
import torch
from thinned import slow

from decoder_helpers import LLAMA
from specsim.decoder.engine import Engine
from specsim.decoder.options import DecoderOptions, SamplingParams
from specsim.decoder.sampling import ACCEPT, count_accepted, uniforms
from specsim.decoder.slots import EngineRequest
from specsim.speculation.acceptance import Acceptance


def test_rates_within_four_standard_errors():
    rates = (0.8, 0.55, 0.55, 0.2)
    forced = torch.tensor(Acceptance(rates).conditional(), dtype=torch.float64)
    draws = 400_000
    u = uniforms(torch.arange(draws).unsqueeze(1), torch.arange(4), ACCEPT)
    accepted = count_accepted(torch.zeros((draws, 4), dtype=torch.bool), None, forced, u)
    for position, rate in enumerate(rates):
        share = (accepted > position).double().mean().item()
        assert abs(share - rate) < 4 * math.sqrt(rate * (1 - rate) / draws)


def test_tokens_per_step_follow_the_geometric_formula():
    alpha, k, draws = 0.7, 4, 400_000
    forced = torch.tensor(Acceptance.from_rate(alpha, k).conditional(), dtype=torch.float64)
    u = uniforms(torch.arange(draws).unsqueeze(1), torch.arange(k), ACCEPT)
    accepted = count_accepted(torch.zeros((draws, k), dtype=torch.bool), None, forced, u)
    want = (1 - alpha ** (k + 1)) / (1 - alpha)
    error = 4 * accepted.double().std().item() / math.sqrt(draws)
    assert abs(1 + accepted.double().mean().item() - want) < error


@pytest.mark.parametrize("temperature", [slow(0.0), 1.0])
def test_through_the_engine(tiny, temperature):
    """An unrelated draft model is accepted at the forced rates, whatever it proposes."""
    rates = (0.9, 0.5, 0.3)
    options = DecoderOptions(method="draft_model", num_speculative_tokens=3, max_num_seqs=32,
                             max_model_len=128)
    engine = Engine(tiny["llama"], options, draft=tiny["draft"],
                    acceptance=Acceptance(rates))
    params = SamplingParams(max_tokens=100, temperature=temperature, ignore_eos=True)
    results = engine.run((0.0, EngineRequest(f"r{i}", [i % LLAMA.vocab_size], params))
                         for i in range(64))
    stats = engine.stats
    steps = stats.num_drafts
    assert steps > 1500
    for rate, accepted in zip(rates, stats.accepted_per_position, strict=True):
        assert abs(accepted / steps - rate) < 4 * math.sqrt(rate * (1 - rate) / steps)
    assert all(len(r.token_ids) == 100 for r in results)
    assert stats.acceptance_length == pytest.approx(1 + sum(rates), rel=0.03)


def test_a_proposal_that_does_not_exist_is_not_accepted(tiny):
    """n-gram under certain acceptance: only real proposals count."""
    options = DecoderOptions(method="ngram", num_speculative_tokens=3, max_model_len=64)
    engine = Engine(tiny["llama"], options, acceptance=Acceptance((1.0, 1.0, 1.0)))
    results = engine.run([(0.0, EngineRequest("a", [1, 2, 3], SamplingParams(max_tokens=40)))])
    proposed = [p for p, _ in results[0].steps]
    assert 0 in proposed
    assert all(p == a for p, a in results[0].steps)

"""Sampled text through models, drafters and whole steps has the target's distribution.

A model with 6 tokens; the joint distribution of the first three generated tokens (216 cells) of
8,000 sequences against the model's own probabilities, by exact enumeration. Every kind of drafter,
with temperature, top-k and top-p. The prompt is computed once and its state copied to all slots.
"""

import itertools
from dataclasses import replace

import pytest
import torch
from thinned import slow

from decoder_helpers import DRAFT, LLAMA, SlotHarness, make_model
from specsim.decoder.attention import BatchRows
from specsim.decoder.drafters.eagle import EagleWeights
from specsim.decoder.engine import Engine
from specsim.decoder.options import DecoderOptions, SamplingParams
from specsim.decoder.sampling import RowParams, SamplingMode, target_probs

stats = pytest.importorskip("scipy.stats")

VOCAB, LENGTH, ROWS = 6, 3, 8000
PROMPT = [1, 2, 3, 1, 2]
PARAMS = {
    "temperature": SamplingParams(max_tokens=LENGTH, temperature=1.3),
    "filters": SamplingParams(max_tokens=LENGTH, temperature=1.5, top_k=5, top_p=0.9),
}


@pytest.fixture(scope="module")
def models():
    target = make_model(replace(LLAMA, vocab_size=VOCAB, num_layers=2))
    draft = make_model(replace(DRAFT, vocab_size=VOCAB), seed=9)
    return target, draft


def exact(target, params, mode):
    """P of every continuation of LENGTH tokens, in the order of itertools.product."""
    harness = SlotHarness(target, slots=1, tokens=32)
    row = RowParams(torch.tensor([params.temperature]), torch.tensor([params.top_k]),
                    torch.tensor([params.top_p]), torch.tensor([0]))
    out = []
    for tokens in itertools.product(range(VOCAB), repeat=LENGTH):
        logits = harness.prompt(0, [*PROMPT, *tokens], 0)[len(PROMPT) - 1 :]
        p = target_probs(logits.unsqueeze(0), row, mode)[0].double()
        out.append(float(torch.stack([p[i, t] for i, t in enumerate(tokens)]).prod()))
    return torch.tensor(out, dtype=torch.float64)


@torch.inference_mode()
def sample(engine, params, mode):
    """The first LENGTH tokens of ROWS sequences, [ROWS, LENGTH]."""
    step, state, length = engine._step, engine.state, len(PROMPT)
    state.admit(0, torch.tensor(PROMPT[:-1]), params, 0, ())
    step.prompt(0, 0, length - 1, True, SamplingMode())
    for cache in (step.cache, getattr(step.drafter, "cache", None)):
        if cache is not None:
            cache.data[:, 1:] = cache.data[:, :1].clone()
    state.hidden[:] = state.hidden[:1].clone()
    state.base[:] = state.base[0].clone()
    state.token_ids[:, :length] = torch.tensor(PROMPT)
    state.n[:], state.limit[:], state.finished[:] = length, length + LENGTH, False
    state.temperature[:], state.top_k[:] = params.temperature, params.top_k
    state.top_p[:], state.seed[:] = params.top_p, torch.arange(ROWS + 1)
    accepted = 0
    for i in range(LENGTH):
        rows = BatchRows(torch.arange(ROWS), length + min(LENGTH, 3 * i), (0, ROWS))
        proposal = step.draft(rows, mode)
        record = step.sample(rows, proposal, step.verify(rows, proposal.tokens), mode)
        accepted += int(record[:, 1].sum())
    assert bool(state.finished[:ROWS].all())
    return state.token_ids[:ROWS, length : length + LENGTH], accepted


@pytest.mark.parametrize(("method", "params"), [
    ("draft_model", "filters"), slow("draft_model", "temperature"),
    *(slow(method, params) for method in ("none", "ngram", "eagle", "early_exit")
      for params in PARAMS),
])
def test_distribution_of_sampled_text(models, method, params):
    target, draft = models
    source = {"draft_model": draft, "eagle": EagleWeights.random(target)}.get(method)
    options = DecoderOptions(method=method, num_speculative_tokens=0 if method == "none" else 2,
                             max_num_seqs=ROWS, max_model_len=12, early_exit_layers=1)
    drawn = PARAMS[params]
    mode = SamplingMode(greedy=False, top_k_max=drawn.top_k, top_p=drawn.top_p < 1)
    tokens, accepted = sample(Engine(target, options, draft=source), drawn, mode)
    cells = (tokens * torch.tensor([VOCAB**2, VOCAB, 1])).sum(1)
    seen = torch.bincount(cells, minlength=VOCAB**LENGTH).double()
    expected = exact(target, drawn, mode) * ROWS
    assert abs(float(expected.sum()) / ROWS - 1) < 1e-5
    assert seen[expected == 0].sum() == 0
    assert method == "none" or accepted > 1000
    large = expected >= 5
    f_obs, f_exp = seen[large], expected[large]
    if float(expected[~large].sum()) > 0:
        f_obs = torch.cat((f_obs, seen[~large].sum().view(1)))
        f_exp = torch.cat((f_exp, expected[~large].sum().view(1)))
    f_exp = f_exp * f_obs.sum() / f_exp.sum()
    assert stats.chisquare(f_obs, f_exp).pvalue > 1e-4

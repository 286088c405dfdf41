"""Drafters against plain re-computation: what they propose, not only that it is harmless."""

import random

import pytest
import torch
import torch.nn.functional as F
from thinned import slow

from decoder_helpers import LLAMA, SlotHarness, make_model
from specsim.decoder.drafters.eagle import EagleWeights
from specsim.decoder.drafters.lookup import SuffixIndex, SuffixProposer, follow, lookup
from specsim.decoder.engine import Engine
from specsim.decoder.options import DecoderOptions, SamplingParams
from specsim.decoder.slots import EngineRequest
from specsim.errors import FormatError, UsageError


def naive_lookup(tokens, k, longest, shortest):
    """The rule of the n-gram drafter, by loops."""
    n = len(tokens)
    for length in range(min(longest, n - 1), shortest - 1, -1):
        for start in range(n - length - 1, -1, -1):
            if tokens[start : start + length] == tokens[n - length :]:
                after = start + length
                return [tokens[after + j % (n - after)] for j in range(k)]
    return None


@pytest.mark.parametrize(("longest", "shortest"), [(3, 1), (3, 2), (1, 1), (5, 5)])
def test_prompt_lookup_equals_the_rule(longest, shortest):
    rng = random.Random(longest)
    rows = [[rng.randrange(3) for _ in range(rng.randrange(2, 30))] for _ in range(200)]
    width = 40
    padded = torch.tensor([row + [rng.randrange(3) for _ in range(width - len(row))]
                           for row in rows])
    got = lookup(padded, torch.tensor([len(r) for r in rows]), 4, longest, shortest)
    hits = 0
    for row, tokens, length in zip(rows, got.tokens.tolist(), got.lengths.tolist(), strict=True):
        want = naive_lookup(row, 4, longest, shortest)
        assert length == (0 if want is None else 4)
        if want is not None:
            assert tokens == want
            hits += 1
        assert all(0 <= t < 3 for t in tokens)
    assert hits > 0


def test_suffix_follows_the_longest_match_by_majority():
    index = SuffixIndex()
    index.extend([1, 2, 3, 4, -1, 1, 2, 3, 5, -1, 1, 2, 3, 5, -1, 9, 2, 3, 6, -1])
    length, starts = index.continuations([7, 1, 2, 3], max_match=8, max_candidates=64)
    assert length == 3
    assert sorted(index.tokens[at] for at in starts) == [4, 5, 5]
    draft, probs = follow(index, starts, most=4, min_prob=0.1)
    assert draft == [5]  # the separator ends every continuation
    assert probs == [pytest.approx(2 / 3)]
    assert follow(index, starts, most=4, min_prob=0.7)[0] == []


def test_suffix_learns_from_finished_answers():
    drafter = SuffixProposer(4)
    drafter.admit(0, [1, 2])
    assert drafter.drafts(0) == []
    drafter.commit(0, [10, 11, 12, 13, 14, 15])
    drafter.finish(0, [10, 11, 12, 13, 14, 15])
    drafter.admit(0, [50, 51, 10, 11, 12])
    assert drafter.drafts(0) == [13, 14, 15]  # as long as the match
    drafter.commit(0, [13])
    assert drafter.drafts(0) == [14, 15]


def test_suffix_repeats_its_own_text():
    drafter = SuffixProposer(3)
    drafter.admit(4, [5, 6, 7, 8, 9, 5, 6, 7])
    assert drafter.drafts(4) == [8, 9, 5]


def eagle_reference(target, weights, ids, hidden, steps):
    """Greedy drafts after `ids`, by running the head over everything, without a cache.

    hidden [n-1, H]: the target's hidden states of ids[:-1].
    """
    w, c = weights.tensors, target.config
    d, half = c.head_dim, c.head_dim // 2
    head = target.head_weight if weights.vocab is None else target.head_weight[weights.vocab]

    def norm(x, weight):
        return F.rms_norm(x, (x.shape[-1],), weight, c.rms_norm_eps)

    def rope(x, positions):
        freq = c.rope_theta ** (-torch.arange(half) / half)
        angle = positions[:, None] * freq
        cos, sin = angle.cos()[:, None], angle.sin()[:, None]
        a, b = x[..., :half], x[..., half:]
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

    states, tokens = list(hidden), list(ids[1:])
    drafts = []
    for _ in range(steps):
        x = torch.cat((norm(target.embed[torch.tensor(tokens)], w["ne"]),
                       norm(torch.stack(states), w["nh"])), -1) @ w["fc"].T
        count = x.shape[0]
        qkv = norm(x, w["n1"]) @ w["qkv"].T
        q, k, v = qkv.split([c.num_heads * d, c.num_kv_heads * d, c.num_kv_heads * d], -1)
        at = torch.arange(count).float()
        q = rope(q.view(count, c.num_heads, d), at).transpose(0, 1)
        k = rope(k.view(count, c.num_kv_heads, d), at).transpose(0, 1)
        v = v.view(count, c.num_kv_heads, d).transpose(0, 1)
        k, v = (t.repeat_interleave(c.group, 0) for t in (k, v))
        scores = q @ k.transpose(1, 2) / d**0.5
        scores = scores.masked_fill(torch.ones(count, count).triu(1).bool(), -torch.inf)
        x = x + (scores.softmax(-1) @ v).transpose(0, 1).reshape(count, -1) @ w["o"].T
        gate, up = (norm(x, w["n2"]) @ w["gu"].T).chunk(2, -1)
        x = x + (F.silu(gate) * up) @ w["dn"].T
        choice = int((norm(x[-1], w["nf"]) @ head.T).argmax())
        choice = choice if weights.vocab is None else int(weights.vocab[choice])
        drafts.append(choice)
        states.append(x[-1])
        tokens.append(choice)
    return drafts


@pytest.mark.parametrize(("vocab", "chunk"), [(60, 7), slow(0, 7), slow(0, 100), slow(60, 100)])
def test_eagle_drafts_equal_a_run_without_cache(vocab, chunk):
    """Through prompts in chunks, partly accepted steps and reused slots."""
    target = make_model(LLAMA)
    weights = EagleWeights.random(target, seed=4, vocab_size=vocab)
    weights.tensors = {name: t if t.dim() == 1 else t * 10 for name, t in weights.tensors.items()}
    options = DecoderOptions(method="eagle", num_speculative_tokens=3, max_num_seqs=2,
                             max_model_len=90, max_num_batched_tokens=chunk)
    engine = Engine(target, options, draft=weights)
    # Emitted text that follows the drafts now and then, so that all accepted lengths occur.
    from specsim.speculation.acceptance import Acceptance

    engine._step.force(Acceptance.from_rate(0.6, 3))
    rng = random.Random(3)
    texts, checked, lengths = {}, 0, set()
    for i in range(4):
        prompt = [rng.randrange(LLAMA.vocab_size) for _ in range(rng.randrange(1, 20))]
        texts[f"r{i}"] = list(prompt)
        engine.add(EngineRequest(f"r{i}", prompt, SamplingParams(max_tokens=20)))
    while engine.has_work:
        for output in engine.step():
            text = texts[output.request_id]
            if output.drafts:
                harness = SlotHarness(target, slots=1, tokens=90)
                hidden = hidden_states(harness, text[:-1])
                assert list(output.drafts) == eagle_reference(target, weights, text, hidden, 3)
                checked += 1
                lengths.add(output.num_accepted)
            text.extend(output.token_ids)
    assert checked > 20
    assert lengths == {0, 1, 2, 3}


@torch.inference_mode()
def hidden_states(harness, ids):
    plan = harness.model.prompt_plan(0, 0, len(ids), harness.cache)
    return harness.model.forward(torch.tensor(ids), plan)


def test_early_exit_at_the_last_layer_would_be_the_target(tiny):
    """Exit after 2 of 3 layers: the drafts are those of a two-layer model, which is checked by
    building that model from the same weights."""
    target = tiny["llama"]
    short = make_model(LLAMA)
    short.layers = short.layers[:2]
    request = EngineRequest("a", [3, 1, 4, 1, 5], SamplingParams(max_tokens=25))
    options = DecoderOptions(method="early_exit", num_speculative_tokens=3, early_exit_layers=2,
                             max_num_seqs=1, max_model_len=60)
    engine = Engine(target, options)
    engine.add(request)
    text = list(request.prompt_ids)
    while engine.has_work:
        for output in engine.step():
            if output.drafts:
                harness = SlotHarness(short, slots=1, tokens=80)
                for j, token in enumerate(output.drafts):
                    logits = harness.prompt(0, text + list(output.drafts[:j]), 0)[-1]
                    assert token == int(logits.argmax())
            text.extend(output.token_ids)


def test_head_file_round_trip_and_refusals(tmp_path, tiny):
    target = tiny["llama"]
    weights = EagleWeights.random(target, vocab_size=50)
    path = tmp_path / "head.safetensors"
    weights.save(path)
    loaded = EagleWeights.load(path)
    assert torch.equal(loaded.vocab, weights.vocab)
    assert all(torch.equal(loaded.tensors[n], t) for n, t in weights.tensors.items())
    del weights.tensors["fc"]
    weights.save(path)
    with pytest.raises(FormatError, match="lacks fc"):
        EagleWeights.load(path)
    (tmp_path / "text").write_text("no tensors here")
    with pytest.raises(FormatError, match="not a readable head file"):
        EagleWeights.load(tmp_path / "text")
    options = DecoderOptions(method="eagle", num_speculative_tokens=2, max_model_len=64)
    with pytest.raises(UsageError, match="trained for another model"):
        Engine(target, options, draft=EagleWeights.random(tiny["draft"]))


def test_draft_model_of_another_vocabulary_is_refused(tiny):
    from dataclasses import replace

    other = make_model(replace(LLAMA, vocab_size=64))
    options = DecoderOptions(method="draft_model", num_speculative_tokens=2, max_model_len=64)
    with pytest.raises(UsageError, match="64 tokens, the target's 131"):
        Engine(tiny["llama"], options, draft=other)

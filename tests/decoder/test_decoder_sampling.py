"""The sampler's parts: exact identities, filters against sorted references, noise, purity."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from thinned import examples

from specsim.decoder import sampling
from specsim.decoder.sampling import (
    ACCEPT,
    DRAFT,
    DRAW,
    RowParams,
    SamplingMode,
    accept_probability,
    draw,
    nucleus_by_candidates,
    nucleus_threshold,
    residual,
    target_probs,
    uniforms,
    verify,
)

FULL = SamplingMode(greedy=False, mixed=True, top_k_max=64, top_p=True)


def random_probs(*shape, seed=0, zeros=0.0):
    generator = torch.Generator().manual_seed(seed)
    p = torch.rand(shape, generator=generator, dtype=torch.float64) ** 3
    p[torch.rand(shape, generator=generator) < zeros] = 0.0
    p[..., 0] += 1e-3
    return p / p.sum(-1, keepdim=True)


def params_of(temperature, top_k, top_p, seed):
    return RowParams(torch.tensor(temperature), torch.tensor(top_k), torch.tensor(top_p),
                     torch.tensor(seed))


def output_distribution(p, q):
    """Distribution of the emitted token: draft from q, accept or draw from the residual."""
    accepted = q * accept_probability(p, q)
    return accepted + (1 - accepted.sum(-1, keepdim=True)) * residual(p, q)


def one_hot(index, size=7):
    return torch.nn.functional.one_hot(torch.tensor(index), size).double()


@pytest.mark.parametrize("zeros", [0.0, 0.3, 0.7])
def test_identity_for_random_distributions(zeros):
    p = random_probs(2000, 11, seed=1, zeros=zeros)
    q = random_probs(2000, 11, seed=2, zeros=zeros)
    assert (output_distribution(p, q) - p).abs().max() <= 1e-14


@pytest.mark.parametrize(
    ("p", "q"),
    [
        (random_probs(7), random_probs(7)),
        (one_hot(2), random_probs(7)),
        (random_probs(7), one_hot(3)),
        (one_hot(2), one_hot(2)),
        (one_hot(2), one_hot(4)),
        (torch.tensor([0.5, 0.5, 0, 0, 0, 0, 0]), torch.tensor([0, 0, 0, 0, 0.25, 0.5, 0.25])),
    ],
)
def test_identity_in_the_corners(p, q):
    assert (output_distribution(p.double(), q.double()) - p).abs().max() <= 1e-14


def test_identity_fails_for_a_wrong_residual(monkeypatch):
    p, q = random_probs(50, 11, seed=1), random_probs(50, 11, seed=2)
    monkeypatch.setitem(globals(), "residual", lambda p, q: p)
    assert (output_distribution(p, q) - p).abs().max() > 1e-3


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 2**62), st.integers(0, 2**31), st.sampled_from([ACCEPT, DRAW, DRAFT]))
def test_noise_is_the_published_hash(seed, position, stream):
    """Against the same arithmetic in unbounded integers, so overflow and shifts are right."""
    mask = (1 << 64) - 1

    def mix(z):
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        return z ^ (z >> 31)

    gamma = 0x9E3779B97F4A7C15
    stream_key = (stream * (0xD1B54A32D192ED03 - (1 << 64)) + 1) & mask
    key = mix((seed * gamma + stream_key) & mask)
    want = ((mix((key + position * gamma) & mask) >> 32) + 0.5) / 2**32
    got = uniforms(torch.tensor([seed]), torch.tensor([position]), stream)
    assert got.item() == want
    assert 0.0 < got.item() < 1.0


def test_noise_is_uniform_and_unrelated_between_seeds_positions_and_streams():
    seeds = torch.arange(300).unsqueeze(1)
    positions = torch.arange(300)
    streams = [uniforms(seeds, positions, s) for s in (ACCEPT, DRAW, DRAFT)]
    for u in streams:
        # Kolmogorov-Smirnov at 90,000 samples: 1.95 / sqrt(n) is p = 0.001.
        ordered = u.flatten().sort().values
        ideal = (torch.arange(u.numel()) + 0.5) / u.numel()
        assert (ordered - ideal).abs().max() < 1.95 / math.sqrt(u.numel())
    pairs = [(streams[0], streams[1]), (streams[1], streams[2]),
             (streams[1][:, 1:], streams[1][:, :-1]), (streams[1][1:], streams[1][:-1])]
    for a, b in pairs:
        correlation = torch.corrcoef(torch.stack((a.flatten(), b.flatten())))[0, 1]
        assert correlation.abs() < 4 / math.sqrt(a.numel())


def test_draw_follows_the_probabilities_and_never_takes_a_zero():
    p = torch.tensor([0.0, 0.2, 0.0, 0.5, 0.3, 0.0])
    u = (torch.arange(1000, dtype=torch.float64) + 0.5) / 1000
    tokens = draw(p.expand(1000, -1), u)
    assert torch.bincount(tokens, minlength=6).tolist() == [0, 200, 0, 500, 300, 0]
    extreme = torch.tensor([2.0**-33, 1 - 2.0**-33], dtype=torch.float64)
    assert draw(p.expand(2, -1), extreme).tolist() == [1, 4]


def reference_filter(logits, temperature, top_k, top_p):
    """One row, by sorting: keep the top_k best, then the smallest set reaching top_p."""
    if temperature == 0:
        return one_hot(int(logits.argmax()), logits.shape[0]).float()
    scaled = logits / temperature
    if top_k:
        least = scaled.sort(descending=True).values[min(top_k, len(scaled)) - 1]
        scaled = torch.where(scaled < least, -math.inf, scaled)
    p = scaled.softmax(-1)
    if top_p < 1:
        order = p.argsort(descending=True)
        before = p[order].cumsum(-1) - p[order]
        p[order[before >= top_p]] = 0.0
        p = p / p.sum()
    return p


@pytest.mark.parametrize("vocab", [37, 5000])
def test_filters_equal_the_sorted_reference(vocab):
    rows = [(0.0, 0, 1.0), (1.0, 0, 1.0), (0.7, 5, 1.0), (1.3, 0, 0.9), (0.9, 20, 0.5),
            (1.0, 64, 0.99), (2.0, 1, 0.3), (1.0, 0, 1e-4)]
    generator = torch.Generator().manual_seed(vocab)
    logits = torch.randn((len(rows), 3, vocab), generator=generator) * 3
    params = params_of([r[0] for r in rows], [r[1] for r in rows], [r[2] for r in rows],
                       list(range(len(rows))))
    got = target_probs(logits, params, FULL)
    for i, row in enumerate(rows):
        for j in range(3):
            want = reference_filter(logits[i, j], *row)
            assert torch.equal(got[i, j] > 0, want > 0)
            assert (got[i, j] - want).abs().max() < 1e-6


def test_nucleus_of_a_large_vocabulary_keeps_the_sorted_support():
    generator = torch.Generator().manual_seed(0)
    p = (torch.randn((4, 151936), generator=generator) * 2.5).softmax(-1)
    for top_p in (0.1, 0.8, 0.95, 1.0):
        kept = p >= nucleus_threshold(p, torch.full((4,), top_p)).unsqueeze(-1)
        for row, mask in zip(p, kept, strict=True):
            ordered = row.double().sort(descending=True).values
            count = int((ordered.cumsum(-1) < top_p).sum()) + 1 if top_p < 1 else len(row)
            # fp32 sums of 150,000 terms may put the boundary one token off.
            assert abs(int(mask.sum()) - count) <= (0 if top_p == 1.0 else 1 + count // 1000)


@pytest.mark.parametrize("top_p", [0.05, 0.5, 0.9, 0.999, 1.0])
def test_nucleus_from_candidates_equals_the_exact_search(top_p):
    generator = torch.Generator().manual_seed(3)
    p = (torch.randn((5, 2, 4000), generator=generator) * 4).softmax(-1)
    wanted = torch.full((5, 2), top_p)
    wanted[0, 0] = 1.0
    exact = nucleus_threshold(p, wanted)
    got = nucleus_by_candidates(p, wanted, width=2000)
    for threshold, other in zip(exact.flatten(), got.flatten(), strict=True):
        row = p.flatten(0, 1)[0]
        # fp32 against fp64 sums may put the boundary one token off, never more.
        assert abs(int((row >= threshold).sum()) - int((row >= other).sum())) <= 1
    flat = torch.full((1, 1, 4000), 1 / 4000)
    assert nucleus_by_candidates(flat, torch.tensor([[0.9]])) is None


def test_looking_on_the_host_changes_no_probability():
    from dataclasses import replace

    logits = torch.randn((4, 3, 900), generator=torch.Generator().manual_seed(1)) * 3
    params = params_of([1.0, 0.8, 0.0, 5.0], [0, 30, 0, 0], [0.9, 0.7, 0.5, 0.99], [0] * 4)
    looking = replace(FULL, may_sync=True)
    torch.testing.assert_close(target_probs(logits, params, looking),
                               target_probs(logits, params, FULL), rtol=1e-6, atol=1e-9)


def verify_inputs(batch, k, vocab, seed):
    generator = torch.Generator().manual_seed(seed)
    p = random_probs(batch, k + 1, vocab, seed=seed)
    q = random_probs(batch, k, vocab, seed=seed + 1)
    drafts = torch.randint(0, vocab, (batch, k), generator=generator)
    likely = torch.rand((batch, k, 1), generator=generator, dtype=torch.float64) * 5
    p[:, :k].scatter_add_(-1, drafts.unsqueeze(-1), likely)
    p = p / p.sum(-1, keepdim=True)
    lens = torch.randint(0, k + 1, (batch,), generator=generator)
    noise = torch.rand((batch, 2 * k + 1), generator=generator, dtype=torch.float64)
    return p, q, drafts, noise[:, :k], noise[:, k:], lens


def test_rows_of_a_batch_equal_the_rows_alone():
    p, q, drafts, u_accept, u_draw, lens = verify_inputs(64, 4, 23, seed=3)
    together = verify(p, q, drafts, u_accept, u_draw, lens)
    assert len(set(together.accepted.tolist())) > 3
    for i in range(64):
        one = slice(i, i + 1)
        alone = verify(p[one], q[one], drafts[one], u_accept[one], u_draw[one], lens[one])
        assert alone.accepted == together.accepted[i]
        assert alone.next_token == together.next_token[i]


def test_filters_of_a_batch_equal_the_rows_alone():
    logits = torch.randn((6, 2, 50), generator=torch.Generator().manual_seed(1))
    params = params_of([0.0, 1.0, 0.5, 1.0, 2.0, 0.0], [0, 3, 0, 10, 0, 5],
                       [1.0, 1.0, 0.6, 0.9, 0.3, 0.5], [0] * 6)
    together = target_probs(logits, params, FULL)
    for i in range(6):
        one = RowParams(params.temperature[i : i + 1], params.top_k[i : i + 1],
                        params.top_p[i : i + 1], params.seed[i : i + 1])
        assert torch.equal(target_probs(logits[i : i + 1], one, FULL)[0], together[i])


def test_masked_proposals_are_never_accepted_and_cost_no_residual():
    p, q, drafts, _, u_draw, _ = verify_inputs(500, 3, 7, seed=5)
    sure = torch.zeros((500, 3), dtype=torch.float64)
    verdict = verify(p, q, drafts, sure, u_draw, torch.full((500,), 1))
    assert verdict.accepted.max() <= 1
    # u = 0 accepts every real draft with p > 0, so the next token is a bonus drawn from p[:, 1].
    bonus = draw(p[:, 1], u_draw[:, 1])
    assert torch.equal(verdict.next_token[verdict.accepted == 1], bonus[verdict.accepted == 1])


def test_greedy_rows_through_the_general_code_equal_the_greedy_code():
    logits = torch.randn((200, 4, 9), generator=torch.Generator().manual_seed(2))
    drafts = logits[:, :3].argmax(-1)
    drafts[::3, 1] = (drafts[::3, 1] + 1) % 9
    params = params_of([0.0] * 200, [0] * 200, [1.0] * 200, [0] * 200)
    p = target_probs(logits, params, FULL)
    noise = torch.rand((200, 7), generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    one_hot_q = torch.nn.functional.one_hot(drafts, 9).float()
    general = verify(p, one_hot_q, drafts, noise[:, :3], noise[:, 3:])
    greedy = sampling.verify_exact(logits.argmax(-1), drafts)
    assert torch.equal(general.accepted, greedy.accepted)
    assert torch.equal(general.next_token, greedy.next_token)

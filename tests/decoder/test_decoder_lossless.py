"""Speculative sampling leaves the target's joint distribution unchanged: exact enumeration.

Tiny Markov tables (5 tokens, k = 3), 200,000 sequences at once through the real `verify` and the
real noise; the joint distribution of the first four tokens (625 cells) against its exact values.
Four exceeds k, so bonus tokens are tested. Wrong samplers must fail, and before a test is trusted
every accepted length must have occurred 1,000 times.

Drafts without probabilities may know the noise that judges them ("knowing": a store that holds this
seed's earlier answer), so they are judged by `verify_exact`, and the rule for drafts with
probabilities must fail on them.
"""

import pytest
import torch
from thinned import diagonal, slow

from specsim.decoder import sampling
from specsim.decoder.sampling import ACCEPT, DRAFT, DRAW, draw, uniforms, verify, verify_exact

stats = pytest.importorskip("scipy.stats")

VOCAB, K, LENGTH, ROWS = 5, 3, 4, 200_000
SEEDS = (11, 22, 33)
FEWER = 60_000  # enough for a wrong sampler to fail


def tables(seed):
    """Target and draft transition tables [V, V]; the draft is a blurred, shifted target."""
    generator = torch.Generator().manual_seed(seed)
    p = torch.rand((VOCAB, VOCAB), generator=generator, dtype=torch.float64) ** 2 + 0.02
    noise = torch.rand((VOCAB, VOCAB), generator=generator, dtype=torch.float64)
    p[0, 1] = 0.0  # a token the target never emits here, and the draft does
    q = 0.7 * p + 0.3 * noise
    q[2, 3] = 0.0  # and one the draft never proposes
    return p / p.sum(-1, keepdim=True), q / q.sum(-1, keepdim=True)


def exactly(p, q, drafts, u_accept, u_draw, lengths=None):
    return verify_exact(draw(p, u_draw), drafts, lengths)


def as_one_hot(p, q, drafts, u_accept, u_draw, lengths=None):
    """The rule for drafts with probabilities, given none."""
    sure = torch.nn.functional.one_hot(drafts, VOCAB).double()
    return verify(p, sure, drafts, u_accept, u_draw, lengths)


def run(p, q, seed, mode="ratio", verify=verify, count=ROWS):
    """First LENGTH tokens [count, LENGTH] of sequences starting at token 0, and counts of a."""
    rows = torch.arange(count)
    seeds = rows + seed * 1_000_003
    tokens = torch.zeros((count, LENGTH + 2 * K + 3), dtype=torch.int64)
    n = torch.ones(count, dtype=torch.int64)
    counts = torch.zeros(K + 1, dtype=torch.int64)
    best = q.argmax(-1)
    while int(n.min()) <= LENGTH:
        at, drafts = tokens[rows, n - 1], []
        for j in range(K):
            if mode == "one-hot":
                at = best[at]
            elif mode == "knowing":  # half of the rows draft what this noise draws
                at = torch.where(rows % 2 == 0, best[at], draw(p[at], uniforms(seeds, n + j, DRAW)))
            else:
                at = draw(q[at], uniforms(seeds, n + j, DRAFT))
            drafts.append(at)
        drafts = torch.stack(drafts, 1)
        context = torch.cat((tokens[rows, n - 1].unsqueeze(1), drafts), 1)
        lengths = None
        if mode == "short":  # rows propose 0..K drafts, by their own coin
            lengths = (uniforms(seeds, n, 7) * (K + 1)).long()
        ahead = n.unsqueeze(1) + torch.arange(K + 1)
        verdict = verify(
            p[context], q[context[:, :K]], drafts,
            uniforms(seeds.unsqueeze(1), ahead[:, :K], ACCEPT),
            uniforms(seeds.unsqueeze(1), ahead, DRAW), lengths,
        )
        column = torch.arange(K + 1)
        emitted = torch.where(column < verdict.accepted.unsqueeze(1),
                              torch.cat((drafts, drafts[:, :1]), 1),
                              verdict.next_token.unsqueeze(1))
        live = n <= LENGTH
        room = (n.unsqueeze(1) + column).clamp(max=tokens.shape[1] - 1)
        tokens[rows.unsqueeze(1), room] = torch.where(
            (column <= verdict.accepted.unsqueeze(1)) & live.unsqueeze(1), emitted,
            tokens[rows.unsqueeze(1), room])
        counts += torch.bincount(verdict.accepted[live], minlength=K + 1)
        n = torch.where(live, n + verdict.accepted + 1, n)
    return tokens[:, 1 : LENGTH + 1], counts


def exact(p):
    """Joint probabilities of the first LENGTH tokens after token 0, [V ** LENGTH]."""
    joint = p[0]
    for _ in range(LENGTH - 1):
        joint = (joint.view(-1, VOCAB, 1) * p.view(1, VOCAB, VOCAB)).reshape(-1)
    return joint


def observed(tokens):
    cell = torch.zeros(tokens.shape[0], dtype=torch.int64)
    for column in tokens.T:
        cell = cell * VOCAB + column
    return torch.bincount(cell, minlength=VOCAB**LENGTH).double()


def p_value(tokens, p):
    """Chi-square p, cells with fewer than 5 expected pooled; 0 if an impossible cell occurred."""
    seen, expected = observed(tokens), exact(p) * tokens.shape[0]
    if seen[expected == 0].sum() > 0:
        return 0.0
    small = expected < 5
    f_obs = torch.cat((seen[~small], seen[small].sum().view(1)))
    f_exp = torch.cat((expected[~small], expected[small].sum().view(1)))
    keep = f_exp > 0
    return float(stats.chisquare(f_obs[keep], f_exp[keep] * f_obs.sum() / f_exp.sum()).pvalue)


JUDGES = {"ratio": verify, "short": verify, "one-hot": exactly, "knowing": exactly}


@pytest.mark.parametrize(("mode", "seed"), diagonal(JUDGES, SEEDS, most=2))
def test_joint_distribution_is_the_targets(seed, mode):
    p, q = tables(seed)
    tokens, counts = run(p, q, seed, mode, JUDGES[mode])
    assert counts.min() >= 1000, f"accepted lengths seen: {counts.tolist()}"
    assert p_value(tokens, p) > 1e-4


def test_drafts_without_probabilities_do_not_change_the_text():
    """One text per seed, whatever is drafted."""
    p, q = tables(SEEDS[0])
    texts = [run(p, q, SEEDS[0], mode, exactly, FEWER)[0]
             for mode in ("one-hot", "knowing", "short")]
    assert torch.equal(texts[0], texts[1]) and torch.equal(texts[0], texts[2])


@pytest.mark.slow
def test_total_variation_is_that_of_direct_draws():
    p, q = tables(SEEDS[0])
    tokens, _ = run(p, q, SEEDS[0])
    direct = torch.multinomial(exact(p), ROWS, replacement=True,
                               generator=torch.Generator().manual_seed(1))
    null = torch.bincount(direct, minlength=VOCAB**LENGTH).double() / ROWS

    def distance(share):
        return 0.5 * (share - exact(p)).abs().sum()

    assert distance(observed(tokens) / ROWS) < 1.15 * distance(null)


def bonus_from_the_last_draft(p, q, *rest):
    p = p.clone()
    p[:, K] = p[:, K - 1]
    return verify(p, q, *rest)


def no_accepting(p, q):
    return torch.zeros_like(p)


MUTANTS = {
    "no residual": ("residual", lambda p, q: p),
    "residual of the wrong sign": ("residual", lambda p, q: (q - p).clamp(min=0) + 1e-12),
    "accept with u < p": ("accept_probability", lambda p, q: p),
    "accept everything": ("accept_probability", lambda p, q: torch.ones_like(p)),
    "accept with u < p / q^2": ("accept_probability", lambda p, q: (p / q**2).clamp(max=1.0)),
    "accept nothing": ("accept_probability", no_accepting),
    "bonus from the last draft": (None, None),
}


@pytest.mark.parametrize(("mutant", "seed"), diagonal(MUTANTS, SEEDS))
def test_wrong_samplers_fail(monkeypatch, mutant, seed):
    name, replacement = MUTANTS[mutant]
    p, q = tables(seed)
    if name is None:
        tokens, counts = run(p, q, seed, verify=bonus_from_the_last_draft, count=FEWER)
        assert counts[K] >= 1000
    else:
        monkeypatch.setattr(sampling, name, replacement)
        tokens, _ = run(p, q, seed, count=FEWER)
    assert p_value(tokens, p) < 1e-10


def bonus_drawn_from_the_last_draft(p, q, *rest):
    p = p.clone()
    p[:, K] = p[:, K - 1]
    return exactly(p, q, *rest)


@pytest.mark.parametrize(("mode", "judge"), [
    slow("knowing", as_one_hot), ("one-hot", bonus_drawn_from_the_last_draft)])
def test_wrong_samplers_fail_for_drafts_without_probabilities(mode, judge):
    p, q = tables(SEEDS[0])
    best = q.argmax(-1)
    assert best[best[best[0]]] != best[best[0]]  # else the last draft's row is the bonus's row
    tokens, counts = run(p, q, SEEDS[0], mode, judge)
    assert counts.min() >= 1000
    assert p_value(tokens, p) < 1e-10

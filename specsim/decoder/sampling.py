"""Speculative sampling that leaves the target's distribution unchanged (Leviathan et al. 2023,
Chen et al. 2023), as pure functions of probabilities and noise.

A draft d, drawn from q, is accepted with probability min(1, p(d) / q(d)). At the first rejection
the recovered token is drawn from max(0, p - q), normalised; when every draft is accepted a bonus
token is drawn from the target's next distribution. Then every emitted token has the distribution p.

A drafter without probabilities (n-gram, suffix) proposes what it found somewhere, perhaps in an
answer that was drawn with this request's own seed. A test with noise of its own would then judge
drafts that know the noise. So each position's token is drawn as if there were no drafts, and a
draft is accepted where it is that token (`verify_exact`): with probability p(d), as by the rule
above with q = one-hot, and the text is the same as without drafts, whatever was drafted.

Noise is counter-based: `uniforms(seed, position, stream)` hashes the request's seed, the position
of the token and the purpose of the draw. No generator state exists, so a request's text does not
depend on what shares its batch, nothing needs re-seeding in a CUDA graph, and tests can pass noise
in. A token is drawn by inverting the cumulative distribution in fp64, one uniform per token instead
of one exponential per vocabulary entry. Reusing a position's noise after a rejection is sound: what
was computed past the rejection is thrown away, and a step's course up to a position depends on
noise of earlier positions only. A drafter with probabilities keeps nothing of other requests, so
its drafts depend on the prompt, the text so far and the noise of its own stream.

p and q are [batch, positions, vocab]; greedy rows are one-hot, so one code serves mixed batches.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

# Streams of noise: the accept test, drawing from the target (or residual), drawing a draft.
ACCEPT, DRAW, DRAFT = 0, 1, 2

_MASK64 = (1 << 64) - 1


def _signed(value: int) -> int:
    value &= _MASK64
    return value - (1 << 64) if value >> 63 else value


# splitmix64's constants (Steele, Lea and Flood 2014), as signed 64-bit integers.
_GAMMA = _signed(0x9E3779B97F4A7C15)
_MIX1 = _signed(0xBF58476D1CE4E5B9)
_MIX2 = _signed(0x94D049BB133111EB)
_STREAM = _signed(0xD1B54A32D192ED03)


def _shift(z: Tensor, bits: int) -> Tensor:
    """Logical right shift of int64."""
    return (z >> bits) & ((1 << (64 - bits)) - 1)


def _mix(z: Tensor) -> Tensor:
    z = (z ^ _shift(z, 30)) * _MIX1
    z = (z ^ _shift(z, 27)) * _MIX2
    return z ^ _shift(z, 31)


def uniforms(seed: Tensor, position: Tensor, stream: int) -> Tensor:
    """fp64 uniforms in (0, 1), 32 bits each, never 0 or 1. seed, position: int64, broadcast."""
    key = _mix(seed * _GAMMA + _signed(stream * _STREAM + 1))
    bits = _shift(_mix(key + position * _GAMMA), 32)
    return (bits.double() + 0.5) * 2.0**-32


@dataclass(frozen=True, slots=True)
class SamplingMode:
    """What the host knows about the rows of a step; decides which kernels run.

    greedy: every row is greedy (argmax only). mixed: some are, some not. top_k_max: largest top_k
    of any row, 0 when none has one. top_p: some row has top_p < 1. may_sync: reading a value on
    the host costs nothing here (CPU), so a cheaper kernel may be chosen by looking.
    """

    greedy: bool = True
    mixed: bool = False
    top_k_max: int = 0
    top_p: bool = False
    may_sync: bool = False


@dataclass(slots=True)
class RowParams:
    """Sampling parameters of the rows of a step, [B] each."""

    temperature: Tensor
    top_k: Tensor
    top_p: Tensor
    seed: Tensor


def nucleus_threshold(probs: Tensor, top_p: Tensor) -> Tensor:
    """Largest t with sum(probs[probs >= t]) >= top_p, per row; 0 where top_p is 1.

    probs fp32 [..., V], top_p [...]. Exact, without sorting: non-negative floats are ordered as
    their bit patterns, so 31 halvings of the integer range find the boundary.
    """
    low = torch.zeros(probs.shape[:-1], dtype=torch.int32, device=probs.device)
    high = torch.full_like(low, 0x3F800001)  # just above 1.0
    wanted = top_p.to(probs.dtype)
    for _ in range(31):
        middle = low + (high - low) // 2
        at = middle.view(torch.float32).unsqueeze(-1)
        enough = torch.where(probs >= at, probs, 0.0).sum(-1) >= wanted
        low = torch.where(enough, middle, low)
        high = torch.where(enough, high, middle)
    return torch.where(top_p >= 1.0, 0.0, low.view(torch.float32))


def nucleus_by_candidates(probs: Tensor, top_p: Tensor, width: int = 256) -> Tensor | None:
    """`nucleus_threshold` from the `width` largest probabilities of each row, or None when they do
    not hold top_p of some row. Reads one value on the host; 10-20 times faster on a CPU."""
    best = probs.topk(min(width, probs.shape[-1]), dim=-1).values
    mass = best.double().cumsum(-1)
    whole = top_p >= 1.0
    if not bool((whole | (mass[..., -1] >= top_p)).all()):
        return None
    last = (mass < top_p.double().unsqueeze(-1)).sum(-1, keepdim=True)
    least = best.gather(-1, last.clamp(max=best.shape[-1] - 1)).squeeze(-1)
    return torch.where(whole, 0.0, least)


def target_probs(logits: Tensor, params: RowParams, mode: SamplingMode) -> Tensor:
    """Filtered probabilities of fp32 logits [B, m, V]: temperature, top-k, top-p, in that order.

    Ties at the top-k or top-p boundary are kept. Greedy rows become one-hot at the argmax.
    """
    temperature = params.temperature.view(-1, 1, 1)
    scaled = logits / torch.where(temperature > 0, temperature, 1.0)
    if mode.top_k_max:
        width = min(mode.top_k_max, logits.shape[-1])
        best = scaled.topk(width, dim=-1).values  # [B, m, width]
        rank = (params.top_k.view(-1, 1, 1) - 1).clamp(0, width - 1)
        least = best.gather(-1, rank.expand(-1, best.shape[1], 1))
        filtered = (params.top_k.view(-1, 1, 1) > 0) & (scaled < least)
        scaled = scaled.masked_fill(filtered, float("-inf"))
    probs = scaled.softmax(-1)
    if mode.top_p:
        top_p = params.top_p.view(-1, 1).expand(probs.shape[:-1])
        threshold = nucleus_by_candidates(probs, top_p) if mode.may_sync else None
        if threshold is None:
            threshold = nucleus_threshold(probs, top_p)
        probs = torch.where(probs >= threshold.unsqueeze(-1), probs, 0.0)
        probs = probs / probs.sum(-1, keepdim=True)
    if mode.mixed:
        one_hot = torch.zeros_like(probs).scatter_(-1, logits.argmax(-1, keepdim=True), 1.0)
        probs = torch.where(temperature > 0, probs, one_hot)
    return probs


def draw(probs: Tensor, uniform: Tensor) -> Tensor:
    """One token per row: probs [..., V] (need not sum to 1), uniform fp64 [...] -> int64 [...].

    A token of probability 0 is never drawn.
    """
    cumulative = probs.double().cumsum(-1)
    wanted = uniform.unsqueeze(-1) * cumulative[..., -1:]
    token = torch.searchsorted(cumulative, wanted, right=True).squeeze(-1)
    return token.clamp(max=probs.shape[-1] - 1)


def accept_probability(p: Tensor, q: Tensor) -> Tensor:
    """min(1, p/q) of a drafted token; where q is 0 the token cannot have been drawn from q."""
    return torch.where(q > 0, (p / torch.where(q > 0, q, 1.0)).clamp(max=1.0), 0.0)


def residual(p: Tensor, q: Tensor) -> Tensor:
    """max(0, p - q) normalised over the last axis; p itself where p <= q everywhere."""
    over = (p - q).clamp(min=0.0)
    mass = over.sum(-1, keepdim=True)
    return torch.where(mass > 0, over / torch.where(mass > 0, mass, 1.0), p)


@dataclass(slots=True)
class Verification:
    """accepted [B]: drafts accepted, 0..k. next_token [B]: the recovered or bonus token."""

    accepted: Tensor
    next_token: Tensor


def count_accepted(
    ok: Tensor, draft_len: Tensor | None, forced: Tensor | None, u_accept: Tensor | None
) -> Tensor:
    """Leading accepted drafts: ok [B, k] bool -> [B].

    draft_len [B] masks proposals that do not exist. forced [k]: conditional acceptance rates that
    replace the outcome of the test, for timing (see `Step.force`).
    """
    if forced is not None:
        assert u_accept is not None
        ok = u_accept < forced
    if draft_len is not None:
        ok = ok & (torch.arange(ok.shape[1], device=ok.device) < draft_len.unsqueeze(1))
    return ok.long().cumprod(1).sum(1)


def verify(
    p: Tensor, q: Tensor, drafts: Tensor, u_accept: Tensor, u_draw: Tensor,
    draft_len: Tensor | None = None, forced: Tensor | None = None,
) -> Verification:
    """Accept or reject drafts and draw the token after them.

    p [B, k+1, V]: target probabilities after the pending token and after each draft.
    q [B, k, V]: what each draft was drawn from. drafts [B, k] valid ids, also where masked by
    draft_len. u_accept [B, k] and u_draw [B, k+1]: uniforms of the positions n .. n+k; the token
    drawn uses the noise of the position it lands on.
    """
    k = drafts.shape[1]
    ids = drafts.unsqueeze(-1)
    p_draft = p[:, :k].gather(-1, ids).squeeze(-1).double()
    q_draft = q.gather(-1, ids).squeeze(-1).double()
    ok = u_accept < accept_probability(p_draft, q_draft)
    accepted = count_accepted(ok, draft_len, forced, u_accept)

    vocab = p.shape[-1]
    row = p.gather(1, accepted.view(-1, 1, 1).expand(-1, 1, vocab)).squeeze(1)  # [B, V]
    u_next = u_draw.gather(1, accepted.unsqueeze(1)).squeeze(1)
    rejected = accepted < (k if draft_len is None else draft_len)
    at = accepted.clamp(max=k - 1).view(-1, 1, 1).expand(-1, 1, vocab)
    q_row = q.gather(1, at).squeeze(1)
    final = torch.where(rejected.unsqueeze(1), residual(row, q_row), row)
    return Verification(accepted, draw(final, u_next))


def verify_exact(
    chosen: Tensor, drafts: Tensor, draft_len: Tensor | None = None, forced: Tensor | None = None,
    u_accept: Tensor | None = None,
) -> Verification:
    """Accept the drafts [B, k] that are the target's own tokens: chosen [B, k+1] is its choice at
    each position, by argmax or by a draw that knows nothing of the drafts."""
    k = drafts.shape[1]
    accepted = count_accepted(drafts == chosen[:, :k], draft_len, forced, u_accept)
    return Verification(accepted, chosen.gather(1, accepted.unsqueeze(1)).squeeze(1))

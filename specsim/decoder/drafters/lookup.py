"""Drafts looked up in texts: n-grams of the request, and suffixes of finished answers as well."""

from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

from specsim.decoder.attention import BatchRows
from specsim.decoder.drafters.base import Proposal, Proposer
from specsim.decoder.sampling import SamplingMode
from specsim.decoder.state import SlotState


class NGramProposer(Proposer):
    """Prompt lookup: propose what followed the last tokens the previous time they occurred.

    The longest of max..min last tokens that occurs earlier in the request is matched, its most
    recent occurrence taken. Where the continuation runs into the end of the sequence it goes on
    from the start of the match: text with period r is then continued for k tokens, not r. Static
    shapes, no host sync: a comparison of the whole token row per n-gram length. A row without a
    match proposes nothing (lengths 0) and carries a valid filler token."""

    def __init__(
        self, num_speculative_tokens: int, longest: int, shortest: int, state: SlotState
    ) -> None:
        self.num_speculative_tokens = num_speculative_tokens
        self._longest, self._shortest = longest, shortest
        self._state = state

    def propose(self, rows: BatchRows, mode: SamplingMode) -> Proposal:
        state = self._state
        n = state.n[rows.index]
        width = min(rows.bound, state.token_ids.shape[1])
        tokens = state.token_ids[rows.index, :width]
        return lookup(tokens, n, self.num_speculative_tokens, self._longest, self._shortest)


def lookup(tokens: Tensor, n: Tensor, k: int, longest: int, shortest: int) -> Proposal:
    """tokens [B, W], of which n [B] are committed -> drafts [B, k] and how many exist, 0 or k.

    Positions at or beyond n are never looked at.
    """
    width = tokens.shape[1]
    where = torch.arange(width, device=tokens.device)
    follow = torch.zeros_like(n)  # position of the first proposed token; 0: no match
    run = (where < (n - 1).unsqueeze(1)) & (where >= 0)  # ends a match, leaves a follower
    # run[b, p]: tokens p-g+1 .. p equal the last g of row b. Grown one token at a time.
    for length in range(1, longest + 1):
        last = tokens.gather(1, (n - length).clamp(min=0).unsqueeze(1))
        equal = tokens == last
        shifted = torch.zeros_like(equal)
        shifted[:, length - 1 :] = equal[:, : width - length + 1]
        run = run & shifted & (n > length).unsqueeze(1)
        if length >= shortest:
            found = torch.where(run, where + 1, 0).amax(1)
            follow = torch.where(found > 0, found, follow)
    period = (n - follow).clamp(min=1)
    offset = torch.arange(k, device=tokens.device) % period.unsqueeze(1)
    drafts = tokens.gather(1, (follow.unsqueeze(1) + offset).clamp(max=width - 1))
    lengths = torch.where(follow > 0, k, 0)
    return Proposal(drafts, None, lengths)


MAX_ORDER = 3  # longest n-gram in the index
MAX_MATCH = 24  # tokens that are compared backwards
MIN_PROB = 0.1
MAX_CANDIDATES = 64
MAX_STORE_TOKENS = 500_000
_SEPARATOR = -1  # between texts of the store; matches nothing, and no proposal crosses it


class SuffixIndex:
    """A growing token list with its n-grams' end positions."""

    __slots__ = ("_ends", "tokens")

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self._ends: dict[tuple[int, ...], list[int]] = {}

    def append(self, token: int) -> None:
        """Add a token; it can be proposed at once, and be matched on once it has a follower."""
        end = len(self.tokens)
        self.tokens.append(token)
        for order in range(1, MAX_ORDER + 1):
            first = end - order
            if first < 0 or _SEPARATOR in self.tokens[first:end]:
                break
            self._ends.setdefault(tuple(self.tokens[first:end]), []).append(end)

    def extend(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            self.append(token)

    def continuations(
        self, context: Sequence[int], max_match: int, max_candidates: int
    ) -> tuple[int, list[int]]:
        """(length of the longest match with the end of `context`, positions that follow it)."""
        for order in range(min(MAX_ORDER, len(context)), 0, -1):
            ends = self._ends.get(tuple(context[-order:]))
            if not ends:
                continue
            best, found = 0, []
            for end in reversed(ends[-max_candidates:]):
                length = self._match_length(context, end, order, max_match)
                if length > best:
                    best, found = length, [end]
                elif length == best:
                    found.append(end)
            return best, found
        return 0, []

    def _match_length(self, context: Sequence[int], end: int, known: int, limit: int) -> int:
        length = known
        most = min(limit, len(context), end)
        while length < most and self.tokens[end - 1 - length] == context[-1 - length]:
            length += 1
        return length


def follow(
    index: SuffixIndex, starts: Sequence[int], most: int, min_prob: float
) -> tuple[list[int], list[float]]:
    """Walk from `starts` by majority: tokens, and the estimated probability of each prefix."""
    alive = list(starts)
    draft: list[int] = []
    probs: list[float] = []
    probability = 1.0
    tokens = index.tokens
    while alive and len(draft) < most:
        votes = Counter(tokens[at] for at in alive if at < len(tokens) and tokens[at] != _SEPARATOR)
        if not votes:
            break
        token, count = votes.most_common(1)[0]
        probability *= count / len(alive)
        if probability < min_prob:
            break
        draft.append(token)
        probs.append(probability)
        alive = [at + 1 for at in alive if at < len(tokens) and tokens[at] == token]
    return draft, probs


class SuffixProposer(Proposer):
    """Suffix decoding on the host: match the end of a request against itself and earlier answers.

    Proposes the continuation that followed the longest matching suffix, in the request's own text
    and in a store of finished answers, choosing among several matches the token seen most often. It
    stops when the estimated probability of the whole draft falls under `MIN_PROB`, or when the
    draft is as long as the match, so a short match risks a short draft (the rules of suffix
    decoding: Oliaro et al. 2024; Snowflake's arctic-inference has a tree version).

    One index per running request and one store of finished answers, shared: 1-, 2- and 3-grams of
    the texts. The longest indexed n-gram that occurs gives the candidates (the most recent
    `MAX_CANDIDATES`), which are then compared backwards."""

    host_side = True

    def __init__(self, num_speculative_tokens: int) -> None:
        self.num_speculative_tokens = num_speculative_tokens
        self._own: dict[int, SuffixIndex] = {}
        self._store = SuffixIndex()

    def admit(self, slot: int, prompt_ids: Sequence[int]) -> None:
        self._own[slot] = SuffixIndex()
        self._own[slot].extend(prompt_ids)

    def commit(self, slot: int, tokens: Sequence[int]) -> None:
        self._own[slot].extend(tokens)

    def finish(self, slot: int, answer: Sequence[int]) -> None:
        """Forget the request; keep its answer for later ones while the store has room."""
        self._own.pop(slot, None)
        if answer and len(self._store.tokens) + len(answer) < MAX_STORE_TOKENS:
            self._store.extend([*answer, _SEPARATOR])

    def drafts(self, slot: int) -> list[int]:
        """0..k tokens for one request."""
        own = self._own[slot]
        best: list[int] = []
        score = 0.0
        for index in (own, self._store):
            length, starts = index.continuations(own.tokens, MAX_MATCH, MAX_CANDIDATES)
            draft, probs = follow(index, starts, min(self.num_speculative_tokens, length), MIN_PROB)
            if sum(probs) > score:
                best, score = draft, sum(probs)
        return best

    def propose(self, rows: BatchRows, mode: SamplingMode) -> Proposal:
        """Proposals of the rows' slots; the filler is each row's last token. A slot without a
        request (a padded row) proposes nothing."""
        k, device = self.num_speculative_tokens, rows.index.device
        made, lengths = [], []
        for slot in rows.slots:
            own = self._own.get(slot)
            draft = self.drafts(slot) if own is not None else []
            filler = own.tokens[-1] if own is not None else 0
            made.append(draft + [filler] * (k - len(draft)))
            lengths.append(len(draft))
        return Proposal(
            torch.tensor(made, dtype=torch.int64).view(-1, k).to(device, non_blocking=True), None,
            torch.tensor(lengths, dtype=torch.int64).to(device, non_blocking=True),
        )

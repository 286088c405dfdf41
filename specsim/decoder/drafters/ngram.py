"""Prompt lookup: propose what followed the last tokens the previous time they occurred.

The longest of max..min last tokens that occurs earlier in the request is matched, its most recent
occurrence taken. Where the continuation runs into the end of the sequence it goes on from the
start of the match: text with period r is then continued for k tokens, not r. Static shapes, no host
sync: a comparison of the whole token row per n-gram length. A row without a match proposes nothing
(lengths 0) and carries a valid filler token.
"""

import torch
from torch import Tensor

from specsim.decoder.attention import BatchRows
from specsim.decoder.drafters.base import Proposal, Proposer
from specsim.decoder.sampling import SamplingMode
from specsim.decoder.state import SlotState


class NGramProposer(Proposer):
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

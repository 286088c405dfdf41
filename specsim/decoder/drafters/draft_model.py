"""A smaller model with the target's vocabulary drafts k tokens, one forward each.

The first forward is two tokens wide, positions n-2 and n-1. After a step in which all k drafts were
accepted the draft model has never seen the last of them: its cache has a hole at n-2. Rewriting
that position costs one more row and needs no host decision; without it a draft model equal to the
target is accepted 1.4 of 4 times instead of always.
"""

import torch
from torch import Tensor

from specsim.decoder.attention import AttentionBackend, Rows
from specsim.decoder.drafters.base import DraftSampler, Proposal
from specsim.decoder.kv_cache import BlockTable, KVCache
from specsim.decoder.sampling import SamplingMode
from specsim.decoder.state import SlotState
from specsim.decoder.transformer import Transformer
from specsim.errors import UsageError


class DraftModel:
    needs_hidden = False
    host_side = False

    def __init__(
        self, model: Transformer, target: Transformer, num_speculative_tokens: int,
        state: SlotState, table: BlockTable, attention: AttentionBackend, pages: int,
    ) -> None:
        if model.config.vocab_size != target.config.vocab_size:
            raise UsageError(
                f"the draft model's vocabulary has {model.config.vocab_size} tokens, the target's "
                f"{target.config.vocab_size}; choose a draft model of the same family"
            )
        self.model = model
        self.num_speculative_tokens = num_speculative_tokens
        self.cache: KVCache = model.new_cache(pages, table.page_size)
        self._state, self._table, self._attention = state, table, attention

    def prompt(self, slot: int, ids: Tensor, hidden: Tensor, start: int, last: bool) -> None:
        tokens = ids[:-1].unsqueeze(0)
        self._forward(slot_rows(slot, start + tokens.shape[1], ids.device), tokens, start)

    def _forward(self, rows: Rows, tokens: Tensor, start: int) -> None:
        count = tokens.shape[1]
        plan = self.model.plan(
            rows, torch.full((1,), start, dtype=torch.int64, device=tokens.device), count,
            self._table, self.cache, self._attention, bound=start + count, prompt_from=start,
        )
        self.model.forward(tokens, plan, self.cache, self._attention)

    def propose(self, rows: Rows, mode: SamplingMode) -> Proposal:
        state, model = self._state, self.model
        n = state.n[rows.index]
        sampler = DraftSampler(state, rows, mode)
        first = (n - 2).unsqueeze(1) + torch.arange(2, device=n.device)
        tokens = state.token_ids[rows.index.unsqueeze(1), first]
        hidden = self._pass(rows, tokens, n - 2, rows.bound)
        token = sampler.draw(model.logits(hidden[1::2]), n)
        for j in range(1, self.num_speculative_tokens):
            hidden = self._pass(rows, token.unsqueeze(1), n - 1 + j, rows.bound + j)
            token = sampler.draw(model.logits(hidden), n + j)
        return sampler.proposal()

    def _pass(self, rows: Rows, tokens: Tensor, start: Tensor, bound: int) -> Tensor:
        plan = self.model.plan(rows, start, tokens.shape[1], self._table, self.cache,
                               self._attention, bound=bound)
        return self.model.forward(tokens, plan, self.cache, self._attention)


def slot_rows(slot: int, bound: int, device: torch.device) -> Rows:
    """One slot as rows, for prompt passes."""
    return Rows(torch.full((1,), slot, dtype=torch.int64, device=device), bound, (slot, slot + 1))

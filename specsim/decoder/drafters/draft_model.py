"""A whole network drafts k tokens, one forward each: a smaller model, or the target's first layers.

The first forward of a smaller model is two tokens wide, positions n-2 and n-1. After a step in
which all k drafts were accepted the draft model has never seen the last of them: its cache has a
hole at n-2. Rewriting that position costs one more row and needs no host decision; without it a
draft model equal to the target is accepted 1.4 of 4 times instead of always.
"""

import torch
from torch import Tensor

from specsim.decoder.attention import BatchRows, KVCache
from specsim.decoder.drafters.base import DraftSampler, Proposal, Proposer
from specsim.decoder.sampling import SamplingMode
from specsim.decoder.state import SlotState
from specsim.decoder.transformer import Transformer
from specsim.errors import UsageError


class DraftModelProposer(Proposer):
    """beside: the target's cache, whose pages and table this model's cache shares."""

    cache: KVCache

    def __init__(
        self, model: Transformer, target: Transformer, num_speculative_tokens: int,
        state: SlotState, beside: KVCache,
    ) -> None:
        if model.config.vocab_size != target.config.vocab_size:
            raise UsageError(
                f"the draft model's vocabulary has {model.config.vocab_size} tokens, the target's "
                f"{target.config.vocab_size}; choose a draft model of the same family"
            )
        self.model, self._state = model, state
        self.num_speculative_tokens = num_speculative_tokens
        self.cache = model.cache_beside(beside)

    def prompt(self, slot: int, ids: Tensor, hidden: Tensor, start: int, last: bool) -> None:
        tokens = ids[:-1]
        self.model.forward(tokens, self.model.prompt_plan(slot, start, tokens.shape[0], self.cache))

    def propose(self, rows: BatchRows, mode: SamplingMode) -> Proposal:
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

    def _pass(self, rows: BatchRows, tokens: Tensor, start: Tensor, bound: int) -> Tensor:
        plan = self.model.plan(rows, start, tokens.shape[1], self.cache, bound)
        return self.model.forward(tokens, plan)


class EarlyExitProposer(Proposer):
    """The target's own first layers, final norm and head: no second model. target_cache: the
    target's own, which is this drafter's too.

    Layers below the exit compute the same keys and values the target will compute for the same
    tokens, so they are overwritten by the verification with equal values. Untrained exits agree
    with the target often enough only late (SmolLM2: 42 % at 26 of 30 layers), so this is for
    demonstration and for checkpoints trained for it."""

    def __init__(
        self, target: Transformer, exit_layers: int, num_speculative_tokens: int,
        state: SlotState, target_cache: KVCache,
    ) -> None:
        if not 1 <= exit_layers < target.config.num_layers:
            raise UsageError(
                f"early_exit_layers {exit_layers} must lie in 1..{target.config.num_layers - 1} "
                "for this model"
            )
        self.num_speculative_tokens = num_speculative_tokens
        self.exit_layers = exit_layers
        self._target, self._state, self._target_cache = target, state, target_cache

    def propose(self, rows: BatchRows, mode: SamplingMode) -> Proposal:
        state, model = self._state, self._target
        n = state.n[rows.index]
        sampler = DraftSampler(state, rows, mode)
        token = state.token_ids[rows.index, n - 1]
        for j in range(self.num_speculative_tokens):
            plan = model.plan(rows, n - 1 + j, 1, self._target_cache, rows.bound + j)
            hidden = model.forward(token, plan, layers=self.exit_layers)
            token = sampler.draw(model.logits(hidden), n + j)
        return sampler.proposal()

"""The target's own first layers, final norm and head as drafter: no second model.

Layers below the exit compute the same keys and values the target will compute for the same tokens,
so they are written to the target's cache and overwritten by the verification with equal values.
Untrained exits agree with the target often enough only late (SmolLM2: 42 % at 26 of 30 layers), so
this is for demonstration and for checkpoints trained for it.
"""

from specsim.decoder.attention import BatchRows, KVCache
from specsim.decoder.drafters.base import DraftSampler, Proposal, Proposer
from specsim.decoder.sampling import SamplingMode
from specsim.decoder.state import SlotState
from specsim.decoder.transformer import Transformer
from specsim.errors import UsageError


class EarlyExitProposer(Proposer):
    """target_cache: the target's own, which is this drafter's too."""

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

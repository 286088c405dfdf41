"""What every drafter is: propose(rows) -> Proposal, plus the keeping of its own state.

A drafter reads the committed tokens from SlotState, and no tensor of the running step is ever read
by the host, so proposing can be captured in a CUDA graph. The exception is a host drafter
(`host_side`), which keeps what it is told of each request and proposes before the step starts.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from specsim.decoder.attention import BatchRows, KVCache
from specsim.decoder.sampling import DRAFT, SamplingMode, draw, target_probs, uniforms
from specsim.decoder.state import SlotState


@dataclass(slots=True)
class Proposal:
    """tokens [B, k] valid ids; lengths [B] drafts that really exist, None for k everywhere.

    probs [B, k, V]: what they were drawn from, by noise of the DRAFT stream and nothing that saw
    this request's other noise. None for any other drafts (`sampling.verify_exact` judges them).
    """

    tokens: Tensor
    probs: Tensor | None = None
    lengths: Tensor | None = None


class Proposer:
    """A drafter at work. Here: what one is told, none of which it has to keep.

    num_speculative_tokens: k. needs_hidden: the step must keep the target's hidden states.
    host_side: works on the host, from `rows.slots`; needs a readback lag of 0. cache: of its own
    keys and values, None where it has none.
    """

    num_speculative_tokens = 0
    needs_hidden = False
    host_side = False
    cache: KVCache | None = None

    def admit(self, slot: int, prompt_ids: Sequence[int]) -> None:
        """A request has been given a slot."""

    def prompt(self, slot: int, ids: Tensor, hidden: Tensor, start: int, last: bool) -> None:
        """A prompt chunk has been computed: ids [T + 1] (one token further, junk when `last`),
        the target's hidden states [T, H] before the final norm, at positions start .. start+T-1."""

    def propose(self, rows: BatchRows, mode: SamplingMode) -> Proposal:
        raise NotImplementedError

    def commit(self, slot: int, tokens: Sequence[int]) -> None:
        """Tokens of a request have reached the host."""

    def finish(self, slot: int, answer: Sequence[int]) -> None:
        """A request has ended; answer: its tokens, none when it was cancelled."""


class NoDraft(Proposer):
    """k = 0: plain decoding, by the same step."""

    def propose(self, rows: BatchRows, mode: SamplingMode) -> Proposal:
        empty = torch.empty((rows.size, 0), dtype=torch.int64, device=rows.index.device)
        return Proposal(empty)


class DraftSampler:
    """Draws drafts from draft logits with the row's own temperature, top-k and top-p, and keeps
    the distributions for the verification. Greedy steps keep none."""

    def __init__(self, state: SlotState, rows: BatchRows, mode: SamplingMode) -> None:
        self._mode = mode
        self._params = None if mode.greedy else state.params(rows.index)
        self._tokens: list[Tensor] = []
        self._probs: list[Tensor] = []

    def draw(
        self, logits: Tensor, position: Tensor, vocab: Tensor | None = None, full_size: int = 0
    ) -> Tensor:
        """logits fp32 [B, V] -> drafts [B] for sequence positions position [B].

        vocab [V]: token ids of the logits' columns, out of full_size; None: column = token id.
        """
        if self._params is None:
            token = logits.argmax(-1)
            token = token if vocab is None else vocab[token]
        else:
            if vocab is not None:
                wide = torch.full((logits.shape[0], full_size), float("-inf"), device=logits.device)
                logits = wide.index_copy_(1, vocab, logits)
            probs = target_probs(logits.unsqueeze(1), self._params, self._mode).squeeze(1)
            token = draw(probs, uniforms(self._params.seed, position, DRAFT))
            self._probs.append(probs)
        self._tokens.append(token)
        return token

    def proposal(self) -> Proposal:
        probs = torch.stack(self._probs, 1) if self._probs else None
        return Proposal(torch.stack(self._tokens, 1), probs)

"""One step of speculative decoding: draft, verify, sample, commit. Tensors in, tensors out.

    proposal = step.draft(rows, mode)              # k drafts per row
    logits   = step.verify(rows, proposal.tokens)  # the target at k+1 positions, in one pass
    record   = step.sample(rows, proposal, logits, mode)   # accept, draw, commit

No phase makes a host decision or reads a tensor: shapes follow from (number of rows, k, bound,
mode), so each phase can be captured in a CUDA graph, and the tests run a whole step under
FakeTensorMode to prove it. The record is one int64 tensor, so one copy brings a step to the host.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from specsim.decoder.attention import BatchRows, KVCache
from specsim.decoder.drafters.base import Proposal, Proposer
from specsim.decoder.sampling import (
    ACCEPT,
    DRAW,
    SamplingMode,
    Verification,
    draw,
    target_probs,
    uniforms,
    verify,
    verify_exact,
)
from specsim.decoder.state import SlotState
from specsim.decoder.transformer import Transformer
from specsim.speculation.acceptance import Acceptance

# Columns of a record, before the k+1 emitted tokens and the k drafts.
EMITTED, ACCEPTED, PROPOSED, FINISHED = 0, 1, 2, 3
HEADER = 4


@dataclass(slots=True)
class Step:
    """Everything a step works with. forced [k]: conditional rates that override the test."""

    target: Transformer
    drafter: Proposer
    state: SlotState
    cache: KVCache
    forced: Tensor | None = None

    def force(self, acceptance: Acceptance | None) -> None:
        """Switch forced acceptance on (rates for k positions) or off: the normal test is computed
        and overridden, so kernels and time are those of a real run and the text is not the
        target's."""
        k = self.drafter.num_speculative_tokens
        self.forced = None
        if acceptance is not None and k:
            rates = acceptance.at(k).conditional()
            self.forced = torch.tensor(rates, dtype=torch.float64, device=self.state.n.device)

    def draft(self, rows: BatchRows, mode: SamplingMode) -> Proposal:
        return self.drafter.propose(rows, mode)

    def verify(self, rows: BatchRows, drafts: Tensor) -> Tensor:
        """The target over [pending, drafts] of each row -> fp32 logits [B, k+1, V]."""
        state = self.state
        n = state.n[rows.index]
        pending = state.token_ids[rows.index, n - 1].unsqueeze(1)
        ids = torch.cat((pending, drafts), dim=1)
        q_len = ids.shape[1]
        hidden = self.target.forward(ids, self.target.plan(rows, n - 1, q_len, self.cache))
        if self.drafter.needs_hidden:
            state.hidden[rows.index, :q_len] = hidden.view(rows.size, q_len, -1)
            state.base[rows.index] = n - 1
        return self.target.logits(hidden).view(rows.size, q_len, -1)

    def sample(
        self, rows: BatchRows, proposal: Proposal, logits: Tensor, mode: SamplingMode
    ) -> Tensor:
        """Accept, draw and commit; the record [B, HEADER + (k+1) + k]."""
        state, index = self.state, rows.index
        drafts = proposal.tokens
        k = drafts.shape[1]
        n = state.n[index]
        forced = None if self.forced is None else self.forced[:k]
        ahead = n.unsqueeze(1) + torch.arange(k + 1, device=n.device)
        seed = state.seed[index].unsqueeze(1)
        u_accept: Tensor | None = None
        if forced is not None or proposal.probs is not None:
            u_accept = uniforms(seed, ahead[:, :k], ACCEPT)
        if mode.greedy:
            chosen = logits.argmax(-1)
        else:
            probs = target_probs(logits, state.params(index), mode)
            u_draw = uniforms(seed, ahead, DRAW)
            if proposal.probs is not None:
                assert u_accept is not None
                return commit(state, index, proposal, verify(
                    probs, proposal.probs, drafts, u_accept, u_draw, proposal.lengths, forced))
            chosen = draw(probs, u_draw)
        verdict = verify_exact(chosen, drafts, proposal.lengths, forced, u_accept)
        return commit(state, index, proposal, verdict)

    def prompt(
        self, slot: int, start: int, count: int, last: bool, mode: SamplingMode
    ) -> Tensor | None:
        """Compute prompt positions start .. start+count-1 of a slot.

        After the last chunk the first token is drawn and committed: its record, else None.
        """
        state = self.state
        ids = state.token_ids[slot, start : start + count + 1]
        plan = self.target.prompt_plan(slot, start, count, self.cache)
        hidden = self.target.forward(ids[:-1], plan)
        self.drafter.prompt(slot, ids, hidden, start, last)
        if not last:
            return None
        index = plan.rows.index
        logits = self.target.logits(hidden[-1:]).view(1, 1, -1)
        if mode.greedy:
            token = logits.argmax(-1).view(1)
        else:
            params = state.params(index)
            probs = target_probs(logits, params, mode)[:, 0]
            token = draw(probs, uniforms(params.seed, state.n[index], DRAW))
        nothing = Proposal(token.new_empty((1, 0)))
        return commit(state, index, nothing, Verification(torch.zeros_like(token), token))


def commit(state: SlotState, index: Tensor, proposal: Proposal, verdict: Verification) -> Tensor:
    """Append the accepted drafts and the next token to each row, up to its limit or stop token.

    Finished rows (padding and rows the host does not yet know to be finished) emit nothing.
    Returns the record [B, HEADER + (k+1) + k]: emitted count, accepted drafts before any cut,
    proposed drafts, finished flag, the emitted tokens (junk beyond the count), the drafts.
    """
    drafts = proposal.tokens
    k = drafts.shape[1]
    n = state.n[index]
    column = torch.arange(k + 1, device=n.device)
    padded = torch.cat((drafts, verdict.next_token.unsqueeze(1)), dim=1)
    tokens = torch.where(
        column < verdict.accepted.unsqueeze(1), padded, verdict.next_token.unsqueeze(1)
    )
    stops = (tokens.unsqueeze(2) == state.stop_ids[index].unsqueeze(1)).any(2)
    upto_stop = torch.where(stops, column + 1, k + 2).amin(1)
    finished = state.finished[index]
    room = state.limit[index] - n
    emit = torch.minimum(torch.minimum(verdict.accepted + 1, room), upto_stop)
    emit = torch.where(finished, 0, emit)
    state.token_ids[index.unsqueeze(1), n.unsqueeze(1) + column] = tokens
    n = n + emit
    state.n[index] = n
    done = finished | (n >= state.limit[index]) | (upto_stop <= emit)
    state.finished[index] = done
    proposed = proposal.lengths
    if proposed is None:
        proposed = torch.full_like(n, k)
    header = torch.stack((emit, verdict.accepted, proposed, done.long()), dim=1)
    return torch.cat((header, tokens, drafts), dim=1)

"""A policy asked while the engine runs: what it is told, and what its answer does.

One `Decider` per replica. The step loop stops at a planned step that proposes drafts; the policy is
told of it, and its answer is written into the loop's state.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specsim.errors import UsageError
from specsim.sim.core import UNPRICED, Core
from specsim.sim.policies.choice import PolicyChoice
from specsim.sim.policies.protocol import DecodeStep, Policy, PolicyState, RequestState
from specsim.sim.price import mean_context
from specsim.sim.surface import Surface

FADE = 0.02


class MovingAcceptance:
    """What a policy can know of acceptance: a moving average by position of drafts of at most
    `longest` tokens.

    Draft i of a request is tried where the i - 1 before it were accepted. Of those tried lately a
    share was accepted; older ones count less, by `FADE` per step. The product of the shares up to i
    is the share of steps in which draft i is accepted."""

    def __init__(self, longest: int) -> None:
        self._tried = np.zeros(longest)
        self._passed = np.zeros(longest)

    def observe(self, accepted: NDArray[np.int64], complete: NDArray[np.int64]) -> None:
        """Rows [longest + 1] of a step by accepted drafts, and those of them whose drafts were all
        accepted."""
        at_least = accepted[::-1].cumsum()[::-1]
        kept = 1.0 - FADE
        self._tried = kept * self._tried + (at_least[:-1] - complete[:-1])
        self._passed = kept * self._passed + at_least[1:]

    def rates(self) -> tuple[float, ...]:
        """Share of steps in which draft 1, 2, ... is accepted. A position that was not tried counts
        as the one before it; the first, then, as certain."""
        rates, share, given = [], 1.0, 1.0
        for tried, passed in zip(self._tried.tolist(), self._passed.tolist(), strict=True):
            if tried > 0.0:
                given = passed / tried
            share *= given
            rates.append(share)
        return tuple(rates)


@dataclass(frozen=True, slots=True)
class _Planned:
    """The step that the policy decided on last."""

    number: int
    requests: int
    drafts: int
    proposed: int
    tokens: int  # given out before it
    prompt_tokens: int


class Decider:
    """choice: the policy. drafter_blocks: what unloading the drafter gives to the cache."""

    def __init__(self, choice: PolicyChoice, surface: Surface, drafter_blocks: int) -> None:
        policy = choice.make()
        assert isinstance(policy, Policy)
        self.policy = policy
        self.drafter_blocks = drafter_blocks
        self.drafter_loaded = True
        self._choice = choice
        self._surface = surface
        spec = surface.speculation
        k = spec.num_speculative_tokens
        # A tree is verified whole or not at all.
        self._lengths = (0, k) if spec.verify_tokens else tuple(range(k + 1))
        self._moving = MovingAcceptance(k)
        self._planned: _Planned | None = None

    def decide(self, c: Core) -> None:
        """Ask about the planned step, and let the loop go on."""
        self._moving.observe(c.accepted_rows, c.complete_rows)
        c.accepted_rows[:] = 0
        c.complete_rows[:] = 0
        drawing = self._drawing(c)
        answer = self._ask(self._state(c, drawing))
        if isinstance(answer, int):
            c.next_drafts = answer
            if c.rules.ragged:
                c.rows.next_depth[: c.n_rows] = answer
                for _, slot in drawing[c.scheduled :]:
                    c.slots[slot].depth = answer
        else:
            for (row, slot), depth in zip(drawing, answer, strict=True):
                if row >= 0:
                    c.rows.next_depth[row] = depth
                c.slots[slot].depth = depth
            most = max(answer, default=0)
            if c.n_rows > c.scheduled:
                most = max(most, int(c.rows.next_depth[c.scheduled : c.n_rows].max()))
            c.next_drafts = most
        if not self.drafter_loaded:
            assert c.next_drafts == 0
        c.stage = UNPRICED
        self._planned = _Planned(
            c.steps, c.scheduled, c.drafts, c.next_drafts, c.tokens, c.new_tokens
        )

    @staticmethod
    def _drawing(c: Core) -> list[tuple[int, int]]:
        """(row, slot) of the requests that propose drafts in the planned step: decoding ones, and
        with row -1 those whose prompt it completes."""
        rows: list[tuple[int, int]] = list(enumerate(c.rows.slot[: c.scheduled].tolist()))
        for j in range(c.n_chunks):
            chunk = c.chunks[j]
            if chunk.cached + chunk.new >= c.slots[chunk.slot].target:
                rows.append((-1, int(chunk.slot)))
        return rows

    def _state(self, c: Core, drawing: list[tuple[int, int]]) -> PolicyState:
        batch, context = c.scheduled + c.n_chunks, mean_context(c)

        def requests() -> tuple[RequestState, ...]:
            found, rows, count = [], c.rows, c.scheduled
            columns = rows.remaining, rows.verify_steps, rows.drafted, rows.accepted
            decoding = list(zip(*(column[:count].tolist() for column in columns), strict=True))
            for row, slot in drawing:
                inside = c.slots[slot]
                left, steps, drafted, accepted = (
                    decoding[row] if row >= 0
                    else (inside.remaining, inside.verify_steps, inside.drafted_tokens,
                          inside.accepted_tokens)
                )
                found.append(RequestState(
                    inside.request_id, inside.prompt_tokens, inside.requested_tokens - left,
                    steps, drafted, accepted,
                ))
            return tuple(found)

        return PolicyState(
            now_s=c.clock_s, lengths=self._lengths if self.drafter_loaded else (0,),
            drafts=c.drafts, batch=batch, waiting=c.waiting.count + c.backlog,
            prompt_tokens=c.new_tokens, context_tokens=context, free_blocks=c.free_blocks,
            num_kv_blocks=c.rules.num_kv_blocks, acceptance=self._moving.rates(),
            last=self._last(c), drafter_loaded=self.drafter_loaded,
            drafter_blocks=self.drafter_blocks, price=lambda now,
            following: self._surface.decode_s(batch, context, now, following),
            find_requests=requests,
        )

    def _last(self, c: Core) -> DecodeStep | None:
        before = self._planned
        if before is None or c.steps != before.number + 1:
            return None
        return DecodeStep(
            c.step_s, before.requests, before.drafts, before.proposed, c.tokens - before.tokens,
            before.prompt_tokens,
        )

    def _ask(self, state: PolicyState) -> int | Sequence[int]:
        """The answer, checked. UsageError for what a user's policy does wrong."""
        choice = self._choice
        try:
            answer = self.policy.drafts(state)
        except Exception as error:
            if choice.file:
                raise choice.failure(error) from None
            raise
        several = isinstance(answer, Sequence) and not isinstance(answer, str | bytes)
        asked = list(answer) if isinstance(answer, Sequence) else [answer]
        rule = f"one of {', '.join(map(str, state.lengths))}"
        if several and not self.policy.per_request:
            rule += "; a policy that gives a list has per_request = True"
        elif several and len(asked) != len(state.requests):
            rule = f"a list of {len(state.requests)}, one of each of state.requests"
        elif all(type(length) is int and length in state.lengths for length in asked):
            return asked if several else asked[0]
        raise UsageError(
            f"policy {choice.text} answered {str(answer)[:60]} at {state.now_s:.3f} s; it must "
            f"be {rule}"
        )

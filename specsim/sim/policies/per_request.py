"""Draft lengths by request: the drafts most likely to be accepted, as many as pay.

As vLLM's adaptive verification of DSpark chooses: of all drafts of all requests, each accepted with
a probability S, the B most likely ones, with B = argmax (requests + sum of their S) / step time
(B). S of draft i is the batch's moving acceptance of that position to a power that is 1 for a
request like the batch: log(its acceptance) / log(that of the batch). Its acceptance is a moving
average of what was accepted of its drafts, drawn towards that of the batch.

The step costs what its verified tokens cost together, and as many drafter passes as the longest
draft.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass as checked_dataclass

from specsim.sim.policies.protocol import STRICT, Policy, PolicyState, RequestState

WITHIN = (1e-6, 1.0 - 1e-6)  # of a chance whose logarithm is taken
IDLE_FADE = 0.005  # per step without a draft, so that a request is tried again in the end


@dataclass(slots=True)
class _RequestSeen:
    """Of a request: its counts when last looked at, and drafts tried and accepted, fading."""

    verify_steps: int = 0
    drafted: int = 0
    accepted: int = 0
    tried: float = 0.0
    passed: float = 0.0


@checked_dataclass(kw_only=True, config=STRICT)
class PerRequest(Policy):
    """fade: weight that a request's own past loses per verify step; traces remember some ten steps
    (`catalog/acceptance_spread.csv`). prior: how many drafts the batch's acceptance counts beside
    its own."""

    per_request = True
    fade: float = Field(0.1, ge=0, lt=1)
    prior: float = Field(8.0, gt=0)

    def __post_init__(self) -> None:
        self._seen: dict[int, _RequestSeen] = {}

    def drafts(self, state: PolicyState) -> int | Sequence[int]:
        requests = state.requests
        marginal = state.acceptance
        batch = sum(marginal) / (1.0 + sum(marginal[:-1]))  # of drafts that were looked at
        before, self._seen = self._seen, {}
        rates = np.array([self._rate(request, before, batch) for request in requests])
        power = np.log(rates.clip(*WITHIN)) / np.log(min(max(batch, WITHIN[0]), WITHIN[1]))
        likely = np.array(marginal) ** power[:, None]  # [requests, position]
        best, depths = 0.0, np.zeros(len(requests), dtype=np.int64)
        for longest in state.lengths:
            flat = likely[:, :longest].ravel()
            order = np.argsort(-flat, kind="stable")
            tokens = len(requests) + np.concatenate(([0.0], np.cumsum(flat[order])))
            prices = [state.step_s(k, longest) for k in range(longest + 1)]
            mean = np.arange(len(tokens)) / len(requests)  # drafts per request
            rate = tokens / np.interp(mean, np.arange(longest + 1), prices)
            count = int(rate.argmax())
            if rate[count] > best:
                best = float(rate[count])
                depths = np.bincount(order[:count] // max(1, longest), minlength=len(requests))
        return [int(depth) for depth in depths]

    def _rate(self, request: RequestState, before: dict[int, _RequestSeen], batch: float) -> float:
        """Chance that the next draft of a request is accepted, given those before it were."""
        seen = before.get(request.request_id) or _RequestSeen()
        self._seen[request.request_id] = seen
        accepted = request.accepted_tokens - seen.accepted
        missed = request.drafted_tokens - seen.drafted > accepted
        steps = request.verify_steps - seen.verify_steps
        kept = (1.0 - self.fade) ** steps if steps else 1.0 - IDLE_FADE
        seen.passed = kept * seen.passed + accepted
        seen.tried = kept * seen.tried + accepted
        if missed:  # one draft of each step was looked at and refused
            seen.tried += steps
        seen.verify_steps = request.verify_steps
        seen.drafted, seen.accepted = request.drafted_tokens, request.accepted_tokens
        return (seen.passed + self.prior * batch) / (seen.tried + self.prior)

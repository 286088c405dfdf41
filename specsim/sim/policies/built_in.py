"""Policies that are asked at every step. Where one is of a paper, what differs from it is said."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass

import numpy as np
from pydantic import Field
from pydantic.dataclasses import dataclass as checked_dataclass

from specsim.sim.policies.protocol import STRICT, Policy, PolicyState, RequestState


@checked_dataclass(kw_only=True, config=STRICT)
class Goodput(Policy):
    """Draft length by predicted goodput, tokens per second of the coming step (TurboSpec; Liu et
    al., arXiv 2406.14066): k = argmax over k of E[tokens of the batch | k] / step time(batch, k),
    with the acceptance of the last steps. The paper has one acceptance rate; here it is the moving
    average of each position. Step times are the simulator's own, as of an engine that was profiled.

    probe: while nothing is drafted, one step in so many drafts the shortest length, so that
    the acceptance does not stay what it was for ever (0: never; not in the paper)."""

    probe: int = Field(100, ge=0)

    def __post_init__(self) -> None:
        self._off = 0  # steps in a row without a draft

    def drafts(self, state: PolicyState) -> int | Sequence[int]:
        best = max(state.lengths, key=lambda k: state.tokens(k) / state.step_s(k))
        self._off = 0 if best else self._off + 1
        if self.probe and self._off == self.probe:
            self._off = 0
            return state.lengths[1]
        return best


PATIENCE = 4  # a test takes at most so many times its steps: those with prompts do not count
MOST_BACK_OFF = 16

Plan = Generator[int, PolicyState, None]


@checked_dataclass(kw_only=True, config=STRICT)
class Utility(Policy):
    """Draft length by measured utility, in test and set phases (Cascade; Saxena et al., arXiv
    2506.20675): utility = tokens gained per step / step cost, both relative to decoding without
    drafts. Verifying more tokens wakes more experts, so on routed models the cost grows and the
    utility may fall below 1. A test phase measures step by step, without drafts and with, climbing
    from the length used last to better ones; a set phase keeps the best, or none if no utility is
    above 1. Nothing is predicted. The default numbers are not the paper's.

    test: steps measured per length. hold: steps of a set phase; doubled, up to 16 times, by each
    test in a row that finds no length worth its cost."""

    test: int = Field(4, ge=1)
    hold: int = Field(64, ge=1)

    def __post_init__(self) -> None:
        self._plan = self._phases()
        next(self._plan)

    def drafts(self, state: PolicyState) -> int | Sequence[int]:
        return self._plan.send(state)

    def _phases(self) -> Plan:
        lengths = (yield 0).lengths
        start, back_off = 1, 1
        while True:
            base = yield from self._rate(0)
            peak, top = start, (yield from self._rate(lengths[start]))
            for way in (1, -1):
                at = peak + way
                while 0 < at < len(lengths):
                    rate = yield from self._rate(lengths[at])
                    if rate <= top:
                        break
                    peak, top, at = at, rate, at + way
                if peak != start:
                    break
            start, best = peak, peak if top > base else 0
            back_off = 1 if best else min(2 * back_off, MOST_BACK_OFF)
            for _ in range(self.hold * back_off):
                yield lengths[best]

    def _rate(self, length: int) -> Generator[int, PolicyState, float]:
        """Tokens per request and second of steps that verify and propose `length`."""
        tokens = seconds = 0.0
        steps = 0
        for _ in range(PATIENCE * self.test + 2):
            last = (yield length).last
            if last is None or last.prompt_tokens or not last.requests:
                continue
            if last.drafts == last.proposed == length:
                tokens += last.tokens / last.requests
                seconds += last.seconds
                steps += 1
            if steps == self.test:
                break
        return tokens / seconds if seconds else 0.0


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
    """Draft lengths by request, as vLLM's adaptive verification of DSpark chooses: of all drafts of
    all requests, each accepted with a probability S, the B most likely ones, with B = argmax
    (requests + sum of their S) / step time (B). S of draft i is the batch's moving acceptance of
    that position to a power that is 1 for a request like the batch: log(its acceptance) / log(that
    of the batch). Its acceptance is a moving average of what was accepted of its drafts, drawn
    towards that of the batch. The step costs what its verified tokens cost together, and as many
    drafter passes as the longest draft.

    fade: weight that a request's own past loses per verify step; traces remember some ten steps
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


@checked_dataclass(kw_only=True, config=STRICT)
class Unload(Policy):
    """The drafter leaves memory while the cache is short, and comes back when it is not. Its
    weights and cache become cache blocks: as many as the same deployment without speculation has
    more. That the blocks of running requests shed their drafter layers at once is an idealisation;
    the time that loading takes is assumed, not measured.

    below, above: shares of the cache that are free: unload below the one, load again above the
    other (without the drafter's blocks). reload_s: seconds from then to the first draft."""

    unloads = True
    below: float = Field(0.1, ge=0, lt=1)
    above: float = Field(0.3, gt=0, le=1)
    reload_s: float = Field(1.0, ge=0, le=3600)

    def __post_init__(self) -> None:
        self._ready_s = 0.0

    def drafts(self, state: PolicyState) -> int | Sequence[int]:
        if state.drafter_loaded:
            if self.drafter_wanted and state.free_blocks < self.below * state.num_kv_blocks:
                self.drafter_wanted = False
        else:
            self._ready_s = state.now_s + self.reload_s
            free = state.free_blocks - state.drafter_blocks
            total = state.num_kv_blocks - state.drafter_blocks
            self.drafter_wanted = free > self.above * total
        ready = self.drafter_wanted and state.drafter_loaded and state.now_s >= self._ready_s
        return state.longest if ready else 0

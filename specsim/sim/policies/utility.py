"""Draft length by measured utility, in test and set phases (Cascade).

Saxena et al., "Utility-Driven Speculative Decoding for Mixture-of-Experts" (arXiv 2506.20675):
utility = tokens gained per step / step cost, both relative to decoding without drafts. Verifying
more tokens wakes more experts, so on routed models the cost grows and the utility may fall below 1.
A test phase measures step by step, without drafts and with, climbing from the length used last to
better ones; a set phase keeps the best, or none if no utility is above 1. Tests that find none come
ever more seldom. Nothing is predicted. (Phases and climb as in the paper; the default numbers are
this module's.)
"""

from collections.abc import Generator, Sequence

from pydantic import Field
from pydantic.dataclasses import dataclass

from specsim.sim.policies.protocol import STRICT, Policy, PolicyState

PATIENCE = 4  # a test takes at most so many times its steps: those with prompts do not count
MOST_BACK_OFF = 16

Plan = Generator[int, PolicyState, None]


@dataclass(kw_only=True, config=STRICT)
class Utility(Policy):
    """test: steps measured per length. hold: steps of a set phase; doubled, up to 16 times, by each
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

"""What a policy can know of acceptance: a moving average by position of the draft.

Draft i of a request is tried where the i - 1 before it were accepted. Of those tried lately a share
was accepted; older ones count less, by `FADE` per step. The product of the shares up to i is the
share of steps in which draft i is accepted.
"""

import numpy as np
from numpy.typing import NDArray

FADE = 0.02


class MovingAcceptance:
    """For drafts of at most `longest` tokens."""

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

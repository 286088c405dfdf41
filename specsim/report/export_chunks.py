"""When each chunk of a simulated answer came, from the log of steps.

A request gets tokens in every step of its replica that gives any, from its first token to its last,
so its chunk times are the ends of those steps. One that was preempted, or left out of steps for
want of token budget, has fewer chunks: then the last ends are taken (its long gap stands first).
"""

import numpy as np
from numpy.typing import NDArray

from specsim.errors import UsageError
from specsim.sim.core import StepLog
from specsim.sim.request import RequestRecord
from specsim.sim.run import SimResult

Floats = NDArray[np.float64]


class ChunkTimes:
    """Chunk times of a run that kept its steps; UsageError for one that did not."""

    def __init__(self, result: SimResult) -> None:
        replicas = result.cluster.replicas
        if not all(replica.stats.keep_trace for replica in replicas):
            raise UsageError("this run kept no steps; simulate with keep_trace=True to export them")
        self._ends: list[Floats] = [_emits(replica.stats.trace) for replica in replicas]

    def gaps(self, record: RequestRecord) -> list[float]:
        """Seconds between the chunks of a finished request: chunks - 1 of them."""
        first, last = record.first_token_s, record.last_token_s
        if first is None or last is None or record.chunks < 2 or record.replica < 0:
            return []
        ends = self._ends[record.replica]
        low = int(np.searchsorted(ends, first, side="right"))
        high = int(np.searchsorted(ends, last, side="right"))
        inside = ends[low:high][-(record.chunks - 1) :]
        return [float(gap) for gap in np.diff(inside, prepend=first)]


def _emits(trace: list[StepLog]) -> Floats:
    parts = [log.end_s[log.emits > 0] for log in trace]
    return np.concatenate(parts) if parts else np.empty(0)

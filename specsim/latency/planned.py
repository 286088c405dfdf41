"""What a step runs, and its kernels priced, before any overhead of the engine."""

from collections.abc import Sequence
from dataclasses import dataclass

from specsim.latency.price import LooseOps, Sums
from specsim.ops.passes import Pass


@dataclass(frozen=True, slots=True)
class Plan:
    """What a step runs. passes: of the drafter. rows: computed, padding included."""

    target: Pass
    sample: LooseOps
    draft: list[Pass | LooseOps]
    passes: int
    rows: float
    graphed: bool


@dataclass(frozen=True, slots=True)
class Kernels:
    """A step's kernels, priced (seconds). passes, rows, graphed: as of the plan."""

    target: Sums
    sample: Sums
    draft: Sums
    passes: int
    rows: float
    graphed: bool

    @classmethod
    def added(cls, runs: Sequence[tuple["Kernels", int]]) -> "Kernels":
        """Of runs that follow each other, each so many times."""
        return cls(
            Sums.added((run.target, times) for run, times in runs),
            Sums.added((run.sample, times) for run, times in runs),
            Sums.added((run.draft, times) for run, times in runs),
            sum(run.passes * times for run, times in runs),
            sum(run.rows * times for run, times in runs),
            all(run.graphed for run, _ in runs),
        )

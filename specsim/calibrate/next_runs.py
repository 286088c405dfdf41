"""Which runs are worth making: the expected value of information of measuring a setting.

Beliefs are a `beliefs.Joint`: ln speed of every setting, what runs read, common causes. Regret is
the share of the best setting's speed that the chosen one gives away. A choice is made for each
load; regrets are averaged over loads.

    regret now           mean over draws of 1 - speed of the choice / best speed
    regret after runs A  the same, each draw's choice made on its own readings of A

A run of a choice is a run at all loads (one server start). Runs are added one by one, each the one
that leaves the least regret, until that is below a limit: greedy, which is enough where runs tell
of the same few causes. Draws are common to all comparisons and seeded.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from specsim.calibrate.beliefs import Joint

Floats = NDArray[np.float64]
DRAWS = 4000
SEED = 20261201
SETTLED = 0.01  # expected regret below which no further run is asked for
MOST_RUNS = 5


@dataclass(frozen=True, slots=True)
class Verdict:
    """A choice at a load: place of the setting, probability that it is the best, expected regret,
    and the setting that is most often better (itself where there is none)."""

    setting: int
    probability: float
    regret: float
    rival: int


class Outlook:
    """Beliefs with draws from them. choices: the settings of each choice, by load in one order;
    a run of a choice reads what each of them reads."""

    def __init__(self, joint: Joint, choices: Sequence[Sequence[int]], draws: int = DRAWS) -> None:
        self.joint, self.choices = joint, choices
        self.readings = [[at for place in one for at in joint.readings[place]] for one in choices]
        size, causes = joint.root.shape
        rng = np.random.default_rng(SEED)
        normals = rng.standard_normal((draws, causes + size))
        normals *= np.sqrt(joint.freedom / rng.chisquare(joint.freedom, (draws, 1)))
        # [draws, quantities]: how things are, and what a run would read of them
        self.true = joint.mean + normals[:, :causes] @ joint.root.T
        self.read = self.true + normals[:, causes:] * np.sqrt(joint.noise)

    @cached_property
    def _loads(self) -> list[list[int]]:
        return [[c[load] for c in self.choices] for load in range(len(self.choices[0]))]

    @cached_property
    def _losses(self) -> list[Floats]:
        """Of every choice in every draw, [draws, choices], by load."""
        found = []
        for at in self._loads:
            values = self.true[:, at]
            found.append(1.0 - np.exp(values - values.max(axis=1, keepdims=True)))
        return found

    def verdicts(self) -> list[Verdict]:
        """The choice with the least expected regret at each load."""
        found = []
        for at, losses in zip(self._loads, self._losses, strict=True):
            mean = losses.mean(axis=0)
            chosen = int(mean.argmin())
            wins = (losses <= 0.0).mean(axis=0)
            rivals = [(float(wins[i]), i) for i in range(len(at)) if i != chosen]
            rival = max(rivals)[1] if rivals else chosen
            found.append(Verdict(at[chosen], float(wins[chosen]), float(mean[chosen]), at[rival]))
        return found

    @property
    def regret(self) -> float:
        """Expected regret of choosing now, mean over loads."""
        return sum(v.regret for v in self.verdicts()) / len(self._loads)

    def regret_after(self, runs: Sequence[int]) -> float:
        """Expected regret of choosing after these choices were run."""
        return self.regret_told([place for run in runs for place in self.readings[run]])

    def regret_told(self, places: Sequence[int]) -> float:
        """Expected regret of choosing after these quantities were read."""
        if not places:
            return self.regret
        surprise = self.read[:, places] - self.joint.mean[places]
        total = 0.0
        for at, losses in zip(self._loads, self._losses, strict=True):
            expected = self.joint.mean[at] + surprise @ self.joint.gain(at, places).T
            picked = expected.argmax(axis=1)
            total += float(np.take_along_axis(losses, picked[:, None], axis=1).mean())
        return total / len(self._loads)

    def next(self, able: Sequence[int], runs: Sequence[int] = ()) -> tuple[int, float]:
        """(the run to add to `runs`, the regret after it), of the choices that can be run."""
        left = [run for run in able if run not in runs]
        found = [(self.regret_after([*runs, run]), run) for run in left]
        regret, best = min(found)
        return best, regret

    def plan(
        self, able: Sequence[int], most: int = MOST_RUNS, settled: float = SETTLED
    ) -> list[tuple[int, float]]:
        """(run, regret after it and those before) until settled, or no run is left."""
        runs: list[tuple[int, float]] = []
        regret = self.regret
        while regret > settled and len(runs) < min(most, len(able)):
            best, regret = self.next(able, [run for run, _ in runs])
            runs.append((best, regret))
        return runs

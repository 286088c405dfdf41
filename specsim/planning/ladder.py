"""The largest load that passes: stage by stage as load tests do, and by bisection.

`evaluate(load)` gives a verdict. A ladder tries given loads from below until one fails; what
passed last is its capacity. The search brackets the capacity from a first guess by growing steps
and halves the bracket until it is narrower than `resolution` of the load. Loads are whole numbers
(people) or not (rates). Verdicts are kept: a load is never tried twice.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from specsim.sim.passing import PassVerdict

ROUGH_STEP = 1.15  # between the loads of a quick search
FIRST_STEP = 1.15  # from the guess to the next load
GROWTH = 1.6  # of the logarithm of the step, each time it was too short
WIDE = 1.5  # ends of a bracket from which its middle is geometric
MOST_LOADS = 40


@dataclass(frozen=True, slots=True)
class TriedLoad:
    """A load that was tried."""

    load: float
    verdict: PassVerdict

    def to_dict(self) -> dict[str, object]:
        return {"load": self.load, **self.verdict.to_dict()}


@dataclass(frozen=True, slots=True)
class Bracket:
    """trials: by load. capacity: largest load that passes with all tried below it; 0: none does.
    fails: smallest load tried above it that does not; None: none was found up to the limit."""

    trials: tuple[TriedLoad, ...]
    capacity: float
    fails: float | None

    @property
    def sure_pass(self) -> float:
        """Largest load up to the capacity that passes beyond doubt; 0: none."""
        found = [t.load for t in self.trials if t.verdict.sure and t.verdict.ok]
        return max((load for load in found if load <= self.capacity), default=0.0)

    @property
    def sure_fail(self) -> float | None:
        """Smallest load above the capacity that fails beyond doubt."""
        found = [t.load for t in self.trials if t.verdict.sure and not t.verdict.ok]
        return min((load for load in found if load > self.capacity), default=None)

    @property
    def contradicted(self) -> bool:
        """Whether a load passes beyond doubt above one that fails beyond doubt."""
        fails = self.sure_fail
        return fails is not None and any(
            t.load > fails and t.verdict.sure and t.verdict.ok for t in self.trials
        )


class Prober:
    """Tries loads and keeps what came out."""

    def __init__(self, evaluate: Callable[[float], PassVerdict]) -> None:
        self._evaluate = evaluate
        self._known: dict[float, PassVerdict] = {}

    def verdict(self, load: float) -> PassVerdict:
        found = self._known.get(load)
        if found is None:
            found = self._known[load] = self._evaluate(load)
        return found

    def trials(self) -> tuple[TriedLoad, ...]:
        return tuple(TriedLoad(load, self._known[load]) for load in sorted(self._known))

    def bracket(self) -> Bracket:
        """Capacity by the verdicts so far."""
        capacity, fails = 0.0, None
        for trial in self.trials():
            if not trial.verdict.ok:
                fails = trial.load
                break
            capacity = trial.load
        return Bracket(self.trials(), capacity, fails)


def climb(prober: Prober, stages: Sequence[float]) -> float:
    """Largest of the stages that passes before the first that does not; 0: none."""
    best = 0.0
    for stage in sorted(stages):
        if not prober.verdict(stage).ok:
            break
        best = stage
    return best


def search(
    prober: Prober, guess: float, *, whole: bool, resolution: float, lowest: float, highest: float
) -> Bracket:
    """Bracket the capacity around `guess` and halve it, beginning with the guess where stages tried
    before have bracketed it widely. lowest, highest: loads never left."""

    def rounded(load: float) -> float:
        load = min(highest, max(lowest, load))
        return float(round(load)) if whole else float(f"{load:.4g}")

    found = prober.bracket()
    step = math.log(FIRST_STEP)
    load = rounded(guess)
    for _ in range(MOST_LOADS):
        if found.fails is not None and (found.capacity > 0 or found.fails <= lowest):
            break
        if found.fails is None and found.capacity >= highest:
            return found
        if found.fails is None and found.capacity > 0:
            load = rounded(max(load, found.capacity * math.exp(step)))
            if load <= found.capacity:
                load = rounded(found.capacity + 1 if whole else found.capacity * FIRST_STEP)
            step *= GROWTH
        elif found.fails is not None:
            load = rounded(min(load, found.fails * math.exp(-step)))
            if load >= found.fails:
                load = rounded(found.fails - 1 if whole else found.fails / FIRST_STEP)
            step *= GROWTH
        prober.verdict(load)
        found = prober.bracket()
    while found.fails is not None and found.capacity > 0 and len(found.trials) < MOST_LOADS:
        gap = found.fails - found.capacity
        if gap <= resolution * found.capacity or (whole and gap <= 1):
            break
        middle = rounded((found.capacity + found.fails) / 2)
        if found.fails > WIDE * found.capacity:
            untried = found.capacity < rounded(guess) < found.fails
            middle = rounded(guess if untried else math.sqrt(found.capacity * found.fails))
        if not found.capacity < middle < found.fails:
            break
        prober.verdict(middle)
        found = prober.bracket()
    return found


def search_roughly(
    prober: Prober, guess: float, *, whole: bool, lowest: float, highest: float
) -> Bracket:
    """Step away from `guess` until a load below passes and one above fails beyond doubt."""

    def tried(load: float) -> PassVerdict:
        load = min(highest, max(lowest, load))
        return prober.verdict(float(round(load)) if whole else float(f"{load:.4g}"))

    first = tried(guess)
    for up in (True, False):
        if first.sure and first.ok != up:
            continue
        load = guess
        for _ in range(MOST_LOADS):
            load = load * ROUGH_STEP if up else load / ROUGH_STEP
            verdict = tried(load)
            if not lowest < load < highest or (verdict.sure and verdict.ok != up):
                break
    return prober.bracket()

"""Whether a load meets its objectives, from replications that each meet them or do not: the one
rule of `simulate` and `capacity` (docs/capacity.md), which run the same seeds and so say the same.

Replications are added (`enough`), two at a time, until one of these holds,

    count    two-sided binomial test of "half of them pass": p < 0.01
    margin   all of them on one side, and the 99 % t interval of the log margin of the worst SLO
             excludes 0 (at least FEWEST runs)

or the most that were allowed have run; then the load is too close to call, and the majority
decides. A margin is log(limit / value) of a gate that must not be exceeded, log(value / limit) of
one that must be reached, cut at tenfold so that one run without any answer does not drown the
others. Where a quick answer is asked for (`rough`), ROUGH_RUNS runs decide, if they agree and their
mean margin is ROUGH_MARGIN at least: no test, but near capacity it leaves the load open. The
probability of passing has Wilson's 95 % interval (E. B. Wilson 1927, J. Am. Stat. Assoc. 22:209).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from specsim.jsonable import picked
from specsim.sim.figures import value_at
from specsim.sim.intervals import mean_of_runs, median_or_none
from specsim.sim.slo import AT_LEAST

FEWEST = 4
WAVE = 2
MOST = 16  # replications after which a verdict that is not sure is said to be open
ROUGH_RUNS = 2
ROUGH_MARGIN = math.log(1.25)
LEVEL = 0.01
MOST_MARGIN = math.log(10.0)


@dataclass(frozen=True, slots=True)
class PassVerdict:
    """passes of `runs` replications met all gates. decided: 'count', 'margin', 'rough' or 'close'
    (too close to call). margin: mean log margin of the worst SLO. worst: the gate that was worst
    most often. medians: of each gate's figure over the replications; None where half have none.
    """

    passes: int
    runs: int
    decided: str
    margin: float
    worst: str
    medians: Mapping[str, float | None] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return 2 * self.passes >= self.runs

    @property
    def sure(self) -> bool:
        return self.decided != "close"

    @property
    def probability(self) -> float:
        """That a replication passes: the share that did."""
        return self.passes / self.runs

    @property
    def probability_95(self) -> tuple[float, float]:
        return wilson_interval(self.passes, self.runs)

    @property
    def word(self) -> str:
        return "too close to call" if not self.sure else "passes" if self.ok else "fails"

    def to_dict(self) -> dict[str, object]:
        return {
            **picked(self, "pass=ok sure passes replications=runs pass_probability=probability "
                           "pass_probability_95=probability_95 decided_by=decided"),
            "margin": math.exp(self.margin),
            **picked(self, "worst_gate=worst gate_medians=medians"),
        }


def wilson_interval(passes: int, runs: int) -> tuple[float, float]:
    """Wilson's score interval at 95 % of a probability, from `passes` in `runs`."""
    z = 1.959964
    share, room = passes / runs, z * z / runs
    middle = (share + room / 2) / (1 + room)
    half = math.sqrt(share * (1 - share) * room + room * room / 4) / (1 + room)
    # The ends are exact where all or none pass, whatever the rounding.
    return (middle - half if passes else 0.0), (middle + half if passes < runs else 1.0)


def gate_margin(name: str, gate: Mapping[str, object]) -> float:
    """Log margin of one judged gate (see `sim.slo.judge`); above 0 it holds."""
    value, limit = value_at(gate, "value"), value_at(gate, "limit") or 0.0
    if value is None:
        return MOST_MARGIN if gate["pass"] else -MOST_MARGIN
    low, high = (limit, value) if name.startswith(AT_LEAST) else (value, limit)
    if low <= 0.0:
        return MOST_MARGIN
    if high <= 0.0:
        return -MOST_MARGIN
    return min(MOST_MARGIN, max(-MOST_MARGIN, math.log(high / low)))


def worst_gate(judged: Mapping[str, object]) -> tuple[str, float]:
    """(gate, its log margin) of the gate with the least margin."""
    found = {
        name: gate_margin(name, gate) for name, gate in judged.items() if isinstance(gate, Mapping)
    }
    name = min(found, key=lambda key: found[key])
    return name, found[name]


def binomial_p(passes: int, runs: int) -> float:
    """Two-sided p of `passes` in `runs` when each passes with probability one half."""
    extreme = min(passes, runs - passes)
    tail = sum(math.comb(runs, i) for i in range(extreme + 1)) / 2.0**runs
    return min(1.0, 2.0 * tail)


def enough(judged: Sequence[Mapping[str, object]], most: int) -> bool:
    """Whether to stop replicating: after FEWEST runs and every WAVE from there, if sure."""
    count = len(judged)
    if count >= most:
        return True
    return count >= FEWEST and (count - FEWEST) % WAVE == 0 and verdict_of(judged).sure


def verdict_of(judged: Sequence[Mapping[str, object]], *, rough: bool = False) -> PassVerdict:
    """The verdict so far, from the judged gates of each replication."""
    worst = [worst_gate(one) for one in judged]
    margins = [margin for _, margin in worst]
    passes = sum(bool(one["pass"]) for one in judged)
    names = [name for name, _ in worst]
    most_often = max(dict.fromkeys(names), key=names.count)
    runs = len(judged)
    found = mean_of_runs(margins, 1.0 - LEVEL)
    decided = "close"
    if rough:
        if passes in (0, runs) and abs(found.mean) >= ROUGH_MARGIN:
            decided = "rough"
    elif binomial_p(passes, runs) < LEVEL:
        decided = "count"
    elif (
        runs >= FEWEST and passes in (0, runs) and abs(found.mean) > found.half_width
    ):
        decided = "margin"
    medians = {
        name: median_or_none([value_at(one, f"{name}.value") for one in judged])
        for name, gate in judged[0].items() if isinstance(gate, Mapping)
    }
    return PassVerdict(passes, runs, decided, found.mean, most_often, medians)

"""What a plan of benchmark runs says: what to choose now, what is unknown, which runs settle it.

Settings are named METHOD-kK or METHOD-kK-treeTOPK-TOKENS, plain decoding `plain`; names of result
files hold them. `api.tune_plan` makes a plan.
"""

from dataclasses import dataclass

from specsim.analytic.system import System
from specsim.jsonable import Jsonable
from specsim.planning.tune_choices import tree_of


def setting_name(system: System) -> str:
    """'plain', 'mtp-k3' or 'eagle3-k5-tree4-8'."""
    if not system.speculative:
        return "plain"
    tree = tree_of(system)
    words = f"{system.setup.method}-k{system.setup.k}"
    return words if tree is None else f"{words}-tree{tree[0]}-{tree[1]}"


@dataclass(frozen=True, slots=True)
class MeasuredRun(Jsonable):
    """A run that was told. speed: output tokens per second, or TPOT in seconds by that objective,
    at the lengths of the plan; off: over what was expected before any run, less 1."""

    name: str
    concurrency: int
    speed: float
    off: float
    acceptance_length: float | None
    source: str


@dataclass(frozen=True, slots=True)
class Decision(Jsonable):
    """What to choose at a load, as things are known. probability: that nothing else is better;
    regret: expected share of the best speed that it gives away; rival: what is better most often
    where it is not the best; command: of the server, where one is known."""

    concurrency: int
    name: str
    method: str
    k: int
    tree: tuple[int, int] | None
    probability: float
    regret: float
    settled: bool
    rival: str | None
    command: str | None


@dataclass(frozen=True, slots=True)
class Unknown(Jsonable):
    """Something not known. worth: regret that knowing it alone would save; left: share of its
    standard deviation that the runs so far have left."""

    name: str
    worth: float
    left: float


@dataclass(frozen=True, slots=True)
class PlannedRun(Jsonable):
    """A run to make: one server start, at all loads. regret: expected after it and those before;
    settles: what it tells of; command: of the server, None with the reason in `no_command`."""

    name: str
    method: str
    k: int
    tree: tuple[int, int] | None
    regret: float
    settles: tuple[str, ...]
    command: str | None
    no_command: str


@dataclass(frozen=True, slots=True)
class RunPlan(Jsonable):
    """regret: expected of choosing now, mean over the loads; settled: whether below `settled_at`.
    runs: to make, in this order; the first is the next."""

    objective: str
    settled_at: float
    regret: float
    settled: bool
    decisions: tuple[Decision, ...]
    measured: tuple[MeasuredRun, ...]
    unknowns: tuple[Unknown, ...]
    runs: tuple[PlannedRun, ...]
    notes: tuple[str, ...] = ()

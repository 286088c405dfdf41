"""Policies on one load: the same requests and random draws under each, and what is real of what
they differ in.

Run i of every policy has the seed `seed + i`, so that differences are taken seed by seed (paired).
Intervals are Student's t; their confidence is raised so that all policies' intervals of one figure
hold together at 95 % (Bonferroni): among ten policies that do the same, none is to look better.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from specsim.jsonable import Jsonable, jsonable
from specsim.sim.build import Deployment
from specsim.sim.compare import Arm, LoadPlan, Report, run_sides
from specsim.sim.figures import DraftingFigures, Figures, value_at
from specsim.sim.intervals import mean_of_runs
from specsim.sim.policies.choice import PolicyChoice
from specsim.sim.result import inputs_of
from specsim.sim.run import SimResult

NONE = "none"  # the deployment without speculation
CONFIDENCE = 0.95
# What is judged, and whether more is better. The first that a run has ranks the policies.
JUDGED = {"goodput": True, "output_tok_s": True, "ttft_s.mean": False, "tpot_s.mean": False}


@dataclass(frozen=True)
class PairedDifference(Jsonable):
    """A figure under a policy less that under another, mean over seeds. interval: None for a
    single run. better: None where the interval holds 0."""

    mean: float
    share: float | None  # of the other's mean
    interval: tuple[float, float] | None
    better: bool | None


@dataclass(frozen=True)
class PolicyComparison:
    """arms: figures by policy, the first the one that others are compared with. against_first,
    behind_best: differences by policy, of all that is judged and of what ranks them."""

    deployment: Deployment
    load: Mapping[str, object]
    seed: int
    arms: dict[str, Arm]
    ranked_by: str
    best: str
    against_first: dict[str, dict[str, PairedDifference]]
    behind_best: dict[str, PairedDifference]
    partial: bool
    warnings: tuple[str, ...] = ()

    @property
    def first(self) -> str:
        return next(iter(self.arms))

    def to_dict(self) -> dict[str, object]:
        """JSON-ready."""
        return {
            "kind": "policies",
            "ranked_by": self.ranked_by,
            "best": self.best,
            "first": self.first,
            "policies": [
                {
                    "policy": name,
                    **arm.to_dict(),
                    "against_first": jsonable(self.against_first.get(name)) or None,
                    "behind_best": jsonable(self.behind_best.get(name)),
                }
                for name, arm in self.arms.items()
            ],
            "seed": self.seed,
            "replications": len(self.arms[self.first].runs),
            "partial": self.partial,
            "inputs": inputs_of(self.deployment, self.load),
            "warnings": list(self.warnings),
        }


def compare_policies(
    deployment: Deployment, choices: Sequence[PolicyChoice | None], plan: LoadPlan, seed: int, *,
    replications: int, report: Report | None = None,
) -> PolicyComparison:
    """Run the load under each policy; None is the deployment without speculation."""
    sides = sides_of(deployment, choices)
    found = run_sides(
        sides, plan, seed, replications=replications, report=report, figures=_with_policy
    )
    arms = found.arms
    first, *others = arms
    figures = [name for name in JUDGED if value_at(arms[first].figures, name) is not None]
    ranked_by = next(name for name in JUDGED if name in figures or name == "output_tok_s")
    best = max(arms, key=lambda name: value_at(arms[name].figures, ranked_by) or 0.0)
    confidence = 1.0 - (1.0 - CONFIDENCE) / max(1, len(others))
    against_first = {
        name: {
            figure: difference for figure in figures
            if (difference := _difference(arms[name], arms[first], figure, confidence))
        }
        for name in others
    }
    behind = {
        name: difference for name in arms if name != best
        and (difference := _difference(arms[name], arms[best], ranked_by, confidence))
    }
    return PolicyComparison(
        deployment, plan.description, seed, arms, ranked_by, best, against_first, behind,
        found.interrupted,
    )


def sides_of(
    deployment: Deployment, choices: Sequence[PolicyChoice | None]
) -> list[tuple[str, Deployment]]:
    """A deployment by the name of each policy, checked."""
    sides = []
    for choice in choices:
        side = replace(deployment, policy=choice) if choice else deployment.plain()
        _ = side.config  # refuse what cannot run before anything does
        sides.append((choice.text if choice else NONE, side))
    return sides


def _with_policy(result: SimResult, *, completed: bool) -> Figures:
    """The figures of a run, with those of its policy."""
    return {**result.summary(completed=completed), "drafting": _drafting(result)}


def _drafting(result: SimResult) -> DraftingFigures:
    records, stats = result.records, [replica.stats for replica in result.cluster.replicas]
    drafted = int(records.ints("drafted_tokens").sum())
    wasted = drafted - int(records.ints("accepted_tokens").sum())
    written = int(records.ints("output_tokens").sum())
    # Requests by the tokens that they take part with in a step, summed over steps.
    rows = [(width, float(total[2])) for one in stats for (width, *_), total in one.shapes.items()]
    decoding = sum(count for width, count in rows if width)
    return {
        "switches": sum(one.switches for one in stats),
        "drafts_mean": sum((width - 1) * count for width, count in rows) / decoding
        if decoding else 0.0,
        "off_share": sum(count for width, count in rows if width == 1) / decoding
        if decoding else 0.0,
        "wasted_tokens": wasted,
        "wasted_share": wasted / drafted if drafted else 0.0,
        "wasted_per_token": wasted / written if written else 0.0,
    }


def _difference(arm: Arm, other: Arm, figure: str, confidence: float) -> PairedDifference | None:
    """None where a run has no such figure."""
    pairs = [
        (value_at(mine, figure), value_at(theirs, figure))
        for mine, theirs in zip(arm.runs, other.runs, strict=False)  # Ctrl-C: one may lack its last
    ]
    known = [mine - theirs for mine, theirs in pairs if mine is not None and theirs is not None]
    if not known or len(known) < len(pairs):
        return None
    found = mean_of_runs(known, confidence)
    base = value_at(other.figures, figure)
    share = found.mean / base if base else None
    if len(known) < 2:
        return PairedDifference(found.mean, share, None, None)
    low, high = found.interval
    above = None if low <= 0.0 <= high else low > 0.0
    return PairedDifference(
        found.mean, share, (low, high), None if above is None else above == JUDGED[figure]
    )

"""`specsim.policies`: policies of speculation compared on the same load and seeds."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from specsim.analytic.system import System
from specsim.api.functions import python_function
from specsim.api.results import Result
from specsim.api.simulate_run import checked_load, progress, what_went_wrong
from specsim.errors import UsageError
from specsim.jsonable import Key
from specsim.options.declare import declared, repeat
from specsim.options.serving import PoliciesOptions, SimulateOptions
from specsim.report.deployment import live
from specsim.rows import columns_of, flat
from specsim.sim.policies import comparison
from specsim.sim.policies.choice import ADAPTIVE, PolicyChoice, parse_policy
from specsim.sim.policies.comparison import NONE, compare_policies, sides_of


class Policies(Result, comparison.PolicyComparison):
    """Figures of each policy (`arms`), differences and which of them are real."""

    BLOCKS = "policies.policies_section"
    policies = Key[list[dict[str, Any]]]()
    replications = Key[int]()
    inputs = Key[dict[str, Any]]()

    def to_rows(self) -> list[dict[str, object]]:
        """One flat row per policy, for CSV."""
        rows = [{"policy": name, **flat(arm.figures)} for name, arm in self.arms.items()]
        return [{key: row.get(key) for key in columns_of(rows)} for row in rows]

    def live(self) -> dict[str, object]:
        return live(self.deployment.system)


def run(options: PoliciesOptions, bar: bool = False) -> Policies:
    """Compare policies of speculation of `model` on a load: one of `rate=`, `concurrency=`,
    `users=`, `trace=`, `scenario=`; `policy=["static", "goodput"]` names them."""
    simulated = declared(SimulateOptions).keys() - {"policy"}
    given = {name: getattr(options, name) for name in options.model_fields_set & simulated}
    load = checked_load(SimulateOptions.of_values(given, options.of_file))
    system = load.deployment.system
    if not system.speculative:
        raise UsageError(
            "policies decide on draft lengths, but the method is 'none'; name a --method with its "
            "acceptance"
        )
    choices = _choices(options.policy or _defaults(system))
    names = [name for name, _ in sides_of(load.deployment, choices)]
    if len(set(names)) < len(names):
        raise UsageError("a policy is named twice; name each once")
    with progress(bar, names, options.replications, "") as report:
        found = compare_policies(
            load.deployment, choices, load.plan, options.seed, replications=options.replications,
            report=report,
        )
    warnings = [*load.warnings]
    for name, arm in found.arms.items():
        said = what_went_wrong(arm.figures, completed=load.plan.completed)
        warnings += [f"{name}: {text}" for text in said]
    if found.partial:
        warnings.append("interrupted: the figures cover what was simulated until then")
    return Policies.of(replace(found, warnings=tuple(warnings)), repeat(options))


def _choices(texts: Sequence[str]) -> list[PolicyChoice | None]:
    return [None if text.strip().lower() == NONE else parse_policy(text) for text in texts]


def _defaults(system: System) -> list[str]:
    """A fixed length, none, and what decides by itself on such an engine and draft."""
    chain = not system.setup.tree_tokens
    tiers = system.engine.scheduler.adaptive_tiers and system.setup.drafting.adapts and chain
    return ["static", NONE, *([ADAPTIVE] if tiers else []), "goodput", "utility",
            *(["per-request"] if chain else [])]


policies = python_function(PoliciesOptions, run)

"""The acceptance of a deployment: what its user says, else the answer of the one resolver.

The target is known by its shapes, so that a weight format, a copy or a folder of a catalogued model
has that model's acceptance.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

from specsim.formats.speculative_config import SpeculativeConfig
from specsim.methods.base import METHODS, SpecSetup
from specsim.methods.draft_model import WHOLE_MODEL
from specsim.methods.resolve import default_drafter, named_drafter
from specsim.model.catalogue import copies_of, has_drafter, has_model, key, served_name
from specsim.model.drafter_counts import drafter_parameters
from specsim.model.spec import Drafter, ModelSpec
from specsim.options.groups import DeploymentOptions
from specsim.options.values import parse_numbers
from specsim.speculation.acceptance import Acceptance

if TYPE_CHECKING:  # read their tables at first use
    from specsim.speculation.acceptance_catalogue import MeasuredPoint
    from specsim.speculation.acceptance_posterior import AcceptanceSpread
    from specsim.speculation.questions import AcceptanceEstimate, AcceptanceQuery

# The catalogue's kind of work for the name of a workload.
WORK_OF_WORKLOAD = {
    "chat": "chat", "short": "chat", "summarize": "summarization", "code": "code",
    "reasoning": "reasoning", "rag": "rag", "long-context": "long context",
}
KNOWN = ("measured", "this drafter", "this model")  # levels that rest on rows of the target
_USUAL_WIDTH = 0.05  # tokens per step; narrower intervals need no remark


def target_names(spec: ModelSpec) -> tuple[str, ...]:
    """Names under which the catalogue may hold the target's acceptance. A config that has another
    model's name with other shapes is not that model."""
    names = copies_of(spec)
    if names or not has_model(spec.name):
        return names or (spec.name,)
    return (f"another {spec.name}",)


def rows_of(spec: ModelSpec, method: str) -> list["MeasuredPoint"]:
    """What was measured of the target with the method: chains on real text."""
    return [p for name in target_names(spec) for p in _rows_of(name, method)]


def _rows_of(name: str, method: str) -> list["MeasuredPoint"]:
    from specsim.speculation.acceptance_catalogue import offered_by, points_of, telling

    return telling(p for p in points_of(name) if offered_by(p, method))


def drafter_repository(spec: ModelSpec, method: str) -> str | None:
    """Repository of the drafter with which the target's acceptance was measured most often."""
    found = [p.draft for p in rows_of(spec, method) if p.draft.count("/") == 1]
    return max(sorted(set(found)), key=found.count) if found else None


def usual_drafter(spec: ModelSpec, method: str) -> Drafter | None:
    """The drafter that is meant where the user names none: the one whose acceptance was measured
    most often. None where the checkpoint holds it, or no row names one that can be priced."""
    if METHODS[method].shipped(spec) is not None or not METHODS[method].drafter_kinds:
        return None
    name = drafter_repository(spec, method)
    if name is None:
        return None
    found = named_drafter(name) if has_drafter(name) else measured_drafter(spec, name)
    return found if found is not None and found.kind in METHODS[method].drafter_kinds else None


def measured_drafter(spec: ModelSpec, draft: str) -> Drafter | None:
    """A drafter that the catalogue knows by its acceptance with the target alone, with the shape
    that is taken where none is named; None where it is not among them."""
    if has_drafter(draft) or has_model(draft):
        return None
    for method in METHODS.values():
        if any(key(p.draft) == key(draft) for p in rows_of(spec, method.name)):
            found = default_drafter(spec, method.name)
            return None if found is None else replace(found, name=draft)
    return None


def given_acceptance(
    options: DeploymentOptions, config: SpeculativeConfig | None, rates: list[float], k: int
) -> Acceptance | None:
    """What the user said is accepted, in one of five forms or in vLLM's JSON."""
    if rates and options.acceptance_conditional is not None:
        return Acceptance.from_conditional(rates, k=k)
    if rates:
        return Acceptance.from_unconditional(rates, k=k)
    if options.acceptance_rate is not None:
        return Acceptance.from_rate(options.acceptance_rate, k)
    if options.acceptance_mean is not None:
        return Acceptance.from_mean_rate(options.acceptance_mean, k)
    if options.acceptance_length is not None:
        return Acceptance.from_mean_length(options.acceptance_length, k)
    if config is not None and config.acceptance_length is not None:
        return Acceptance.synthetic_min_variance(config.acceptance_length, k)
    return None


def given_rates(options: DeploymentOptions, config: SpeculativeConfig | None) -> list[float]:
    """Acceptance by position, where it was given in that form (conditional or not)."""
    for given, flag in ((options.acceptance, "--acceptance"),
                        (options.acceptance_conditional, "--acceptance-conditional")):
        if given is not None:
            return parse_numbers(given, flag, whole=False)
    return list(config.acceptance) if config is not None else []


def catalogued(
    options: DeploymentOptions, spec: ModelSpec, setup: SpecSetup, draft: str | None,
    work: str | None = None,
) -> "AcceptanceEstimate":
    """The resolver's answer for the deployment and its text; of the names the target may have,
    under the first of which something was measured. work: instead of that of the options."""
    from specsim.speculation.questions import TreeShape
    from specsim.speculation.resolve import resolve

    tree = TreeShape(setup.tree_topk, setup.tree_tokens)
    whose = _whose(spec, setup, draft)
    answers = [
        resolve(_query(options, name, setup, whose, work), setup.k, tree)
        for name in target_names(spec)
    ]
    return next((found for found in answers if found.level in KNOWN), answers[-1])


def spread_of(
    options: DeploymentOptions, spec: ModelSpec, setup: SpecSetup, longest: int
) -> "AcceptanceSpread":
    """How unsure `catalogued` is, at all draft lengths together."""
    from specsim.speculation.resolve import acceptance_spread

    names = target_names(spec)
    name = next((name for name in names if _rows_of(name, setup.method)), names[-1])
    whose = _whose(spec, setup, options.draft)
    return acceptance_spread(_query(options, name, setup, whose, None), longest)


def _whose(spec: ModelSpec, setup: SpecSetup, draft: str | None) -> str | None:
    """The drafter whose acceptance is asked for: the one named, else the one of the setup, which
    is what a command line names. None where the checkpoint holds it, where nobody is known to have
    trained one, and where only measurements that name none can tell of what the catalogue has."""
    drafter = setup.drafter
    if drafter is None or setup.drafting.shipped(spec) is drafter:
        return draft
    name = served_name(drafter.name if draft is None else draft)
    if draft is None and not exists(setup) and "/" not in name:
        return None
    rows = rows_of(spec, setup.method)
    own = default_drafter(spec, setup.method, assume=False)
    unnamed = bool(rows) and not any(row.draft for row in rows)
    return None if unnamed and own is not None and key(served_name(own.name)) == key(name) else name


def exists(setup: SpecSetup) -> bool:
    """Whether the setup drafts with a network that is known, not of an assumed shape."""
    return setup.drafter is not None and setup.drafter.source != "assumed"


def _query(
    options: DeploymentOptions, target: str, setup: SpecSetup, draft: str | None, work: str | None
) -> "AcceptanceQuery":
    from specsim.speculation.acceptance_model import log_size
    from specsim.speculation.questions import AcceptanceQuery

    heat, drafter, size = options.temperature, setup.drafter, None
    if drafter is not None and drafter.kind == WHOLE_MODEL:
        size = log_size(drafter_parameters(drafter))
    return AcceptanceQuery(
        target, setup.method, draft,
        work or options.work or WORK_OF_WORKLOAD.get(options.workload or ""),
        heat if heat is not None and heat >= 0 else None,  # below 0: the server's own
        None if options.thinking is None else options.thinking == "on", options.language,
        size,
    )


def usable(setup: SpecSetup, level: str) -> bool:
    """Whether a prediction may rest on an answer of that level: rows of the target, or those of
    the kind of a drafter that exists. How often a lookup finds a draft is the text's alone."""
    return level in KNOWN or (level == "kind of drafter" and exists(setup))


def remarks(spec: ModelSpec, found: "AcceptanceEstimate", draft: str | None) -> list[str]:
    """What a user should know of a catalogued acceptance."""
    notes = []
    if spec.source.startswith("file ") and found.level in KNOWN:
        notes.append(
            f"{spec.name} has the shapes of {' and '.join(target_names(spec))}, whose acceptance "
            "is taken; tuning the weights further lowers it"
        )
    if draft is not None and found.level == "this model":
        notes.append(
            f"acceptance was not measured with {draft}, only with other drafters of the model"
        )
    if found.level == "kind of drafter":
        notes.append(
            "acceptance of this target was not measured: an estimate from drafters of this kind "
            f"for other targets, {found.low_90:.2f} to {found.high_90:.2f} tokens per step (90%)"
        )
    elif found.high_90 - found.low_90 > _USUAL_WIDTH:
        notes.append(
            f"acceptance depends on the text and the set-up: {found.low_90:.2f} to "
            f"{found.high_90:.2f} tokens per step (90%, {found.level}); "
            "give your own with --acceptance-length"
        )
    return notes


def fitted_to(setup: SpecSetup, found: Acceptance) -> Acceptance:
    """The acceptance with positions for every draft, and the share of steps that carry one."""
    if setup.k > found.positions:
        found = found.at(setup.k)
    if setup.draft_share < 1:
        grounds = found.grounds
        if grounds is not None:
            ratio = setup.draft_share / found.draft_probability
            low, high = (1 + (tokens - 1) * ratio for tokens in grounds.tokens_90)
            grounds = replace(grounds, tokens_90=(low, high))
        found = replace(found, draft_probability=setup.draft_share, grounds=grounds)
    return found

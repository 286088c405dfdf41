"""What verdicts need besides a result: names to serve, methods of unknown acceptance."""

from collections.abc import Iterable

from specsim.analytic.system import System
from specsim.api.command_line import expand_command
from specsim.api.deployment import build_request
from specsim.errors import SpecSimError
from specsim.latency.engine import asked_version
from specsim.methods.registry import is_plain
from specsim.methods.resolve import default_method
from specsim.model.catalogue import served_name
from specsim.options.declare import OptionSet
from specsim.options.groups import DeploymentOptions
from specsim.planning.flags import ServedNames
from specsim.planning.verdict import Unmeasured

STAND_IN = 1.5  # tokens per step of a system whose own are not known; nothing shows it


def deployment_of(options: OptionSet) -> DeploymentOptions:
    """The deployment that options describe, a --command read."""
    return DeploymentOptions.of(expand_command(options)[0])


def served_names(options: DeploymentOptions) -> ServedNames:
    """Names for commands: as the user writes them, unless that is a file or the name of another
    weight format."""
    name = str(options.model)
    model = None
    if options.weights is None:
        model = name.removesuffix("/config.json") if "/" in name else served_name(name)
    draft = options.draft if options.draft and "/" in options.draft else None
    return ServedNames(model, draft, asked_version(options.engine))


def unmeasured_default(options: DeploymentOptions, plain: System) -> Unmeasured | None:
    """What the deployment would draft with, were its acceptance known; None where plain decoding
    was asked for by name."""
    if options.method is not None and is_plain(options.method):
        return None
    name = default_method(plain.spec, plain.engine)
    if is_plain(name):
        found = _with_stand_in(options, "ngram")
        return Unmeasured(found, f"neither {plain.spec.name} nor the catalogue has a drafter that "
                                 f"{plain.engine.name} {plain.engine.version} runs")
    return Unmeasured(_with_stand_in(options, name), _unknown(name, plain))


def unmeasured_drafter(
    options: DeploymentOptions, plain: System, skipped: Iterable[str]
) -> Unmeasured | None:
    """The first of the methods skipped that has a drafter and the engine, so that it lacks an
    acceptance alone."""
    for name in skipped:
        found = _with_stand_in(options, name)
        drafter = found.setup.drafter if found is not None else None
        if drafter is not None and drafter.source != "assumed":
            return Unmeasured(found, _unknown(name, plain))
    return None


def _unknown(name: str, plain: System) -> str:
    return f"no acceptance of {name} for {plain.spec.name} has been measured in public"


def _with_stand_in(options: DeploymentOptions, name: str) -> System | None:
    """The deployment with a method and an acceptance that nothing shows; None: it cannot run."""
    if build_request(options.plain()).system.engine.missing(name, asked_version(options.engine)):
        return None
    try:
        return build_request(options.but(method=name, acceptance_length=STAND_IN)).system
    except SpecSimError:
        return None

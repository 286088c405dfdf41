"""What verdicts need besides a result: names to serve, methods of unknown acceptance."""

from specsim.api.command_line import expand_command
from specsim.api.deployment import DeploymentRequest
from specsim.latency.engine import asked_version
from specsim.model.catalogue import served_name
from specsim.options.declare import OptionSet
from specsim.options.groups import DeploymentOptions
from specsim.planning.flags import ServedNames
from specsim.planning.verdict import Unmeasured


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
    version = asked_version(options.engine)
    return ServedNames(model, draft, version, options.max_model_len or 0)


def unmeasured(request: DeploymentRequest) -> Unmeasured | None:
    """What the deployment could draft with, were its acceptance known; None where it drafts."""
    system, plain = request.unknown, request.system
    if system is None:
        return None if plain.speculative else Unmeasured(
            None, f"neither {plain.spec.name} nor the catalogue has a drafter that "
                  f"{plain.engine.name} {plain.engine.version} runs")
    setup, accepted = system.setup, system.acceptance
    assert accepted is not None and accepted.grounds is not None
    low, high = accepted.grounds.tokens_90
    return Unmeasured(system, (
        f"no acceptance of {setup.method} for {plain.spec.name} is known; comparable drafters of "
        f"other targets yield {low:.2f} to {high:.2f} tokens per step at k = {setup.k}"
    ))

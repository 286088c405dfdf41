"""`specsim policies`: policies of speculation beside each other on the same load."""

from specsim.commands.bind import command
from specsim.commands.output import end_if_partial, quiet, show
from specsim.options.serving import PoliciesCommand


@command(PoliciesCommand)
def policies(options: PoliciesCommand) -> None:
    """Compare policies of speculation on one load: goodput, latencies, wasted drafts, and which
    differences are real. Each sees the same requests with the same luck."""
    from specsim.api.policies import run

    result = run(options, bar=not quiet(options))
    show(result, options, result.to_rows)
    end_if_partial(result.partial, "the figures are partial")

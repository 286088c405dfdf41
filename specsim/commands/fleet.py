"""`specsim fleet FILE`: several models with their demand on a pool of GPUs."""

from specsim.commands.bind import command
from specsim.commands.output import end_if_partial, quiet, show
from specsim.options.sizing import FleetCommand


@command(FleetCommand)
def fleet(options: FleetCommand) -> None:
    """Which endpoints, how many replicas, TP, draft length and slots serve the models of a file on
    its GPUs, what happens when a replica fails, and what does not fit."""
    from specsim.api.fleet import run

    result = run(options, bar=not quiet(options))
    show(result, options, lambda: (endpoint.row() for endpoint in result.endpoints))
    end_if_partial(result.partial, "not everything was simulated")

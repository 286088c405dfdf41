"""`specsim simulate`: a load on a deployment, with and without speculation, request by request."""

from specsim.commands.bind import command
from specsim.commands.output import end_if_partial, quiet, show
from specsim.options.serving import SimulateCommand


@command(SimulateCommand)
def simulate(options: SimulateCommand) -> None:
    """Simulate a load request by request: tails, queues, bursts, prefix caches, several replicas.
    Always beside the same load without speculation."""
    from specsim.api.simulate import run

    result = run(options, bar=not quiet(options))
    show(result, options, result.rows)
    end_if_partial(result.partial, "the figures are partial")

"""`specsim fleet FILE`: several models with their demand on a pool of GPUs."""

from specsim.commands.bind import command
from specsim.commands.output import end_if_partial, quiet, show
from specsim.options.sizing import FleetCommand


@command(
    FleetCommand,
    "specsim fleet fleet.toml --quick",
)
def fleet(options: FleetCommand) -> None:
    """Place several models on a stock of GPUs. Which endpoints, how many replicas, tensor
    parallelism, draft length and request slots serve the models of a file on its GPUs, what happens
    when a replica fails, and what does not fit.

    \b
    A file (more keys: docs/capacity.md):
      [[gpus]]
      type = "h200-sxm"
      count = 10
      [[models]]
      name = "chat"
      model = "llama-3.1-8b"
      users = 400               # or rate = 5 (requests per second)
      slo = { ttft_p95 = 2 }
    """
    from specsim.api.fleet import run

    result = run(options, bar=not quiet(options))
    show(result, options, lambda: (endpoint.row() for endpoint in result.endpoints))
    end_if_partial(result.partial, "not everything was simulated")

"""`specsim explain`: where the time of one engine step goes, op by op."""

from specsim.commands.bind import command
from specsim.commands.output import show
from specsim.options.analytic import ExplainCommand


@command(
    ExplainCommand,
    "specsim explain llama-3.1-8b --gpu h100-sxm --concurrency 16",
    "specsim explain deepseek-v3 -tp 8 --concurrency 1,64",
)
def explain(options: ExplainCommand) -> None:
    """Show where a decode step's time goes. Bytes, FLOP, bound (memory or compute) and a bar per
    operation."""
    from specsim.api.explain import run

    show(run(options), options)

"""`specsim explain`: where the time of one engine step goes, op by op."""

from specsim.commands.bind import command
from specsim.commands.output import show
from specsim.options.analytic import ExplainCommand


@command(ExplainCommand)
def explain(options: ExplainCommand) -> None:
    """Show where a decode step's time goes: bytes, FLOP, bound and a bar per op."""
    from specsim.api.explain import run

    show(run(options), options)

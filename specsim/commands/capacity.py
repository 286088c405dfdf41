"""`specsim capacity`: the largest load within objectives, by simulation."""

from specsim.commands.bind import command
from specsim.commands.output import end_if_partial, quiet, show
from specsim.options.sizing import CapacityCommand


@command(CapacityCommand)
def capacity(options: CapacityCommand) -> None:
    """The largest load within objectives, by simulation, with speculation and without: what limits
    it, where to run, how many replicas a demand needs."""
    from specsim.api.capacity import run

    result = run(options, bar=not quiet(options))
    show(result, options, result.rows)
    end_if_partial(result.partial, "the figures are partial")

"""`specsim capacity`: the largest load within objectives, by simulation."""

from specsim.commands.bind import command
from specsim.commands.output import end_if_partial, quiet, show
from specsim.options.sizing import CapacityCommand


@command(
    CapacityCommand,
    "specsim capacity qwen3.6-27b --rate 40 --slo ttft_p95=1,stream_tok_s_p10=30",
    "specsim capacity --scenario mindrouter-chat --users 180 --quick",
)
def capacity(options: CapacityCommand) -> None:
    """Find the largest load within latency objectives. By simulation, with speculation and without:
    what limits it, where to run, how many replicas a demand needs."""
    from specsim.api.capacity import run

    result = run(options, bar=not quiet(options))
    show(result, options, result.rows)
    end_if_partial(result.partial, "the figures are partial")

"""`specsim policies`: policies of speculation beside each other on the same load."""

from specsim.commands.bind import command
from specsim.commands.output import end_if_partial, quiet, show
from specsim.options.serving import PoliciesCommand


@command(
    PoliciesCommand,
    "specsim policies llama-3.1-8b --method eagle3 -k 5 --concurrency 64",
    "specsim policies qwen3.6-27b --rate 2 --policy static --policy adaptive",
)
def policies(options: PoliciesCommand) -> None:
    """Compare policies that set the draft length while serving. Goodput, latencies, wasted drafts,
    and which differences are real. Each policy sees the same requests and random draws."""
    from specsim.api.policies import run

    result = run(options, bar=not quiet(options))
    show(result, options, result.to_rows)
    end_if_partial(result.partial, "the figures are partial")

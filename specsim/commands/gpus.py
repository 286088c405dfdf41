"""`specsim gpus`: the hardware profiles, or one of them with the source of every number."""

from specsim.commands.bind import command
from specsim.commands.output import show
from specsim.options.listing import GpusCommand


@command(
    GpusCommand,
    "specsim gpus",
    "specsim gpus h200-sxm",
)
def gpus(options: GpusCommand) -> None:
    """List the hardware profiles, or show one with its sources."""
    from specsim.api.gpus import run

    found = run(options)
    show(found, options, document=found.to_json)

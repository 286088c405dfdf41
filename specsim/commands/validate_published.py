"""`specsim validate published`: published measurements beside their predictions."""

from specsim.commands.bind import command
from specsim.commands.output import end_if_over, show
from specsim.options.measured import ValidatePublishedCommand


@command(
    ValidatePublishedCommand,
    "specsim validate published measurements.csv --rows",
)
def published(options: ValidatePublishedCommand) -> None:
    """Score every row of FILES that can be predicted. Counts the others by reason."""
    from specsim.api.validate_published import run

    found = run(options)
    show(found, options)
    limit = options.max_error
    if limit is not None:
        end_if_over(found.report.over(limit), f"above {limit:g}", len(found.report.scores))

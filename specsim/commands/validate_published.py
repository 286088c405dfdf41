"""`specsim validate published`: published measurements beside their predictions."""

from specsim.commands.bind import command
from specsim.commands.output import end_if_over, text_of, write
from specsim.options.measured import PublishedCommand


@command(
    PublishedCommand,
    "specsim validate published measurements.csv --rows",
)
def published(options: PublishedCommand) -> None:
    """Score every row of FILES that can be predicted. Counts the others by reason."""
    from specsim.accuracy.score import read_rows, score_rows
    from specsim.report.doc import Doc
    from specsim.report.scores import published_section

    rows = [row for file in options.files for row in read_rows(file)]
    report = score_rows(rows, keep_cases=False)
    result = report.to_dict()
    if options.rows_out:
        result["judged"] = [score.to_dict() for score in report.scores]
    write(options, lambda: result, lambda: text_of(published_section(Doc(result)), options))
    limit = options.max_error
    if limit is not None:
        end_if_over(report.over(limit), f"above {limit:g}", len(report.scores))

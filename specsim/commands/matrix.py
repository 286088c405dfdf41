"""`specsim matrix`: what one GPU sustains, for models x GPUs."""

from specsim.commands.bind import command
from specsim.commands.output import end_if_partial, quiet, show
from specsim.options.analytic import MatrixCommand

SHOW_BAR_FROM = 60  # cells; about two seconds


@command(MatrixCommand)
def matrix(options: MatrixCommand) -> None:
    """Sustained tokens/s per GPU and users per GPU for models x GPUs, with speculation and
    without, at one operating point."""
    from specsim.api.matrix import MatrixStudy
    from specsim.report.progress import task_bar

    study = MatrixStudy(options)
    many = len(study.models) * len(study.gpus) >= SHOW_BAR_FROM
    with task_bar(many and not quiet(options), "cells") as report:
        result = study.run(report)
    show(result, options, lambda: (cell.row() for cell in result.cells))
    end_if_partial(result.partial)

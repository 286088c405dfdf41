"""`specsim validate`: predictions against measurements."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from specsim.commands import options as o
from specsim.commands import validate_bench, validate_live, validate_records, validate_run


def register(app: typer.Typer) -> None:
    validate = typer.Typer(
        help="Compare predictions with measurements.",
        no_args_is_help=True,
        rich_markup_mode=None,
    )

    @validate.callback()
    def _root() -> None:
        """Compare predictions with measurements."""

    validate.command(name="published")(published)
    validate.command(name="live")(validate_live.live)
    validate.command(name="bench")(validate_bench.bench)
    validate.command(name="records")(validate_records.records)
    validate.command(name="run")(validate_run.run)
    app.add_typer(validate, name="validate")


def published(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="CSV with the columns of published_measurements.csv or e2e_silicon_h200.csv."
        ),
    ],
    max_error: Annotated[
        float | None,
        typer.Option("--max-error", help="Exit with code 1 if a median error is above this."),
    ] = None,
    rows_out: Annotated[
        bool, typer.Option("--rows", help="Also list every judged value with its error.")
    ] = False,
    json_out: o.JsonOut = False,
) -> None:
    """Score every row of FILES that can be predicted; count the others by reason."""
    from specsim.accuracy.score import QUANTITIES, read_rows, score_rows
    from specsim.errors import UsageError
    from specsim.report.scores import report_text
    from specsim.report.tables import printable, to_json

    if max_error is not None and not max_error > 0:
        raise UsageError(f"--max-error is {max_error}; it must be above 0, e.g. 0.15 for 15 %")
    rows = [row for file in files for row in read_rows(file)]
    report = score_rows(rows, keep_cases=False)
    result = report.to_dict()
    if rows_out:
        result["judged"] = [score.to_dict() for score in report.scores]
    sys.stdout.write((to_json(result) if json_out else printable(report_text(result))) + "\n")
    if max_error is not None:
        over = [
            name
            for name in QUANTITIES
            if (result["overall"][name]["median_abs_error"] or 0.0) > max_error
        ]
        if over:
            sys.stderr.write(
                f"specsim: median error above {max_error:g} in {', '.join(over)}\n"
            )
            raise typer.Exit(1)

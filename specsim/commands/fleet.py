"""`specsim fleet FILE`: several models with their demand on a pool of GPUs."""

import sys
from typing import Annotated

import typer

from specsim.commands import options as o
from specsim.commands.simulate import INTERRUPTED

File = Annotated[str, typer.Argument(help="Fleet file, TOML or JSON; see docs/capacity.md.")]
Quick = Annotated[
    bool, typer.Option("--quick", help="Capacities by formulas, without simulation.")
]
Jobs = Annotated[
    int | None, typer.Option("--jobs", help="Processes. Default: 2, or 1 on a single core.")
]
Seed = Annotated[int, typer.Option("--seed", help="Everything random derives from it.")]


def register(app: typer.Typer) -> None:
    app.command(name="fleet")(fleet)


def fleet(
    context: typer.Context,
    file: File,
    quick: Quick = False,
    seed: Seed = 0,
    jobs: Jobs = None,
    profiles: o.Profiles = None,
    json_out: o.JsonOut = False,
    csv_out: o.CsvOut = False,
) -> None:
    """Which endpoints, how many replicas, TP, draft length and seats serve the models of a file on
    its GPUs, what happens when a replica fails, and what does not fit."""
    from specsim.commands.fleet_run import run
    from specsim.commands.repeat import repeat_command
    from specsim.errors import UsageError
    from specsim.report.fleet import fleet_text
    from specsim.report.tables import to_csv, to_json

    if json_out and csv_out:
        raise UsageError("--json and --csv are both given; choose one output")
    quiet = json_out or csv_out or not (sys.stdout.isatty() and sys.stderr.isatty())
    result = run(file, quick=quick, seed=seed, jobs=jobs, profiles=profiles, bar=not quiet)
    if json_out:
        text = to_json({**result.to_dict(), "command": repeat_command(context)})
    elif csv_out:
        text = to_csv(endpoint.row() for endpoint in result.endpoints).rstrip("\n")
    else:
        text = fleet_text(result)
    sys.stdout.write(text + "\n")
    if result.partial:
        sys.stdout.flush()
        sys.stderr.write("specsim: interrupted; not everything was simulated\n")
        raise typer.Exit(INTERRUPTED)

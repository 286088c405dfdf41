"""`specsim import`: what a benchmark's result files hold, in one normal form."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from specsim.commands import options as o


def register(app: typer.Typer) -> None:
    app.command(name="import")(import_results)


def import_results(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="Results of vllm bench serve or sweep, sglang bench_serving, guidellm, aiperf, "
            "genai-perf, inference-perf, llmperf; /metrics dumps; pasted server log lines; folders."
        ),
    ],
    before: Annotated[
        Path | None,
        typer.Option("--before", help="An earlier /metrics dump: count only from it to FILE."),
    ] = None,
    requests: Annotated[
        bool, typer.Option("--requests", help="With --json, also every request.")
    ] = False,
    json_out: o.JsonOut = False,
) -> None:
    """Say what FILES are, and show them in one normal form whichever tool wrote them."""
    from specsim.errors import UsageError
    from specsim.formats.bench import scan
    from specsim.report.imported import imported_text
    from specsim.report.tables import to_json

    if before is not None and len(files) != 1:
        raise UsageError(f"--before goes with one later /metrics dump; {len(files)} files given")
    if requests and not json_out:
        raise UsageError("--requests goes with --json; the table shows no single requests")
    runs, skipped = [], []
    for file in files:
        found = scan(file, before)
        runs += [run.to_dict(requests=requests) for run in found.runs]
        skipped += [{"file": path, "reason": reason} for path, reason in found.skipped]
    if json_out:
        text = to_json({"runs": runs, "skipped": skipped})
    else:
        text = imported_text(runs, skipped)
    sys.stdout.write(text + "\n")

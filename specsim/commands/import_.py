"""`specsim import`: what a file is, in one normal form: benchmark results, traces, models."""

from typing import TYPE_CHECKING

from specsim.commands.bind import command
from specsim.commands.output import text_of, write
from specsim.errors import UsageError
from specsim.files import check_writable
from specsim.options.listing import ImportCommand
from specsim.rows import columns_of, flat, rows_at

if TYPE_CHECKING:
    from specsim.formats.recognise import TraceSummary


@command(
    ImportCommand,
    "specsim import result.json",
    "specsim import --before before.txt after.txt",
)
def import_results(options: ImportCommand) -> None:
    """Read benchmark results, metrics and logs of other tools. Says what FILES are, and shows them
    in one normal form whichever tool wrote them."""
    from specsim.formats.bench import scan
    from specsim.formats.recognise import TraceSummary, recognise
    from specsim.report.imported import imported_section

    files, before = options.files, options.before
    if before is not None and len(files) != 1:
        raise UsageError(f"--before goes with one later /metrics dump; {len(files)} files given")
    if options.requests and not (options.json_out or options.export):
        raise UsageError("--requests goes with --json or --export; the table shows no requests")
    if options.export is not None:
        from specsim.report.export_rows import check_export_path

        check_export_path(str(options.export))
        check_writable(options.export, "--export", [*files, before])
    runs: list[dict[str, object]] = []
    skipped: list[dict[str, str]] = []
    traces: list[dict[str, object]] = []
    models: list[dict[str, object]] = []
    sent: list[TraceSummary] = []
    for file in files:
        other = recognise(file) if before is None else None
        if isinstance(other, TraceSummary):
            traces.append(other.to_dict())
            sent.append(other)
            continue
        if other is not None:
            models.append(other.to_dict())
            continue
        found = scan(file, before)
        runs += [run.to_dict(requests=options.requests) for run in found.runs]
        skipped += [{"file": path, "reason": reason} for path, reason in found.skipped]
    if options.export is not None:
        _export(str(options.export), runs, sent, options.requests)
    # what a file can be besides a result appears only where there is one
    extra = {name: items for name, items in (("traces", traces), ("models", models)) if items}

    write(options, lambda: {"runs": runs, "skipped": skipped, **extra},
          lambda: text_of(imported_section(runs, skipped, [*traces, *models]), options))


def _export(
    path: str, runs: list[dict[str, object]], traces: "list[TraceSummary]", requests: bool
) -> None:
    """One row per run, per request of runs, or per request of a trace; never mixed."""
    from specsim.report.export_rows import write_rows

    if traces and (runs or len(traces) > 1):
        raise UsageError("--export writes one trace, or results, not both in one file; name one")
    if traces:
        names = ["arrival_s", "prompt_tokens", "output_tokens"]
        write_rows(traces[0].rows(), path, columns=names + ["session"] * bool(traces[0].sessions))
        return
    if not runs:
        raise UsageError("--export writes traces and results; nothing of the kind was given")
    if requests:
        rows = [
            {"source": run["source"], "request": i, **row}
            for run in runs for i, row in enumerate(rows_at(run, "requests"))
        ]
        if not rows:
            raise UsageError("--requests: the files hold no single requests; leave it out")
    else:
        rows = [flat({key: value for key, value in run.items() if key != "requests"})
                for run in runs]
    columns = columns_of(rows)
    write_rows(({name: row.get(name) for name in columns} for row in rows), path, columns=columns)

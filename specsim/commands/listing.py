"""What lists, reads and shows: models, gpus, import, config, report."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from specsim.commands.bind import command
from specsim.commands.output import show, text_of, write
from specsim.errors import UsageError, closest
from specsim.files import check_writable, write_whole
from specsim.options.listing import (
    ConfigCommand,
    GpusCommand,
    ImportCommand,
    ModelsCommand,
    ReportCommand,
)
from specsim.report.blocks import Lines, Section
from specsim.report.tables import Table
from specsim.rows import columns_of, flat, printable, rows_at
from specsim.units import counted

if TYPE_CHECKING:
    from specsim.formats.recognise import TraceSummary
    from specsim.options.config_file import OptionDefault


@command(ModelsCommand, "specsim models --search qwen3", "specsim models llama-3.1-8b")
def models(options: ModelsCommand) -> None:
    """List the models and drafters of the catalogue, or show one. Parameters, bytes, cache, state,
    drafters."""
    from specsim.api.models import run

    found = run(options)
    show(found, options, document=found.to_json)


@command(GpusCommand, "specsim gpus", "specsim gpus h200-sxm")
def gpus(options: GpusCommand) -> None:
    """List the hardware profiles, or show one with its sources."""
    from specsim.api.gpus import run

    found = run(options)
    show(found, options, document=found.to_json)


@command(
    ImportCommand, "specsim import result.json", "specsim import --before before.txt after.txt",
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


@command(ConfigCommand, "specsim config", "specsim config predict")
def config(options: ConfigCommand) -> None:
    """Show the defaults of specsim.toml, and where each comes from."""
    from specsim.options.config_file import read_file
    from specsim.options.config_place import FILE_NAME, VARIABLE, find_file

    path = find_file()
    found = read_file(path) if path is not None else None
    rows = _rows(found.defaults if found is not None else (), " ".join(options.command or ()))

    def text() -> str:
        if not rows and path is None:
            return f"no {FILE_NAME} here or above, and {VARIABLE} names none: built-in defaults"
        if not rows:
            return printable(f"{path} sets nothing")
        groups: dict[tuple[str, ...], list[str]] = {}
        for row in rows:
            key = (str(row["option"]), _shown(row["value"]), str(row["from"]))
            groups.setdefault(key, []).append(str(row["command"]))
        return text_of(Section("", "", [
            Lines([f"{path or 'no ' + FILE_NAME}"]),
            Table(["option", "value", "from", "commands"],
                  [[*key, ", ".join(names)] for key, names in groups.items()], left=4),
        ]), options)

    file = str(path) if path else None
    write(options, lambda: {"kind": "config", "file": file, "options": rows}, text)


def _rows(defaults: "tuple[OptionDefault, ...]", command: str) -> list[dict[str, object]]:
    """Every default of the file; with a command, all of its options with what holds for each."""
    from specsim.options.config_file import settable
    from specsim.options.registry import command_names
    from specsim.options.values import shown

    if not command:
        return [
            {"option": d.flag, "value": d.value, "from": f"[{d.section}]", "command": d.command}
            for d in defaults
        ]
    if command not in command_names():
        hint = f"{closest(command, command_names(), 2)}see `specsim --help`"
        raise UsageError(f"{shown(command)} is no command; {hint}")
    named = {d.name: d for d in defaults if d.command == command}
    return [
        {
            "option": option.flag,
            "value": named[name].value if name in named else _plain(option.default),
            "from": f"[{named[name].section}]" if name in named else "built in",
            "command": command,
        }
        for name, option in settable(command).items()
    ]


def _plain(value: object) -> object:
    return value if isinstance(value, str | int | float | bool | list) else None


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "-" if value is None else str(value)


@command(
    ReportCommand, "specsim predict qwen3.6-27b --json > predict.json",
    "specsim report predict.json -o report.html",
)
def report(options: ReportCommand) -> None:
    """Write one HTML page from results of --json. Interactive charts with the numbers behind them,
    assumptions with their sources, commands to repeat. Opens offline."""
    from specsim.api.report import page_of

    files, output = options.files, str(options.output)
    if files.count("-") > 1:
        raise UsageError("- is given more than once; standard input can be read once")
    words = ["specsim", "report", *files, "-o", output]
    words += ["--title", options.title] if options.title else []
    given = [_stdin() if path == "-" else path for path in files]
    page = page_of(given, output, options.title, options.profiles, shlex.join(words))
    if output == "-":
        sys.stdout.write(page)
        return
    write_whole(Path(output), page)
    count = counted(len(files), "result")
    sys.stdout.write(f"wrote {printable(output)}: {count}, {len(page.encode()) / 1e6:.1f} MB\n")


def _stdin() -> bytes:
    from specsim.report.kinds import MAX_BYTES

    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError("- reads standard input; pipe a result into it: specsim ... --json |")
    return sys.stdin.buffer.read(MAX_BYTES + 1)

"""`specsim sweep`: many predictions or simulations, on one machine or a cluster, resumable."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specsim.commands import options as o

if TYPE_CHECKING:
    from specsim.planning.sweep import Sweep
    from specsim.planning.sweep_file import Definition
    from specsim.planning.sweep_run import SweepRun

INTERRUPTED = 130

File = Annotated[
    Path | None, typer.Argument(help="A .toml that defines the sweep (see docs/planning.md).")
]
Run = Annotated[
    str | None, typer.Option("--run", help="simulate or predict; default: as in FILE, or simulate.")
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", help="NAME=VALUE: an option of every task. Repeat for more."),
]
Grid = Annotated[
    list[str] | None,
    typer.Option("--grid", help="NAME=V1,V2,...: values to try (';' between values that hold "
                 "commas). Repeat for more: all combinations."),
]
Repeats = Annotated[
    int | None, typer.Option("--repeats", help="Runs of each combination, each with its own seed.")
]
ExecutorOpt = Annotated[
    str,
    typer.Option("--executor", help="local, dask://HOST:PORT or ray://HOST:PORT; dask://local "
                 "and ray://local start a private cluster."),
]
Workers = Annotated[
    int | None, typer.Option("--workers", help="Worker processes; default: the cores there are.")
]
JournalOpt = Annotated[
    str | None,
    typer.Option("--journal", help="Where finished tasks are kept; default: FILE.journal.jsonl."),
]
Restart = Annotated[bool, typer.Option("--restart", help="Forget what the journal has.")]
Out = Annotated[
    str | None, typer.Option("--out", help="Write all rows to a .csv or .jsonl file.")
]
Columns = Annotated[
    str | None,
    typer.Option("--columns", help="Results to show, e.g. output_tok_s,tpot_s.mean."),
]


def register(app: typer.Typer) -> None:
    app.command(name="sweep")(sweep)


def sweep(
    file: File = None,
    run: Run = None,
    set_: Set = None,
    grid: Grid = None,
    repeats: Repeats = None,
    executor: ExecutorOpt = "local",
    workers: Workers = None,
    journal: JournalOpt = None,
    restart: Restart = False,
    out: Out = None,
    columns: Columns = None,
    json_out: o.JsonOut = False,
    csv_out: o.CsvOut = False,
) -> None:
    """Run every combination of options of a grid. What is finished is kept: the same command
    again goes on where it stopped."""
    from specsim.commands.sweep_task import run_task
    from specsim.errors import SpecSimError, UsageError
    from specsim.files import check_writable
    from specsim.planning.executors import open_executor
    from specsim.planning.sweep_journal import Journal
    from specsim.planning.sweep_run import run_sweep
    from specsim.report.progress import task_bar
    from specsim.report.sweeps import sweep_csv, sweep_json, sweep_text, write_rows

    if json_out and csv_out:
        raise UsageError("--json and --csv are both given; choose one output")
    if out is not None and not out.lower().endswith((".csv", ".jsonl")):
        raise UsageError(f"--out is {o.shown(out)}; the name must end in .csv or .jsonl")
    check_writable(out, "--out", [file])
    wanted = build_sweep(file, run, set_ or [], grid or [], repeats, columns)
    place = journal
    if place is None and file is not None:
        place = str(file.with_suffix(".journal.jsonl"))
    elif place is not None and not place.strip():
        raise UsageError("--journal is empty; name a file")
    if place is not None and out is not None and Path(place).resolve() == Path(out).resolve():
        raise UsageError(f"--out and the journal are both {o.shown(out)}; give each its own file")
    quiet = json_out or csv_out or not (sys.stdout.isatty() and sys.stderr.isatty())
    with Journal.open(place, wanted, restart=restart) as kept:
        missing = wanted.count > len(kept.offsets)
        pool = open_executor(executor if missing else "local", workers if missing else None)
        with pool, task_bar(not quiet, "tasks") as report:
            found = run_sweep(wanted, run_task, kept, pool, report)
        if out is not None:
            try:
                write_rows(found, out)
            except OSError as error:
                raise UsageError(f"cannot write {o.shown(out)}: {error.strerror}") from None
        if json_out:
            sys.stdout.writelines(sweep_json(found))
        elif csv_out:
            sys.stdout.writelines(sweep_csv(found))
        else:
            sys.stdout.write(sweep_text(found, out) + "\n")
        sys.stdout.flush()
        _end(found, SpecSimError)


def _end(found: "SweepRun", refusal: type[Exception]) -> None:
    """The exit code, and on stderr why it is not 0."""
    if found.interrupted:
        where = "" if found.journal.path is None else "; the same command again goes on"
        sys.stderr.write(
            f"specsim: interrupted with {found.finished} of {found.sweep.count} tasks "
            f"finished{where}\n"
        )
        raise typer.Exit(INTERRUPTED)
    if found.failed:
        first = next(iter(found.failures.items()))
        sys.stderr.write(
            f"specsim: {found.failed} of {found.sweep.count} tasks failed, the first with "
            f"{first[1]}; the same command again retries them\n"
        )
        raise typer.Exit(1)
    if found.finished and found.refused == found.finished:
        error = next(found.rows())["error"]
        raise refusal(f"every task was refused, the first because: {error}")


def build_sweep(
    file: Path | None,
    run: str | None,
    fixed: list[str],
    grid: list[str],
    repeats: int | None,
    columns: str | None,
) -> "Sweep":
    """The checked definition: that of the file with what the command line adds or replaces."""
    from specsim.errors import UsageError
    from specsim.planning.sweep import RUNS, Sweep
    from specsim.planning.sweep_file import Definition, read_definition

    if file is None and not fixed and not grid:
        raise UsageError(
            "nothing to run; name a FILE that defines a sweep, or give --set and --grid, for "
            "example --set model=qwen3.6-27b --set concurrency=16 --grid k=1,2,3"
        )
    found = read_definition(file) if file is not None else Definition()
    if run is not None:
        found.run = run
    if found.run not in RUNS:
        raise UsageError(f"run is {o.shown(found.run)}; a sweep runs {' or '.join(RUNS)}")
    if repeats is not None:
        found.repeats = repeats
    if columns is not None:
        found.columns = tuple(name.strip() for name in columns.split(",") if name.strip())
    _check_options(found, str(file) if file else "")
    _add_typed(found, fixed, grid)
    result = Sweep(
        found.run, found.fixed, found.grid, found.cases, found.repeats, found.columns, found.name
    )
    _check_meaning(result)
    return result


def _check_options(found: "Definition", where: str) -> None:
    """Names and types of a file's options."""
    from specsim.commands.sweep_task import option_name, option_value

    def table(values: dict[str, Any], section: str) -> dict[str, Any]:
        place = f"{where}: [{section}]"
        out = {}
        for name, value in values.items():
            plain = option_name(name, found.run, place)
            out[plain] = option_value(plain, value, found.run, place)
        return out

    found.fixed = table(found.fixed, "fixed")
    found.cases = [table(case, "case") for case in found.cases]
    grid = {}
    for name, values in found.grid.items():
        plain = option_name(name, found.run, f"{where}: [grid]")
        grid[plain] = [
            option_value(plain, value, found.run, f"{where}: [grid]") for value in values
        ]
    found.grid = grid


def _add_typed(found: "Definition", fixed: list[str], grid: list[str]) -> None:
    """--set and --grid: an option there stands in place of the file's."""
    from specsim.commands.sweep_task import option_name, parse_value
    from specsim.errors import UsageError

    for flag, words in (("--set", fixed), ("--grid", grid)):
        for word in words:
            name, sign, text = word.partition("=")
            if not sign:
                raise UsageError(f"{flag} is {o.shown(word)}; write NAME=VALUE")
            plain = option_name(name, found.run, flag)
            found.fixed.pop(plain, None)
            found.grid.pop(plain, None)
            if any(plain in case for case in found.cases):
                raise UsageError(
                    f"{flag} {plain}: the file's [[case]] groups set it; change it there"
                )
            if flag == "--set":
                found.fixed[plain] = parse_value(plain, text, found.run, flag)
            else:
                mark = ";" if ";" in text else ","
                found.grid[plain] = [
                    parse_value(plain, part, found.run, flag) for part in text.split(mark)
                ]


def _check_meaning(sweep: "Sweep") -> None:
    """Names that nothing is known of are misspelt, not a combination that does not fit; they are
    refused before anything runs."""
    from specsim.errors import UsageError
    from specsim.formats.load_model import load_model
    from specsim.hardware.store import load_profile
    from specsim.latency.engine import find_engine

    names = {*sweep.fixed, *sweep.varied}
    if sweep.run == "predict":
        if ("concurrency" in names) == ("rate" in names):
            raise UsageError(
                "a sweep of predict needs concurrency or rate, one value per task: give one of "
                "them in fixed or in grid"
            )
        if not names & {"model", "command"}:
            raise UsageError(
                "a model is needed: give it in fixed, in grid or with --set model=... (or a "
                "command that names one)"
            )
        _check_loads(sweep)
    folder = sweep.fixed.get("profiles")
    for value in _values(sweep, "model"):
        load_model(value)
    for value in _values(sweep, "gpu"):
        load_profile(value, folder)
    for value in _values(sweep, "engine"):
        find_engine(value)


def _check_loads(sweep: "Sweep") -> None:
    """As `specsim predict` checks them."""
    for value in _values(sweep, "concurrency"):
        o.parse_concurrency(str(value))
    for value in _values(sweep, "rate"):
        o.parse_rates(repr(value))


def _values(sweep: "Sweep", name: str) -> list[Any]:
    """Every value that an option takes."""
    given = [sweep.fixed.get(name), *sweep.grid.get(name, ())]
    given += [case.get(name) for case in sweep.cases]
    return [value for value in given if value is not None]

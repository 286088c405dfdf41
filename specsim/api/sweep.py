"""`specsim.sweep`: many predictions or simulations, on one machine or a cluster, resumable."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from specsim.api.functions import named_function
from specsim.api.results import Documented, flat
from specsim.api.sweep_task import option_name, option_value, parse_value, run_tasks
from specsim.errors import UsageError
from specsim.files import check_writable
from specsim.formats.load_model import load_model
from specsim.hardware.store import load_profile
from specsim.jsonable import Key
from specsim.latency.engine import find_engine
from specsim.options.declare import repeat
from specsim.options.sizing import SweepOptions
from specsim.options.values import parse_concurrency, parse_rates, shown
from specsim.planning.executors import open_executor
from specsim.planning.executors.local import leave_import
from specsim.planning.sweep import RUNS, Sweep, SweepShape, read_definition
from specsim.planning.sweep_journal import Journal
from specsim.planning.sweep_run import SweepRun, run_sweep
from specsim.report.blocks import Section
from specsim.report.progress import task_bar
from specsim.rows import rows_at

V = TypeVar("V")
W = TypeVar("W")


@dataclass(frozen=True, repr=False)
class SweepResult(Documented):
    """The rows of a sweep: one per combination and repeat, with `params` and `result`."""

    blocks: Section
    command: str

    name = run = Key[str]()
    fixed = Key[dict[str, Any]]()
    grid = Key[dict[str, list[Any]]]()
    workers = Key[int]()
    elapsed_s = busy_s = Key[float]()
    across = Key[dict[str, Any] | None]()
    cases = by_setting = rows = Key[list[dict[str, Any]]]()
    repeats = tasks = finished = resumed = refused = failed = Key[int]()
    failures = Key[dict[str, int]]()
    interrupted = Key[bool]()

    def to_rows(self) -> list[dict[str, object]]:
        return [flat(row) for row in rows_at(self.document, "rows")]

    def section(self) -> Section:
        return self.blocks


def run(options: SweepOptions) -> SweepResult:
    """Run every combination of a grid of options: those of `file`, of `set_` and of `grid`.

    It works in `workers` processes, so a script calls it under `if __name__ == "__main__":`."""
    from specsim.report.sweeps import sweep_blocks, sweep_head

    with running(options, bar=False) as found:
        rows = [*found.rows()] if options.rows else []
        document = {**sweep_head(found), "rows": rows}
        return SweepResult(document, sweep_blocks(found), repeat(options))


@contextmanager
def running(options: SweepOptions, *, bar: bool) -> Iterator[SweepRun]:
    """The sweep, run; its journal, which holds the rows, is open until the end."""
    from specsim.report.export_rows import check_export_path
    from specsim.report.sweep_pages import Pages
    from specsim.report.sweeps import write_rows

    leave_import()
    out = None if options.out is None else str(options.out)
    if out is not None:
        if not out.lower().endswith((".csv", ".jsonl", ".parquet")):
            raise UsageError(f"--out is {shown(out)}; it must end in .csv, .jsonl or .parquet")
        check_export_path(out, "--out")
    check_writable(out, "--out", [options.file])
    wanted = build_sweep(options)
    place = None if options.journal is None else str(options.journal)
    if place is None and options.file is not None:
        place = str(Path(options.file).with_suffix(".journal.jsonl"))
    elif place is not None and not place.strip():
        raise UsageError("--journal is empty; name a file")
    if place is not None and out is not None and Path(place).resolve() == Path(out).resolve():
        raise UsageError(f"--out and the journal are both {shown(out)}; give each its own file")
    with Journal.open(place, wanted, restart=options.restart) as kept:
        missing = wanted.count > len(kept.offsets)
        pool = open_executor(
            options.executor if missing else "local", options.workers if missing else None
        )
        streamed = out is not None and out.lower().endswith(".parquet")
        pages = Pages(wanted, kept, Path(out)) if out is not None and streamed else None
        with pool, task_bar(bar, "tasks") as report:
            found = run_sweep(wanted, run_tasks, kept, pool, report, pages.more if pages else None)
        if out is not None:
            write_rows(found, out)
        if pages is not None:
            pages.end()
        yield found


sweep = named_function(SweepOptions, run)


def build_sweep(options: SweepOptions) -> Sweep:
    """The checked definition: that of the file with what the options add or replace."""
    file = options.file
    if file is None and not options.set_ and not options.grid:
        raise UsageError(
            "nothing to run; name a FILE that defines a sweep, or give --set and --grid, for "
            "example --set model=qwen3.6-27b --set concurrency=16 --grid k=1,2,3"
        )
    found = read_definition(file) if file is not None else SweepShape()
    head = found.sweep
    run = head.run if options.run is None else options.run
    if run not in RUNS:
        raise UsageError(f"run is {shown(run)}; a sweep runs {' or '.join(RUNS)}")
    columns = head.columns
    if options.columns is not None:
        columns = tuple(name for part in options.columns.split(",") if (name := part.strip()))
    where = str(file) if file else ""
    fixed = _table(found.fixed, run, f"{where}: [fixed]", option_value)
    grid = _table(found.grid, run, f"{where}: [grid]", _option_values)
    cases = [_table(case, run, f"{where}: [case]", option_value) for case in found.case]
    _add_typed(run, fixed, grid, cases, options)
    repeats = head.repeats if options.repeats is None else options.repeats
    result = Sweep(run, fixed, grid, cases, repeats, columns, head.name)
    _check_meaning(result)
    return result


def _table(
    values: Mapping[str, V], run: str, where: str, read: Callable[[str, V, str, str], W]
) -> dict[str, W]:
    """Options of a file by their names in Python, their values read."""
    named = ((option_name(name, run, where), value) for name, value in values.items())
    return {name: read(name, value, run, where) for name, value in named}


def _option_values(name: str, values: list[object], run: str, where: str) -> list[object]:
    return [option_value(name, value, run, where) for value in values]


def _add_typed(
    run: str, fixed: dict[str, object], grid: dict[str, list[object]],
    cases: Sequence[Mapping[str, object]], options: SweepOptions,
) -> None:
    """--set and --grid: an option there stands in place of the file's."""
    for flag, words in (("--set", options.set_ or []), ("--grid", options.grid or [])):
        for word in words:
            name, sign, text = word.partition("=")
            if not sign:
                raise UsageError(f"{flag} is {shown(word)}; write NAME=VALUE")
            plain = option_name(name, run, flag)
            fixed.pop(plain, None)
            if any(plain in case for case in cases):
                raise UsageError(
                    f"{flag} {plain}: the file's [[case]] groups set it; change it there"
                )
            if flag == "--set":
                grid.pop(plain, None)
                fixed[plain] = parse_value(plain, text, run, flag)
            else:
                parts = text.split(";" if ";" in text else ",")
                grid[plain] = [parse_value(plain, part, run, flag) for part in parts]


def _check_meaning(sweep: Sweep) -> None:
    """Names that nothing is known of are misspelt, not a combination that does not fit; they are
    refused before anything runs."""
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
        for value in _values(sweep, "concurrency"):
            parse_concurrency(value)
        for value in _values(sweep, "rate"):
            parse_rates(value)
    named = sweep.fixed.get("profiles")
    folder = named if isinstance(named, str) else None
    for value in _values(sweep, "model"):
        load_model(value)
    for value in _values(sweep, "gpu"):
        load_profile(value, folder)
    for value in _values(sweep, "engine"):
        find_engine(value)


def _values(sweep: Sweep, name: str) -> list[str]:
    """Every value that an option takes."""
    given = [sweep.fixed.get(name), *sweep.grid.get(name, ())]
    given += [case.get(name) for case in sweep.cases]
    return [value if isinstance(value, str) else repr(value) for value in given
            if value is not None]

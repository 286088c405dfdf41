"""The rows of a sweep: as text, CSV, JSON and JSON lines, always in the order of the definition.

Nothing here depends on where or in what order tasks ran, so the same sweep gives the same bytes.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from specsim.files import writing
from specsim.jsonable import json_text, picked
from specsim.report.blocks import Charts, Group, Lines, Notes, Section
from specsim.report.doc import Doc
from specsim.report.export_rows import write_parquet
from specsim.report.sweep_summary import USUAL, cell, summary_charts, summary_of, summary_table
from specsim.report.tables import Table
from specsim.rows import Row, columns_of, csv_lines, flat
from specsim.units import counted

if TYPE_CHECKING:
    from specsim.planning.sweep import Sweep
    from specsim.planning.sweep_run import SweepRow, SweepRun

MAX_ROWS_SHOWN = 100
FEW_ROWS = 10  # shown beside a summary


def sweep_blocks(run: "SweepRun", out: str | None = None) -> Section:
    """One line per task, or what all have in common where they are many, and what became of
    them."""
    sweep = run.sweep
    doc = Doc({**sweep_head(run), "rows": list(islice(run.rows(), MAX_ROWS_SHOWN))})
    varied = [*sweep.varied, *(["repeat"] if sweep.repeats > 1 else [])]
    where = f"in {out}" if out else "with --out FILE or --csv"
    journal = f"; journal: {run.journal.path}" if run.journal.path is not None else ""
    return sweep_section(doc, varied, sweep.columns, where, journal)


def sweep_section(
    doc: Doc, varied: Sequence[str] = (), columns: Sequence[str] = (),
    where: str = "in the file", journal: str = "",
) -> Section:
    """All blocks. varied, columns: of the definition; without them all there are, and the usual
    ones. where: what to look into for more rows than are shown."""
    run, rows = doc.text("run", "predict"), doc.items("rows")
    varied = varied or list(dict.fromkeys(key for row in rows for key, _ in row.members("params")))
    columns = columns or USUAL.get(run, USUAL["predict"])
    summed = doc.number("finished") > MAX_ROWS_SHOWN and doc.has("by_setting")
    shown = rows[: FEW_ROWS if summed else MAX_ROWS_SHOWN]
    reasons = list(dict.fromkeys(row.text("error") for row in shown if row.has("error")))
    results = [_result(row) for row in shown]
    cells = [
        [*(cell(row.at("params").child(name).value) for name in varied),
         *(cell(found.get(name)) for name in columns),
         *([f"refused ({reasons.index(row.text('error')) + 1})" if row.has("error") else ""]
           if reasons else [])]
        for row, found in zip(shown, results, strict=True)
    ]
    headers = [*varied, *(name.removesuffix(".mean") for name in columns), *([""] * bool(reasons))]
    more = int(doc.number("finished")) - len(shown)
    return Section(f"Sweep of {counted(doc.number('tasks'), f'{run} run')}", "Sweep", [
        Charts(summary_charts(doc)),
        summary_table(doc) if summed else None,
        Table(headers, cells, left=0) if cells else None,
        Lines([f"{counted(more, 'more row')} {where}"] if more > 0 else []),
        Lines([_counts(doc) + journal]),
        Group([
            Lines([f"refused ({i + 1}): {text}" for i, text in enumerate(reasons[:10])]),
            Notes(_unknown_columns(columns, {name for found in results for name in found})),
        ]),
    ])


def _result(row: Doc) -> Mapping[str, object]:
    """The result of a row as one level of dotted names."""
    return flat({name: value.value for name, value in row.members("result")})


def _counts(doc: Doc) -> str:
    text = f"{doc.words('finished')} of {doc.words('tasks')} tasks finished"
    for key, words in (("resumed", ", {} of them before"), ("refused", "; {} refused"),
                       ("failed", "; {} failed")):
        text += words.format(doc.words(key)) if doc.maybe(key) else ""
    return text


def _unknown_columns(columns: Sequence[str], known: set[str]) -> list[str]:
    """Columns that no result has."""
    notes = []
    for name in columns if known else ():
        if name not in known:
            near = get_close_matches(name, known, n=3, cutoff=0.5)
            hint = f"; near matches: {', '.join(near)}" if near else ""
            notes.append(f"no result has {name!r}{hint}")
    return notes


def sweep_head(run: "SweepRun") -> dict[str, object]:
    """Everything of the document but its rows."""
    return {
        "kind": "sweep",
        **run.sweep.to_dict(),
        **picked(run, "tasks=sweep.count finished resumed refused failed failures interrupted "
                      "workers elapsed_s busy_s"),
        **summary_of(run),
    }


def sweep_json(run: "SweepRun", rows: bool = True) -> Iterator[str]:
    """One JSON document, piece by piece: rows are not held in memory together."""
    yield json_text(sweep_head(run), indent=2).removesuffix("\n}") + ',\n  "rows": ['
    mark = "\n"
    for row in run.rows() if rows else ():
        yield f"{mark}    {json_text(row)}"
        mark = ",\n"
    yield "\n  ]\n}\n"


def sweep_jsonl(run: "SweepRun") -> Iterator[str]:
    """One JSON object per task."""
    for row in run.rows():
        yield json_text(row) + "\n"


def sweep_csv(run: "SweepRun") -> Iterator[str]:
    """Header and one line per task; nested results get dotted names, lists are JSON in a cell."""
    cells = Cells(run)
    yield from csv_lines(cells, columns_of(cells))


@dataclass(frozen=True)
class Cells:
    """The cells of all rows, read anew each time they are gone through."""

    run: "SweepRun"

    def __iter__(self) -> Iterator[Row]:
        return cells_of(self.run.sweep, self.run.rows())


def cells_of(sweep: "Sweep", rows: Iterable["SweepRow"]) -> Iterator[Row]:
    """Rows as one level of names: the settings, which hide figures of their names, and figures."""
    varied = [*sweep.varied, *(["repeat"] if sweep.repeats > 1 else [])]
    for row in rows:
        own = {"task": row["task"], **{name: row["params"].get(name) for name in varied},
               "seed": row["seed"], "error": row["error"]}
        yield {**own, **flat(row["result"] or {}), **own}


def write_rows(run: "SweepRun", path: str) -> None:
    """All rows to a .csv, .jsonl or .parquet file. UsageError where it cannot be written."""
    if path.lower().endswith(".parquet"):
        write_parquet(Cells(run), Path(path))
        return
    pieces = sweep_csv(run) if path.lower().endswith(".csv") else sweep_jsonl(run)
    with writing(Path(path), newline="\n") as file:
        file.writelines(pieces)

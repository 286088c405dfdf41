"""The rows of a sweep: as text, CSV, JSON and JSON lines, always in the order of the definition.

Nothing here depends on where or in what order tasks ran, so the same sweep gives the same bytes.
"""

import csv
import io
import json
from collections.abc import Iterator
from difflib import get_close_matches
from itertools import islice
from typing import Any

from specsim.planning.sweep_run import SweepRun
from specsim.report.export_rows import flat
from specsim.report.tables import table

MAX_ROWS_SHOWN = 100
USUAL = {
    "simulate": ("output_tok_s", "tpot_s.mean", "ttft_s.p95", "acceptance_length",
                 "gain.output_tok_s"),
    "predict": ("output_tok_s", "tpot_s", "ttft_s", "speedup", "step_cost_ratio"),
}
DASH = "-"


def sweep_text(run: SweepRun, out: str | None = None) -> str:
    """One line per task (the first MAX_ROWS_SHOWN) and what became of all."""
    sweep = run.sweep
    columns = sweep.columns or USUAL[sweep.run]
    varied = [*sweep.varied, *(["repeat"] if sweep.repeats > 1 else [])]
    rows, known, reasons = [], set[str](), []
    for row in islice(run.rows(), MAX_ROWS_SHOWN):
        found = flat(row["result"] or {})
        known |= set(found)
        cells = [_cell(row["params"].get(name)) for name in varied]
        cells += [_cell(found.get(name)) for name in columns]
        if row["error"] is not None:
            if row["error"] not in reasons:
                reasons.append(row["error"])
            cells.append(f"refused ({reasons.index(row['error']) + 1})")
        else:
            cells.append("")
        rows.append(cells)
    shown = [name.removesuffix(".mean") for name in columns]
    blocks = []
    if rows:
        headers = [*varied, *shown, ""]
        blocks.append(table(headers, rows, left=0))
    if run.finished > len(rows):
        where = f"in {out}" if out else "with --out FILE or --csv"
        blocks.append(f"{run.finished - len(rows)} more rows {where}")
    blocks.append(_counts(run))
    notes = [f"refused ({i + 1}): {text}" for i, text in enumerate(reasons[:10])]
    notes += [f"note: {text}" for text in _unknown_columns(columns, known)]
    if notes:
        blocks.append("\n".join(notes))
    return "\n\n".join(blocks)


def _counts(run: SweepRun) -> str:
    text = f"{run.finished} of {run.sweep.count} tasks finished"
    if run.resumed:
        text += f", {run.resumed} of them before"
    if run.refused:
        text += f"; {run.refused} refused"
    if run.failed:
        text += f"; {run.failed} failed"
    if run.journal.path is not None:
        text += f"; journal: {run.journal.path}"
    return text


def _unknown_columns(columns: tuple[str, ...], known: set[str]) -> list[str]:
    """Columns that no result has."""
    notes = []
    for name in columns if known else ():
        if name not in known:
            near = get_close_matches(name, known, n=3, cutoff=0.5)
            hint = f"; near matches: {', '.join(near)}" if near else ""
            notes.append(f"no result has {name!r}{hint}")
    return notes


def _cell(value: Any) -> str:
    if value is None:
        return DASH
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.4g}"
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 40 else text[:37] + "..."


def sweep_json(run: SweepRun) -> Iterator[str]:
    """One JSON document, piece by piece: rows are not held in memory together."""
    head = {
        "kind": "sweep",
        **run.sweep.to_dict(),
        "tasks": run.sweep.count,
        "finished": run.finished,
        "resumed": run.resumed,
        "refused": run.refused,
        "failed": run.failed,
        "failures": run.failures,
        "interrupted": run.interrupted,
    }
    yield json.dumps(head, indent=2, allow_nan=False).removesuffix("\n}") + ',\n  "rows": ['
    mark = "\n"
    for row in run.rows():
        yield f"{mark}    {json.dumps(row, allow_nan=False)}"
        mark = ",\n"
    yield "\n  ]\n}\n"


def sweep_jsonl(run: SweepRun) -> Iterator[str]:
    """One JSON object per task."""
    for row in run.rows():
        yield json.dumps(row, allow_nan=False) + "\n"


def sweep_csv(run: SweepRun) -> Iterator[str]:
    """Header and one line per task; nested results get dotted names, lists are JSON in a cell."""
    varied = [*run.sweep.varied, *(["repeat"] if run.sweep.repeats > 1 else [])]
    found: dict[str, None] = {}
    for row in run.rows():
        found.update(dict.fromkeys(flat(row["result"] or {})))
    results = [name for name in found if name not in varied and name not in ("task", "seed")]
    names = ["task", *varied, "seed", "error", *results]
    names = list(dict.fromkeys(names))
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=names, lineterminator="\n", restval="")
    writer.writeheader()
    for row in run.rows():
        kept = {name: value for name, value in flat(row["result"] or {}).items()
                if name in results}
        cells = {
            **kept, "task": row["task"], "seed": row["seed"], "error": row["error"],
            **row["params"],
        }
        writer.writerow({
            name: json.dumps(value) if isinstance(value, dict | list) else value
            for name, value in cells.items()
        })
        yield out.getvalue()
        out.seek(0)
        out.truncate()
    if out.tell():
        yield out.getvalue()


def write_rows(run: SweepRun, path: str) -> None:
    """All rows to a .csv or .jsonl file. OSError as it comes."""
    pieces = sweep_csv(run) if path.lower().endswith(".csv") else sweep_jsonl(run)
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.writelines(pieces)

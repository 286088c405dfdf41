"""Rows of plain values to a file that other tools read: JSON, JSON Lines, CSV or Parquet.

The format follows the file's ending. Parquet needs pyarrow (the extra `parquet`); columns keep
their types there, nested values become JSON text. A file appears complete or not at all.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from specsim.errors import UsageError
from specsim.files import replacing, told, writing
from specsim.jsonable import json_text
from specsim.rows import Row, cell, columns_of, csv_lines

INSTALL_HINT = "pip install 'specsim-llm[parquet]'"


def check_export_path(path: str | Path, option: str = "--export") -> str:
    """The ending of a file that can be written; UsageError before any work is done."""
    suffix = Path(path).suffix.lower()
    if suffix not in WRITERS:
        raise UsageError(
            f"{option} is {str(path)[:80]!a}; it must end in {', '.join(WRITERS)}, which "
            "names the format"
        )
    if suffix == ".parquet":
        try:
            import pyarrow.parquet  # noqa: F401
        except ImportError:
            raise UsageError(
                f"{option} {str(path)[:80]!a}: writing Parquet needs pyarrow; {INSTALL_HINT}, "
                "or write .csv"
            ) from None
    return suffix


def write_rows(
    rows: Iterable[Row], path: str | Path, option: str = "--export",
    columns: Sequence[str] | None = None,
) -> None:
    """All rows to `path`. UsageError when its format is unknown or it cannot be written.

    columns: their names, where they are known: then CSV and JSON Lines are written as rows come,
    however many there are; otherwise all rows are looked at first.
    """
    target = Path(path)
    suffix = check_export_path(target, option)
    plain: Iterable[dict[str, object]] = (_plain(row) for row in rows)
    if columns is None:
        held = list(plain)
        plain, columns = held, columns_of(held)
    WRITERS[suffix](plain, columns, target)


def _plain(row: Row) -> dict[str, object]:
    """Numbers that no JSON or table holds become null."""
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in row.items()
    }


def _json(rows: Iterable[dict[str, object]], columns: Sequence[str], path: Path) -> None:
    with writing(path) as file:
        file.write(json_text(list(rows), indent=1) + "\n")


def _jsonl(rows: Iterable[dict[str, object]], columns: Sequence[str], path: Path) -> None:
    with writing(path) as file:
        file.writelines(json_text(row) + "\n" for row in rows)


def _csv(rows: Iterable[dict[str, object]], columns: Sequence[str], path: Path) -> None:
    with writing(path, newline="") as file:
        file.writelines(csv_lines(rows, columns))


def _parquet(rows: Iterable[dict[str, object]], columns: Sequence[str], path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    held = list(rows)
    table: dict[str, object] = {}
    for name in columns:
        values = [cell(row.get(name)) for row in held]
        kinds = {type(value) for value in values if value is not None}
        if kinds == {int, float}:
            values = [float(v) if isinstance(v, int | float) else None for v in values]
        elif len(kinds) > 1:  # a column of numbers and words ("inf"): text keeps both
            values = [None if value is None else str(value) for value in values]
        table[name] = pa.array(values)
    with told(path), replacing(path) as part:
        pq.write_table(pa.table(table), part)


Writer = Callable[[Iterable[dict[str, object]], Sequence[str], Path], None]
WRITERS: dict[str, Writer] = {
    ".json": _json, ".jsonl": _jsonl, ".csv": _csv, ".parquet": _parquet,
}

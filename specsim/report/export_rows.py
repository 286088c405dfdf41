"""Rows of plain values to a file that other tools read: JSON, JSON Lines, CSV or Parquet.

The format follows the file's ending. Parquet needs pyarrow (the extra `parquet`); columns keep
their types there, nested values become JSON text. A file appears complete or not at all.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path
from types import NoneType

from specsim.errors import UsageError
from specsim.files import replacing, told, writing
from specsim.jsonable import json_text, jsonable
from specsim.rows import Row, cell, columns_of, csv_lines

GROUP_ROWS = 10_000  # of a row group of Parquet
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
    plain: Iterable[Row] = ({key: jsonable(row[key]) for key in row} for row in rows)
    if columns is None:
        held = list(plain)
        plain, columns = held, columns_of(held)
    WRITERS[suffix](plain, columns, target)


def _json(rows: Iterable[Row], columns: Sequence[str], path: Path) -> None:
    with writing(path) as file:
        file.write(json_text(list(rows), indent=1) + "\n")


def _jsonl(rows: Iterable[Row], columns: Sequence[str], path: Path) -> None:
    with writing(path) as file:
        file.writelines(json_text(row) + "\n" for row in rows)


def _csv(rows: Iterable[Row], columns: Sequence[str], path: Path) -> None:
    with writing(path, newline="") as file:
        file.writelines(csv_lines(rows, columns))


def _parquet(rows: Iterable[Row], columns: Sequence[str], path: Path) -> None:
    write_parquet([{name: row.get(name) for name in columns} for row in rows], path)


def write_parquet(rows: Iterable[Row], path: Path) -> None:
    """rows: gone through twice, first for the types of the columns, which hold for the whole file;
    GROUP_ROWS of them are in memory at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds = _kinds(rows)
    known = {bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string()}
    schema = pa.schema([(name, known.get(kind, pa.null())) for name, kind in kinds.items()])
    with told(path), replacing(path) as part, pq.ParquetWriter(part, schema) as file:
        source = iter(rows)
        while held := list(islice(source, GROUP_ROWS)):
            columns = [[_typed(row.get(name), kind) for row in held]
                       for name, kind in kinds.items()]
            file.write(pa.table(columns, schema=schema))


def _kinds(rows: Iterable[Row]) -> dict[str, type]:
    """The type of each column's values: float for numbers of both kinds, text for a mixture."""
    found: dict[str, type] = {}
    for row in rows:
        for name, value in row.items():
            kind = str if isinstance(value, list | tuple | dict) else type(value)
            known = found.setdefault(name, NoneType)
            if known is NoneType:
                found[name] = kind
            elif kind not in (known, NoneType):
                found[name] = float if {kind, known} == {int, float} else str
    return found


def _typed(value: object, kind: type) -> object:
    if value is None or type(value) is kind:
        return value
    value = cell(value)
    return value if isinstance(value, kind) else kind(value)


Writer = Callable[[Iterable[Row], Sequence[str], Path], None]
WRITERS: dict[str, Writer] = {
    ".json": _json, ".jsonl": _jsonl, ".csv": _csv, ".parquet": _parquet,
}

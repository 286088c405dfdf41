"""Rows of plain values: nested results as one level, their columns, and CSV."""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence

from specsim.jsonable import json_text

Row = Mapping[str, object]


def flat(value: Row, path: str = "") -> dict[str, object]:
    """Nested objects as one row, keys joined by dots; lists stay."""
    out: dict[str, object] = {}
    for key, inner in value.items():
        name = f"{path}.{key}" if path else str(key)
        # Most values are plain ones, and the abstract class is slow to say so.
        if not isinstance(inner, float | str | None) and isinstance(inner, Mapping):
            out.update(flat(inner, name))
        else:
            out[name] = inner
    return out


def rows_at(document: Row, key: str) -> list[dict[str, object]]:
    """The rows that a document has under a key; none where it has no list there."""
    found = document.get(key)
    items = found if isinstance(found, list | tuple) else ()
    return [dict(item) for item in items if isinstance(item, Mapping)]


def texts_at(document: Row, key: str) -> tuple[str, ...]:
    """The texts that a document has under a key, one alone as one."""
    found = document.get(key)
    items = found if isinstance(found, list | tuple) else [found] if found else ()
    return tuple(str(item) for item in items)


def columns_of(rows: Iterable[Row]) -> list[str]:
    """All keys in order of appearance."""
    return list(dict.fromkeys(key for row in rows for key in row))


def printable(text: str) -> str:
    """Text for a terminal: line feeds stay, other control and invisible characters are written
    out, as names in files and answers of servers may hold what a terminal would obey."""
    return "".join(
        ch if ch.isprintable() or ch == "\n" else ascii(ch)[1:-1] for ch in text
    )


def plain_text(text: str) -> str:
    """A text as a cell of a table that people open in a spreadsheet: one that begins as a formula
    does gets an apostrophe in front, control characters, which a terminal would obey, are written
    out."""
    text = printable(text)
    if text[:1] not in ("=", "+", "-", "@"):
        return text
    try:
        float(text)
    except ValueError:
        return "'" + text
    return text


def cell(value: object) -> object:
    """A value that fits one cell: a nested one as JSON text."""
    return json_text(value) if isinstance(value, list | tuple | dict) else value


def csv_lines(rows: Iterable[Row], columns: Sequence[str]) -> Iterator[str]:
    """Header and one line per row, each when it is asked for; a row without a column has an empty
    cell, one with a further key is a ValueError."""
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, lineterminator="\n")
    writer.writerow({name: plain_text(name) for name in columns})
    for row in rows:
        yield out.getvalue()
        out.seek(0)
        out.truncate()
        cells = {key: cell(value) for key, value in row.items()}
        writer.writerow({
            key: plain_text(value) if isinstance(value, str) else value
            for key, value in cells.items()
        })
    yield out.getvalue()

"""Results as text tables for a terminal. Takes results, computes nothing but formatting."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from specsim.jsonable import json_text
from specsim.rows import Row, columns_of, csv_lines


@dataclass(frozen=True, slots=True)
class Table:
    """The first `left` columns hold words, the others figures. title: the line above; remarks: the
    lines below; indent: of the lines on a terminal."""

    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: int = 1
    title: str = ""
    indent: int = 0
    remarks: Sequence[str] = ()


def to_json(value: object) -> str:
    """JSON with stable order of keys as given; NaN and infinities are refused, not written."""
    return json_text(value, indent=2)


def printable(text: str) -> str:
    """Text for a terminal: line feeds stay, other control and invisible characters are written
    out, as names in files and answers of servers may hold what a terminal would obey."""
    return "".join(
        ch if ch.isprintable() or ch == "\n" else ascii(ch)[1:-1] for ch in text
    )


def to_csv(rows: Iterable[Row]) -> str:
    """CSV of flat dicts; nested values are written as JSON in their cell. Columns are the keys of
    all rows; a row without one has an empty cell."""
    items = list(rows)
    return "".join(csv_lines(items, columns_of(items))) if items else ""


def visible(text: object, limit: int = 600) -> str:
    """Text of untrusted names without control characters, of readable length."""
    out = "".join(ch if ch.isprintable() else " " for ch in str(text)[: limit + 1])
    return out if len(out) <= limit else out[: limit - 1] + "…"


def table(headers: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """A plain aligned table; the first `left` columns are left-aligned, the others right."""
    widths = [len(h) for h in headers]
    for row in rows:
        for i, cell in enumerate(row):
            widths[i] = max(widths[i], len(cell))

    def line(cells: Sequence[str]) -> str:
        parts = [
            cell.ljust(widths[i]) if i < left else cell.rjust(widths[i])
            for i, cell in enumerate(cells)
        ]
        return "  ".join(parts).rstrip()

    rule = "  ".join("-" * w for w in widths)
    return "\n".join([line(headers), rule, *(line(row) for row in rows)])


def seconds(value: float | None) -> str:
    """A time for people: us, ms or s with three figures; a dash for none."""
    if value is None or not math.isfinite(value):
        return "-"
    if value < 1e-3:
        return f"{value * 1e6:.0f} us"
    if value < 1:
        return f"{value * 1e3:.3g} ms" if value < 0.1 else f"{value * 1e3:.0f} ms"
    return f"{value:.3g} s"


def size(value: float) -> str:
    """Bytes in decimal units with three figures."""
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(value) >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value:.0f} B"


def work(value: float) -> str:
    """FLOP in decimal units with three figures."""
    for unit, scale in (("PFLOP", 1e15), ("TFLOP", 1e12), ("GFLOP", 1e9), ("MFLOP", 1e6)):
        if abs(value) >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value:.0f} FLOP"


def interval(pair: Sequence[float] | None, digits: str = ".2f") -> str:
    """A 90 % interval as 'low-high', or a dash."""
    if pair is None:
        return "-"
    return f"{pair[0]:{digits}}-{pair[1]:{digits}}"


def span(pair: Sequence[float] | None, digits: str = ".2f") -> str:
    """An interval in words: 1.40 to 1.85; a dash for none."""
    return "-" if pair is None else f"{pair[0]:{digits}} to {pair[1]:{digits}}"


def number(value: float | None, digits: int = 4) -> str:
    """A figure for people: few digits, thousands separated, a dash for none."""
    if value is None or not math.isfinite(value):
        return "-"
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 10**digits else f"{value:.{digits}g}"


def times(value: float | None) -> str:
    """A ratio: 1.62x; a dash for none."""
    return "-" if value is None else f"{value:.2f}x"


def percent(value: float | None, digits: int = 1) -> str:
    """A share: 12.3%; a dash for none."""
    return "-" if value is None else f"{value:.{digits}%}"


def bar(share: float, width: int = 24) -> str:
    """A bar whose length is `share` (0 to 1) of `width` characters."""
    return "#" * max(0, min(width, round(share * width)))

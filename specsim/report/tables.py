"""Results as text tables for a terminal. Takes results, computes nothing but formatting."""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from specsim.jsonable import json_text
from specsim.rows import Row, columns_of, csv_lines
from specsim.units import TIME, Scale


@dataclass(frozen=True, slots=True)
class Table:
    """The first `left` columns say what a row is. title: the line above; remarks: the lines below;
    indent: of the lines on a terminal; units: of the columns, '' for those without one; detail:
    how many of the last columns a narrow terminal leaves out."""

    headers: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: int = 1
    title: str = ""
    indent: int = 0
    remarks: Sequence[str] = ()
    units: Sequence[str] = ()
    detail: int = 0

    def words(self) -> frozenset[int]:
        """The columns that hold words, which begin at the left: the first ones, and all whose
        cells begin with a letter."""
        others = range(self.left, len(self.headers))
        return frozenset(range(self.left)) | {
            i for i in others
            if all(_is_word(row[i]) for row in self.rows) and any(row[i] for row in self.rows)
        }

    def titles(self) -> list[str]:
        """Headers with their units, where there is one line for both."""
        units = self.units or [""] * len(self.headers)
        return [f"{name}, {unit}" if unit else name
                for name, unit in zip(self.headers, units, strict=True)]

    def brief(self) -> "Table":
        """The table without its columns of detail and those in which nothing stands."""
        kept = [i for i in range(len(self.headers) - self.detail)
                if i < self.left or any(row[i] not in ("", "-") for row in self.rows)]
        return replace(
            self, headers=[self.headers[i] for i in kept], detail=0,
            rows=[[row[i] for i in kept] for row in self.rows],
            units=[self.units[i] for i in kept] if self.units else (),
        )

    def keys(self) -> int:
        """How many columns a part of a table that goes on below repeats."""
        return max(1, min(self.left, 2))


def _is_word(cell: str) -> bool:
    return cell in ("", "-") or cell[0].isalpha() or cell[0] in "#("


def to_json(value: object) -> str:
    """JSON with stable order of keys as given; NaN and infinities are refused, not written."""
    return json_text(value, indent=2)


def to_csv(rows: Iterable[Row]) -> str:
    """CSV of flat dicts; nested values are written as JSON in their cell. Columns are the keys of
    all rows; a row without one has an empty cell."""
    items = list(rows)
    return "".join(csv_lines(items, columns_of(items))) if items else ""


def visible(text: object, limit: int = 600) -> str:
    """Text of untrusted names without control characters, of readable length."""
    out = str(text)[: limit + 1]
    if not out.isprintable():
        out = "".join(ch if ch.isprintable() else " " for ch in out)
    return out if len(out) <= limit else out[: limit - 1] + "…"


def markdown(text: str) -> str:
    """A text that Markdown shows as it is, in one line."""
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", " ".join(text.split()))


def one_unit(values: Iterable[float | None], scale: Scale) -> tuple[str, float]:
    """The unit, with its factor, in which a column of values is read best: the one of the largest.
    Times stay in ms up to 10 s, as latencies are compared in ms."""
    known = [abs(v) for v in values if v is not None and math.isfinite(v)]
    most = float(f"{max(known, default=0.0):.3g}")
    least = 10 if scale is TIME else 1
    for unit, factor in scale[:-1]:
        if most >= (least * factor if factor == 1.0 else factor):
            return unit, factor
    return scale[-1]


def in_unit(value: float | None, factor: float) -> str:
    """A value of such a column, its unit left out: three figures, three decimals at most."""
    if value is None or not math.isfinite(value):
        return "-"
    value /= factor
    if abs(value) >= 99.95:
        return f"{value:,.0f}"
    if value == 0:
        return "0"
    if abs(value) < 0.0005:
        return "<0.001"
    return f"{value:.1f}" if abs(value) >= 9.995 else (
        f"{value:.2f}" if abs(value) >= 0.9995 else f"{value:.3f}")


def interval(pair: Sequence[float] | None, digits: str = ".2f") -> str:
    """A 90 % interval as 'low-high', or a dash."""
    if pair is None:
        return "-"
    return f"{pair[0]:{digits}}-{pair[1]:{digits}}"


def span(pair: Sequence[float] | None, digits: str | int = ".2f") -> str:
    """An interval in words: 1.40 to 1.85; a dash for none. digits: a format, or as of `number`."""
    if pair is None:
        return "-"
    low, high = (number(v, digits) if isinstance(digits, int) else f"{v:{digits}}" for v in pair)
    return f"{low} to {high}"


def number(value: float | None, digits: int = 4) -> str:
    """A figure for people: few digits, thousands separated, a dash for none."""
    if value is None or not math.isfinite(value):
        return "-"
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 10**digits else f"{value:,.{digits}g}"


def times(value: float | None) -> str:
    """A ratio: 1.62x; a dash for none."""
    return "-" if value is None else f"{value:.2f}x"


def percent(value: float | None, digits: int = 1) -> str:
    """A share: 12.3%; a dash for none."""
    return "-" if value is None else f"{value:.{digits}%}"


def bar(share: float, width: int = 24) -> str:
    """A bar whose length is `share` (0 to 1) of `width` characters."""
    return "#" * max(0, min(width, round(share * width)))

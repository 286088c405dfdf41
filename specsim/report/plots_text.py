"""Panels drawn with characters, for a terminal of any encoding.

Each series has a letter or sign of its own; lines are drawn by interpolation between their points
(on the axes as shown, so straight on logarithmic ones too). Colours are ANSI codes, if wanted.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

from specsim.report.plots import Panel, Series, Value

MARKS = "ox+*#@%&=sdv^<>"
FAINT = "."
COLOURS = (36, 33, 35, 32, 34, 31)  # ANSI foregrounds, by hue
WIDTH, HEIGHT = 78, 18
MARGIN = 9  # columns of the numbers beside the y axis


def panel_text(
    panel: Panel, width: int = WIDTH, height: int = HEIGHT, colour: bool = False
) -> str:
    """The panel in `height` lines of at most `width` columns, with title and legend above and
    below. Points that a logarithmic axis cannot show are left out."""
    columns, rows = max(20, width - MARGIN - 2), max(5, height)
    x_axis, y_axis = _axes(panel)
    cells: list[list[tuple[str, int | None]]] = [[(" ", None)] * columns for _ in range(rows)]
    for level, _ in panel.levels:
        place = y_axis.place(level, rows)
        if place is not None:
            for column in range(0, columns, 2):
                cells[rows - 1 - place][column] = ("-", None)
    marks = _marks(panel.series)
    for series in sorted(panel.series, key=lambda s: not s.faint):
        for x, y in _dots(series, x_axis, y_axis, columns):
            across, up = x_axis.place(x, columns), y_axis.place(y, rows)
            if across is not None and up is not None:
                cells[rows - 1 - up][across] = (marks[series.label], series.hue)
    left = _labels(y_axis, rows)
    lines = [panel.title, panel.y_label]
    for i in range(rows):
        text = "".join(_painted(mark, hue, colour) for mark, hue in cells[i])
        lines.append(f"{left.get(rows - 1 - i, ''):>{MARGIN}} |{text.rstrip()}".rstrip())
    lines.append(" " * MARGIN + " +" + "-" * columns)
    lines.append(" " * (MARGIN + 2) + _bottom(x_axis, columns))
    lines.append(" " * (MARGIN + 2) + f"{panel.x_label:^{columns}}")
    lines += _legend(panel, marks, colour, width)
    return "\n".join(line.rstrip() for line in lines)


class _Axis:
    """From values to cells."""

    def __init__(self, values: Sequence[Value], log: bool, from_zero: bool = False) -> None:
        self.log = log
        shown = [
            v for v in values if v is not None and math.isfinite(v) and (v > 0 or not log)
        ] or [1.0]
        low, high = min(shown), max(shown)
        if from_zero and not log:
            low = min(0.0, low)
        if high <= low:
            low, high = (low / 2, high * 2) if log else (low - 0.5, high + 0.5)
        self.low, self.high = low, high

    def scaled(self, value: float) -> float:
        """0 at the low end, 1 at the high end."""
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def value(self, share: float) -> float:
        if self.log:
            return float(self.low * (self.high / self.low) ** share)
        return self.low + share * (self.high - self.low)

    def place(self, value: float, cells: int) -> int | None:
        if not math.isfinite(value) or (self.log and value <= 0):
            return None
        share = self.scaled(value)
        return round(share * (cells - 1)) if -1e-9 <= share <= 1 + 1e-9 else None

    def ticks(self, count: int) -> list[float]:
        """Round values within the axis, about `count` of them."""
        if self.log:
            first, last = math.log2(self.low), math.log2(self.high)
            if last - first >= 3 * math.log2(10):
                powers = range(math.ceil(math.log10(self.low) - 1e-9),
                               math.floor(math.log10(self.high) + 1e-9) + 1)
                return [10.0**p for p in powers]
            step = max(1, math.ceil((last - first) / count))
            return [2.0**p for p in range(math.ceil(first - 1e-9), math.floor(last + 1e-9) + 1,
                                          step)] or [self.low, self.high]
        rough = (self.high - self.low) / count
        base = 10.0 ** math.floor(math.log10(rough))
        step_size = next(m * base for m in (1, 2, 5, 10) if m * base >= rough)
        start = math.ceil(self.low / step_size - 1e-9)
        end = math.floor(self.high / step_size + 1e-9)
        return [i * step_size for i in range(start, end + 1)]


def _axes(panel: Panel) -> tuple[_Axis, _Axis]:
    xs = [x for series in panel.series for x in series.x]
    ys = [y for series in panel.series for y in series.y]
    ys += [level for level, _ in panel.levels]
    return _Axis(xs, panel.log_x), _Axis(ys, panel.log_y, panel.from_zero)


def _marks(series: Sequence[Series]) -> dict[str, str]:
    free = iter(MARKS * (1 + len(series) // len(MARKS)))
    return {s.label: FAINT if s.faint else next(free) for s in series}


def _dots(
    series: Series, x_axis: _Axis, y_axis: _Axis, columns: int
) -> Iterator[tuple[float, float]]:
    """The points of a series; of a line also those between, one per column (dashed: every
    third)."""
    known = [
        (x, y) for x, y in zip(series.x, series.y, strict=True)
        if x is not None and y is not None and math.isfinite(x) and math.isfinite(y)
        and (x > 0 or not x_axis.log) and (y > 0 or not y_axis.log)
    ]
    if series.style != "points":
        every = 3 if series.style == "dashed" else 1
        for (xa, ya), (xb, yb) in pairwise(known):
            start, end = x_axis.place(xa, columns), x_axis.place(xb, columns)
            if start is None or end is None:
                continue
            a, b = y_axis.scaled(ya), y_axis.scaled(yb)
            for column in range(min(start, end) + 1, max(start, end)):
                if column % every == 0:
                    share = (column - start) / (end - start)
                    yield x_axis.value(column / (columns - 1)), y_axis.value(a + share * (b - a))
    yield from known


def _painted(mark: str, hue: int | None, colour: bool) -> str:
    if not colour or hue is None or mark == " ":
        return mark
    return f"\x1b[{COLOURS[hue % len(COLOURS)]}m{mark}\x1b[0m"


def _number(value: float) -> str:
    if value and (abs(value) >= 1e6 or abs(value) < 1e-3):
        return f"{value:.1e}"
    return f"{value:.4g}" if abs(value) < 1e4 else f"{value:.0f}"


def _labels(axis: _Axis, rows: int) -> dict[int, str]:
    """Numbers beside the y axis, by row from the bottom."""
    found: dict[int, str] = {}
    for tick in axis.ticks(max(2, rows // 4)):
        place = axis.place(tick, rows)
        if place is not None:
            found[place] = _number(tick)
    return found


def _bottom(axis: _Axis, columns: int) -> str:
    """Numbers below the x axis, none over another."""
    text = [" "] * columns
    free = 0
    for tick in axis.ticks(max(2, columns // 10)):
        place = axis.place(tick, columns)
        if place is None:
            continue
        word = _number(tick)
        start = max(0, min(place - len(word) // 2, columns - len(word)))
        if start >= free:
            text[start : start + len(word)] = word
            free = start + len(word) + 1
    return "".join(text)


def _legend(panel: Panel, marks: dict[str, str], colour: bool, width: int) -> list[str]:
    entries = [
        (f"{marks[s.label]} {s.label}", f"{_painted(marks[s.label], s.hue, colour)} {s.label}")
        for s in panel.series if s.keyed
    ]
    entries += [(f"- {label}", f"- {label}") for _, label in panel.levels if label]
    lines, line, used = [], "", 0
    for plain, painted in entries:
        if used and used + len(plain) + 3 > width:
            lines.append(line)
            line, used = "", 0
        gap = "   " if used else ""
        line += gap + painted
        used += len(gap) + len(plain)
    return [*lines, line] if line else lines

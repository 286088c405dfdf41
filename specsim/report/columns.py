"""Tables and curves from rows of JSON: a column is its title and how it writes one row."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from specsim.report.doc import Doc
from specsim.report.plots import Pairs, Series, Style
from specsim.report.tables import Table, in_unit, interval, number, one_unit
from specsim.units import TIME, Scale


@dataclass(frozen=True, slots=True)
class InUnit:
    """A column of one quantity: all rows in one unit, which stands under the title. read: a row's
    value, or the ends of its interval."""

    read: Callable[[Doc], Sequence[float | None] | None]
    scale: Scale

    def cells(self, rows: Sequence[Doc]) -> tuple[str, list[str]]:
        """(unit, one cell per row)."""
        found = [self.read(row) or (None,) for row in rows]
        unit, factor = one_unit((value for values in found for value in values), self.scale)
        return unit, ["-".join(in_unit(value, factor) for value in values) for values in found]


Cell = Callable[[Doc], str]
Column = tuple[str, Cell | InUnit]


def table_of(
    rows: Iterable[Doc], columns: Sequence[Column], left: int = 1, title: str = "",
    remarks: Sequence[str] = (), indent: int = 0, detail: int = 0,
) -> Table:
    """One line per row. left, detail: as of a `Table`."""
    found, units, cells = list(rows), [], []
    for _, write in columns:
        unit, column = write.cells(found) if isinstance(write, InUnit) else (
            "", [write(row) for row in found])
        units.append(unit)
        cells.append(column)
    return Table([name for name, _ in columns], list(zip(*cells, strict=True)), left, title,
                 indent, remarks, units if found else (), detail)


def time(key: str) -> InUnit:
    """A column of times."""
    return InUnit(lambda row: (row.maybe(key),), TIME)


def time_band(key: str) -> InUnit:
    """A column of 90 % intervals of times."""
    return InUnit(lambda row: row.pair(key), TIME)


def figure(key: str, shown: Callable[[float | None], str] = number) -> Cell:
    """A number written by `shown`."""
    return lambda row: shown(row.maybe(key))


def fixed(key: str, spec: str, none: str = "-") -> Cell:
    """A number by a format such as '.2f', without exponents."""

    def write(row: Doc) -> str:
        value = row.maybe(key)
        shown = none if value is None else f"{value:{',' if spec == '.0f' else ''}{spec}}"
        return number(value) if "e+" in shown else shown

    return write


def three(key: str) -> Cell:
    """A number of three figures, zeros kept, so that points stand below one another."""
    return lambda row: in_unit(row.maybe(key), 1.0)


def pays(row: Doc, key: str = "interval_90.speedup") -> str:
    """Whether speculation pays: yes or no where the whole 90 % interval says so, else unsure."""
    pair = row.pair(key)
    return "-" if pair is None else "yes" if pair[0] > 1 else "no" if pair[1] < 1 else "unsure"


def queued(clients: float, running: float) -> bool:
    """Whether fewer clients of a closed loop run at a time than there are."""
    return running < clients - 0.5


def waits(clients: float, running: float) -> str:
    """Clients of a closed loop, with a star where some of them wait."""
    return f"{clients:.15g}" + ("*" if queued(clients, running) else "")


def waiting(rows: Iterable[tuple[float, float]]) -> list[str]:
    """What the star of `waits` means, of (clients, running) by row; none where nobody waits."""
    found = [f"{running:,.0f} of {clients:,.15g}" for clients, running in rows
             if queued(clients, running)]
    return [f"* requests wait in a queue: {', '.join(found)} clients run at a time"] if found \
        else []


def word(key: str, default: str | None = None) -> Cell:
    """A text."""
    return lambda row: row.text(key, default)


def count(key: str) -> Cell:
    """A whole number as it is."""
    return lambda row: f"{row.number(key):.15g}"


def band(key: str, digits: str = ".2f") -> Cell:
    """A 90 % interval."""
    return lambda row: interval(row.pair(key), digits)


def curve(
    label: str, points: Sequence[Doc], x: str, y: str, hue: int = 0, style: Style = "line",
    *, interval: str = "", scale: float = 1.0,
) -> Series:
    """A curve of two keys of the points. interval: key of the band; scale: of y."""
    bands = [point.pair(interval) for point in points] if interval else []
    return Series(
        label, [point.number(x) for point in points],
        [None if (v := point.maybe(y)) is None else v * scale for point in points], hue, style,
        band=[b and (b[0] * scale, b[1] * scale) for b in bands],
    )


def pairs_of(
    name: str, rows: Sequence[Doc], scale: float, hue: int = 0, *, hollow: bool = False,
    label: str = "row", predicted: str = "predicted",
) -> Pairs:
    """Measured and predicted values of rows. label, predicted: their keys."""
    bands = [_scaled(row.maybe("low"), row.maybe("high"), scale) for row in rows]
    measured = [row.number("measured") * scale for row in rows]
    shown = [row.number(predicted) * scale for row in rows]
    texts = [
        f"{row.text(label, '-')}: measured {number(m)}, predicted {number(p)}"
        for row, m, p in zip(rows, measured, shown, strict=True)
    ]
    return Pairs(name, measured, shown, texts, bands, hue, hollow)


def _scaled(low: float | None, high: float | None, scale: float) -> tuple[float, float] | None:
    return None if low is None or high is None else (low * scale, high * scale)


def parity_columns(
    scale: float, predicted: str = "predicted", error: str = "error"
) -> list[Column]:
    """The numbers of such rows."""

    def shown(value: float | None) -> str:
        return "-" if value is None else number(value * scale)

    return [("measured", figure("measured", shown)), ("predicted", figure(predicted, shown)),
            ("error", fixed(error, "+.1%"))]

"""What a chart shows, apart from how it is drawn.

`plots_text` draws a panel with characters, `plots_file` a whole figure as SVG or PNG,
`html.charts` any chart as a Plotly figure with its numbers as a table.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from specsim.report.tables import Table

MOST_POINTS = 2000  # of one curve on a page
Style = Literal["line", "dashed", "points", "steps"]
Value = float | None
Size = Literal["", "low", "tall"]


@dataclass(frozen=True, slots=True)
class Series:
    """x and y of equal length. hue: which colour; series of one hue belong together (a context
    length with and without speculation). faint: background, drawn first. keyed: in the legend.
    band: (low, high) at each point, its 90 % interval. texts: said of each point."""

    label: str
    x: Sequence[Value]
    y: Sequence[Value]
    hue: int = 0
    style: Style = "line"
    faint: bool = False
    keyed: bool = True
    band: Sequence[Sequence[float] | None] = ()
    texts: Sequence[str] = ()

    def __post_init__(self) -> None:
        count = len(self.x)
        for values in (self.y, self.band or self.x, self.texts or self.x):
            if len(values) != count:
                raise ValueError(
                    f"the curve {self.label!r} has {len(values)} values at {count} places"
                )


@dataclass(frozen=True, slots=True)
class Panel:
    """Series over a common x axis. levels: (y, label) of horizontal lines; mark: (x, label) of a
    vertical one. words: what it shows, for a caption. share: y is a share of 1. by_point: at the
    pointer one point is described, not all of one x."""

    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    log_x: bool = False
    log_y: bool = False
    levels: tuple[tuple[float, str], ...] = ()
    from_zero: bool = False
    words: str = ""
    mark: tuple[float, str] | None = None
    share: bool = False
    by_point: bool = False
    size: Size = ""


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure: title, small print below it, panels."""

    title: str
    panels: "tuple[Panel | Bars | Heatmap, ...]"
    notes: tuple[str, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class Bars:
    """Bars by category, one group per series, beside or on top of each other. hues: colour of each
    group, if not one after the other. bands: 90 % intervals of the first group."""

    title: str
    words: str
    categories: Sequence[str]
    groups: Sequence[tuple[str, Sequence[Value]]]
    y_label: str
    stacked: bool = False
    horizontal: bool = False
    share: bool = False
    hues: Sequence[int] | None = None
    size: Size = ""
    bands: Sequence[Sequence[float] | None] = ()


@dataclass(frozen=True, slots=True)
class Waterfall:
    """Parts of a whole, one after another, down to their total. details: the table behind it;
    top: where the axis ends, the same for those that are compared."""

    title: str
    words: str
    parts: Sequence[tuple[str, float]]
    unit: str
    details: Table
    top: float
    size: Size = "tall"


@dataclass(frozen=True, slots=True)
class Pairs:
    """Measured and predicted values of one metric; band: 90% interval of the prediction. hollow:
    points that a fit has seen."""

    name: str
    measured: Sequence[float]
    predicted: Sequence[float]
    texts: Sequence[str]
    band: Sequence[Sequence[float] | None] = ()
    hue: int = 0
    hollow: bool = False

    def shown(self) -> bool:
        """Whether a logarithmic chart can show any point."""
        return any(m > 0 and p > 0 for m, p in zip(self.measured, self.predicted, strict=True))


@dataclass(frozen=True, slots=True)
class Parity:
    """Predicted over measured values, with the line of equality and a band around it. details: as
    of a waterfall."""

    title: str
    words: str
    items: Sequence[Pairs]
    unit: str
    details: Table
    size: Size = "tall"


@dataclass(frozen=True, slots=True)
class Heatmap:
    """A table of values as colours, with the text in each cell. middle: where the colours part, as
    at a ratio of 1."""

    title: str
    words: str
    columns: Sequence[str]
    rows: Sequence[str]
    values: Sequence[Sequence[Value]]
    texts: Sequence[Sequence[str]]
    size: Size = ""
    middle: Value = None
    x_label: str = ""
    y_label: str = ""


def thinned(count: int, most: int = MOST_POINTS) -> list[int]:
    """Positions of at most `most` of `count` points, evenly, first and last included."""
    if count <= most:
        return list(range(count))
    return sorted({round(i * (count - 1) / (most - 1)) for i in range(most)})


def with_ends(panel: Panel) -> Panel:
    """The panel in which the intervals of a series are dots at their ends."""
    return replace(panel, series=tuple(_ends(panel.series)))


def _ends(series: Sequence[Series]) -> Iterator[Series]:
    for item in series:
        yield item
        known = [(x, band) for x, band in zip(item.x, item.band, strict=bool(item.band)) if band]
        if known:
            yield Series(
                "90% interval", [x for x, band in known for _ in band],
                [end for _, band in known for end in band], style="points", faint=True,
            )

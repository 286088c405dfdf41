"""What a plot shows, apart from how it is drawn: panels of series over one x axis each.

`plots_text` draws a panel with characters, `plots_file` a whole figure as SVG or PNG.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

Style = Literal["line", "dashed", "points"]


@dataclass(frozen=True, slots=True)
class Series:
    """x and y of equal length. hue: which colour; series of one hue belong together (a context
    length with and without speculation). faint: background, drawn first. keyed: in the legend."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    hue: int = 0
    style: Style = "line"
    faint: bool = False
    keyed: bool = True


@dataclass(frozen=True, slots=True)
class Panel:
    """levels: (y, label) of horizontal lines."""

    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    log_x: bool = False
    log_y: bool = False
    levels: tuple[tuple[float, str], ...] = ()
    from_zero: bool = False


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure: title, small print below it, panels."""

    title: str
    panels: tuple[Panel, ...]
    notes: tuple[str, ...] = field(default=())

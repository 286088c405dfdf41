"""A picture as an SVG or PNG file, without a display.

Drawn by matplotlib (extra `plots`), with its object interface alone: no window system, no global
state. The same picture gives the same SVG, byte for byte: no dates, no random ids.
"""

import importlib
import math
from pathlib import Path
from typing import Any

from specsim.errors import UsageError
from specsim.files import replacing, told
from specsim.report.plots import Bars, Heatmap, Panel, Picture, Series

FORMATS = (".svg", ".png")
# Okabe and Ito's palette, told apart by colour-blind readers too.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
LEVELS = (":", "-.", "--")
PNG_DPI = 130
SMALL = 8.0  # letters of legends and notes
LEGEND_PAD = 4.5  # of the legend from the axes, in its font sizes


def check_plot(path: str | None) -> None:
    """Refuse a --plot that cannot be drawn before anything is computed."""
    if path is None:
        return
    if Path(path).suffix.lower() not in FORMATS:
        raise UsageError(
            f"--plot is {path[:60]!r}; the name must end in {' or '.join(FORMATS)}"
        )
    _matplotlib("matplotlib.figure")


def write_picture(picture: Picture, path: str) -> None:
    """Draw the picture into a file; its ending chooses the format."""
    check_plot(path)
    figure_class = _matplotlib("matplotlib.figure").Figure
    matplotlib = _matplotlib("matplotlib")
    count = len(picture.panels)
    across = 1 if count == 1 else 2
    down = -(-count // across)
    # As wide as a page of text, on which letters then keep their size.
    size = (8.8, 5.6) if count == 1 else (8.8, 3.5 * down + 0.5)
    settings = {
        "svg.hashsalt": "specsim",
        "svg.fonttype": "none",
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
    with matplotlib.rc_context(settings):
        figure = figure_class(figsize=size, layout="constrained")
        figure.suptitle(picture.title, fontsize=11)
        for i, panel in enumerate(picture.panels):
            wide = across == 2 and i + 1 == count and i % 2 == 0  # alone in its row
            axes = figure.add_subplot(down, across, (i + 1, i + 2) if wide else i + 1)
            if isinstance(panel, Bars):
                _draw_bars(axes, panel)
            elif isinstance(panel, Heatmap):
                _draw_map(axes, panel)
            else:
                _draw(axes, panel)
        if picture.notes:
            figure.supxlabel("\n".join(picture.notes), fontsize=SMALL, color="0.35")
        kind = Path(path).suffix.lower()[1:]
        metadata = {"Date": None} if kind == "svg" else {"Software": None}
        with told(path), replacing(Path(path)) as part:
            figure.savefig(part, format=kind, dpi=PNG_DPI, metadata=metadata)


def _draw_bars(axes: Any, chart: Bars) -> None:
    """Lying bars, the first category on top, groups side by side; the first one's intervals."""
    height = 0.6 / len(chart.groups)
    axes.set_title(chart.title, fontsize=9.5, loc="left")
    axes.set_xlabel(chart.y_label)
    places = range(len(chart.categories))
    axes.set_yticks(places, chart.categories, parse_math=False)
    for i, (name, found) in enumerate(chart.groups):
        values = [value or 0.0 for value in found]
        bands = [band or (value, value) for band, value in zip(
            chart.bands or [None] * len(values), values, strict=True)]
        reach = [[max(0.0, v - b[0]) for v, b in zip(values, bands, strict=True)],
                 [max(0.0, b[1] - v) for v, b in zip(values, bands, strict=True)]]
        axes.barh([p + (i - (len(chart.groups) - 1) / 2) * height for p in places], values,
                  color=PALETTE[i % len(PALETTE)], height=height, label=name,
                  xerr=reach if i == 0 and chart.bands else None,
                  error_kw={"ecolor": "0.25", "elinewidth": 1.2, "capsize": 3})
    axes.invert_yaxis()
    axes.grid(True, axis="x", color="0.9", linewidth=0.6)
    axes.set_axisbelow(True)
    if len(chart.groups) > 1:
        axes.legend(fontsize=SMALL, frameon=False)


def _draw(axes: Any, panel: Panel) -> None:
    axes.set_title(panel.title, fontsize=9.5, loc="left")
    axes.set_xlabel(panel.x_label)
    axes.set_ylabel(panel.y_label)
    if panel.log_x:
        _log(axes.set_xscale, axes.xaxis, [x for s in panel.series for x in s.x if x])
    if panel.log_y:
        _log(axes.set_yscale, axes.yaxis, [y for s in panel.series for y in s.y if y])
    for i, (level, label) in enumerate(panel.levels):
        axes.axhline(level, color="0.4", linewidth=0.9, linestyle=LEVELS[i % len(LEVELS)],
                     label=label or None)
    for series in panel.series:
        _draw_series(axes, series)
    if not panel.log_x and all(
            float(x).is_integer() for s in panel.series for x in s.x if x is not None):
        axes.xaxis.get_major_locator().set_params(integer=True)
    axes.grid(True, color="0.9", linewidth=0.6)
    axes.set_axisbelow(True)
    if panel.share:
        percent = _matplotlib("matplotlib.ticker").PercentFormatter(1.0)
        axes.yaxis.set_major_formatter(percent)
    if panel.from_zero and not panel.log_y:
        axes.set_ylim(bottom=0)
    if any(series.keyed for series in panel.series):
        # Below the title of the x axis, in points, so that no curve can lie under it.
        axes.legend(fontsize=SMALL, frameon=False, loc="upper left", bbox_to_anchor=(0, 0),
                    borderaxespad=LEGEND_PAD, ncols=2)


def _draw_map(axes: Any, chart: Heatmap) -> None:
    """Colours on both sides of `middle`, by how many times more or less; grey: nothing known."""
    middle = chart.middle or 1.0
    logs = [[math.nan if v is None else math.log(v / middle) for v in row] for row in chart.values]
    most = max((abs(v) for row in logs for v in row if not math.isnan(v)), default=0.0) or 1.0
    axes.pcolormesh(logs, cmap="PuOr_r", vmin=-most, vmax=most, edgecolors="white", linewidth=1.5)
    axes.set_facecolor("0.85")
    for i, row in enumerate(chart.texts):
        for j, text in enumerate(row):
            value = logs[i][j]
            dark = abs(value) > 0.6 * most
            axes.text(j + 0.5, i + 0.5, text, ha="center", va="center", fontsize=8,
                      color="white" if dark else "black")
    axes.set_xticks([j + 0.5 for j in range(len(chart.columns))], chart.columns)
    axes.set_yticks([i + 0.5 for i in range(len(chart.rows))], chart.rows)
    axes.set_title(chart.title, fontsize=9.5, loc="left")
    axes.set_xlabel(chart.x_label)
    axes.set_ylabel(chart.y_label)
    axes.tick_params(length=0)
    axes.invert_yaxis()


def _draw_series(axes: Any, series: Series) -> None:
    colour = PALETTE[series.hue % len(PALETTE)]
    label = series.label if series.keyed else None
    if series.style == "points":
        axes.scatter(
            series.x, series.y, s=12 if series.faint else 20, color=colour,
            alpha=0.4 if series.faint else 1.0, linewidths=0, label=label,
            zorder=1 if series.faint else 3,
        )
        return
    dashed, steps = series.style == "dashed", series.style == "steps"
    axes.plot(
        series.x, series.y, color=colour, linewidth=1.5, linestyle="--" if dashed else "-",
        drawstyle="steps-post" if steps else "default", marker="" if steps else "o",
        markersize=3, markerfacecolor="white" if dashed else colour, label=label,
        alpha=0.35 if series.faint else 1.0, zorder=2,
    )


def _log(set_scale: Any, axis: Any, values: list[float]) -> None:
    """A logarithmic axis with plain numbers: powers of 2 over a narrow range, else of 10."""
    ticker = _matplotlib("matplotlib.ticker")
    known = [value for value in values if value > 0]
    wide = bool(known) and max(known) / min(known) > 3000
    set_scale("log", base=10 if wide else 2)
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(ticker.NullLocator())


def _matplotlib(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise UsageError(
            "--plot needs matplotlib, which is not installed; pip install 'specsim-llm[plots]' "
            "(the plot in the terminal needs nothing)"
        ) from None

"""Charts as Plotly figures: plain dicts, colours by role (see `theme`), texts made harmless.

Nothing is computed here but positions on the paper. Plotly reads a few tags in texts; names from
result files are escaped, so that they appear as they are.
"""

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from specsim.report.html.elements import visible
from specsim.report.html.theme import DASHES, SEQUENTIAL, SERIES, SYMBOLS

MOST_POINTS = 2000  # of one curve; more are thinned evenly
Value = float | None
Spec = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Curve:
    """One curve or cloud. low, high: ends of its band. style: index of colour, dash and marker.
    texts: shown at the pointer, one per point. mode: lines, markers, lines+markers. dash: instead
    of the style's."""

    name: str
    x: Sequence[Value]
    y: Sequence[Value]
    low: Sequence[Value] | None = None
    high: Sequence[Value] | None = None
    style: int = 0
    texts: Sequence[str] | None = None
    mode: str = "lines+markers"
    step: bool = False
    dash: str | None = None


def plain(text: object, limit: int = 80) -> str:
    """A text that Plotly shows literally."""
    return html.escape(visible(text, limit), quote=False)


def axis(
    title: str, *, log: bool = False, zero: bool = False, share: bool = False, wide: bool = False
) -> Spec:
    """An axis. zero: from 0 on. share: ticks in percent. wide: a logarithmic one over so many
    decades that only powers of ten get a label."""
    out: Spec = {
        "title": {"text": plain(title), "standoff": 8, "font": {"size": 13}},
        "gridcolor": "@grid", "linecolor": "@line", "zerolinecolor": "@line",
        "tickcolor": "@line", "automargin": True,
    }
    if log:
        out |= {"type": "log", "dtick": 1 if wide else "D2", "minor": {"showgrid": False},
                "tickformat": ",~g"}
    else:
        out |= {"type": "linear"}
    if zero and not log:
        out["rangemode"] = "tozero"
    if share:
        out["tickformat"] = ".0%"
    return out


def layout(x: Spec, y: Spec, **more: Any) -> Spec:
    base: Spec = {
        "xaxis": x, "yaxis": y, "paper_bgcolor": "rgba(0,0,0,0)", "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"color": "@ink", "family": "system-ui, sans-serif", "size": 13},
        "margin": {"l": 56, "r": 16, "t": 12, "b": 48},
        "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom",
                   "traceorder": "normal"},
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": "@muted", "activecolor": "@link"},
        "hovermode": "x unified",
        "hoverlabel": {"bgcolor": "@card", "bordercolor": "@line", "font": {"color": "@ink"}},
        "separators": ".,",
    }
    return base | more


def thinned(count: int) -> list[int]:
    """Positions of at most MOST_POINTS of `count` points, evenly, first and last included."""
    if count <= MOST_POINTS:
        return list(range(count))
    return sorted({round(i * (count - 1) / (MOST_POINTS - 1)) for i in range(MOST_POINTS)})


def curves(
    items: Sequence[Curve],
    x_title: str,
    y_title: str,
    *,
    log_x: bool = False,
    log_y: bool = False,
    zero: bool = True,
    share: bool = False,
    level: tuple[float, str] | None = None,
    mark: tuple[float, str] | None = None,
    hover: str = "x unified",
) -> Spec:
    """Curves over a common axis. level: a horizontal line with its name; mark: a vertical one."""
    data: list[Spec] = []
    for item in items:
        data += [*_band(item), _curve(item)]
    shapes, notes = [], []
    if level is not None:
        shapes.append(_rule(x0=0, x1=1, xref="paper", y0=level[0], y1=level[0], yref="y"))
        notes.append(_note(level[1], x=0, xref="paper", xanchor="left", y=level[0], yref="y",
                           yanchor="bottom", log=log_y, axis="y"))
    if mark is not None:
        shapes.append(_rule(y0=0, y1=1, yref="paper", x0=mark[0], x1=mark[0], xref="x"))
        notes.append(_note(mark[1], y=1, yref="paper", yanchor="top", x=mark[0], xref="x",
                           xanchor="left", log=log_x, axis="x"))
    top = axis(y_title, log=log_y, zero=zero, share=share,
               wide=_wide([v for item in items for v in item.y]))
    across = axis(x_title, log=log_x, wide=_wide([v for item in items for v in item.x]))
    spec = layout(
        across, top, shapes=shapes, annotations=notes, hovermode=hover,
        showlegend=len(items) > 1,
    )
    return {"data": data, "layout": spec}


def _wide(values: Sequence[Value]) -> bool:
    known = [value for value in values if value is not None and value > 0]
    return bool(known) and max(known) > 2e3 * min(known)


def _rule(**place: Any) -> Spec:
    return {"type": "line", "line": {"color": "@muted", "width": 1, "dash": "dot"}, **place}


def _note(text: str, *, log: bool, axis: str, **place: Any) -> Spec:
    if log:
        place[axis] = math.log10(place[axis])
    return {"text": plain(text), "showarrow": False, "font": {"color": "@muted", "size": 12},
            "borderpad": 2, **place}


def _curve(item: Curve) -> Spec:
    keep = [
        i for i in thinned(len(item.x)) if item.x[i] is not None
    ]
    style = item.style % len(SERIES)
    out: Spec = {
        "type": "scatter", "name": plain(item.name, 60), "mode": item.mode,
        "x": [item.x[i] for i in keep], "y": [item.y[i] for i in keep],
        "line": {"color": f"@{SERIES[style]}", "width": 2, "dash": item.dash or DASHES[style]},
        "marker": {"color": f"@{SERIES[style]}", "symbol": SYMBOLS[style], "size": 8},
    }
    if item.step:
        out["line"]["shape"] = "hv"
    if item.low is not None and item.high is not None and (
        item.mode == "markers" or len(keep) == 1
    ):
        middle = [item.y[i] or 0.0 for i in keep]
        out["error_y"] = {
            "type": "data", "symmetric": False, "thickness": 1.5, "width": 4,
            "array": [_off(item.high[i], m, 1) for i, m in zip(keep, middle, strict=True)],
            "arrayminus": [_off(item.low[i], m, -1) for i, m in zip(keep, middle, strict=True)],
            "color": f"@{SERIES[style]}",
        }
    if item.texts is not None:
        out["text"] = [plain(item.texts[i], 200) for i in keep]
        out["hovertemplate"] = "%{text}<extra></extra>"
    return out


def _band(item: Curve) -> list[Spec]:
    if item.low is None or item.high is None:
        return []
    known = [
        i for i in thinned(len(item.x))
        if item.x[i] is not None and item.low[i] is not None and item.high[i] is not None
    ]
    if not known:
        return []
    if len(known) == 1 or item.mode == "markers":  # an area needs a curve
        return []
    style = SERIES[item.style % len(SERIES)]
    x = [item.x[i] for i in known]
    there = {"x": x, "type": "scatter", "mode": "lines", "line": {"width": 0}, "hoverinfo": "skip",
             "showlegend": False}
    return [
        {**there, "y": [item.high[i] for i in known]},
        {**there, "y": [item.low[i] for i in known], "fill": "tonexty",
         "fillcolor": f"@{style}-band"},
    ]


def bars(
    categories: Sequence[str],
    groups: Sequence[tuple[str, Sequence[Value]]],
    y_title: str,
    *,
    stacked: bool = False,
    horizontal: bool = False,
    share: bool = False,
    styles: Sequence[int] | None = None,
) -> Spec:
    """Bars per category, one group per series. stacked: on top of each other."""
    names = [plain(text) for text in categories]
    patterns = ("", "/", "x", ".", "-", "|", "+", "\\")
    data: list[Spec] = []
    for i, (name, values) in enumerate(groups):
        style = (styles[i] if styles else i) % len(SERIES)
        data.append({
            "type": "bar", "name": plain(name, 60),
            **({"y": names, "x": list(values), "orientation": "h"} if horizontal
               else {"x": names, "y": list(values)}),
            "marker": {"color": f"@{SERIES[style]}",
                       "pattern": {"shape": patterns[style], "bgcolor": f"@{SERIES[style]}",
                                   "fgcolor": "@card", "size": 7, "solidity": 0.2}},
        })
    amount = axis(y_title, zero=True, share=share)
    kinds = axis("") | {"type": "category"}
    if horizontal:
        kinds["autorange"] = "reversed"
    spec = layout(
        amount if horizontal else kinds, kinds if horizontal else amount,
        barmode="stack" if stacked else "group", showlegend=len(groups) > 1,
        hovermode="y unified" if horizontal else "x unified", bargap=0.25,
    )
    return {"data": data, "layout": spec}


def waterfall(names: Sequence[str], values: Sequence[float], y_title: str, scale: float) -> Spec:
    """Parts, one after another, down to their total. values in seconds, shown times `scale`."""
    labels = [plain(text, 40) for text in names] + ["total"]
    data = {
        "type": "waterfall", "orientation": "h", "y": labels,
        "x": [value * scale for value in values] + [None],
        "measure": ["relative"] * len(values) + ["total"],
        "connector": {"line": {"color": "@line", "width": 1}},
        "increasing": {"marker": {"color": "@a"}},
        "totals": {"marker": {"color": "@g"}},
        "hovertemplate": "%{y}: %{delta:.4g}<extra></extra>",
    }
    kinds = axis("") | {"type": "category", "autorange": "reversed", "dtick": 1}
    spec = layout(axis(y_title, zero=True), kinds, hovermode="closest", showlegend=False)
    return {"data": [data], "layout": spec}


@dataclass(frozen=True, slots=True)
class Pairs:
    """Measured and predicted values of one metric; low, high: 90 % interval of the prediction."""

    name: str
    measured: Sequence[float]
    predicted: Sequence[float]
    low: Sequence[Value]
    high: Sequence[Value]
    texts: Sequence[str]
    style: int = 0
    hollow: bool = False


def measured_predicted(items: Sequence[Pairs], unit: str, share: float) -> Spec:
    """Predicted over measured values on logarithmic axes, with the line of equality and a band of
    +- `share` around it."""
    known = [v for item in items for v in (*item.measured, *item.predicted) if v > 0]
    low, high = min(known) / 1.25, max(known) * 1.25
    ends = [low, high]
    edge = {"type": "scatter", "mode": "lines", "x": ends, "hoverinfo": "skip",
            "line": {"width": 0}, "showlegend": False}
    data: list[Spec] = [
        {**edge, "y": [v * (1 + share) for v in ends]},
        {**edge, "y": [v * (1 - share) for v in ends], "fill": "tonexty", "fillcolor": "@g-band",
         "name": f"within {share:.0%}", "showlegend": True},
        {"type": "scatter", "mode": "lines", "x": ends, "y": ends, "hoverinfo": "skip",
         "line": {"color": "@muted", "width": 1}, "name": "equal"},
    ]
    for item in items:
        keep = [i for i in thinned(len(item.measured))
                if item.measured[i] > 0 and item.predicted[i] > 0]
        ups = [_off(item.high[i], item.predicted[i], 1) for i in keep]
        downs = [_off(item.low[i], item.predicted[i], -1) for i in keep]
        style = item.style % len(SERIES)
        data.append({
            "type": "scatter", "mode": "markers", "name": plain(item.name, 60),
            "x": [item.measured[i] for i in keep], "y": [item.predicted[i] for i in keep],
            "text": [plain(item.texts[i], 200) for i in keep],
            "hovertemplate": "%{text}<extra></extra>",
            "marker": {"color": f"@{SERIES[style]}", "size": 8,
                       "symbol": SYMBOLS[style] + ("-open" if item.hollow else "")},
            **({"error_y": {"type": "data", "symmetric": False, "array": ups, "arrayminus": downs,
                            "thickness": 1, "width": 3, "color": f"@{SERIES[style]}"}}
               if any(ups) or any(downs) else {}),
        })
    wide = _wide(known)
    spec = layout(
        axis(f"measured{unit}", log=True, wide=wide),
        axis(f"predicted{unit}", log=True, wide=wide), hovermode="closest", showlegend=True,
    )
    return {"data": data, "layout": spec}


def _off(end: Value, middle: float, sign: int) -> float:
    return max(0.0, sign * (end - middle)) if end is not None else 0.0


def heatmap(
    columns: Sequence[str],
    rows: Sequence[str],
    values: Sequence[Sequence[Value]],
    texts: Sequence[Sequence[str]],
    title: str,
) -> Spec:
    """A table of values as colours, with the value in each cell."""
    steps = len(SEQUENTIAL) - 1
    data = {
        "type": "heatmap", "x": [plain(c, 40) for c in columns], "y": [plain(r, 40) for r in rows],
        "z": [list(row) for row in values],
        "text": [[plain(cell, 60) for cell in row] for row in texts],
        "texttemplate": "%{text}", "hovertemplate": "%{y}, %{x}: %{text}<extra></extra>",
        "colorscale": [[i / steps, colour] for i, colour in enumerate(SEQUENTIAL)],
        "colorbar": {"title": {"text": plain(title), "side": "right"}, "outlinewidth": 0},
        "xgap": 2, "ygap": 2,
    }
    across = axis("") | {"type": "category", "side": "top"}
    down = axis("") | {"type": "category", "autorange": "reversed"}
    return {"data": [data], "layout": layout(across, down, hovermode="closest")}

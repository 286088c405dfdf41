"""Charts as Plotly figures: plain dicts, colours by role (see `theme`), texts made harmless; and
the numbers of each as a table.

Nothing is computed here but positions on the paper. Plotly reads a few tags in texts; names from
result files are escaped, so that they appear as they are.
"""

import html
from collections.abc import Sequence

from specsim.report.blocks import Chart
from specsim.report.html.theme import DASHES, DIVERGING, SEQUENTIAL, SERIES, SYMBOLS
from specsim.report.plots import Bars, Heatmap, Panel, Parity, Series, Value, Waterfall, thinned
from specsim.report.tables import Table, number, percent, span, visible

MOST_NUMBERS = 60  # of one curve in the table
MOST_COLUMNS = 6  # of curves with their intervals beside one another
RULES = ("dot", "dashdot", "longdash")  # of levels and marks
PARITY_BAND = 0.1  # of the shaded area around equality
Spec = dict[str, object]


def figure(chart: Chart) -> Spec:
    """A chart as data and layout of Plotly."""
    match chart:
        case Panel():
            return _panel(chart)
        case Bars():
            return _bars(chart)
        case Waterfall():
            return _waterfall(chart)
        case Parity():
            return _parity(chart)
        case Heatmap():
            return _heatmap(chart)


def numbers(chart: Chart) -> Table:
    """The numbers of a chart."""
    match chart:
        case Panel():
            return _panel_numbers(chart)
        case Bars():
            shown = percent if chart.share else number
            names = [name for name, _ in chart.groups]
            columns = [[shown(value) for value in values] for _, values in chart.groups]
            if any(chart.bands):
                names.insert(1, "90%")
                columns.insert(1, [span(band, 4) for band in chart.bands])
            cells = zip(chart.categories, *columns, strict=True)
            return Table(["", *names], [list(row) for row in cells])
        case Waterfall() | Parity():
            return chart.details.brief()
        case Heatmap():
            rows = [[name, *row] for name, row in zip(chart.rows, chart.texts, strict=True)]
            return Table(["", *chart.columns], rows)


def _panel_numbers(panel: Panel) -> Table:
    """One row per x where all series share it, else one per point."""
    shown = percent if panel.share else number
    first = panel.series[0].x if panel.series else []
    banded = any(any(item.band) for item in panel.series)
    few = len(panel.series) * (1 + banded) <= MOST_COLUMNS
    if few and all(list(item.x) == list(first) and not item.texts for item in panel.series):
        headers = [panel.x_label]
        columns = [[number(x) for x in first]]
        for item in panel.series:
            headers.append(item.label)
            columns.append([shown(value) for value in item.y])
            if any(item.band):
                headers.append("90%")
                columns.append([_between(panel, band) for band in item.band])
        keep = thinned(len(first), MOST_NUMBERS)
        return Table(headers, [[column[i] for column in columns] for i in keep])
    rows = [
        [item.label, number(item.x[i]), shown(item.y[i]),
         *([_between(panel, item.band[i] if item.band else None)] if banded else []),
         *(item.texts[i : i + 1])]
        for item in panel.series if not item.faint
        for i in thinned(len(item.x), MOST_NUMBERS)
    ]
    said = any(item.texts for item in panel.series)
    headers = ["curve", panel.x_label, panel.y_label, *(["90%"] if banded else []),
               *(["point"] if said else [])]
    return Table(headers, [[*row, *[""] * (len(headers) - len(row))] for row in rows])


def _between(panel: Panel, band: Sequence[float] | None) -> str:
    if panel.share and band:
        return f"{percent(band[0])} to {percent(band[1])}"
    return span(band, 3)


def plain(text: object, limit: int = 80) -> str:
    """A text that Plotly shows literally."""
    return html.escape(visible(text, limit), quote=False)


def _axis(title: str, values: Sequence[Value] = (), *, log: bool = False, share: bool = False
          ) -> Spec:
    """An axis from 0 on, or a logarithmic one: over many decades only powers of ten have a
    label. share: ticks in percent."""
    out: Spec = {
        "title": {"text": plain(title), "standoff": 8, "font": {"size": 13}},
        "gridcolor": "@grid", "linecolor": "@line", "zerolinecolor": "@line",
        "tickcolor": "@line", "automargin": True,
        # Margins grow with labels: none lies past the edge, so none need be measured for it.
        "ticklabeloverflow": "allow",
    }
    if log:
        known = [value for value in values if value is not None and value > 0]
        wide = bool(known) and max(known) > 1e3 * min(known)
        out |= {"type": "log", "dtick": 1 if wide else "D2", "minor": {"showgrid": False},
                "tickformat": ",~g"}
    else:
        out |= {"type": "linear", "rangemode": "tozero"}
    return out | ({"tickformat": ".0%"} if share else {})


def _kinds(**more: object) -> Spec:
    """An axis of names."""
    return _axis("") | {"type": "category", **more}


def _layout(x: Spec, y: Spec, **more: object) -> Spec:
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


def _panel(panel: Panel) -> Spec:
    data: list[Spec] = []
    paired = any(item.style == "dashed" for item in panel.series)
    for item in panel.series:
        data += [*_band(item), _curve(item, paired)]
    shapes = [
        _rule(label, i, x0=0, x1=1, xref="paper", y0=level, y1=level, yref="y")
        for i, (level, label) in enumerate(panel.levels)
    ]
    if panel.mark is not None:
        where, label = panel.mark
        shapes.append(_rule(label, len(shapes), y0=0, y1=1, yref="paper", x0=where, x1=where,
                            xref="x"))
    across = [x for item in panel.series for x in item.x]
    bands = [end for item in panel.series for pair in item.band if pair for end in pair]
    up = [y for item in panel.series for y in item.y] + bands
    return {"data": data, "layout": _layout(
        _axis(panel.x_label, across, log=panel.log_x),
        _axis(panel.y_label, up, log=panel.log_y, share=panel.share),
        shapes=shapes, hovermode="closest" if panel.by_point else "x unified",
        showlegend=len(panel.series) > 1 or bool(shapes),
    )}


def _rule(label: str, number: int, **place: object) -> Spec:
    """A line that the legend explains, as a text beside it would stand on the curves."""
    return {"type": "line", "name": plain(label, 60), "showlegend": bool(label), "layer": "below",
            "line": {"color": "@muted", "width": 1.5, "dash": RULES[number % len(RULES)]}, **place}


def _curve(item: Series, paired: bool) -> Spec:
    """paired: curves of one hue differ by their dash, so that hues do not."""
    keep = [i for i in thinned(len(item.x)) if item.x[i] is not None]
    hue = item.hue % len(SERIES)
    dashed = item.style == "dashed"
    dash = ("dash" if dashed else "solid") if paired else DASHES[hue]
    mode = {"points": "markers", "steps": "lines"}.get(item.style, "lines+markers")
    out: Spec = {
        "type": "scatter", "name": plain(item.label, 60), "mode": mode,
        "x": [item.x[i] for i in keep], "y": [item.y[i] for i in keep],
        "line": {"color": f"@{SERIES[hue]}", "width": 2, "dash": dash,
                 **({"shape": "hv"} if item.style == "steps" else {})},
        "marker": {"color": f"@{SERIES[hue]}", "size": 8,
                   "symbol": SYMBOLS[hue] + ("-open" if dashed else "")},
    }
    if item.faint:
        out["opacity"] = 0.35
    if any(item.band) and (item.style == "points" or len(keep) == 1):
        out["error_y"] = _bars_of([item.y[i] or 0.0 for i in keep], [item.band[i] for i in keep],
                                  SERIES[hue], 1.5)
    if item.texts:
        out["text"] = [plain(item.texts[i], 200) for i in keep]
        out["hovertemplate"] = "%{x:.4~g}, %{y:.4~g}<br>%{text}"
    return out


def _bars_of(
    middles: Sequence[float], bands: Sequence[Sequence[float] | None], colour: str, width: float
) -> Spec:
    """Error bars from points to the ends of their intervals."""
    pairs = list(zip(middles, bands, strict=True))
    return {
        "type": "data", "symmetric": False, "thickness": width, "width": 4,
        "array": [max(0.0, band[1] - middle) if band else 0.0 for middle, band in pairs],
        "arrayminus": [max(0.0, middle - band[0]) if band else 0.0 for middle, band in pairs],
        "color": f"@{colour}",
    }


def _band(item: Series) -> list[Spec]:
    if not item.band or item.style == "points":
        return []
    found = [
        (item.x[i], band) for i in thinned(len(item.x))
        if item.x[i] is not None and (band := item.band[i])
    ]
    if len(found) < 2:  # an area needs a curve
        return []
    edge = {"x": [x for x, _ in found], "type": "scatter", "mode": "lines", "line": {"width": 0},
            "hoverinfo": "skip", "showlegend": False}
    return [
        {**edge, "y": [band[1] for _, band in found]},
        {**edge, "y": [band[0] for _, band in found], "fill": "tonexty",
         "fillcolor": f"@{SERIES[item.hue % len(SERIES)]}-band"},
    ]


def _bars(chart: Bars) -> Spec:
    names = [plain(text) for text in chart.categories]
    patterns = ("", "/", "x", ".", "-", "|", "+", "\\")
    data: list[Spec] = []
    for i, (name, values) in enumerate(chart.groups):
        hue = (chart.hues[i] if chart.hues else i) % len(SERIES)
        data.append({
            "type": "bar", "name": plain(name, 60),
            **({"y": names, "x": list(values), "orientation": "h"} if chart.horizontal
               else {"x": names, "y": list(values)}),
            "marker": {"color": f"@{SERIES[hue]}",
                       "pattern": {"shape": patterns[hue], "bgcolor": f"@{SERIES[hue]}",
                                   "fgcolor": "@card", "size": 7, "solidity": 0.2}},
            **({f"error_{'x' if chart.horizontal else 'y'}": _bars_of(
                [value or 0.0 for value in values], chart.bands, "ink", 1.5)}
               if i == 0 and any(chart.bands) else {}),
        })
    amount = _axis(chart.y_label, share=chart.share)
    kinds = _kinds(**({"autorange": "reversed"} if chart.horizontal else {}))
    return {"data": data, "layout": _layout(
        amount if chart.horizontal else kinds, kinds if chart.horizontal else amount,
        barmode="stack" if chart.stacked else "group", showlegend=len(chart.groups) > 1,
        hovermode="y unified" if chart.horizontal else "x unified", bargap=0.25,
    )}


def _waterfall(chart: Waterfall) -> Spec:
    data: Spec = {
        "type": "waterfall", "orientation": "h",
        "y": [*(plain(name, 40) for name, _ in chart.parts), "total"],
        "x": [*(value for _, value in chart.parts), None],
        "measure": ["relative"] * len(chart.parts) + ["total"],
        "connector": {"line": {"color": "@line", "width": 1}},
        "increasing": {"marker": {"color": "@a"}},
        "totals": {"marker": {"color": "@g"}},
        "hovertemplate": "%{y}: %{delta:.4g}<extra></extra>",
    }
    kinds = _kinds(autorange="reversed", dtick=1)
    amount = _axis(chart.unit) | {"range": [0, 1.03 * chart.top]}
    spec = _layout(amount, kinds, hovermode="closest", showlegend=False)
    return {"data": [data], "layout": spec}


def _parity(chart: Parity) -> Spec:
    known = [v for item in chart.items for v in (*item.measured, *item.predicted) if v > 0]
    ends = [min(known) / 1.25, max(known) * 1.25]
    edge = {"type": "scatter", "mode": "lines", "x": ends, "hoverinfo": "skip",
            "line": {"width": 0}, "showlegend": False}
    data: list[Spec] = [
        {**edge, "y": [v * (1 + PARITY_BAND) for v in ends]},
        {**edge, "y": [v * (1 - PARITY_BAND) for v in ends], "fill": "tonexty",
         "fillcolor": "@g-band", "name": f"within {PARITY_BAND:.0%}", "showlegend": True},
        {"type": "scatter", "mode": "lines", "x": ends, "y": ends, "hoverinfo": "skip",
         "line": {"color": "@muted", "width": 1}, "name": "equal"},
    ]
    for item in chart.items:
        keep = [i for i in thinned(len(item.measured))
                if item.measured[i] > 0 and item.predicted[i] > 0]
        hue = item.hue % len(SERIES)
        predicted = [item.predicted[i] for i in keep]
        data.append({
            "type": "scatter", "mode": "markers", "name": plain(item.name, 60),
            "x": [item.measured[i] for i in keep], "y": predicted,
            "text": [plain(item.texts[i], 200) for i in keep],
            "hovertemplate": "%{text}<extra></extra>",
            "marker": {"color": f"@{SERIES[hue]}", "size": 8,
                       "symbol": SYMBOLS[hue] + ("-open" if item.hollow else "")},
            **({"error_y": _bars_of(predicted, [item.band[i] for i in keep], SERIES[hue], 1)}
               if any(item.band) else {}),
        })
    unit = f", {chart.unit}" if chart.unit else ""
    spec = _layout(
        _axis(f"measured{unit}", known, log=True), _axis(f"predicted{unit}", known, log=True),
        hovermode="closest", showlegend=True,
    )
    return {"data": data, "layout": spec}


def _heatmap(chart: Heatmap) -> Spec:
    steps = len(SEQUENTIAL) - 1
    data: Spec = {
        "type": "heatmap", "x": [plain(name, 40) for name in chart.columns],
        "y": [plain(name, 40) for name in chart.rows], "z": [list(row) for row in chart.values],
        "text": [[plain(cell, 60) for cell in row] for row in chart.texts],
        "texttemplate": "%{text}", "hovertemplate": "%{y}, %{x}: %{text}<extra></extra>",
        "colorscale": [[i / steps, colour] for i, colour in enumerate(SEQUENTIAL)],
        "colorbar": {"title": {"text": plain(chart.title), "side": "right"}, "outlinewidth": 0},
        "xgap": 2, "ygap": 2,
    }
    if chart.middle is not None:
        data |= {"zmid": chart.middle, "colorscale": [[i / 2, c] for i, c in enumerate(DIVERGING)]}
    across = _kinds(side="top", title={"text": plain(chart.x_label)})
    down = _kinds(autorange="reversed", title={"text": plain(chart.y_label)})
    return {"data": [data], "layout": _layout(across, down, hovermode="closest")}

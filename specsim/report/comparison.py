"""What `specsim compare` says: who leads at each load, who is not told apart from it, what is left
out and why."""

from collections.abc import Sequence

from specsim.report import deployment as d
from specsim.report.blocks import Charts, Fold, Group, Lines, Notes, Section, Verdict
from specsim.report.columns import InUnit, count, figure, table_of, time, word
from specsim.report.doc import Doc
from specsim.report.plots import Bars, Panel, Picture, Series
from specsim.report.tables import Table, number, span, times
from specsim.units import TIME, counted, seconds

MOST_ROWS, MOST_CURVES, MOST_CHARTS = 40, 6, 4
MOST_BANDS = 2  # more of them on one chart hide one another
TITLES = {
    "throughput": "output tokens per second", "tpot": "time per output token (TPOT)",
    "throughput_per_gpu": "output tokens per second and GPU", "ttft": "time to first token (TTFT)",
    "cost": "cost of a million output tokens", "e2el": "end-to-end latency",
}


def comparison_section(doc: Doc) -> Section:
    """All blocks."""
    total = len(doc.items("deployments")) + len(doc.items("rejected"))
    loads = [load for load in doc.items("loads") if load.items("ranked")]
    return Section(f"{counted(total, 'deployment')} compared: {_title(doc)}", "Comparison", [
        Lines([f"{counted(total, 'deployment')} by {_title(doc)}"
               + (f"; within {doc.words('slo')}" if doc.members("slo") else "")]),
        Verdict([Lines([_answer(doc, load) for load in loads], "verdict")]) if loads else None,
        *(_table(doc, load) for load in loads),
        _left_out(doc),
        Notes([*doc.texts("warnings"), *_warnings(doc)]),
        Charts([*(_bars(doc, load) for load in loads[:MOST_CHARTS]), over_loads(doc)]),
        Fold("What was compared", [table_of(doc.items("deployments"), [
            ("deployment", word("name")), ("model", word("model")), ("weights", word("weights")),
            ("on", lambda row: f"{row.words('gpus')} x {row.text('gpu')}"),
            ("engine", d.engine_of), ("drafts", d.drafting),
        ], left=2)]),
    ])


def _title(doc: Doc) -> str:
    return TITLES.get(doc.text("objective"), doc.text("objective"))


def _at(doc: Doc, load: Doc) -> str:
    amount = load.number("load")
    return counted(amount, "client") if doc.text("load_unit") == "clients" else f"{amount:g}/s"


def _value(doc: Doc, value: float) -> str:
    unit = doc.text("unit")
    return seconds(value) if unit == "s" else f"{number(value, 3)} {unit}"


def _answer(doc: Doc, load: Doc) -> str:
    """Who leads, who may, and the first that is surely behind."""
    ranked = load.items("ranked")
    best, alike = ranked[0], ranked[0].texts("alike")
    told = f"{_at(doc, load)}: {best.text('name')}, {_value(doc, best.number('value'))}"
    if alike:
        shown = ", ".join(alike[:4]) + (f" and {len(alike) - 4} more" if len(alike) > 4 else "")
        told += f"; not told apart from it: {shown}"
    behind = next((row for row in ranked[1:] if row.text("name") not in alike), None)
    if behind is None:
        return told + ("; none is surely behind" if len(ranked) > 1 else "; no other is left")
    return (f"{told}; surely behind: {behind.text('name')}, {times(behind.maybe('of_best'))} of it "
            f"({span(behind.pair('of_best_90'))})")


def _table(doc: Doc, load: Doc) -> Table:
    ranked = load.items("ranked")
    timed, goal = doc.text("unit") == "s", doc.text("objective")
    value = [
        (goal, InUnit(lambda row: (row.maybe("value"),), TIME) if timed else figure("value")),
        ("90%", InUnit(lambda row: row.pair("interval_90"), TIME) if timed
         else lambda row: " to ".join(map(number, row.pair("interval_90") or ())) or "-"),
    ]
    also = {"tpot": ("TPOT", time("served.tpot_s")), "ttft": ("TTFT", time("served.ttft_s"))}
    more = len(ranked) - MOST_ROWS
    marks = [f"? {row.text('name')} may miss {', '.join(row.texts('served.slo_open'))}: within its "
             "90% interval" for row in ranked[:MOST_ROWS] if row.items("served.slo_open")]
    return table_of(ranked[:MOST_ROWS], [
        ("rank", count("rank")),
        ("deployment", lambda row: row.text("name") + (
            " ?" if row.items("served.slo_open") else "")),
        *value, ("of best", figure("of_best", times)),
        ("90%", lambda row: span(row.pair("of_best_90"))),
        *(column for key, column in also.items() if key != goal),
    ], left=2, detail=1, title=f"{_at(doc, load)}, in {doc.text('unit')}", remarks=[
        *marks, *([f"{counted(more, 'further row')} in --json"] if more > 0 else [])])


def _left_out(doc: Doc) -> Group | None:
    """Reasons, those of one load with it."""
    lines = [f"  {row.text('name')} ({row.text('kind')}): {row.text('reason')}"
             for row in doc.items("rejected")]
    lines += [f"  {row.text('name')} ({row.text('kind')}) at {_at(doc, load)}: "
              f"{row.text('reason')}" for load in doc.items("loads")
              for row in load.items("rejected")]
    more = [f"  and {len(lines) - MOST_ROWS} more in --json"] if len(lines) > MOST_ROWS else []
    return Group([Lines(["left out:", *lines[:MOST_ROWS], *more])]) if lines else None


def _warnings(doc: Doc) -> list[str]:
    """What is said of deployments: once, with the first that it is about."""
    first: dict[str, list[str]] = {}
    for row in doc.items("deployments"):
        for text in row.texts("warnings"):
            first.setdefault(text, []).append(row.text("name"))
    return [f"{names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''}: {text}"
            for text, names in first.items()]


# --- charts -------------------------------------------------------------------------------


def _bars(doc: Doc, load: Doc) -> Bars:
    """The ranked ones of a load with their intervals."""
    rows = load.items("ranked")[:MOST_ROWS]
    scale = 1e3 if doc.text("unit") == "s" else 1.0
    bands = [row.pair("interval_90") for row in rows]
    return Bars(
        f"{_at(doc, load)}: {_title(doc)}",
        "Lines are 90% intervals of each alone; whether two differ is in the ranks, where common "
        "errors cancel.", [f"{row.words('rank')}. {row.text('name')}" for row in rows],
        [(doc.text("objective"), [row.number("value") * scale for row in rows])],
        "ms" if scale > 1 else doc.text("unit"), horizontal=True,
        bands=[band and (band[0] * scale, band[1] * scale) for band in bands],
        size="tall" if len(rows) > 8 else "",
    )


def over_loads(doc: Doc) -> Panel | None:
    """The figure over the loads, a curve for each of those that lead; None for one load."""
    loads = doc.items("loads")
    if len(loads) < 2 or not any(load.items("ranked") for load in loads):
        return None
    order = dict.fromkeys(
        row.text("name") for rank in zip(*(_padded(loads)), strict=True) for row in rank if row)
    curves = []
    few = len(order) <= MOST_BANDS
    for hue, name in enumerate(list(order)[:MOST_CURVES]):
        found = [next((row for row in load.items("ranked") if row.text("name") == name), None)
                 for load in loads]
        curves.append(Series(
            name, [load.number("load") for load in loads],
            [row.number("value") if row else None for row in found], hue,
            band=[row.pair("interval_90") if row else None for row in found] if few else []))
    words = f"The first {MOST_CURVES} of {len(order)}." if len(order) > MOST_CURVES else ""
    if not few:
        words = f"{words} Their 90% intervals overlap: each has its bar at each load.".lstrip()
    return Panel(_title(doc), doc.text("load_unit"), doc.text("unit"), tuple(curves), log_x=True,
                 log_y=True, words=words)


def _padded(loads: Sequence[Doc]) -> list[list[Doc | None]]:
    """The ranked ones of every load, as many for each."""
    rows = [load.items("ranked") for load in loads]
    most = max(map(len, rows))
    return [[*found, *[None] * (most - len(found))] for found in rows]


def comparison_picture(doc: Doc) -> Picture:
    """Bars of every load that has a place, and the curves."""
    loads = [load for load in doc.items("loads") if load.items("ranked")]
    curves = over_loads(doc)
    panels: list[Bars | Panel] = [*(_bars(doc, load) for load in loads[:MOST_CHARTS - 1])]
    panels += [curves] if curves else []
    return Picture(f"Deployments by {_title(doc)}", tuple(panels), (
        "Lines are 90% intervals of each alone; in the ranks common errors cancel.",))

"""One prediction, or two side by side, as the page of `specsim explore` shows them: what is above
the charts, the charts, what is below them, and a table to paste."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from specsim.report import deployment as d
from specsim.report.blocks import Block, Charts, Group, Lines, Notes
from specsim.report.doc import Doc
from specsim.report.plots import Panel, Series
from specsim.report.predictions import (
    answers,
    axis,
    facts_of,
    intervals_table,
    points_table,
    speedup_panel,
    times_panel,
)
from specsim.report.tables import Table
from specsim.report.tables import markdown as escaped
from specsim.report.verdict import verdict_block

if TYPE_CHECKING:
    from specsim.analytic.predict import PredictionFigures

# A prediction and its JSON, by what its lines and curves begin with.
Named = Mapping[str, tuple["PredictionFigures", Doc]]


def above(doc: Doc, name: str = "") -> list[Block | None]:
    """What was decided, and what to type."""
    return [Lines([f"{name}{d.title_of(doc)}"], "lead"), verdict_block(doc, notes=False)]


def charts(found: Named) -> Charts:
    """Speedup, TPOT, TTFT and memory over the load."""
    docs = {name: doc for name, (_, doc) in found.items()}
    words = {"TPOT": "Time per output token after the first.",
             "TTFT": "Mean time to the first token, waiting included."}
    return Charts([
        _together({name: speedup_panel(doc) for name, doc in docs.items()}),
        *(_together({name: times_panel(doc, metric, text) for name, doc in docs.items()})
          for metric, text in words.items()),
        _together({name: memory_panel(*both) for name, both in found.items()}),
    ])


def below(doc: Doc, name: str = "") -> list[Block | None]:
    """Key figures, the numbers behind the charts, and every assumption."""
    notes = [*doc.texts("verdict.notes"), *doc.texts("warnings")]
    return [
        Lines([f"{name}{d.title_of(doc)}"], "lead"), facts_of(doc), points_table(doc),
        intervals_table(doc), Group([Lines(answers(doc)), Notes(notes)]), d.settings(doc),
    ]


def memory_panel(found: "PredictionFigures", doc: Doc) -> Panel:
    """Bytes of one GPU in use on average, over the load: all but the cache is held at any load."""
    plan, (unit, key) = found.system.memory, axis(doc)
    fixed = plan.weight_bytes + plan.drafter_bytes + plan.reserve_bytes
    each = plan.bytes_per_request(found.workload.mean_context)
    points = doc.items("points")
    used = Series("in use", [p.number(key) for p in points],
                  [(fixed + each * p.number("running")) / 1e9 for p in points])
    return Panel(
        "Memory of one GPU", unit, "GB", (used,), log_x=len(points) > 2, from_zero=True,
        levels=((plan.usable_bytes / 1e9, "the engine's share"), (fixed / 1e9, "all but cache")),
        words="Weights, drafter, reserve, and the mean cache of all requests that run. Requests "
              "wait where the curve stops rising.",
    )


def _together(panels: Mapping[str, Panel | None]) -> Panel | None:
    """Panels of several deployments as one, every curve with the name of its own."""
    known = {name: panel for name, panel in panels.items() if panel is not None}
    if len(panels) < 2 or not known:
        return next(iter(known.values()), None)
    shared = set.intersection(*(set(panel.levels) for panel in known.values()))
    series: list[Series] = []
    levels: list[tuple[float, str]] = []
    for turn, (name, panel) in enumerate(known.items()):
        series += [replace(item, hue=item.hue + 2 * turn,
                           label=name + item.label.removeprefix(f"{panel.title}, "))
                   for item in panel.series]
        levels += [level if level in shared else (level[0], name + level[1])
                   for level in panel.levels]
    return replace(
        next(iter(known.values())), series=tuple(series), levels=tuple(dict.fromkeys(levels)),
        mark=None, log_y=any(panel.log_y for panel in known.values()),
    )


def markdown(docs: Sequence[Doc]) -> str:
    """Titles, commands and tables to paste where Markdown is read."""
    parts: list[str] = []
    for doc in docs:
        parts += [f"**{escaped(d.title_of(doc))}**", f"`{doc.text('command')}`"]
        parts += [_markdown(table) for table in (points_table(doc), intervals_table(doc)) if table]
    return "\n\n".join(parts) + "\n"


def _markdown(table: Table) -> str:
    words = table.words()
    rules = [":--" if i in words else "--:" for i in range(len(table.headers))]
    return "\n".join(_row(cells) for cells in (table.titles(), rules, *table.rows))


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(escaped, cells))} |"

"""A few-shot calibration: what moved, what did not, errors before and after."""

from collections.abc import Sequence
from statistics import median

from specsim.report.blocks import Block, Charts, Command, Lines, Notes, Section
from specsim.report.columns import Cell, figure, fixed, pairs_of, parity_columns, table_of, word
from specsim.report.doc import Doc
from specsim.report.live import metric_value, unit_of
from specsim.report.plots import Parity
from specsim.report.tables import Table, percent
from specsim.units import counted, rounded, seconds


def fewshot_section(doc: Doc) -> Section:
    """All blocks."""
    return Section(f"Calibration of the engine: {_served(doc)}", "Calibration", [
        *_blocks(doc), Charts(_parities(doc.items("points"))), Notes(doc.texts("warnings")),
    ])


def _served(doc: Doc) -> str:
    words = (f"{doc.text('engine', '-')} {doc.text('engine_version', '-')} serving "
             f"{doc.text('model')} on {doc.text('gpu', '-')}")
    return words + (f", tp {doc.words('tp')}" if (doc.maybe("tp") or 1) > 1 else "")


def _blocks(doc: Doc) -> list[Block]:
    points = doc.items("points")
    still, unseen = ", ".join(doc.texts("not_moved")), ", ".join(doc.texts("unseen"))
    left = doc.text("kept", "")
    if still:
        left = left or f"these points say nothing about: {still} (left as the profile has it)"
    flags = doc.text("acceptance_flags", "")
    kept: Block = Lines(["not written; -o my-engine.toml keeps it"])
    if doc.has("written"):
        kept = Command(f"written: {doc.text('written')}; use it:", doc.text("command", ""))
    return [
        Lines([_served(doc)]),
        _parameters(doc),
        Lines([left] if left else []),
        Lines([f"no such point can show: {unseen}"] if unseen else []),
        table_of(points, [
            ("point", word("point")), ("side", word("side", "-")), ("metric", word("metric")),
            ("", word("split")), ("measured", _by_metric("measured")),
            ("before", _by_metric("before")), ("after", _by_metric("after")),
            ("error before", fixed("error_before", "+.1%")),
            ("error after", fixed("error_after", "+.1%")),
        ], left=4),
        *(Lines([_median(split, rows)]) for split in ("fitted", "held-out")
          if (rows := [row for row in points if row.text("split") == split])),
        Lines([f"acceptance of these runs: {flags}"] if flags else []),
        kept,
    ]


def _parameters(doc: Doc) -> Table:
    def shown(key: str) -> Cell:
        def write(row: Doc) -> str:
            name = row.text("name")
            if name.startswith("acceptance:") or name.endswith("_scale"):
                return f"{rounded(row.number(key))}"
            return seconds(row.number(key))

        return write

    return table_of(doc.items("parameters"), [
        ("parameter",
         lambda row: row.text("name").replace("acceptance:unknown", "accepted / drafted")),
        ("profile", shown("before")), ("fitted", shown("value")),
        ("prior sd", figure("sd_before", _whole)), ("sd", figure("sd", _whole)),
        ("moved", lambda row: "yes" if row.flag("moved") else "no"),
    ])


def _whole(value: float | None) -> str:
    return percent(value, 0)


def _by_metric(key: str) -> Cell:
    return lambda row: metric_value(row.text("metric"), row.number(key))


def _median(split: str, rows: Sequence[Doc]) -> str:
    before, after = (
        median(abs(row.number(key)) for row in rows) for key in ("error_before", "error_after")
    )
    values = counted(len(rows), f"{split} value")
    return f"median error of {values}: {before:.1%} before, {after:.1%} after"


def _parities(points: Sequence[Doc]) -> list[Parity]:
    """One chart per unit, before and after."""
    charts = []
    for unit, factor in dict.fromkeys(unit_of(p.text("metric")) for p in points):
        found = [p for p in points if unit_of(p.text("metric")) == (unit, factor)]
        items = [
            pairs_of("before", found, factor, 1, hollow=True, label="point", predicted="before"),
            pairs_of("after", found, factor, label="point", predicted="after"),
        ]
        details = table_of(found, [("point", word("point")), ("split", word("split")),
                                   *parity_columns(factor, "after", "error_after")], left=2)
        if any(item.shown() for item in items):
            charts.append(Parity(
                f"Predicted against measured{', ' + unit if unit else ''}",
                "On the line they are equal; the shaded band is 10% to either side. Hollow: "
                "before the calibration.", items, unit, details,
            ))
    return charts

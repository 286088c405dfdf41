"""What `specsim calibrate` says: of a fit of a hardware profile to records its peaks, parameters,
errors and what is not seen; of a few-shot fit of an engine what moved, and errors before and after.
"""

from collections.abc import Sequence
from statistics import median

from specsim.report.blocks import Block, Charts, Command, Lines, Notes, Section, Terms
from specsim.report.columns import (
    Cell,
    count,
    figure,
    fixed,
    pairs_of,
    parity_columns,
    table_of,
    word,
)
from specsim.report.doc import Doc
from specsim.report.live import metric_value, unit_of
from specsim.report.plots import Pairs, Parity
from specsim.report.tables import Table, number, percent
from specsim.units import counted, rounded, seconds

SHOWN = 8  # left-out shapes and reasons that the text lists
_WHERE = ("device", "software", "dates", "runs", "git_shas", "statistic", "excluded")


def records_section(doc: Doc) -> Section:
    """All blocks."""
    title = f"Calibration: {doc.text('profile', 'a profile')} from {doc.text('base', '-')}"
    return Section(title, "Calibration", [
        *_record_blocks(doc),
        Charts([_ledger(doc.at("ledger"))]),
        Terms("Where the figures are from",
              [(key, doc.words(key)) for key in _WHERE if doc.has(key)]),
    ])


def _record_blocks(doc: Doc) -> list[Block]:
    flops = ", ".join(f"{name} {value.number() / 1e9:.0f} GFLOP/s"
                      for name, value in doc.members("peaks.flops"))
    remarks = []
    for pair in doc.items("hardly_told_apart"):
        one, other, correlation = pair.items()
        remarks.append(f"Hardly told apart: {one.text()} and {other.text()} (correlation "
                       f"{correlation.number():+.2f})")
    remarks += [f"Left out: {counted(times.number(), 'point')}, {reason}"
                for reason, times in doc.members("excluded")]
    remarks += [f"{name}: the last line was cut short and is left out"
                for name in doc.texts("truncated_files")]
    unseen, files = ", ".join(doc.texts("not_seen")), ", ".join(doc.texts("files"))
    return [
        Lines([f"Calibrated on {doc.text('device.name', '?')}, starting from "
               f"{doc.text('base', '-')}"]),
        Lines([f"Peaks: memory {doc.number('peaks.mem_bytes_per_s') / 1e9:.1f} GB/s, {flops}"]),
        table_of(doc.items("parameters"), [
            ("parameter", word("parameter")), ("prior", _amount("prior")),
            ("fitted", _amount("value")), ("+-", lambda row: f"{100 * row.number('rel_sd'):.1f}%"),
            ("", lambda row: "" if row.flag("seen") else "not seen: prior kept"),
        ]),
        _errors(doc, [] if unseen else remarks),
        Lines([f"The data do not see: {unseen}", *remarks] if unseen else []),
        Lines([f"Written: {files}"] if files else []),
    ]


def _amount(key: str) -> Cell:
    def write(row: Doc) -> str:
        value = row.number(key)
        return f"{number(value * 1e6)} us" if value < 2e-3 else number(value)

    return write


def _errors(doc: Doc, remarks: Sequence[str]) -> Table:
    rows = [[f"fitted: {kind}", *_cells(found)] for kind, found in doc.members("fitted")]
    if doc.has("left_out_shapes.all"):
        rows.append(["shapes left out of the fit", *_cells(doc.at("left_out_shapes.all"))])
        worst = sorted(doc.members("left_out_shapes.by_shape"),
                       key=lambda item: -item[1].number("median_abs_error"))[:SHOWN]
        rows += [[f"  {name}", *_cells(found)] for name, found in worst]
    rows.append(["whole steps, not fitted", *_cells(doc.at("held_out_steps"))])
    return Table(
        ("points", "number", "median", "p90", "bias"), rows,
        title="Errors (median, 90th percentile of |predicted / measured - 1|):", remarks=remarks,
    )


def _cells(found: Doc) -> list[str]:
    if not found.has(""):
        return ["0", "-", "-", "-"]
    median, p90, bias = (found.number(key) for key in ("median_abs_error", "p90_abs_error", "bias"))
    return [count("count")(found), f"{100 * median:.1f}%", f"{100 * p90:.1f}%",
            f"{100 * bias:+.1f}%"]


# --- charts -------------------------------------------------------------------------------


def _ledger(ledger: Doc) -> Parity | None:
    items, rows = [], []
    for hue, (key, name) in enumerate((("fitted", "fitted"), ("held_out", "held-out steps"))):
        points = [(row.text("point", "-"), 1e3 * row.number("measured_s"), row.number("error"))
                  for row in ledger.items(key)]
        told = [[point, name, number(m), number(m * (1 + e)), percent(e)] for point, m, e in points]
        items.append(Pairs(
            name, [m for _, m, _ in points], [m * (1 + e) for _, m, e in points],
            [f"{point}: measured {m} ms, predicted {p} ms" for point, _, m, p, _ in told],
            hue=hue, hollow=key == "fitted",
        ))
        rows += told
    return Parity(
        "Predicted against measured, ms",
        "On the line they are equal; the shaded band is 10% to either side. Hollow: fitted "
        "points.", items, "ms",
        Table(["point", "split", "measured", "predicted", "error"], rows, left=2),
    ) if any(item.shown() for item in items) else None


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

"""A fit of a hardware profile to records: peaks, parameters, errors, what is not seen."""

from collections.abc import Sequence

from specsim.report.blocks import Block, Charts, Lines, Section, Terms
from specsim.report.columns import Cell, count, table_of, word
from specsim.report.doc import Doc
from specsim.report.plots import Pairs, Parity
from specsim.report.tables import Table, number, percent
from specsim.units import counted

SHOWN = 8  # left-out shapes and reasons that the text lists
_WHERE = ("device", "software", "dates", "runs", "git_shas", "statistic", "excluded")


def records_section(doc: Doc) -> Section:
    """All blocks."""
    title = f"Calibration: {doc.text('profile', 'a profile')} from {doc.text('base', '-')}"
    return Section(title, "Calibration", [
        *_blocks(doc),
        Charts([_ledger(doc.at("ledger"))]),
        Terms("Where the figures are from",
              [(key, doc.words(key)) for key in _WHERE if doc.has(key)]),
    ])


def _blocks(doc: Doc) -> list[Block]:
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

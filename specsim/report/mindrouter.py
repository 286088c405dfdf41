"""The MindRouter table: six endpoints, predicted beside reported."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from specsim.report.blocks import Group, Lines, Section
from specsim.report.columns import band, figure, fixed, table_of, time, word
from specsim.report.doc import Doc
from specsim.report.tables import times
from specsim.report.thresholds import PAYS, below

if TYPE_CHECKING:
    from specsim.analytic.mindrouter import ReportedEndpoint


def mindrouter_blocks(rows: "Sequence[ReportedEndpoint]") -> Section:
    """Predicted beside reported speedups, with the assumptions below."""
    first = rows[0].prediction.system
    head = (
        f"MindRouter cluster: predicted beside reported, one client, {first.profile.title}, "
        f"{first.engine.title or first.engine.name}, fidelity: {first.fidelity}"
    )
    return mindrouter_section(Doc({"table": [row.to_dict() for row in rows]}), head)


def mindrouter_section(
    doc: Doc, head: str = "Predicted beside reported, one client"
) -> Section:
    """All blocks. head: the title, which the live rows have and their JSON has not."""
    rows = doc.items("table")
    return Section("The MindRouter cluster: six endpoints", "MindRouter", [
        Lines([head]),
        table_of(rows, [
            ("model", word("model")), ("weights", word("weights", "-")),
            ("method", lambda row: f"{row.text('method')} k={row.words('k')}"),
            ("tokens/step", lambda row: f"{row.number('acceptance_length'):.2f}"
                                        f"{'*' if row.flag('acceptance_assumed') else ''}"),
            ("predicted", figure("predicted_speedup", times)), ("90 %", band("interval_90")),
            ("reported", lambda row: f"{row.number('reported_speedup'):.1f}x"),
            ("error", fixed("error", "+.0%")), ("plain step", time("baseline_step_s")),
            ("spec step", time("step_s")),
            (PAYS, lambda row: below(row.maybe("break_even_concurrency"))),
        ]),
        Group([
            Lines(["* acceptance assumed. What the report leaves out, and what stands in for it:"]),
            Lines([f"  {row.text('model')}: acceptance: "
                   f"{row.text('acceptance_source', 'not stated')}; {row.text('notes', '')}"
                   for row in rows]),
        ]),
    ])

"""The MindRouter table: six endpoints, predicted beside reported."""

from specsim.report.blocks import Group, Lines, Section
from specsim.report.columns import band, figure, fixed, table_of, time, word
from specsim.report.doc import Doc
from specsim.report.tables import times
from specsim.report.thresholds import PAYS, below


def mindrouter_section(doc: Doc) -> Section:
    """Predicted beside reported speedups, with the assumptions below."""
    rows = doc.items("table")
    return Section("The MindRouter cluster: six endpoints", "MindRouter", [
        Lines([doc.text("live.head", "Predicted beside reported, one client")]),
        table_of(rows, [
            ("model", word("model")), ("weights", word("weights", "-")),
            ("method", lambda row: f"{row.text('method')} k={row.words('k')}"),
            ("tokens/step", lambda row: f"{row.number('acceptance_length'):.2f}"
                                        f"{'*' if row.flag('acceptance_assumed') else ''}"),
            ("predicted", figure("predicted_speedup", times)), ("90%", band("interval_90")),
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

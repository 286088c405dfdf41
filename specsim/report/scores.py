"""Scores of predictions against published measurements; the MindRouter table: six endpoints,
predicted beside reported."""

from collections.abc import Sequence

from specsim.report.blocks import Charts, Group, Lines, Section
from specsim.report.columns import (
    band,
    figure,
    fixed,
    pairs_of,
    parity_columns,
    table_of,
    time,
    word,
)
from specsim.report.doc import Doc
from specsim.report.plots import Parity
from specsim.report.tables import Table, percent, times
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


NAMES = {
    "step_cost_ratio": "step-cost ratio r",
    "speedup": "speedup",
    "tpot": "TPOT",
    "ttft": "TTFT",
}
CLASSES = {"one": "one GPU", "several": "several GPUs"}
KIND_NAMES = {**NAMES, "tpot_plain": "plain TPOT", "tpot_speculative": "speculative TPOT"}


def error_cell(errors: Doc) -> str:
    """'median / p90 (bias, n)' of one quantity, or a dash."""
    if not errors.maybe("n"):
        return "-"
    return (
        f"{percent(errors.maybe('median_abs_error'))} / {percent(errors.maybe('p90_abs_error'))} "
        f"({errors.number('bias'):+.1%}, {errors.words('n')})"
    )


def published_section(doc: Doc) -> Section:
    """All blocks."""
    rows = []
    for name, scores in [("all", doc.at("overall")), *doc.members("sets")]:
        right = scores.maybe("sign_right")
        rows.append([
            name, *(error_cell(scores.at(quantity)) for quantity in NAMES),
            "-" if right is None else f"{right:.0%} of {scores.words('sign_n')}",
            percent(scores.maybe("interval_coverage")),
        ])
    skipped = [[reason, many.words()] for reason, many in doc.members("skipped")]
    judged = doc.items("judged")
    return Section("Validation against published measurements", "Published", [
        *_by_source(doc),
        Lines(["median / 90th percentile of the relative error (bias, number of values)"]),
        Table(["set", *NAMES.values(), "sign right", "in 90%"], rows),
        Charts(_parities(judged)),
        Table(["rows skipped, and why", "rows"], skipped) if skipped else None,
        table_of(judged, [
            ("row", word("row")), ("set", word("set")), ("quantity", word("quantity")),
            ("side", word("side")), ("predicted", fixed("predicted", ".4g")),
            ("measured", fixed("measured", ".4g")), ("error", fixed("error", "+.1%")),
        ], left=4) if doc.has("judged") else None,
    ])


def _by_source(doc: Doc) -> list[Lines | Table | None]:
    """What holds for the next source: medians over sources, signs, coverage."""
    if not doc.has("sources"):
        return []
    rows = [
        [KIND_NAMES.get(kind, kind), percent(found.maybe("median_of_medians")),
         found.words("sources"),
         f"{percent(found.maybe('worst_median'))} {found.text('worst_source')}"
         if found.has("worst_source") else "-"]
        for kind, found in doc.members("sources") if found.maybe("sources")
    ]
    signs = [
        f"{right:.0%} of {found.words('n')} {name} beyond 5% are predicted as such"
        for name, found in doc.members("signs")
        if (right := found.maybe("right")) is not None
    ]
    inside = [
        [KIND_NAMES.get(kind, kind), CLASSES.get(part, part), percent(found.maybe("inside")),
         found.words("n"), percent(found.maybe("inside_by_source")), found.words("sources")]
        for kind, parts in doc.members("coverage") for part, found in parts.members()
    ]
    return [
        Table(["median error", "of source medians", "sources", "worst of 5 values or more"], rows),
        Lines(signs) if signs else None,
        Table(["measured inside the 90% interval", "class", "of values", "values", "of sources",
               "sources"], inside, left=2) if inside else None,
    ]


def _parities(judged: Sequence[Doc]) -> list[Parity]:
    """One chart per quantity, one colour per set."""
    out = []
    for quantity in dict.fromkeys(row.text("quantity") for row in judged):
        factor, unit = (1e3, "ms") if quantity in ("tpot", "ttft") else (1.0, "")
        found = [row for row in judged if row.text("quantity") == quantity]
        items = [
            pairs_of(name, [row for row in found if row.text("set", "-") == name], factor, hue)
            for hue, name in enumerate(dict.fromkeys(row.text("set", "-") for row in found))
        ]
        if any(item.shown() for item in items):
            out.append(Parity(
                f"Predicted against measured: {NAMES.get(quantity, quantity)}",
                "On the line they are equal; the shaded band is 10% to either side.", items, unit,
                table_of(found, [("row", word("row")), ("set", word("set", "-")),
                                 *parity_columns(factor)], left=2),
            ))
    return out

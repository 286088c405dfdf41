"""Sections of `specsim diagnose` and `specsim calibrate`."""

from collections.abc import Sequence

from specsim.report.html import common
from specsim.report.html.charts import Pairs, bars, measured_predicted
from specsim.report.html.comparison import BAND, unit_of, words_of
from specsim.report.html.documents import Document, Node
from specsim.report.html.elements import (
    Child,
    Html,
    bullets,
    facts,
    fold,
    number,
    pairs,
    percent,
    table,
    tag,
)
from specsim.report.html.page import Page, notes
from specsim.report.tables import seconds

_LEVELS = {"problem": "bad", "good": "good"}


def diagnosis(page: Page, document: Document) -> None:
    """Add the section of a `specsim diagnose --json` document."""
    node = document.node
    blocks: list[Child] = [_diagnosis(item) for item in node.get("diagnoses").items()]
    skipped = [f"{item.get('file').text('-')}: {item.get('reason').text('-')}"
               for item in node.get("skipped").items()]
    page.section(
        "Diagnosis: what is happening", "Diagnosis", common.source_line(document), blocks,
        bullets(skipped), common.warnings(node),
    )


def _diagnosis(node: Node) -> Html:
    blocks: list[Child] = [tag("h3", node.get("source").text("-"))]
    for finding in node.get("findings").items():
        level = finding.get("level").text("notice")
        rows: list[list[Child]] = [
            [fact.get("what").text("-"), _value(fact), fact.get("source").text("-")]
            for fact in finding.get("evidence").items()
        ]
        blocks.append(tag(
            "div",
            tag("p", tag("span", level, class_=_LEVELS.get(level)), ": ",
                finding.get("verdict").text("-"), class_="verdict"),
            table(["evidence", "value", "known from"], rows, "Evidence") if rows else None,
            bullets(finding.get("next").texts()),
        ))
    if not node.get("findings").items():
        blocks.append(tag("p", "Nothing stands out in this evidence.", class_="verdict"))
    missing = [
        [item.get("what").text("-"), item.get("unjudged").text("-"), item.get("how").text("-")]
        for item in node.get("missing").items()
    ]
    if missing:
        blocks.append(fold("What the evidence lacks", table(
            ["missing", "could not be judged", "how to get it"], missing, "", left=3)))
    for key, title in (("measured", "Measured"), ("predicted", "Predicted")):
        found = list(node.get(key).members())
        if found:
            blocks.append(fold(title, pairs((name, words_of(value)) for name, value in found)))
    blocks.append(notes(node.get("warnings").texts()))
    return tag("div", blocks)


def _value(fact: Node) -> str:
    value, unit = fact.get("value"), fact.get("unit").text("")
    if isinstance(value.value, bool) or not isinstance(value.value, int | float):
        return words_of(value)
    amount = value.maybe()
    if unit == "s":
        return seconds(amount)
    if unit in ("share", "%"):
        return percent(amount) if unit == "share" else f"{number(amount)} %"
    return f"{number(amount)} {unit}".strip()


def calibration(page: Page, document: Document) -> None:
    """Add the section of `specsim calibrate --json`: of records, or of benchmark files."""
    node = document.node
    if "profile" in node:
        _of_records(page, document)
    else:
        _of_benchmarks(page, document)


def _of_records(page: Page, document: Document) -> None:
    node = document.node
    errors = [(key, node.get("fitted").get(key)) for key, _ in node.get("fitted").members()]
    rows: list[list[Child]] = [
        [item.get("parameter").text("-"), number(item.get("prior").maybe()),
         percent(item.get("prior_rel_sd").maybe()), number(item.get("value").maybe()),
         percent(item.get("rel_sd").maybe()),
         "yes" if item.get("seen").flag() else "no: the prior stands"]
        for item in node.get("parameters").items()
    ]
    held = node.get("held_out_steps")
    chart = page.chart(
        "Errors of the fit by kind of kernel", "Fitted points: median and 90th percentile.",
        bars([name for name, _ in errors],
             [("median", [e.get("median_abs_error").maybe() for _, e in errors]),
              ("90th percentile", [e.get("p90_abs_error").maybe() for _, e in errors])],
             "error", share=True),
        ["kind", "points", "median", "90th percentile", "bias"],
        [[name, number(e.get("count").maybe()), percent(e.get("median_abs_error").maybe()),
          percent(e.get("p90_abs_error").maybe()), percent(e.get("bias").maybe())]
         for name, e in errors],
    ) if errors else None
    page.section(
        f"Calibration: {node.get('profile').text('-')} from {node.get('base').text('-')}",
        "Calibration", common.source_line(document),
        facts([
            None if held.missing else
            ("Held-out steps, median error", percent(held.get("median_abs_error").maybe()),
             f"{number(held.get('count').maybe())} steps"),
            None if held.missing else
            ("90th percentile", percent(held.get("p90_abs_error").maybe()), "held-out steps"),
            ("Left-out shapes, median",
             percent(node.at("left_out_shapes.all.median_abs_error").maybe()), "each predicted "
             "from all others"),
        ]),
        tag("div", chart, _ledger(page, node), class_="grid"),
        table(["parameter", "prior", "its sd", "value", "sd", "seen by the data"], rows,
              "Parameters"),
        notes([f"the data do not see {name}" for name in node.get("not_seen").texts()]),
        fold("Where the figures are from", pairs(
            (key, words_of(node.get(key))) for key in
            ("device", "software", "dates", "runs", "git_shas", "statistic", "excluded")
            if key in node), opened=True),
    )


def _ledger(page: Page, node: Node) -> Html | None:
    items, lines = [], []
    for i, (key, name) in enumerate((("fitted", "fitted"), ("held_out", "held-out steps"))):
        known = []
        for row in node.at(f"ledger.{key}").items():
            measured = row.get("measured_s").number()
            error = row.get("error").number()
            known.append((row.get("point").text("-"), measured * 1e3, measured * (1 + error) * 1e3,
                          error))
        if not known:
            continue
        items.append(Pairs(
            name, [m for _, m, _, _ in known], [p for _, _, p, _ in known], [None] * len(known),
            [None] * len(known),
            [f"{point}: measured {number(m)} ms, predicted {number(p)} ms"
             for point, m, p, _ in known], i, key == "fitted",
        ))
        lines += [[point, name, number(m), number(p), percent(e)] for point, m, p, e in known]
    return _scatter(page, items, ", ms", lines, "fitted points")


def _scatter(
    page: Page, items: Sequence[Pairs], unit: str, lines: Sequence[Sequence[str]], hollow: str
) -> Html | None:
    if not any(m > 0 and p > 0 for item in items
               for m, p in zip(item.measured, item.predicted, strict=True)):
        return None
    return page.chart(
        f"Predicted against measured{unit}",
        f"On the line they are equal; the shaded band is 10 % to either side. Hollow: {hollow}.",
        measured_predicted(items, unit, BAND),
        ["point", "split", "measured", "predicted", "error"], lines, left=2, size="tall",
    )


def _of_benchmarks(page: Page, document: Document) -> None:
    node = document.node
    rows: list[list[Child]] = [
        [item.get("name").text("-"), number(item.get("before").maybe()),
         number(item.get("sd_before").maybe(), 2), number(item.get("value").maybe()),
         number(item.get("sd").maybe(), 2), "yes" if item.get("moved").flag() else "no"]
        for item in node.get("parameters").items()
    ]
    points = node.get("points").items()
    errors: list[list[Child]] = [
        [item.get("point").text("-"), item.get("metric").text("-"), item.get("split").text("-"),
         item.get("side").text("-"), number(item.get("measured").maybe()),
         number(item.get("before").maybe()), percent(item.get("error_before").maybe()),
         number(item.get("after").maybe()), percent(item.get("error_after").maybe())]
        for item in points
    ]
    charts = []
    for unit in dict.fromkeys(unit_of(p.get("metric").text("-")) for p in points):
        found = [p for p in points if unit_of(p.get("metric").text("-")) == unit]
        items = []
        for i, (key, name) in enumerate((("before", "before"), ("after", "after"))):
            items.append(Pairs(
                name, [p.get("measured").number() * unit[1] for p in found],
                [(p.get(key).maybe() or 0.0) * unit[1] for p in found], [None] * len(found),
                [None] * len(found),
                [f"{name}: {p.get('point').text('-')}, {p.get('metric').text('-')}, "
                 f"{p.get('split').text('-')}" for p in found], 1 - i, key == "before",
            ))
        lines = [[p.get("point").text("-"), p.get("split").text("-"),
                  number(p.get("measured").maybe()), number(p.get("after").maybe()),
                  percent(p.get("error_after").maybe())] for p in found]
        charts.append(_scatter(page, items, f", {unit[0]}" if unit[0] else "", lines,
                               "before the calibration"))
    page.section(
        f"Calibration of the engine: {common.deployment(node)}", "Calibration",
        common.source_line(document),
        tag("div", charts, class_="grid"),
        table(["point", "metric", "split", "side", "measured", "before", "error", "after",
               "error"], errors, "Errors before and after; held-out points were not fitted",
              left=4),
        table(["parameter", "before", "its sd", "value", "sd", "moved by the data"], rows,
              "Parameters"),
        tag("div", tag("h3", "The measured acceptance, as options"),
            tag("pre", tag("code", node.get("acceptance_flags").text(""))))
        if node.get("acceptance_flags").text("") else None,
        common.warnings(node),
    )

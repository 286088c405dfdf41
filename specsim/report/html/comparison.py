"""Sections that hold predictions against measurements: validation records, scores of published
rows, the MindRouter table."""

from collections.abc import Sequence

from specsim.report.html import common
from specsim.report.html.charts import Curve, Pairs, bars, curves, measured_predicted
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
    span,
    table,
    tag,
    times,
)
from specsim.report.html.page import Page

BAND = 0.1  # of the shaded area around equality
_ERRORS = ("median_abs_error", "p90_abs_error", "bias", "worst")


def validation(page: Page, document: Document) -> None:
    """Add the section of a comparison record: `specsim validate records|run|live|bench`."""
    node = document.node
    rows = node.get("rows").items()
    title = node.get("title").text("measured against predicted")
    held = [row for row in rows if row.get("split").text("held-out") != "fitted"]
    page.section(
        f"Validation: {title}", f"Validation: {title[:40]}",
        common.source_line(document),
        tag("p", f"{len(held)} held-out and {len(rows) - len(held)} fitted rows. Held-out rows "
                 "were not seen by any fit; only they judge the prediction.", class_="verdict"),
        _summary(page, node),
        tag("div", _scatters(page, rows), class_="grid"),
        _reasons(node),
        common.warnings(node),
        _provenance(node),
    )


def _summary(page: Page, node: Node) -> list[Child]:
    out: list[Child] = []
    for key, words in (("summary", "held-out rows"), ("fitted_summary", "fitted rows")):
        found = list(node.get(key).members())
        if not found:
            continue
        rows = [
            [metric, number(item.get("count").maybe()),
             *(percent(item.get(error).maybe()) for error in _ERRORS)]
            for metric, item in found
        ]
        heads = ["metric", "rows", "median error", "90th percentile", "bias", "worst"]
        block = table(heads, rows, f"Errors of the {words}: predicted / measured - 1")
        out.append(block if key == "summary" else fold("Errors of the fitted rows", block))
    return out


def unit_of(metric: str) -> tuple[str, float]:
    """(unit, factor to it) from a metric's name."""
    for ending, unit, factor in (
        ("_tok_s", "tokens per second", 1.0), ("tok_s", "tokens per second", 1.0),
        ("rate", "per second", 1.0), ("_s", "ms", 1e3),
    ):
        if metric.endswith(ending):
            return unit, factor
    parts = metric.split("_")
    if "s" in parts and "tok" not in parts:  # ttft_s_p95, tpot_s.p50
        return "ms", 1e3
    return "", 1.0


def _scatters(page: Page, rows: Sequence[Node]) -> list[Child]:
    """One chart per unit: metrics of one unit share axes."""
    units: dict[str, dict[tuple[str, str], list[Node]]] = {}
    for row in rows:
        metric = row.get("metric").text().split(".")[0]
        split = row.get("split").text("held-out")
        units.setdefault(unit_of(metric)[0], {}).setdefault((metric, split), []).append(row)
    return [_scatter(page, unit, groups) for unit, groups in units.items()]


def _scatter(
    page: Page, unit: str, groups: dict[tuple[str, str], list[Node]]
) -> Html | None:
    styles = {metric: i for i, metric in enumerate(dict.fromkeys(m for m, _ in groups))}
    items, lines = [], []
    # Held-out points last: they are drawn over the others.
    for (metric, split), rows in sorted(groups.items(), key=lambda item: item[0][1] != "fitted"):
        factor = unit_of(metric)[1]
        values = [(row.get("measured").number() * factor, row.get("predicted").number() * factor)
                  for row in rows]
        bounds = [[_times(row.get(end).maybe(), factor) for row in rows] for end in ("low", "high")]
        names = [row.get("name").text() for row in rows]
        whole = [row.get("metric").text() for row in rows]
        items.append(Pairs(
            f"{metric} ({split})", [m for m, _ in values], [p for _, p in values], bounds[0],
            bounds[1],
            [f"{name}, {what}: measured {number(m)}, predicted {number(p)} {unit}"
             for name, what, (m, p) in zip(names, whole, values, strict=True)],
            styles[metric], split == "fitted",
        ))
        for i, row in enumerate(rows):
            low, high = bounds[0][i], bounds[1][i]
            pair = (low, high) if low is not None and high is not None else None
            lines.append([
                names[i], whole[i], number(values[i][0]), number(values[i][1]),
                percent(row.get("error").maybe()), span(pair, ".4g") or "-", split,
                percent(row.get("spread").maybe()), row.get("note").text("") or "-",
            ])
    if not any(m > 0 and p > 0 for item in items
               for m, p in zip(item.measured, item.predicted, strict=True)):
        return None
    label = f", {unit}" if unit else ""
    many = ", ".join(dict.fromkeys(m for m, _ in groups))
    return page.chart(
        f"Predicted against measured{': ' + unit if unit else ''}",
        f"{many}. On the line they are equal; the shaded band is 10 % to either side; vertical "
        "bars are 90 % intervals of the prediction. Hollow points were fitted.",
        measured_predicted(items, label, BAND),
        ["situation", "metric", "measured", "predicted", "error", "90 % interval", "split",
         "spread of repeats", "note"], lines, left=2, size="tall",
    )


def _times(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _reasons(node: Node) -> Html | None:
    found = node.get("reasons").items()
    listed = bullets(
        f"{item.get('cause').text('-')}: {words_of(item.get('evidence'))}" for item in found
    )
    return tag("div", tag("h3", "What explains the gaps"), listed) if listed else None


def words_of(node: Node) -> str:
    """A value of any kind as words."""
    value = node.value
    if isinstance(value, dict):
        return "; ".join(f"{key} {words_of(item)}" for key, item in node.members())
    if isinstance(value, list):
        return ", ".join(words_of(item) for item in node.items()[:20])
    if isinstance(value, float):
        return number(value)
    return "-" if value is None else str(value)


def _provenance(node: Node) -> Html | None:
    found = list(node.get("provenance").members())
    if not found:
        return None
    return fold("Where the figures are from", pairs((key, words_of(item)) for key, item in found),
                opened=True)


_QUANTITIES = (
    ("step_cost_ratio", "step cost ratio"), ("speedup", "speedup"), ("tpot", "TPOT"),
    ("ttft", "TTFT"),
)


def published(page: Page, document: Document) -> None:
    """Add the section of `specsim validate published --json`."""
    node = document.node
    total = node.get("overall")
    sets = list(node.get("sets").members())
    names = [name for name, _ in sets]
    groups = [
        (label, [item.at(f"{key}.median_abs_error").maybe() for _, item in sets])
        for key, label in _QUANTITIES
    ]
    rows = [
        [name, number(item.get("n").maybe()),
         *(percent(item.at(f"{key}.median_abs_error").maybe()) for key, _ in _QUANTITIES),
         percent(item.get("sign_right").maybe()), percent(item.get("interval_coverage").maybe())]
        for name, item in [("all", total), *sets]
    ]
    chart = page.chart(
        "Median error by set", "Size of predicted / measured - 1, half of the rows are better.",
        bars(names, groups, "median error", share=True),
        ["set", "rows", *(label for _, label in _QUANTITIES), "gain or loss right",
         "inside the 90 % interval"], rows,
    ) if sets else None
    skipped = [[reason, number(count.maybe())] for reason, count in node.get("skipped").members()]
    page.section(
        "Validation against published measurements", "Published",
        common.source_line(document),
        facts([
            ("Rows", number(node.get("rows").maybe()), "read"),
            *((f"{label}, median error", percent(total.at(f"{key}.median_abs_error").maybe()),
               f"{number(total.at(f'{key}.n').maybe())} values") for key, label in _QUANTITIES),
            ("Gain or loss right", percent(total.get("sign_right").maybe()),
             f"{number(total.get('sign_n').maybe())} rows"),
        ]),
        chart,
        tag("div", _judged(page, node), class_="grid"),
        fold("Rows that were not predicted", table(["reason", "rows"], skipped, "By reason"))
        if skipped else None,
    )


def _judged(page: Page, node: Node) -> list[Child]:
    groups: dict[str, list[Node]] = {}
    for item in node.get("judged").items():
        groups.setdefault(item.get("quantity").text(), []).append(item)
    out: list[Child] = []
    for quantity, rows in groups.items():
        factor, unit = (1e3, ", ms") if quantity in ("tpot", "ttft") else (1.0, "")
        sets: dict[str, list[Node]] = {}
        for row in rows:
            sets.setdefault(row.get("set").text("-"), []).append(row)
        items, lines = [], []
        for i, (name, members) in enumerate(sets.items()):
            both = [(r.get("measured").number() * factor, r.get("predicted").number() * factor)
                    for r in members]
            labels = [r.get("row").text("-") for r in members]
            items.append(Pairs(name, [m for m, _ in both], [p for _, p in both],
                               [None] * len(both), [None] * len(both),
                               [f"{label}: measured {number(m)}, predicted {number(p)}"
                                for label, (m, p) in zip(labels, both, strict=True)], i))
            lines += [[label, name, number(m), number(p), percent(r.get("error").maybe())]
                      for label, (m, p), r in zip(labels, both, members, strict=True)]
        if any(m > 0 and p > 0 for item in items
               for m, p in zip(item.measured, item.predicted, strict=True)):
            out.append(page.chart(
                f"Predicted against measured: {quantity}",
                "On the line they are equal; the shaded band is 10 % to either side.",
                measured_predicted(items, unit, BAND),
                ["row", "set", "measured", "predicted", "error"], lines, left=2, size="tall",
            ))
    return out


def mindrouter(page: Page, document: Document) -> None:
    """Add the section of `specsim predict --json` without a model."""
    rows = document.node.get("table").items()
    names = [row.get("model").text() for row in rows]
    predicted = [row.get("predicted_speedup").maybe() for row in rows]
    bands = [row.get("interval_90").pair() for row in rows]
    places: list[float | None] = [float(i + 1) for i in range(len(rows))]
    spec = curves(
        [Curve("predicted, 90 % interval", places, predicted,
               [b[0] if b else None for b in bands], [b[1] if b else None for b in bands],
               mode="markers"),
         Curve("reported", places, [row.get("reported_speedup").maybe() for row in rows],
               style=1, mode="markers")],
        "", "speedup of one client", level=(1.0, "break-even"),
    )
    spec["layout"]["xaxis"] |= {"tickvals": places, "ticktext": [name[:22] for name in names]}
    chart = page.chart(
        "Predicted and reported speedup", "One client per endpoint.", spec,
        ["model", "method", "k", "tokens per step", "predicted", "90 % interval", "reported",
         "error", "r", "pays below"],
        [[name, row.get("method").text("-"), number(row.get("k").maybe()),
          number(row.get("acceptance_length").maybe(), 3), times(a), span(b) or "-",
          times(row.get("reported_speedup").maybe()), percent(row.get("error").maybe()),
          number(row.get("step_cost_ratio").maybe(), 3),
          number(row.get("break_even_concurrency").maybe())]
         for name, row, a, b in zip(names, rows, predicted, bands, strict=True)], left=2,
    )
    remarks = [(name, row.get("notes").text("")) for name, row in zip(names, rows, strict=True)]
    page.section(
        "The MindRouter cluster: six endpoints", "MindRouter", common.source_line(document), chart,
        fold("What the report leaves out and what stands in for it", pairs(remarks), opened=True),
    )

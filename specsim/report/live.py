"""Predictions beside measurements: what `specsim validate records`, `run`, `live` and `bench` find,
and what explains the gap."""

import math
from collections.abc import Sequence

from specsim.errors import UsageError
from specsim.report.blocks import Block, Charts, Fold, Lines, Notes, Section, Terms
from specsim.report.columns import figure, fixed, pairs_of, parity_columns, table_of, word
from specsim.report.doc import Doc
from specsim.report.plots import Bars, Parity, Picture
from specsim.report.tables import Table, percent, times
from specsim.units import rounded, seconds

_LABELS = {
    "output_tok_s": "output tok/s", "requests_per_s": "requests/s", "running_mean": "running",
    "waiting_mean": "waiting", "open_requests_mean": "open requests",
    "tokens_per_step": "tokens per step", "queue_mean_s": "queue mean",
}
_ACRONYMS = {"ttft": "TTFT", "tpot": "TPOT", "itl": "ITL", "e2el": "E2E", "moe": "MoE"}


def validation_section(doc: Doc) -> Section:
    """Head, one table with a block per point, errors by metric, causes, notes, charts."""
    title = doc.text("title", "measured against predicted")
    provenance = [(key, value.words()) for key, value in doc.members("provenance")]
    fitted = _summary(doc.at("fitted_summary"), "fitted")
    return Section(f"Validation: {title}", f"Validation: {title[:40]}", [
        Lines([title]), _rows(doc.items("rows")),
        _summary(doc.at("summary"), "held-out"), *_split(doc),
        Lines(_reasons(doc.items("reasons"))), Charts(_parities(doc.items("rows"))),
        Fold("Errors of the fitted rows", [fitted]) if fitted else None,
        Notes(doc.texts("warnings")),
        Terms("Where the figures are from", provenance) if provenance else None,
    ])


def validated_section(doc: Doc, rows_out: bool) -> Section:
    """What `validate records` and `run` print: errors by metric, the rows asked for, and the limits
    that a run must keep."""
    rows = table_of(doc.items("rows"), [
        ("point", word("name")), ("metric", word("metric")),
        ("measured", fixed("measured", ".5g")), ("predicted", fixed("predicted", ".5g")),
        ("error", fixed("error", "+.1%")), ("split", word("split")),
    ], left=2) if rows_out else None
    return Section("", "", [
        Lines([doc.text("title")]), _summary(doc.at("summary"), "held-out"),
        _summary(doc.at("fitted_summary"), "fitted"), rows, Notes(doc.texts("warnings")),
        _bars(doc) if doc.has("bars") else None,
    ])


def _bars(doc: Doc) -> Table:
    rows = [
        [metric_label(metric), item.words("count"), percent(item.maybe("median_abs_error")),
         percent(item.maybe("bar_median"), 0), percent(item.maybe("p90_abs_error")),
         percent(item.maybe("bar_p90"), 0), "inside" if item.flag("inside") else "outside"]
        for metric, item in doc.members("bars")
    ]
    return Table(("bar", "rows", "median", "limit", "p90", "limit", ""), rows)


def _split(doc: Doc) -> list[Block | None]:
    """The gap of every point as factors, and what the server was told to accept."""
    points, pinned = doc.items("split"), doc.at("pinned")
    told = [f"acceptance pinned at {pinned.words('length')} tokens per step: " + ", ".join(
        f"{point.words('acceptance_length')} at {point.text('name')}"
        for point in pinned.items("points"))] if pinned.has("length") else []
    if not points:
        return [Lines(told)]
    table = table_of(points, [
        ("point", word("name")), ("TPOT", figure("tpot", times)),
        ("step cost", figure("step_cost", times)), ("acceptance", figure("acceptance", times)),
        ("tok/s", figure("output_tok_s", times)), ("rest", figure("rest", times)),
        ("tokens/step", lambda row: f"{row.number('expected_tokens_per_step'):.2f} of "
                                    f"{row.number('tokens_per_step'):.2f}"),
    ], title="predicted / measured, with the tokens per step that were expected before: "
             "TPOT = step cost x acceptance, tok/s = rest / TPOT",
        remarks=["tokens/step: expected, of measured"])
    return [Lines(told), table, Charts([_parts(points)])]


def _parts(points: Sequence[Doc]) -> Bars:
    """The logarithms of the factors, which add up."""
    parts = (("TPOT", "tpot"), ("= step cost", "step_cost"), ("+ acceptance", "acceptance"))
    names = [f"{i + 1}. {point.text('name')}" if len(
        {p.text("name") for p in points}) < len(points) else point.text("name")
        for i, point in enumerate(points)]
    logs = [(title, [math.log(point.number(key)) for point in points]) for title, key in parts]
    return Bars(
        "What the gap in TPOT is made of", "Logarithms of predicted / measured: the parts add up. "
        "Below 0: predicted faster than measured.", names, logs, "ln(predicted / measured)",
        horizontal=True)


def split_picture(doc: Doc) -> Picture:
    """What the gaps are made of."""
    points = doc.items("split")
    if not points:
        raise UsageError("nothing is drawn: no point has times per token and tokens per step")
    title = doc.text("title", "predicted against measured").partition(" beside ")[0]
    return Picture(title[:90], (_parts(points),))


def metric_label(metric: str) -> str:
    """'ttft_p95_s' -> 'TTFT p95', 'gemm_s' -> 'gemm'."""
    if metric in _LABELS:
        return _LABELS[metric]
    name, _, stat = metric.removesuffix("_s").replace("_s_", "_").partition("_")
    label = _ACRONYMS.get(name, name)
    return f"{label} {stat.replace('_', ' ')}".strip()


def metric_value(metric: str, value: float) -> str:
    """A time with its unit, another figure with three digits."""
    timed = metric.endswith("_s") and "tok" not in metric and "per_s" not in metric
    return seconds(value) if timed else rounded(value)


def _rows(rows: Sequence[Doc]) -> Table:
    cells: list[list[str]] = []
    spread = any(row.has("spread") for row in rows)
    last = ""
    for row in rows:
        name = row.text("name") if row.text("name") != last else ""
        metric = row.text("metric")
        if name and cells:
            cells.append([""] * (7 if spread else 6))
        last = row.text("name")
        low, high = row.maybe("low"), row.maybe("high")
        between = ""
        if low is not None and high is not None:
            between = f"{metric_value(metric, low)} to {metric_value(metric, high)}"
        line = [
            name + (" (fitted)" if name and row.text("split", "") == "fitted" else ""),
            metric_label(metric), metric_value(metric, row.number("measured")),
            metric_value(metric, row.number("predicted")), fixed("error", "+.1%")(row), between,
        ]
        if spread:
            line.insert(3, fixed("spread", ".1%", "")(row))
        cells.append(line)
    head = ["point", "", "measured", "predicted", "error", "90%"]
    if spread:
        head.insert(3, "spread")
    return Table(head, cells, left=2)


def _summary(summary: Doc, split: str) -> Table | None:
    rows = [
        [metric_label(metric), item.words("count"), percent(item.maybe("median_abs_error")),
         percent(item.maybe("p90_abs_error")), fixed("bias", "+.1%")(item),
         fixed("worst", "+.1%")(item)]
        for metric, item in summary.members()
    ]
    headers = [f"error, {split} points", "n", "median", "p90", "bias", "worst"]
    return Table(headers, rows) if rows else None


def _reasons(reasons: Sequence[Doc]) -> list[str]:
    lines = ["what explains the gap in the time of a request:"] if reasons else []
    for reason in reasons:
        cause, share = reason.text("cause"), reason.maybe("share")
        told = reason.words("evidence")
        if share is not None and cause != "unexplained":
            words = f"{share:.0%} alone, but nothing further with those above"
            if reason.flag("explains"):
                words = (f"{share:.0%} of the gap alone, {reason.number('gap_after'):.1%} left "
                         "with those above")
            told = f"{words}. {told}"
        lines.append(f"  {cause}: {told}")
    return lines


# --- charts -------------------------------------------------------------------------------


def unit_of(metric: str) -> tuple[str, float]:
    """(unit, factor to it) from a metric's name."""
    for ending, unit, factor in (
        ("tok_s", "tokens per second", 1.0), ("rate", "per second", 1.0), ("_s", "ms", 1e3),
    ):
        if metric.endswith(ending):
            return unit, factor
    parts = metric.split("_")
    if "s" in parts and "tok" not in parts:  # ttft_s_p95, tpot_s.p50
        return "ms", 1e3
    return "", 1.0


def _parities(rows: Sequence[Doc]) -> list[Parity]:
    """One chart per unit: metrics of one unit share axes."""
    units: dict[tuple[str, float], dict[str, list[Doc]]] = {}
    for row in rows:
        metric = row.text("metric").split(".")[0]
        units.setdefault(unit_of(metric), {}).setdefault(metric, []).append(row)
    charts = []
    for (unit, factor), metrics in units.items():
        items = [
            pairs_of(f"{metric} ({split})", found, factor, hue, label="name",
                     hollow=split == "fitted")
            for split in ("fitted", "held-out")  # held-out points are drawn over the others
            for hue, (metric, members) in enumerate(metrics.items())
            if (found := [row for row in members
                          if (row.text("split", "") == "fitted") is (split == "fitted")])
        ]
        details = table_of([row for members in metrics.values() for row in members], [
            ("situation", word("name")), ("metric", word("metric")), *parity_columns(factor),
            ("split", word("split", "held-out")), ("spread", figure("spread", percent)),
            ("note", word("note", "")),
        ], left=2)
        if any(item.shown() for item in items):
            charts.append(Parity(
                f"Predicted against measured{': ' + unit if unit else ''}",
                f"{', '.join(metrics)}. On the line they are equal; the shaded band is 10% to "
                "either side; vertical bars are 90% intervals of the prediction. Hollow points "
                "were fitted.", items, unit, details,
            ))
    return charts

"""The text of `specsim validate live` and `bench`: measured beside predicted, and what explains
the gap."""

import textwrap
from typing import Any

from specsim.report.tables import seconds, table

_LABELS = {
    "output_tok_s": "output tok/s", "requests_per_s": "requests/s", "running_mean": "running",
    "waiting_mean": "waiting", "open_requests_mean": "open requests",
    "tokens_per_step": "tokens per step", "queue_mean_s": "queue mean",
}
WIDTH = 100


def live_text(found: dict[str, Any]) -> str:
    """Head, one table with a block per point, errors by metric, causes, notes.

    found: a validation as a plain dict (`accuracy.compare.Comparison.to_dict`)."""
    blocks = [found["title"], _rows(found["rows"])]
    if found["summary"]:
        blocks.append(_summary(found["summary"]))
    if found["reasons"]:
        blocks.append(_reasons(found["reasons"]))
    if found["warnings"]:
        blocks.append("\n".join(_wrapped(f"note: {text}") for text in found["warnings"]))
    return "\n\n".join(block for block in blocks if block)


def metric_label(metric: str) -> str:
    """'ttft_p95_s' -> 'TTFT p95'."""
    if metric in _LABELS:
        return _LABELS[metric]
    name, _, stat = metric.removesuffix("_s").partition("_")
    label = {"e2el": "E2E"}.get(name, name.upper())
    return f"{label} {stat.replace('_', ' ')}".strip()


def _value(metric: str, value: float) -> str:
    return seconds(value) if metric.endswith("_s") and "tok" not in metric and (
        "per_s" not in metric) else f"{value:.3g}"


def _rows(rows: list[dict[str, Any]]) -> str:
    cells: list[list[str]] = []
    spread = any(row["spread"] is not None for row in rows)
    last = ""
    for row in rows:
        name = row["name"] if row["name"] != last else ""
        metric, error = row["metric"], row["error"]
        if name and cells:
            cells.append([""] * (7 if spread else 6))
        last = row["name"]
        between = ""
        if row["low"] is not None and row["high"] is not None:
            between = f"{_value(metric, row['low'])} to {_value(metric, row['high'])}"
        line = [
            name + (" (fitted)" if name and row["split"] == "fitted" else ""),
            metric_label(metric), _value(metric, row["measured"]),
            _value(metric, row["predicted"]), "-" if error is None else f"{error:+.1%}", between,
        ]
        if spread:
            line.insert(3, "" if row["spread"] is None else f"{row['spread']:.1%}")
        cells.append(line)
    head = ["point", "", "measured", "predicted", "error", "90 %"]
    if spread:
        head.insert(3, "spread")
    return table(head, cells, left=2)


def _summary(summary: dict[str, dict[str, Any]]) -> str:
    rows = [
        [metric_label(metric), str(item["count"]), f"{item['median_abs_error']:.1%}",
         f"{item['p90_abs_error']:.1%}", f"{item['bias']:+.1%}", f"{item['worst']:+.1%}"]
        for metric, item in summary.items()
    ]
    head = ["error, held-out points", "n", "median", "p90", "bias", "worst"]
    return table(head, rows)


def _reasons(reasons: list[dict[str, Any]]) -> str:
    lines = ["what explains the gap in the time of a request:"]
    for reason in reasons:
        cause = reason["cause"]
        if "share" in reason and cause != "unexplained":
            share = reason["share"]
            after = reason["gap_after"]
            words = f"{share:.0%} of the gap alone, {after:.1%} left with those above"
            if not reason.get("explains"):
                words = f"{share:.0%} alone, but nothing further with those above"
            lines.append(_wrapped(f"  {cause}: {words}. {reason['evidence']}", "    "))
        else:
            lines.append(_wrapped(f"  {cause}: {reason['evidence']}", "    "))
    return "\n".join(lines)


def _wrapped(text: str, indent: str = "  ") -> str:
    return textwrap.fill(text, WIDTH, subsequent_indent=indent)

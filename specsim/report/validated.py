"""Errors per metric of `specsim validate records` and `run`, as text."""

from collections.abc import Mapping
from typing import Any

from specsim.report.tables import printable, table


def validated_text(result: Mapping[str, Any], rows_out: bool = False) -> str:
    """Errors per metric, held-out apart from fitted, and the rows asked for."""
    lines = [result["title"], ""]
    rows = []
    for label, key in (("held out", "summary"), ("fitted", "fitted_summary")):
        for metric, item in result[key].items():
            rows.append((
                f"{label}: {metric}", str(item["count"]), f"{100 * item['median_abs_error']:.1f} %",
                f"{100 * item['p90_abs_error']:.1f} %", f"{100 * item['bias']:+.1f} %",
                f"{100 * item['worst']:+.1f} %",
            ))
    lines.append(table(("", "points", "median", "p90", "bias", "worst"), rows))
    if rows_out:
        lines += ["", table(
            ("point", "metric", "measured", "predicted", "error", "split"),
            [(row["name"], row["metric"], f"{row['measured']:.5g}", f"{row['predicted']:.5g}",
              "-" if row["error"] is None else f"{100 * row['error']:+.1f} %", row["split"])
             for row in result["rows"]],
            left=2,
        )]
    lines += [f"note: {warning}" for warning in result["warnings"]]
    return printable("\n".join(lines))


def bars_text(bars: Mapping[str, Mapping[str, Any]]) -> str:
    """Limits that the errors of a run must keep."""
    rows = []
    for metric, item in bars.items():
        p90 = "-" if item["bar_p90"] is None else f"{100 * item['bar_p90']:.0f} %"
        rows.append((
            metric, str(item["count"]), f"{100 * item['median_abs_error']:.1f} %",
            f"{100 * item['bar_median']:.0f} %", f"{100 * item['p90_abs_error']:.1f} %", p90,
            "inside" if item["inside"] else "outside",
        ))
    return table(("bar", "rows", "median", "limit", "p90", "limit", ""), rows)

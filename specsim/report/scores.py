"""Scores of a validation run as text."""

from collections.abc import Iterable
from typing import Any

from specsim.report.tables import table

NAMES = {
    "step_cost_ratio": "step-cost ratio r",
    "speedup": "speedup",
    "tpot": "TPOT",
    "ttft": "TTFT",
}


def _percent(value: float | None, sign: bool = False) -> str:
    if value is None:
        return "-"
    return f"{value:+.1%}" if sign else f"{value:.1%}"


def error_cell(errors: dict[str, Any]) -> str:
    """'median / p90 (bias, n)' of one quantity, or a dash."""
    if not errors["n"]:
        return "-"
    return (
        f"{_percent(errors['median_abs_error'])} / {_percent(errors['p90_abs_error'])} "
        f"({_percent(errors['bias'], True)}, {errors['n']})"
    )


def score_rows_cells(result: dict[str, Any]) -> list[list[str]]:
    """Overall and per set: one line of cells each."""
    lines = []
    for name, scores in [("all", result["overall"]), *result["sets"].items()]:
        sign = scores["sign_right"]
        lines.append(
            [
                name,
                *(error_cell(scores[quantity]) for quantity in NAMES),
                "-" if sign is None else f"{sign:.0%} of {scores['sign_n']}",
                _percent(scores["interval_coverage"]),
            ]
        )
    return lines


def report_text(result: dict[str, Any]) -> str:
    """The whole report: errors per set, then skipped rows by reason."""
    headers = ["set", *NAMES.values(), "sign right", "in 90 %"]
    parts = [
        "median / 90th percentile of the relative error (bias, number of values)",
        "",
        table(headers, score_rows_cells(result)),
    ]
    if result["skipped"]:
        rows = [[reason, str(count)] for reason, count in result["skipped"].items()]
        parts += ["", table(["rows skipped, and why", "rows"], rows)]
    if "judged" in result:
        rows = [
            [j["row"], j["set"], j["quantity"], j["side"], f"{j['predicted']:.4g}",
             f"{j['measured']:.4g}", _percent(j["error"], True)]
            for j in result["judged"]
        ]
        headers = ["row", "set", "quantity", "side", "predicted", "measured", "error"]
        parts += ["", table(headers, rows, left=4)]
    return "\n".join(parts)


def row_dicts(scores: Iterable[Any]) -> list[dict[str, Any]]:
    """Every judged value as a dict (takes `accuracy.score.Scored`)."""
    return [
        {
            "row": s.row_id,
            "set": s.set_id,
            "quantity": s.quantity,
            "side": s.side,
            "class": s.klass,
            "predicted": s.predicted,
            "measured": s.measured,
            "error": s.error,
        }
        for s in scores
    ]

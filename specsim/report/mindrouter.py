"""The MindRouter table as text."""

from collections.abc import Sequence

from specsim.analytic.mindrouter import Endpoint
from specsim.report.tables import interval, seconds, table


def mindrouter_text(rows: Sequence[Endpoint]) -> str:
    """Predicted beside reported speedups, with the assumptions below."""
    body = []
    for row in rows:
        point = row.prediction.points[0]
        setup = row.prediction.system.setup
        assumed = "*" if row.acceptance_assumed else ""
        even = row.prediction.break_even_concurrency
        body.append(
            [
                row.name,
                row.weights,
                f"{setup.method} k={setup.k}",
                f"{row.prediction.acceptance_length:.2f}{assumed}",
                f"{row.speedup:.2f}x",
                interval(point.interval_90["speedup"]),
                f"{row.reported_speedup:.1f}x",
                f"{row.error:+.0%}",
                seconds(point.baseline_step_s),
                seconds(point.step_s),
                "never" if even is None else str(even),
            ]
        )
    first = rows[0].prediction.system
    head = (
        f"MindRouter cluster: predicted beside reported, one client, {first.profile.title}, "
        f"{first.engine.title or first.engine.name}, fidelity: {first.fidelity}"
    )
    columns = ["model", "weights", "method", "tokens/step", "predicted", "90 %", "reported",
               "error", "plain step", "spec step", "stops paying at"]
    notes = [f"{row.name}: {_assumption(row)}" for row in rows]
    return "\n".join(
        [
            head,
            "",
            table(columns, body),
            "",
            "* acceptance assumed. What the report leaves out, and what stands in for it:",
            *(f"  {note}" for note in notes),
        ]
    )


def _assumption(row: Endpoint) -> str:
    acceptance = row.prediction.system.acceptance
    source = acceptance.source if acceptance is not None else "none"
    return f"acceptance: {source}; {row.notes}"

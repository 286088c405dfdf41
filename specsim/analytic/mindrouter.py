"""The MindRouter cluster's six speculative endpoints, predicted and as reported.

Reported speedups: University of Idaho MindRouter blog table (H200s, vLLM 0.25.1, low
concurrency). What the blog leaves out is stated per row in `catalog/mindrouter.toml`: weight
format, and the acceptance length or the assumption made for it.
"""

from dataclasses import dataclass

from specsim.analytic.predict import PredictionFigures
from specsim.jsonable import picked


@dataclass(frozen=True)
class ReportedEndpoint:
    """One row: the deployment, its acceptance with source, and the speedup reported."""

    name: str
    prediction: PredictionFigures
    weights: str
    kv_dtype: str
    acceptance_source: str
    acceptance_assumed: bool
    reported_speedup: float
    notes: str
    command: str  # the `predict` that gives the row

    @property
    def speedup(self) -> float:
        return self.prediction.points[0].speedup

    @property
    def error(self) -> float:
        return self.speedup / self.reported_speedup - 1

    def to_dict(self) -> dict[str, object]:
        point = self.prediction.points[0]
        return {
            **picked(self, "model=name weights kv_dtype method=prediction.system.setup.method "
                           "k=prediction.system.setup.k "
                           "acceptance_length=prediction.acceptance_length acceptance_source "
                           "acceptance_assumed predicted_speedup=speedup reported_speedup error"),
            "interval_90": point.interval_90["speedup"],
            **picked(point, "tpot_s baseline_tpot_s step_s baseline_step_s step_cost_ratio"),
            **picked(self.prediction, "break_even_concurrency max_concurrency"),
            **picked(self, "notes command"),
        }

"""The MindRouter cluster's six speculative endpoints, predicted and as reported.

Reported speedups: University of Idaho MindRouter blog table (H200s, vLLM 0.25.1, low
concurrency). What the blog leaves out is stated per row in `catalog/mindrouter.toml`: weight
format, and the acceptance length or the assumption made for it.
"""

from dataclasses import dataclass

from specsim.analytic.predict import PredictionFigures


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
            "model": self.name,
            "weights": self.weights,
            "kv_dtype": self.kv_dtype,
            "method": self.prediction.system.setup.method,
            "k": self.prediction.system.setup.k,
            "acceptance_length": self.prediction.acceptance_length,
            "acceptance_source": self.acceptance_source,
            "acceptance_assumed": self.acceptance_assumed,
            "predicted_speedup": self.speedup,
            "reported_speedup": self.reported_speedup,
            "error": self.error,
            "interval_90": point.interval_90["speedup"],
            "tpot_s": point.tpot_s,
            "baseline_tpot_s": point.baseline_tpot_s,
            "step_s": point.step_s,
            "baseline_step_s": point.baseline_step_s,
            "step_cost_ratio": point.step_cost_ratio,
            "break_even_concurrency": self.prediction.break_even_concurrency,
            "max_concurrency": self.prediction.max_concurrency,
            "notes": self.notes,
            "command": self.command,
        }

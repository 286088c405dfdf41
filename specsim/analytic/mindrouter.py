"""The MindRouter cluster's six speculative endpoints, predicted and as reported.

Reported speedups: University of Idaho MindRouter blog table (H200s, vLLM 0.25.1, low
concurrency). What the blog leaves out is stated per row in `catalog/mindrouter.toml`: weight
format, and the acceptance length or the assumption made for it.
"""

import tomllib
from dataclasses import dataclass

from specsim.analytic.predict import PredictionFigures, predict
from specsim.analytic.system import System
from specsim.analytic.workload import Workload
from specsim.data import data_root
from specsim.hardware.store import load_profile
from specsim.latency.engine import find_engine
from specsim.methods.resolve import resolve_setup
from specsim.model.catalogue import find_model, variant
from specsim.speculation.acceptance import Acceptance


@dataclass(frozen=True)
class ReportedEndpoint:
    """One row: the deployment, its acceptance with source, and the speedup reported."""

    name: str
    prediction: PredictionFigures
    weights: str
    kv_dtype: str
    acceptance_assumed: bool
    reported_speedup: float
    notes: str

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
            "notes": self.notes,
        }


def predict_table(
    gpu: str = "h200-sxm",
    engine_name: str = "vllm",
    fidelity: str = "calibrated",
    profiles: str | None = None,
) -> list[ReportedEndpoint]:
    """One client on each of the six endpoints."""
    raw = tomllib.loads((data_root("catalog") / "mindrouter.toml").read_text(encoding="utf-8"))
    profile = load_profile(gpu, profiles)
    engine = find_engine(engine_name)
    rows = []
    for item in raw["endpoint"]:
        spec = variant(find_model(item["model"]), item["weights"])
        setup = resolve_setup(spec, engine, item["method"], item["k"], draft=item.get("draft"))
        acceptance = Acceptance.from_mean_length(
            item["acceptance_length"], item["k"], source=item["acceptance_source"]
        )
        system = System(
            spec, profile, engine, kv_dtype=item["kv_dtype"], setup=setup, acceptance=acceptance,
            max_num_seqs=item["max_num_seqs"], fidelity=fidelity,
        )
        workload = Workload(item["input_len"], item["output_len"], name="mindrouter")
        result = predict(system, workload, [1], search_k=False)
        rows.append(
            ReportedEndpoint(
                item["name"], result, item["weights"], item["kv_dtype"],
                item["acceptance_assumed"], item["reported_speedup"], item["notes"],
            )
        )
    return rows

"""90 % intervals of predictions, from the residuals of validation and nothing else.

`catalog/residuals.json` holds, per quantity and class of prediction, the 5th and 95th percentile
of ln(measured / predicted) over public measurements that no fit has seen, stretched until they
hold 90 % of the measurements of a set they were made without (`validation/scripts/make_report.py`).
A class names what residuals were seen to depend on: plain or speculative, dense or routed
experts, the engine, and whether the device's kernels were measured. When a class has too few
residuals the next coarser one is taken; when none has enough there is no interval.
"""

import json
import math
from functools import lru_cache
from typing import TypedDict

from specsim.analytic.system import System
from specsim.data import data_root

MIN_RESIDUALS = 12


def prediction_class(system: System) -> str:
    """'speculative|moe|vllm|measured|several' and so on: side, model kind, engine, kernels, one or
    several GPUs."""
    side = "speculative" if system.speculative else "plain"
    kind = "moe" if system.spec.has_experts else "dense"
    table = system.profile.kernels.get("gemm.bf16")
    kernels = "assumed" if table is None or table.assumed else "measured"
    gpus = "several" if system.parallel.gpus > 1 else "one"
    return f"{side}|{kind}|{system.engine.name}|{kernels}|{gpus}"


class Residuals(TypedDict):
    """Of one class: how many, and the 5th and 95th percentile of ln(measured / predicted)."""

    n: int
    q05: float
    q95: float


@lru_cache(maxsize=1)
def _residuals() -> dict[str, dict[str, Residuals]]:
    """By quantity and class."""
    path = data_root("catalog") / "residuals.json"
    if not path.is_file():
        return {}
    found: dict[str, dict[str, dict[str, Residuals]]] = json.loads(
        path.read_text(encoding="utf-8")
    )
    return found["quantities"]


def coarser(klass: str) -> tuple[str, ...]:
    """The class without its GPUs, and its fallbacks, finest first. Measured and assumed kernels
    never mix."""
    side, kind, engine, kernels = klass.split("|")[:4]
    return (
        f"{side}|{kind}|{engine}|{kernels}",
        f"{side}|{kind}|any|{kernels}",
        f"{side}|any|{engine}|{kernels}",
        f"{side}|any|any|{kernels}",
    )


def interval_for(quantity: str, klass: str, predicted: float) -> tuple[float, float] | None:
    """[low, high] that held 90 % of the measurements of this class; None where few are known."""
    table = _residuals().get(quantity, {})
    for name in coarser(klass):
        entry = table.get(name)
        if entry and entry["n"] >= MIN_RESIDUALS:
            return predicted * math.exp(entry["q05"]), predicted * math.exp(entry["q95"])
    return None


def interval_of(system: System, quantity: str, value: float) -> tuple[float, float] | None:
    """[low, high] of a predicted value of a system. None where few residuals are known, for
    datasheet bounds, for what is not finite, and for ratios to plain decoding without
    speculation."""
    of_speculation = quantity in ("speedup", "step_cost_ratio")
    if system.fidelity == "datasheet" or not math.isfinite(value):
        return None
    if of_speculation and not system.speculative:
        return None
    return interval_for(quantity, prediction_class(system), value)

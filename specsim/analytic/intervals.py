"""90 % intervals of predictions, from the residuals of validation and nothing else.

`catalog/residuals.json` holds, per quantity and class of prediction, the 5th and 95th percentile
of ln(measured / predicted) over public measurements (written by `validation/make_report.py`).
A class names what residuals were seen to depend on: plain or speculative, dense or routed
experts, one or several GPUs, the engine. When a class has too few residuals the next coarser one
is taken; when none has enough there is no interval, and the result says so.
"""

import json
import math
from functools import lru_cache
from typing import Any

from specsim.analytic.system import System
from specsim.data import data_root
from specsim.model.spec import MoE

MIN_RESIDUALS = 12


def prediction_class(system: System) -> str:
    """'speculative|moe|vllm' and so on: method side, model kind, engine."""
    side = "speculative" if system.speculative else "plain"
    kinds = [
        part
        for group in system.spec.layers
        for part in (group.ffn if isinstance(group.ffn, tuple) else (group.ffn,))
    ]
    kind = "moe" if any(isinstance(part, MoE) for part in kinds) else "dense"
    return f"{side}|{kind}|{system.engine.name}"


@lru_cache(maxsize=1)
def _residuals() -> dict[str, dict[str, Any]]:
    path = data_root("catalog") / "residuals.json"
    if not path.is_file():
        return {}
    found = json.loads(path.read_text(encoding="utf-8"))
    return found if isinstance(found, dict) else {}


def coarser(klass: str) -> tuple[str, ...]:
    """The class and its fallbacks, finest first."""
    side, kind, engine = klass.split("|")
    return (klass, f"{side}|{kind}|any", f"{side}|any|{engine}", f"{side}|any|any")


def interval_for(quantity: str, klass: str, predicted: float) -> tuple[float, float] | None:
    """[low, high] that held 90 % of the measurements of this class; None where few are known."""
    table = _residuals().get("quantities", {}).get(quantity, {})
    for name in coarser(klass):
        entry = table.get(name)
        if entry and entry["n"] >= MIN_RESIDUALS:
            return predicted * math.exp(entry["q05"]), predicted * math.exp(entry["q95"])
    return None

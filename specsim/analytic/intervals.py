"""90% intervals of predictions, from what predictions of public measurements missed by.

`catalog/residuals.json` holds, per quantity and class of prediction, where ln(measured / predicted)
of a source that nobody has seen is expected to lie: from a mixed model of the residuals of fits
that had not seen their source (`validation/scripts/residual_model.py`). A class that few sources
have measured takes after its relatives, and is wider for that.
"""

import math
from typing import TypedDict

from specsim.analytic.system import System
from specsim.data import data_table

FEW_SOURCES = 2  # a class with fewer rests on others


def prediction_class(system: System) -> str:
    """'speculative|moe|vllm|measured|several' and so on: side, model kind, engine, kernels, one or
    several GPUs."""
    side = "speculative" if system.speculative else "plain"
    kind = "moe" if system.spec.has_experts else "dense"
    kernels = "measured" if system.profile.kernels_known == "measured" else "assumed"
    gpus = "several" if system.parallel.all_gpus > 1 else "one"
    return f"{side}|{kind}|{system.engine.name}|{kernels}|{gpus}"


class ClassResiduals(TypedDict):
    """Of one class: the ends of the 90% interval of ln(measured / predicted), which holds 0, how
    many sources and values the class itself has."""

    low: float
    high: float
    sources: int
    n: int


def class_residuals(quantity: str, klass: str) -> ClassResiduals:
    """What is known of a quantity ('tpot', 'ttft', 'speedup', 'step_cost_ratio') of a class;
    engine 'other' stands for those that nobody measured."""
    known = data_table("catalog", "residuals.json")["quantities"]
    table: dict[str, ClassResiduals] = known[quantity]
    side, kind, _, kernels, gpus = klass.split("|")
    return table.get(klass) or table[f"{side}|{kind}|other|{kernels}|{gpus}"]


def interval_for(quantity: str, klass: str, predicted: float) -> tuple[float, float]:
    """[low, high] that holds 90% of the measurements of a further source of this class."""
    found = class_residuals(quantity, klass)
    return predicted * math.exp(found["low"]), predicted * math.exp(found["high"])


def interval_of(system: System, quantity: str, value: float) -> tuple[float, float] | None:
    """[low, high] of a predicted value of a system; None as `log_ends`, and for what is not
    finite."""
    ends = log_ends(system, quantity) if math.isfinite(value) else None
    return ends and (value * math.exp(ends[0]), value * math.exp(ends[1]))


def log_ends(system: System, quantity: str, power: float = 1.0) -> tuple[float, float] | None:
    """ln of the ends over the value, of that power of it. None for datasheet bounds, and for ratios
    to plain decoding without speculation. Tokens per step enter a speedup as a factor and TPOT as a
    divisor, so their own interval widens these, as independent errors."""
    of_speculation = quantity in ("speedup", "step_cost_ratio")
    if system.fidelity == "datasheet" or (of_speculation and not system.speculative):
        return None
    found = class_residuals(quantity, prediction_class(system))
    low, high = found["low"], found["high"]
    if system.speculative and system.acceptance is not None:
        fewer, more = system.acceptance.log_error_90
        if quantity == "speedup":
            low, high = -math.hypot(low, fewer), math.hypot(high, more)
        elif quantity == "tpot":
            low, high = -math.hypot(low, more), math.hypot(high, fewer)
    return (power * low, power * high) if power > 0 else (power * high, power * low)


def interval_note(system: System) -> str:
    """What the intervals of a system's times per token rest on, where that is little; else ''."""
    if system.fidelity == "datasheet":
        return "no interval: residuals are known for calibrated predictions only"
    klass = prediction_class(system)
    sources = class_residuals("tpot", klass)["sources"]
    if sources >= FEW_SOURCES:
        return ""
    side, kind, engine, kernels, gpus = klass.split("|")
    many = "no public source has" if not sources else "one public source alone has"
    return (
        f"90% intervals are wide: {many} measured such a case ({side}, {kind}, {engine}, kernels "
        f"{kernels}, {gpus} GPU{'s' if gpus == 'several' else ''}); they rest on related ones"
    )

"""Verdicts of the results that are planned: `tune`, `crossover`, `capacity`."""

import math
from dataclasses import replace

from specsim.analytic.intervals import interval_of
from specsim.planning.capacity_loads import Arrivals
from specsim.planning.capacity_result import CapacityFigures
from specsim.planning.capacity_result import flags_of as capacity_flags
from specsim.planning.capacity_runs import WITHOUT
from specsim.planning.crossover import CrossoverFigures
from specsim.planning.flags import ServedNames, flags_of
from specsim.planning.tune import LoadAnswer, TuningFigures
from specsim.planning.tune_choices import tree_of
from specsim.planning.verdict import (
    Decision,
    LoadVerdict,
    Unmeasured,
    Verdict,
    amount_of,
    at_load,
    of_unmeasured,
    pays_below_of,
    verdict_of,
)


def of_crossover(found: CrossoverFigures, names: ServedNames) -> Verdict | None:
    """Of `crossover`: the first context length that can be served, from its least load on."""
    if found.rates:
        return _of_rates(found, names)
    curve = next((curve for curve in found.curves if curve.points), None)
    if curve is None:
        return None
    system, point = found.system, curve.points[0]
    load = at_load(point.concurrency, system.setup.method, system.setup.k, point.speedup,
                   point.speedup_90)
    workload = replace(found.workload, input_len=curve.context)
    flags = flags_of(system if load.decision == "on" else system.plain(), names)[0]
    return verdict_of((load,), "clients", system, workload, flags,
                      curve.break_even_concurrency, curve.max_concurrency)


def _of_rates(found: CrossoverFigures, names: ServedNames) -> Verdict:
    """At the lowest rate, by time per output token."""
    curve = next(curve for curve in found.rates if curve.points)
    system, point = found.system, curve.points[0]
    gain, gain_90 = point.tpot_gain, point.tpot_gain_90
    if gain is None:
        gain, gain_90 = point.throughput_gain, None
    load = at_load(point.rate, system.setup.method, system.setup.k, gain, gain_90)
    workload = replace(found.workload, input_len=curve.context)
    flags = flags_of(system if load.decision == "on" else system.plain(), names)[0]
    return verdict_of((load,), "requests/s", system, workload, flags,
                      curve.crossing("tpot").pays_below, curve.plain_capacity)


def of_tuning(
    found: TuningFigures, names: ServedNames, unmeasured: Unmeasured | None = None
) -> Verdict:
    """Of `tune`. unmeasured: a method that could be run, but of which no acceptance is known; it
    leaves open whether plain decoding is best."""
    answer = found.answers[0]
    rated = answer.load.rate is not None
    unit = "requests/s" if rated else "clients"
    loads = tuple(_tuned(item, unmeasured) for item in found.answers)
    lead = loads[0]
    if lead.decision == "unknown" and unmeasured is not None:
        offered = [item.load for item in found.answers]
        return of_unmeasured(unmeasured, found.workload, offered, names)
    tree = answer.best.tree if answer.best is not None else None
    trees = [s for s in found.trees if s.setup.k == lead.k] if tree else []
    system = next((s.with_(k=lead.k) for s in (*trees, *found.systems)
                   if s.setup.method == lead.method and (tree is None or tree_of(s) == tree)), None)
    below = top = None
    if system is not None:
        below, top = pays_below_of(system, found.workload, rated, 0)
    return verdict_of(loads, unit, system, found.workload, answer.flags, below, top)


def _tuned(answer: LoadAnswer, unmeasured: Unmeasured | None) -> LoadVerdict:
    """The best choice at one load where it drafts; else the one that comes closest."""
    load = amount_of(answer.load)
    best = answer.best
    drafting = [c for c in answer.candidates if c.k and math.isfinite(c.tpot_s)]
    if best is None or not best.k:
        named = max(drafting, key=lambda c: c.speedup, default=None)
        decision: Decision = "none" if best is None else "off"
        if named is None and (unmeasured is not None or best is not None):
            decision = "unknown"
        if named is None:
            return LoadVerdict(load, decision, None, 0, None, None)
    else:
        named, decision = best, "on"
    return LoadVerdict(load, decision, named.method, named.k, named.speedup, named.speedup_90)


def of_capacity(found: CapacityFigures) -> Verdict | None:
    """Of `capacity`: by the load each side carries. None where only one side was looked at."""
    gain, system = found.gain, found.study.system
    if gain is None or found.baseline is None or not system.speculative:
        return None
    unit = found.study.shape.unit
    interval = interval_of(system, "speedup", gain)
    load = at_load(found.main.capacity, system.setup.method, system.setup.k, gain, interval)
    shape = found.study.shape
    lengths = shape.workload if isinstance(shape, Arrivals) else None
    flags = found.flags
    if load.decision == "off":
        plain = found.study.system_of(WITHOUT, found.baseline.slots)
        flags = capacity_flags(found.study, plain)
    verdict = verdict_of((load,), unit, system, lengths, flags)
    return replace(verdict, carried=found.main.capacity, plain_carried=found.baseline.capacity)

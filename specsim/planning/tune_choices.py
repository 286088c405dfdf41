"""What can be chosen, a method with a draft length, and how each choice does at one load.

A choice is a `System` whose setup says the method and k; k = 0 is plain decoding. Speed-up and
intervals are those of `specsim predict`: output tokens per second over plain decoding at the same
load, TPOT in an open loop that both sides sustain.

Analytic predictions are means. A gate on a percentile is compared with the mean of its metric,
which a caller must say; `specsim simulate` has the tails.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specsim.analytic.compare import compared
from specsim.analytic.intervals import interval_of
from specsim.analytic.open import OpenState
from specsim.analytic.system import System
from specsim.analytic.workload import Workload, request_s
from specsim.errors import CapacityError, UsageError
from specsim.jsonable import Jsonable
from specsim.units import rounded

LONGEST = 8  # draft lengths looked at by default
_AT_LEAST = ("stream_tok_s", "output_tok_s", "request_rate")


@dataclass(frozen=True, slots=True)
class OfferedLoad:
    """clients of a closed loop, or requests per second of an open one (the other is None)."""

    clients: int | None = None
    rate: float | None = None

    @property
    def label(self) -> str:
        """'64' clients or '2.5/s'."""
        return f"{self.clients}" if self.rate is None else f"{self.rate:g}/s"


@dataclass(frozen=True, slots=True)
class Candidate(Jsonable):
    """One choice at one load. Times in seconds.

    tokens_per_step: with steps that carry no draft. capacity_rate: requests per second it can
    sustain, open loop only. extrapolated: acceptance at this k reaches beyond what was measured.
    speedup_90: its interval, None where too few measurements are known. tree: top-k and tokens
    verified, None for a chain of k drafts (k: the depth of a tree). reason: why it is not
    feasible, '' where it is."""

    method: str
    draft: str | None
    k: int
    tokens_per_step: float
    ttft_s: float
    tpot_s: float
    step_s: float
    output_tok_s: float
    stream_tok_s: float
    speedup: float
    step_cost_ratio: float
    running: float
    queue_s: float
    capacity_rate: float | None
    bound: str
    extrapolated: bool
    speedup_90: tuple[float, float] | None
    tree: tuple[int, int] | None = None
    reason: str = ""

    @property
    def feasible(self) -> bool:
        return not self.reason

    def to_dict(self) -> dict[str, object]:
        out = Jsonable.to_dict(self)
        del out["reason"]  # stands last
        return {**out, "feasible": self.feasible, "reason": self.reason or None}


def draft_lengths(system: System, longest: int | None = None) -> list[int]:
    """Draft lengths up to `longest` that the method can run with this drafter and engine; without
    it those up to LONGEST or the system's own. A tree has only its own."""
    most = max(LONGEST, system.setup.k) if longest is None else longest
    return [k for k in system.setup.draft_lengths(system.engine, most) if k <= most]


def mean_gates(gates: Mapping[str, float]) -> tuple[str, ...]:
    """Gates on percentiles, which the analytic model compares with means. UsageError for gates
    of which it knows nothing."""
    tails = []
    for gate in gates:
        if gate in ("error_rate", "stall_rate"):
            raise UsageError(
                f"SLO {gate} is not predicted analytically; leave it out, or use "
                "`specsim simulate --slo`"
            )
        if gate not in _AT_LEAST and not gate.endswith("_mean"):
            tails.append(gate)
    return tuple(tails)


def evaluate(
    system: System, workload: Workload, load: OfferedLoad, gates: Mapping[str, float]
) -> Candidate:
    """How a choice does at a load. What cannot run at all comes back with a reason."""
    try:
        return _evaluate(system, workload, load, gates)
    except (CapacityError, UsageError) as error:
        return _impossible(system, str(error))


def _evaluate(
    system: System, workload: Workload, load: OfferedLoad, gates: Mapping[str, float]
) -> Candidate:
    pair = compared(system, workload, load.clients or 1, load.rate)
    found, state, capacity, reason = pair.found, pair.state, None, ""
    if isinstance(found, OpenState):
        capacity = found.capacity_rate
        if not found.stable:
            reason = f"the queue grows without end: it sustains {rounded(capacity)} requests/s"
    ttft_s, tpot_s, output = found.ttft_s, found.tpot_s, found.output_tok_s
    values = gate_values(
        ttft_s, tpot_s, found.queue_s, output,
        state.request_rate if load.rate is None else min(load.rate, capacity or 0),
        system.tokens_per_step, workload.output_len,
    )
    reason = reason or broken_gate(gates, values)
    return Candidate(
        *_named(system), system.tokens_per_step, ttft_s=ttft_s, tpot_s=tpot_s, step_s=state.step_s,
        output_tok_s=output, stream_tok_s=found.stream_tok_s, speedup=pair.speedup,
        step_cost_ratio=pair.step_cost_ratio, running=found.running, queue_s=found.queue_s,
        capacity_rate=capacity, bound=state.bound, extrapolated=_extrapolated(system),
        speedup_90=interval_of(system, "speedup", pair.speedup), tree=tree_of(system),
        reason=reason,
    )


def _impossible(system: System, reason: str) -> Candidate:
    nan = math.nan
    return Candidate(
        *_named(system), system.tokens_per_step, ttft_s=nan, tpot_s=nan, step_s=nan,
        output_tok_s=0.0, stream_tok_s=0.0, speedup=0.0, step_cost_ratio=nan, running=0.0,
        queue_s=nan, capacity_rate=None, bound="", extrapolated=_extrapolated(system),
        speedup_90=None, tree=tree_of(system), reason=reason,
    )


def _named(system: System) -> tuple[str, str | None, int]:
    """(method, drafter, k), those of plain decoding where the system does not speculate."""
    setup = system.setup
    if not system.speculative:
        return "none", None, 0
    return setup.method, setup.drafter.name if setup.drafter else None, setup.k


def tree_of(system: System) -> tuple[int, int] | None:
    """(top-k, tokens verified) of a tree; None for a chain."""
    setup = system.setup
    return (setup.tree_topk, setup.tree_tokens) if setup.tree_topk > 1 else None


def _extrapolated(system: System) -> bool:
    accepted = system.acceptance
    if not system.speculative or accepted is None or accepted.kind == "rate":
        return False
    return system.setup.k > accepted.measured_positions


def gate_values(
    ttft_s: float, tpot_s: float, queue_s: float, output_tok_s: float, request_rate: float,
    tokens_per_step: float, output_len: int,
) -> dict[str, float]:
    """Means that gates are held against, by metric."""
    return {
        "ttft": ttft_s, "tpot": tpot_s, "queue": queue_s, "itl": tpot_s * tokens_per_step,
        "e2el": request_s(ttft_s, tpot_s, output_len),
        "stream_tok_s": 1 / tpot_s if tpot_s > 0 else math.inf,
        "output_tok_s": output_tok_s, "request_rate": request_rate,
    }


def broken_gate(gates: Mapping[str, float], values: Mapping[str, float]) -> str:
    """The first gate that the means break, in words; '' when all hold."""
    for gate, limit in gates.items():
        metric = gate if gate in values else gate.rpartition("_")[0]
        value = values[metric]
        at_least = metric in _AT_LEAST
        if value < limit if at_least else value > limit:
            sign = "below" if at_least else "above"
            return f"mean {metric} {value:.3g} is {sign} the {limit:g} of {gate}"
    return ""


def score(candidate: Candidate, objective: str) -> tuple[float, float]:
    """What is compared, higher is better: the objective, then what decides between equals (all
    choices that sustain a rate serve the same tokens). Infeasible choices come last."""
    if not math.isfinite(candidate.tpot_s):
        return (-math.inf, -math.inf)
    speed = 1 / candidate.tpot_s if candidate.tpot_s > 0 else math.inf
    if objective == "tpot":
        return (speed, candidate.output_tok_s)
    # Tokens served differ by rounding alone where every choice keeps up.
    return (float(f"{candidate.output_tok_s:.9g}"), speed)


def best_of(candidates: Sequence[Candidate], objective: str) -> Candidate | None:
    """The best feasible candidate; among equals the shortest draft."""
    feasible = [c for c in candidates if c.feasible]
    if not feasible:
        return None
    return max(feasible, key=lambda c: (*score(c, objective), -c.k))

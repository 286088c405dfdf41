"""The answer in one piece: speculation on or off, with what, up to which load, how sure, at what
price in memory, and what to type.

Every command that compares speculation with plain decoding makes one `Verdict` of its result, by
the rule of `judged`; `specsim.report.verdict` writes it. Decisions:

    on, off   the gain (throughput with / without) is above 1 at the stated load, or is not
    unknown   no acceptance is known, so neither can be said; `needed_tokens_per_step` is what a
              step must yield for it to pay
    none      no choice, plain decoding among them, meets the limits that were set

How sure a decision is follows from the 90 % interval of the gain, in logarithms:

    sure      all of it lies on the decision's side of 1
    likely    at least LIKELY of it does
    open      less does, or there is no interval, or the decision is not on or off
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from specsim.analytic.apart import Apart, apart_open
from specsim.analytic.closed import closed_loop, running_limit
from specsim.analytic.compare import compared
from specsim.analytic.predict import LoadPoint, PredictionFigures, break_even
from specsim.analytic.system import System
from specsim.analytic.workload import Workload
from specsim.errors import SpecSimError
from specsim.jsonable import Jsonable
from specsim.planning.flags import ReadyCommand, ServedNames, flags_of
from specsim.planning.tune_choices import OfferedLoad
from specsim.search import first_from_one, rising_root
from specsim.speculation.acceptance import Acceptance

Decision = Literal["on", "off", "unknown", "none"]
Certainty = Literal["sure", "likely", "open"]
Pair = tuple[float, float]
RATE_STEPS = 64  # rates looked at between none and the largest
RESOLUTION = 0.002  # tokens per step to which a break-even is looked for
LIKELY = 0.75  # of the interval: about four chances in five, were the logarithm normal


@dataclass(frozen=True, slots=True)
class MemoryCost(Jsonable):
    """What speculation takes from the cache of one replica. drafter_kv_tokens: tokens of cache that
    plain decoding would hold besides. queueing_from: fewest requests at a time of which one waits
    for a slot, with speculation; plain_queueing_from: without."""

    drafter_kv_tokens: int
    queueing_from: int
    plain_queueing_from: int


@dataclass(frozen=True, slots=True)
class LoadVerdict(Jsonable):
    """The decision at one load (clients, requests/s or users). gain: throughput with / without, of
    the choice named, which is the best one that drafts; None where no acceptance is known."""

    load: float
    decision: Decision
    method: str | None
    k: int
    gain: float | None
    gain_90: Pair | None
    needed_tokens_per_step: float | None = None


@dataclass(frozen=True, slots=True)
class Verdict(Jsonable):
    """The decision at the first load asked for, `loads` those at all of them.

    load: that load, in `unit`. winning_share: of the interval, on the decision's side of 1.
    pays_below: smallest load at which the choice no longer pays, None where it pays up to
    `looked_to` or nothing is known of it; 1 client: it never pays. carried, plain_carried: the
    largest loads within the objectives, of a capacity study. tokens_per_step: accepted drafts and
    the bonus token; rests_on: where that is from. comparable_90: what drafters of the same kind
    yield for other targets, where this one's is not known. command: what to type for the decision
    (for an unknown one: to measure it), written_for: the engine and version that it is of, notes:
    what to know about it."""

    decision: Decision
    certainty: Certainty
    winning_share: float | None
    method: str | None
    draft: str | None
    k: int
    load: float
    unit: str
    gain: float | None
    gain_90: Pair | None
    pays_below: float | None = None
    looked_to: float | None = None
    carried: float | None = None
    plain_carried: float | None = None
    tokens_per_step: float | None = None
    needed_tokens_per_step: float | None = None
    comparable_90: Pair | None = None
    rests_on: str = ""
    memory: MemoryCost | None = None
    loads: tuple[LoadVerdict, ...] = ()
    command: str | None = None
    written_for: str | None = None
    notes: tuple[str, ...] = ()

    def with_command(self, flags: ReadyCommand | None) -> "Verdict":
        """With what to type."""
        if flags is None:
            return self
        return replace(self, command=flags.command, written_for=flags.written_for,
                       notes=flags.warnings)


@dataclass(frozen=True)
class Unmeasured:
    """A deployment whose acceptance nobody knows (the one it holds is that of comparable drafters),
    or None where there is nothing to draft with; and why."""

    system: System | None
    reason: str


def judged(gain: float | None, gain_90: Pair | None) -> tuple[Decision, Certainty, float | None]:
    """The rule: decision, how sure, and the share of the interval on the decision's side."""
    if gain is None:
        return "unknown", "open", None
    decision: Decision = "on" if gain > 1 else "off"
    if gain_90 is None:
        return decision, "open", None
    low, high = (math.log(max(end, 1e-9)) for end in gain_90)
    above = min(1.0, max(0.0, high / (high - low))) if high > low else float(high > 0)
    share = above if decision == "on" else 1 - above
    return decision, "sure" if share >= 1 else "likely" if share >= LIKELY else "open", share


def at_load(
    load: float, method: str | None, k: int, gain: float | None, gain_90: Pair | None
) -> LoadVerdict:
    """The decision at one load."""
    return LoadVerdict(load, judged(gain, gain_90)[0], method, k, gain, gain_90)


def of_prediction(
    found: PredictionFigures, names: ServedNames, unmeasured: Unmeasured | None = None
) -> Verdict | None:
    """Of `predict`; None where plain decoding was asked for, which compares nothing."""
    first = found.points[0]
    rated = first.utilisation is not None
    unit = "requests/s" if rated else "clients"
    if not found.system.speculative:
        if unmeasured is None:
            return None
        offered = [
            OfferedLoad(rate=p.request_rate) if rated else OfferedLoad(int(p.concurrency))
            for p in found.points
        ]
        return of_unmeasured(unmeasured, found.workload, offered, names)
    system = found.system
    loads = tuple(
        at_load(_load(p), system.setup.method, system.setup.k, p.speedup,
                _pair(p.interval_90["speedup"]))
        for p in found.points
    )
    below, top = pays_below_of(
        system, found.workload, rated, found.break_even_concurrency, found.apart
    )
    side = system if loads[0].decision == "on" else system.plain()
    flags = flags_of(side, names)[0]
    return verdict_of(loads, unit, system, found.workload, flags, below, top)


def of_unmeasured(
    case: Unmeasured, workload: Workload, offered: Sequence[OfferedLoad], names: ServedNames
) -> Verdict:
    """Neither on nor off: what a step must yield for it to pay, and how to serve it to find out."""
    system, amount = case.system, amount_of(offered[0])
    unit = "clients" if offered[0].rate is None else "requests/s"
    base = Verdict("unknown", "open", None, None, None, 0, amount, unit, None, None,
                   rests_on=case.reason)
    if system is None:
        return base
    setup, accepted = system.setup, system.acceptance
    flags = flags_of(system, names)[0]
    loads = tuple(
        LoadVerdict(amount_of(load), "unknown", setup.method, setup.k, None, None,
                    needed_tokens(system, workload, load))
        for load in offered
    )
    return replace(
        base, method=setup.method, draft=setup.drafter.name if setup.drafter else None, k=setup.k,
        needed_tokens_per_step=loads[0].needed_tokens_per_step,
        comparable_90=accepted.grounds.tokens_90 if accepted and accepted.grounds else None,
        memory=memory_cost(system, workload), loads=loads,
    ).with_command(flags)


def needed_tokens(system: System, workload: Workload, load: OfferedLoad) -> float | None:
    """Tokens per step from which the system's method pays at a load; None where it does not even
    if every draft is accepted. The system's own acceptance plays no part."""
    k = system.setup.k

    def gain(length: float) -> float:
        accepted = Acceptance.from_mean_length(length, k)
        return compared(
            system.with_(acceptance=accepted), workload, load.clients or 1, load.rate
        ).speedup

    if gain(k + 1.0) <= 1:
        return None
    return rising_root(gain, 1.0, k + 1.0, low=1.0, resolution=RESOLUTION)


def memory_cost(system: System, workload: Workload) -> MemoryCost | None:
    """What the drafter costs in cache; None where not one request fits."""
    plain = system.plain()
    try:
        limits = [running_limit(side, workload) + 1 for side in (system, plain)]
    except SpecSimError:
        return None
    taken = plain.memory.kv_tokens - system.memory.kv_tokens
    return MemoryCost(max(0, int(taken)), *limits)


_LEVELS = {
    "measured": "as measured in public",
    "this drafter": "from other draft lengths or work of this drafter",
    "this model": "from other drafters of this model",
    "kind of drafter": "an estimate from drafters of this kind for other targets",
    "unknown": "not known",
}


def rests_on(system: System) -> str:
    """Where the acceptance of a system is from, in a few words."""
    accepted = system.acceptance
    if accepted is None:
        return ""
    if accepted.grounds is not None:
        named = "; ".join(accepted.grounds.rests_on[:2])
        return f"{_LEVELS[accepted.grounds.level]}{f' ({named})' if named else ''}"
    text = "as given"
    known = accepted.measured_positions
    if accepted.kind != "rate" and system.setup.k > known:
        text += f", extrapolated beyond position {known}"
    return text


def verdict_of(
    loads: tuple[LoadVerdict, ...], unit: str, system: System | None, workload: Workload | None,
    flags: ReadyCommand | None, pays_below: float | None = None, looked_to: float | None = None,
) -> Verdict:
    """Of the first load, about a system."""
    lead = loads[0]
    decision, certainty, share = judged(lead.gain, lead.gain_90)
    if decision != lead.decision:  # decided by limits or another objective than throughput
        certainty, share = "open", None
    drafter = system.setup.drafter if system is not None else None
    return Verdict(
        lead.decision, certainty, share, lead.method, drafter.name if drafter else None, lead.k,
        lead.load, unit, lead.gain, lead.gain_90, pays_below, looked_to,
        tokens_per_step=system.tokens_per_step if system is not None else None,
        rests_on=rests_on(system) if system is not None else "",
        memory=memory_cost(system, workload) if system and workload else None, loads=loads,
    ).with_command(flags)


def pays_below_of(
    system: System, workload: Workload, rated: bool, clients: int | None,
    apart: Apart | None = None,
) -> tuple[float | None, float | None]:
    """(smallest load at which it does not pay, largest load looked at): clients up to the largest
    batch of either side, or requests per second up to what that batch completes. clients: the
    first of them, where known; 0: look for it."""
    sides = system, system.plain()
    top = max(running_limit(side, workload) for side in sides)
    if not rated:
        return break_even(system, workload, top) if clients == 0 else clients, top
    if apart is None:
        most = max(closed_loop(side, workload, top).request_rate for side in sides)
    else:
        most = apart_open(apart, system, workload, 1.0).capacity_rate
    step = most / RATE_STEPS

    def loses(count: int) -> bool:
        return compared(system, workload, rate=count * step, apart=apart).speedup < 1

    found = first_from_one(loses, RATE_STEPS)
    return None if found is None else found * step, most


def _load(point: LoadPoint) -> float:
    return point.concurrency if point.utilisation is None else point.request_rate


def amount_of(load: OfferedLoad) -> float:
    return float(load.clients or 0) if load.rate is None else load.rate


def _pair(value: list[float] | None) -> Pair | None:
    return None if value is None else (value[0], value[1])

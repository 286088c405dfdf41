"""Up to which rate of requests speculation pays, and why not beyond: both sides of a deployment in
an open loop (docs/planning.md).

Four measures, since they part: time per output token, time to first token (which may be longer by a
slack that is stated), end-to-end latency, and the capacity, the largest rate that is kept up with.
Speculation stops paying by a time at the smallest rate at which it is longer than without, or at
which plain decoding keeps up and speculation does not; by capacity at its own, where that is the
smaller one. The 90 % interval of a rate is that of decode steps slower and faster by what the
speedup's interval allows, queues included.

Why: the rate is looked for again with one part of the plain side in the place of speculation's own
(`analytic.swapped`). The part without which it lies highest is the reason; none where no part alone
moves it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from specsim.analytic.closed import running_limit
from specsim.analytic.intervals import interval_note, interval_of
from specsim.analytic.open import OpenState, open_loop
from specsim.analytic.swapped import swapped
from specsim.analytic.system import System
from specsim.analytic.workload import Workload, request_s
from specsim.jsonable import Jsonable
from specsim.planning.crossover import TTFT_SLACK, CrossoverFigures, over_contexts
from specsim.search import first_from_one

Measure = Literal["tpot", "ttft", "e2el", "capacity"]
Part = Literal["memory", "steps", "prompts"]
MEASURES: tuple[Measure, ...] = ("tpot", "ttft", "e2el", "capacity")
PARTS: tuple[Part, ...] = ("memory", "steps", "prompts")
STEPS = 256  # rates looked at between none and plain decoding's capacity
MOVES = 1.02  # a rate moved by less is not moved: two of those steps at the top
TIE = 1.01  # times that differ by less are alike, where a part is exchanged
SHARES = (1, 2, 4, 6, 8, 10, 12, 13, 14, 15, 16, 18)  # sixteenths of plain decoding's capacity


@dataclass(frozen=True, slots=True)
class RateSide(Jsonable):
    """One side at one rate. sustained: whether it keeps up; else queue, TTFT and end-to-end latency
    grow without end and are infinite. running, waiting: mean requests. e2el_s: to the last
    token."""

    sustained: bool
    utilisation: float
    tpot_s: float
    ttft_s: float
    e2el_s: float
    queue_s: float
    running: float
    waiting: float
    output_tok_s: float


@dataclass(frozen=True, slots=True)
class RatePoint(Jsonable):
    """One rate, requests per second. Gains: times without / with, tokens served with / without;
    None where a side does not keep up. step_cost_ratio: r of the sequences that run with it."""

    rate: float
    tpot_gain: float | None
    tpot_gain_90: tuple[float, float] | None
    ttft_gain: float | None
    throughput_gain: float
    step_cost_ratio: float
    speculative: RateSide
    plain: RateSide


@dataclass(frozen=True, slots=True)
class RateCrossing(Jsonable):
    """Of one measure. pays_below: requests per second; 0: at no rate; None: at all that plain
    decoding keeps up with. pays_below_90: its ends alike, None where no interval is known. because:
    the part of speculation that ends it, None for none alone. without: the rate with that part as
    plain decoding has it."""

    measure: Measure
    pays_below: float | None
    pays_below_90: tuple[float | None, float | None] | None
    because: Part | None = None
    without: dict[Part, float | None] | None = None


@dataclass(frozen=True, slots=True)
class RateCurve(Jsonable):
    """All of one prompt length. Capacities: largest rates kept up with, requests per second. error:
    why this length cannot be served, the rest empty then."""

    context: int
    capacity: float = 0.0
    plain_capacity: float = 0.0
    running_limit: int = 0
    plain_running_limit: int = 0
    error: str | None = None
    crossings: tuple[RateCrossing, ...] = ()
    points: tuple[RatePoint, ...] = ()

    def crossing(self, measure: Measure) -> RateCrossing:
        return next(item for item in self.crossings if item.measure == measure)


def crossover_rates(
    system: System, workload: Workload, contexts: Sequence[int],
    rates: Sequence[float] | None = None, ttft_slack: float = TTFT_SLACK,
    warnings: tuple[str, ...] = (),
) -> CrossoverFigures:
    """Every prompt length at growing rates.

    rates: requests per second that are shown; None: shares of plain decoding's capacity.
    ttft_slack: share by which the first token may come later. UsageError without speculation,
    CapacityError where no length can be served."""
    curves = over_contexts(system, workload, contexts, RateCurve,
                           lambda load: _Sides(system, load, ttft_slack).curve(rates))
    return CrossoverFigures(
        system, workload, warnings=(*warnings, *filter(None, [interval_note(system)])),
        rates=curves, ttft_slack=ttft_slack,
    )


class _Sides:
    """One deployment and workload, with, without and in part."""

    def __init__(self, system: System, workload: Workload, slack: float) -> None:
        self.system, self.plain, self.workload, self.slack = (
            system, system.plain(), workload, slack)
        without: dict[Part, System] = {
            "memory": swapped(system, room=self.plain),
            "steps": swapped(self.plain, room=system, prompts=system),
            "prompts": swapped(system, prompts=self.plain),
        }
        self.without = without
        band = interval_of(system, "speedup", 1.0)
        self.ends = [swapped(system, slower=1 / gain) for gain in band] if band else []
        self.most = self.capacity(self.plain)

    def state(self, side: System, rate: float) -> OpenState:
        return open_loop(side, self.workload, rate)

    def capacity(self, side: System) -> float:
        return self.state(side, 1.0).capacity_rate

    def curve(self, rates: Sequence[float] | None) -> RateCurve:
        shown = rates or [float(f"{self.most * share / 16:.2g}") for share in SHARES]
        return RateCurve(
            self.workload.input_len, self.capacity(self.system), self.most,
            running_limit(self.system, self.workload), running_limit(self.plain, self.workload),
            crossings=tuple(self.crossing(measure) for measure in MEASURES),
            points=tuple(self.point(rate) for rate in sorted(set(shown))),
        )

    def crossing(self, measure: Measure) -> RateCrossing:
        found = self.pays_below(self.system, measure)
        ends = tuple(self.pays_below(side, measure) for side in self.ends)
        interval = (ends[0], ends[1]) if ends else None
        if found is None:
            return RateCrossing(measure, None, interval)
        without = {part: self.pays_below(side, measure, TIE) for part, side in self.without.items()}
        because = max(PARTS, key=lambda part: self._reach(without[part]))
        moved = self._reach(without[because]) > MOVES * max(found, self.most / STEPS)
        return RateCrossing(measure, found, interval, because if moved else None, without)

    def _reach(self, rate: float | None) -> float:
        """A rate to compare: one that is not reached lies beyond all others."""
        return 2 * self.most if rate is None else rate

    def pays_below(self, side: System, measure: Measure, tie: float = 1.0) -> float | None:
        """The smallest rate at which it does not pay by that measure: at which a time is more than
        `tie` times as long."""
        capacity, step = self.capacity(side), self.most / STEPS
        if measure == "capacity":
            return capacity if capacity < self.most else None
        longer = _TIMES[measure]
        slack = tie * (1 + self.slack if measure == "ttft" else 1.0)

        def loses(count: int) -> bool:
            rate = count * step
            if rate >= capacity:
                return True
            with_it = longer(self.state(side, rate), self.workload)
            return with_it > slack * longer(self.state(self.plain, rate), self.workload)

        found = first_from_one(loses, STEPS - 1)
        if found is None or found == 1:
            return None if found is None else 0.0
        return min(found * step, max(capacity, (found - 1) * step))

    def point(self, rate: float) -> RatePoint:
        with_it, without = self.state(self.system, rate), self.state(self.plain, rate)
        step_s = [side.decoding_s(with_it.running, self.workload.mean_context)
                  for side in (self.system, self.plain)]
        both = with_it.stable and without.stable
        gain = without.tpot_s / with_it.tpot_s if both and with_it.tpot_s > 0 else None
        return RatePoint(
            rate, gain, None if gain is None else interval_of(self.system, "speedup", gain),
            without.ttft_s / with_it.ttft_s if both else None,
            with_it.output_tok_s / without.output_tok_s,
            step_s[0] / step_s[1],
            *(_side(state, self.workload) for state in (with_it, without)),
        )


_TIMES: dict[Measure, Callable[[OpenState, Workload], float]] = {
    "tpot": lambda state, _: state.tpot_s,
    "ttft": lambda state, _: state.ttft_s,
    "e2el": lambda state, load: request_s(state.ttft_s, state.tpot_s, load.output_len),
}


def _side(state: OpenState, workload: Workload) -> RateSide:
    return RateSide(
        state.stable, state.utilisation, state.tpot_s, state.ttft_s,
        _TIMES["e2el"](state, workload), state.queue_s, state.running,
        state.queue_s * state.request_rate, state.output_tok_s,
    )

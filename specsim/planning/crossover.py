"""Where speculation stops paying: the same deployment with and without it while load grows
(docs/planning.md has the definitions).

Closed loops of 1, 2, ... clients at one model, device, workload and context length. No curve is
monotone (routed models lose before they win again), so powers of two are scanned for the first
crossing before it is narrowed down.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from specsim.analytic.closed import SteadyState, closed_loop, running_limit
from specsim.analytic.intervals import interval_note, interval_of
from specsim.analytic.system import System
from specsim.analytic.utilisation import served_utilisation, step_utilisation
from specsim.analytic.workload import Workload, request_s
from specsim.errors import CapacityError, UsageError
from specsim.jsonable import Jsonable, picked
from specsim.latency.breakdown import StepLatency
from specsim.search import first_from_one

if TYPE_CHECKING:
    from specsim.planning.rates import RateCurve, RatePoint

C = TypeVar("C", "Curve", "RateCurve")
CHEAP_SHARE = 0.5
TTFT_SLACK = 0.1
POINTS_PER_OCTAVE = 2
MAX_CONTEXTS = 16


@dataclass(frozen=True, slots=True)
class OneSide(Jsonable):
    """One side at one concurrency. e2el_s: sending to last token. Shares are of the device's peaks:
    over the whole load, and during a decode (verify) step alone."""

    ttft_s: float
    tpot_s: float
    itl_s: float
    e2el_s: float
    output_tok_s: float
    running: float
    step_s: float
    bound: str
    bandwidth_share: float
    compute_share: float
    step_bandwidth_share: float
    step_compute_share: float


@dataclass(frozen=True, slots=True)
class CrossPoint(Jsonable):
    """One concurrency. step_cost_ratio: r, for equal batches. verify_cost_ratio: the target's pass
    over k + 1 tokens / over one. accepted_share: of the drafted tokens."""

    concurrency: int
    speedup: float
    speedup_90: tuple[float, float] | None
    step_cost_ratio: float
    verify_cost_ratio: float
    accepted_share: float
    speculative: OneSide
    plain: OneSide


@dataclass(frozen=True, slots=True)
class Curve(Jsonable):
    """All of one context length. Concurrencies of None: not reached up to max_concurrency.

    break_even_90: (smallest, largest) crossing; None in it: not reached; None for the pair: the
    interval of the speedup is not known. error: why this length cannot be served, points empty.
    """

    context: int
    max_concurrency: int = 0
    running_limit: int = 0
    plain_running_limit: int = 0
    cheap_until: int | None = None
    ridge: int | None = None
    plain_ridge: int | None = None
    break_even_concurrency: int | None = None
    break_even_90: tuple[int | None, int | None] | None = None
    error: str | None = None
    points: tuple[CrossPoint, ...] = ()


@dataclass(frozen=True)
class CrossoverFigures:
    """Result of `crossover`: `curves` over clients or, where rates were asked for, `rates`."""

    system: System
    workload: Workload
    cheap_share: float = CHEAP_SHARE
    curves: tuple[Curve, ...] = ()
    warnings: tuple[str, ...] = ()
    rates: tuple["RateCurve", ...] = ()
    ttft_slack: float = TTFT_SLACK

    @property
    def acceptance_length(self) -> float:
        """Mean tokens of a verify step."""
        assert self.system.acceptance is not None
        return self.system.acceptance.expected_tokens(self.system.setup.k)

    def to_dict(self) -> dict[str, object]:
        return {
            "kind": "crossover",
            **self.system.summary(
                "model", "gpu", "tp", "weights", "kv_dtype", "engine", "engine_version", "method",
                "draft", "k", "acceptance_length",
            ),
            **picked(self, "output_len=workload.output_len cheap_share ttft_slack "
                           "fidelity=system.fidelity curves rates warnings"),
        }

    def rows(self) -> list[dict[str, object]]:
        """One flat row per context and concurrency or rate."""
        return [
            *(_row(curve.context, point) for curve in self.curves for point in curve.points),
            *(_row(curve.context, point) for curve in self.rates for point in curve.points),
        ]


def _row(context: int, point: "CrossPoint | RatePoint") -> dict[str, object]:
    row = {"context": context, **point.to_dict()}
    for name, side in (("speculative", point.speculative), ("plain", point.plain)):
        del row[name]
        row |= {f"{name}_{key}": value for key, value in side.to_dict().items()}
    return row


def crossover(
    system: System, workload: Workload, contexts: Sequence[int], max_concurrency: int | None = None,
    cheap_share: float = CHEAP_SHARE, warnings: tuple[str, ...] = (),
) -> CrossoverFigures:
    """Every context length (prompt tokens) at growing concurrency.

    max_concurrency: None: the largest batch that either side runs at that context. UsageError when
    the system does not speculate, or for too many contexts.
    """
    curves = over_contexts(
        system, workload, contexts, Curve,
        lambda load: _curve(system, load, max_concurrency, cheap_share),
    )
    return CrossoverFigures(
        system, workload, cheap_share, curves, (*warnings, *filter(None, [interval_note(system)]))
    )


def over_contexts(
    system: System, workload: Workload, contexts: Sequence[int], kind: type[C],
    curve: Callable[[Workload], C],
) -> tuple[C, ...]:
    """A curve of each prompt length, of a `kind` that says why where one cannot be served.
    UsageError where nothing is to be compared, or too much; CapacityError where no length can be
    served."""
    if not system.speculative:
        raise UsageError(
            f"there is no speculation to compare for {system.spec.name}; name a --method with its "
            "acceptance (--acceptance-length)"
        )
    if not 1 <= len(contexts) <= MAX_CONTEXTS:
        raise UsageError(f"{len(contexts)} contexts are given; give 1 to {MAX_CONTEXTS}")
    found: list[C] = []
    errors: list[CapacityError] = []
    for context in contexts:
        try:
            found.append(curve(replace(workload, input_len=context)))
        except CapacityError as error:
            errors.append(error)
            found.append(kind(context, error=str(error)))
    if len(errors) == len(contexts):
        raise errors[0]
    return tuple(found)


def grid_to(limit: int) -> list[int]:
    """1 to `limit`, evenly spaced by ratio, both ends included."""
    steps = max(1, math.ceil(math.log2(limit) * POINTS_PER_OCTAVE)) if limit > 1 else 0
    found = {round(2 ** (i / POINTS_PER_OCTAVE)) for i in range(steps)}
    return sorted({c for c in found if c < limit} | {1, limit})


class _Pair:
    """Both sides of one deployment and workload, each state computed once."""

    def __init__(self, system: System, workload: Workload) -> None:
        self.system, self.plain, self.workload = system, system.plain(), workload
        self._states: dict[tuple[bool, int], SteadyState] = {}

    def state(self, speculative: bool, concurrency: int) -> SteadyState:
        found = self._states.get((speculative, concurrency))
        if found is None:
            side = self.system if speculative else self.plain
            found = self._states[speculative, concurrency] = closed_loop(
                side, self.workload, concurrency
            )
        return found

    def speedup(self, concurrency: int) -> float:
        plain = self.state(False, concurrency)
        return self.state(True, concurrency).output_tok_s / plain.output_tok_s

    def step(self, speculative: bool, batch: float) -> StepLatency:
        side = self.system if speculative else self.plain
        return side.latency.step(side.decode_shape(batch, self.workload.mean_context))

    def step_cost_ratio(self, batch: float) -> float:
        """r at equal batches."""
        context = self.workload.mean_context
        return self.system.decoding_s(batch, context) / self.plain.decoding_s(batch, context)

    def point(self, concurrency: int) -> CrossPoint:
        with_it, without = self.state(True, concurrency), self.state(False, concurrency)
        batch = with_it.running
        speedup = self.speedup(concurrency)
        verify, bare = self.step(True, batch), self.step(False, batch)
        acceptance, k = self.system.acceptance, self.system.setup.k
        assert acceptance is not None
        return CrossPoint(
            concurrency, speedup, interval_of(self.system, "speedup", speedup),
            self.step_cost_ratio(batch), verify.target_s / bare.target_s, acceptance.rate(k),
            _side(self.system, self.workload, with_it), _side(self.plain, self.workload, without),
        )


def _curve(
    system: System, workload: Workload, max_concurrency: int | None, cheap_share: float
) -> Curve:
    pair = _Pair(system, workload)
    limit, plain_limit = (running_limit(side, workload) for side in (system, pair.plain))
    top = max(limit, plain_limit) if max_concurrency is None else max_concurrency
    band = interval_of(system, "speedup", 1.0)

    def pays_below(true: float) -> int | None:
        """Where the true speedup is so many times the predicted one, it ends where that is the
        inverse."""
        return first_from_one(lambda count: pair.speedup(count) < 1 / true, top)

    def computes_from(speculative: bool, most: int) -> int | None:
        return first_from_one(lambda count: _pressure(pair.step(speculative, count)) > 1,
                              min(top, most))

    return Curve(
        workload.input_len, top, limit, plain_limit,
        first_from_one(lambda count: pair.step_cost_ratio(count) - 1 > cheap_share,
                       min(top, limit)),
        computes_from(True, limit), computes_from(False, plain_limit), pays_below(1.0),
        None if band is None else (pays_below(band[0]), pays_below(band[1])),
        points=tuple(pair.point(count) for count in grid_to(top)),
    )


def _pressure(step: StepLatency) -> float:
    """Time in kernels that multiply over time in kernels that stream memory."""
    return step.compute_s / step.memory_s if step.memory_s > 0 else math.inf


def _side(system: System, workload: Workload, state: SteadyState) -> OneSide:
    served = served_utilisation(system, workload, state)
    step = step_utilisation(system, system.decode_shape(state.running, workload.mean_context))
    return OneSide(
        state.ttft_s, state.tpot_s, state.itl_s,
        request_s(state.ttft_s, state.tpot_s, workload.output_len), state.output_tok_s,
        state.running, state.step_s, state.bound, served.bandwidth, served.compute,
        step.bandwidth, step.compute,
    )

"""Speed for one user against throughput of a GPU, over everything an operator can set
(docs/planning.md).

Every combination is one point, taken when it is full: max_num_seqs clients in a closed loop.
stream_tok_s is 1 / TPOT, gpu_tok_s the replica's output tokens per second over its GPUs; a frontier
holds the points that no other one beats in both. What cannot run is counted by reason. Priced
kernels are shared between points that differ in limits alone.
"""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from specsim.analytic.closed import closed_loop, running_limit
from specsim.analytic.energy import energy_of
from specsim.analytic.system import System
from specsim.analytic.workload import Workload
from specsim.errors import CapacityError, SpecSimError, UsageError
from specsim.jsonable import Jsonable, picked
from specsim.units import counted, rounded, seconds

if TYPE_CHECKING:
    from specsim.planning.pareto_at import AtSpeed

MAX_POINTS = 200_000
# Settings in the order in which they are reported.
AXES = ("k", "tp", "pp", "weights", "kv_dtype", "max_num_seqs", "max_num_batched_tokens")


@dataclass(frozen=True, slots=True)
class Axes(Jsonable):
    """What is tried. k 0: plain decoding."""

    k: tuple[int, ...]
    tp: tuple[int, ...]
    weights: tuple[str, ...]
    kv_dtype: tuple[str, ...]
    max_num_seqs: tuple[int, ...]
    max_num_batched_tokens: tuple[int, ...]
    pp: tuple[int, ...] = (1,)

    @property
    def count(self) -> int:
        return math.prod(len(getattr(self, name)) for name in AXES)


@dataclass(frozen=True, slots=True)
class ParetoPoint:
    """One full deployment. system: as it would be started. joules_per_output_token: of points on a
    frontier, where the device's power is known."""

    system: System
    k: int
    tp: int
    pp: int
    weights: str
    kv_dtype: str
    max_num_seqs: int
    max_num_batched_tokens: int
    stream_tok_s: float
    gpu_tok_s: float
    ttft_s: float
    tpot_s: float
    joules_per_output_token: float | None = None

    @property
    def gpus(self) -> int:
        return self.system.parallel.all_gpus

    def to_dict(self) -> dict[str, object]:
        return picked(self, " ".join(AXES) + " gpus stream_tok_s gpu_tok_s ttft_s tpot_s"
                      " joules_per_output_token")


@dataclass(frozen=True)
class ParetoFigures:
    """Result of `pareto`. frontier: of all points; speculative, plain: of one side. All from the
    fastest for one user to the highest throughput. infeasible: reason -> points. at: both sides at
    speeds that were asked for (`planning.pareto_at`)."""

    base: System
    workload: Workload
    axes: Axes
    points: tuple[ParetoPoint, ...]
    frontier: tuple[ParetoPoint, ...]
    speculative: tuple[ParetoPoint, ...]
    plain: tuple[ParetoPoint, ...]
    infeasible: dict[str, int]
    examples: dict[str, str]
    warnings: tuple[str, ...] = ()
    partial: bool = False
    at: tuple["AtSpeed", ...] = ()

    def to_dict(self) -> dict[str, object]:
        return {
            "kind": "pareto",
            **self.base.summary("model", "gpu", "engine", "engine_version", "method", "draft"),
            **picked(self.workload, "input_len output_len"),
            "fidelity": self.base.fidelity,
            "axes": self.axes.to_dict(),
            "combinations": self.axes.count,
            "feasible": len(self.points),
            **picked(self, "at infeasible infeasible_examples=examples partial warnings"),
        }


class Refused(Exception):
    """A combination that cannot run, or that the limits leave out. Its text is the reason."""

    def __init__(self, reason: str, example: str = "") -> None:
        super().__init__(reason)
        self.example = example


def pareto(
    base: System, workload: Workload, axes: Axes,
    build: Callable[[int, int, str, str, int], System], *, max_ttft_s: float | None = None,
    stream_floor_tok_s: float | None = None, warnings: tuple[str, ...] = (),
    report: Callable[[int, int], None] | None = None,
) -> ParetoFigures:
    """All combinations of `axes`, and who wins.

    build(tp, pp, weights, kv_dtype, k) -> the system with these (limits are set here); it may raise
    SpecSimError, which makes the combinations infeasible. max_ttft_s, stream_floor_tok_s: points
    that miss them count as infeasible. report(done, total) hears of the progress. Ctrl-C ends the
    search early with what was found (partial).
    """
    if axes.count > MAX_POINTS:
        raise UsageError(
            f"{axes.count} combinations are asked for; at most {MAX_POINTS}: give fewer values"
        )
    reasons: Counter[str] = Counter()
    examples: dict[str, str] = {}
    points: list[ParetoPoint] = []
    total, done, partial = axes.count, 0, False

    def refuse(reason: str, example: str, times: int = 1) -> None:
        reasons[reason] += times
        examples.setdefault(reason, example)

    limits = list(itertools.product(axes.max_num_seqs, axes.max_num_batched_tokens))
    try:
        for tp, pp, weights, kv, k in itertools.product(
            axes.tp, axes.pp, axes.weights, axes.kv_dtype, axes.k
        ):
            try:
                shared = build(tp, pp, weights, kv, k)
                _ = shared.latency  # refuse once what no limit makes possible
            except SpecSimError as error:
                refuse(reason_of(error), str(error), len(limits))
            else:
                # One batch after the other, so that budgets find its steps priced.
                for seqs, budget in limits:
                    system = shared.with_(max_num_seqs=seqs, max_num_batched_tokens=budget)
                    try:
                        points.append(point_of(system, workload, k, max_ttft_s, stream_floor_tok_s))
                    except Refused as error:
                        refuse(str(error), error.example)
            done += len(limits)
            if report is not None:
                report(done, total)
    except KeyboardInterrupt:
        if not points:
            raise
        partial = True
    if not points:
        text = "; ".join(f"{reason} ({n})" for reason, n in reasons.most_common(4))
        first = next(iter(examples.values()), "")
        raise CapacityError(f"none of the {total} combinations can run: {text}; e.g. {first}")
    notes = list(warnings)
    acceptance = base.acceptance
    if acceptance is not None and max(axes.k) > acceptance.measured_positions:
        notes.append(
            f"acceptance beyond position {acceptance.measured_positions} is extrapolated, for "
            "every larger k"
        )
    if partial:
        notes.append(f"interrupted after {done} of {total} combinations")
    best = [
        tuple(with_energy(point, workload) for point in frontier(some))
        for some in (points, [p for p in points if p.k], [p for p in points if not p.k])
    ]
    return ParetoFigures(
        base, workload, axes, tuple(points), best[0], best[1], best[2],
        dict(reasons.most_common()), examples, tuple(notes), partial,
    )


def frontier(points: Iterable[ParetoPoint]) -> list[ParetoPoint]:
    """Those that no other point beats in both coordinates, fastest for one user first. Of equal
    ones the first stays."""
    best = 0.0
    found = []
    for point in sorted(points, key=lambda p: (-p.stream_tok_s, -p.gpu_tok_s)):
        if point.gpu_tok_s > best:
            best = point.gpu_tok_s
            found.append(point)
    return found


def with_energy(point: ParetoPoint, workload: Workload) -> ParetoPoint:
    """The point with its joules per output token."""
    state = closed_loop(point.system, workload, point.max_num_seqs)
    found = energy_of(point.system, workload, state)
    joules = None if found is None else found.joules_per_output_token
    return replace(point, joules_per_output_token=joules)


def point_of(
    system: System, workload: Workload, k: int, max_ttft_s: float | None,
    floor_tok_s: float | None = None,
) -> ParetoPoint:
    """The system full of requests; Refused if it cannot be, or misses a limit."""
    seqs, budget = system.seqs_limit, system.batched_tokens
    try:
        holds = running_limit(system, workload)
    except SpecSimError as error:
        raise Refused(reason_of(error), str(error)) from None
    if holds < seqs:
        fits = system.memory.max_requests(workload.input_len + workload.output_len)
        if fits < seqs:
            raise Refused(
                "the cache holds fewer requests than max_num_seqs",
                f"{fits} of {seqs} at tp {system.parallel.tp}",
            )
        raise Refused(
            "the token budget is below what max_num_seqs requests bring",
            f"{seqs} x {system.setup.verify_tokens} tokens into {budget}",
        )
    state = closed_loop(system, workload, seqs)
    if max_ttft_s is not None and state.ttft_s > max_ttft_s:
        raise Refused(
            "TTFT is above --max-ttft", f"{seconds(state.ttft_s)} at {counted(seqs, 'request')}"
        )
    if floor_tok_s is not None and state.stream_tok_s < floor_tok_s:
        raise Refused(
            "a stream is slower than --stream-floor",
            f"{rounded(state.stream_tok_s)} tok/s at {counted(seqs, 'request')}",
        )
    return ParetoPoint(
        system, k, system.parallel.tp, system.parallel.pp, system.spec.weights, system.kv_dtype,
        seqs, budget, state.stream_tok_s, state.output_tok_s / system.parallel.all_gpus,
        state.ttft_s, state.tpot_s,
    )


def reason_of(error: SpecSimError) -> str:
    """A refusal as one of a few reasons, for counting."""
    text = str(error)
    if isinstance(error, CapacityError):
        if "GB per GPU" in text:
            return "the weights do not fit"
        return "the cache does not hold one request"
    for mark, reason in (
        ("cannot be split", "the model cannot be split over this tp"),
        ("no link", "the device has no link for this tp"),
        ("--max-num-batched-tokens", "the token budget is below one request's tokens"),
        ("dtype", "the model or device has no such dtype"),
        ("k is", "the method does not allow this k"),
    ):
        if mark in text:
            return reason
    return "refused: " + text.split(";", maxsplit=1)[0][:80]


def sides(points: Sequence[ParetoPoint]) -> Iterator[tuple[str, list[ParetoPoint]]]:
    """('speculative', points) and ('plain', points), those that have any."""
    for name, wanted in (("speculative", True), ("plain", False)):
        found = [point for point in points if bool(point.k) is wanted]
        if found:
            yield name, found

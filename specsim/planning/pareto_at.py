"""What a GPU serves at one speed of a user's stream, with speculation and without, over everything
an operator can set: the comparison of purchase pages (docs/planning.md).

Each setting takes as many request slots as still give every user the speed, found in whole slots,
not between two points; the setting with the most tokens per second and GPU then stands for its
side. So both sides are deployments that can be started.

The interval of their ratio is that of two errors, taken as independent: speculation is faster or
slower than predicted by what the speedup's interval allows, and both sides are by that of TPOT. A
side that is f times as fast has its frontier at f times the speed and the throughput; frontiers are
followed between their points along straight lines in logarithms.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from specsim.analytic.closed import running_limit
from specsim.analytic.intervals import interval_of
from specsim.analytic.workload import Workload
from specsim.jsonable import Jsonable
from specsim.planning.cost import Cost, cost_of
from specsim.planning.pareto import AXES, ParetoFigures, ParetoPoint, Refused, point_of, with_energy
from specsim.search import first_between


@dataclass(frozen=True, slots=True)
class AtSide(Jsonable):
    """The best setting of one side, and what its tokens cost."""

    point: ParetoPoint
    cost: Cost


@dataclass(frozen=True, slots=True)
class AtSpeed(Jsonable):
    """One speed. A side is None where no setting reaches it. ratio: tokens per second and GPU, with
    / without; ratio_90: its interval, None at an end without bound (plain decoding may not reach
    the speed). joules_ratio: joules per token, with / without."""

    stream_tok_s: float
    speculative: AtSide | None
    plain: AtSide | None
    ratio: float | None = None
    ratio_90: tuple[float, float | None] | None = None
    joules_ratio: float | None = None


def with_speeds(
    found: ParetoFigures, speeds: Sequence[float], price: float | None = None,
    max_ttft_s: float | None = None,
) -> ParetoFigures:
    """The study with both sides compared at these speeds, tokens per second of one stream.

    price: of a GPU hour. max_ttft_s: as of the study."""
    return replace(found, at=tuple(_at(found, speed, price, max_ttft_s) for speed in speeds))


def _at(
    found: ParetoFigures, speed: float, price: float | None, max_ttft_s: float | None
) -> AtSpeed:
    def side(drafts: bool) -> AtSide | None:
        own = [point for point in found.points if bool(point.k) is drafts]
        best = best_at(own, found.workload, speed, found.axes.max_num_seqs, max_ttft_s)
        if best is None:
            return None
        best = with_energy(best, found.workload)
        return AtSide(best, cost_of(
            best.gpu_tok_s * best.gpus, best.gpus, best.system.profile, price,
            best.joules_per_output_token,
        ))

    ours, plain = side(True), side(False)
    if ours is None or plain is None:
        return AtSpeed(speed, ours, plain)
    ratio = ours.point.gpu_tok_s / plain.point.gpu_tok_s
    ratio_90 = _ratio_90(found, speed, ratio, ours, plain)
    joules = [side.point.joules_per_output_token for side in (ours, plain)]
    energy = joules[0] / joules[1] if joules[0] and joules[1] else None
    return AtSpeed(speed, ours, plain, ratio, ratio_90, energy)


def best_at(
    points: Sequence[ParetoPoint], workload: Workload, speed: float, seqs: Sequence[int],
    max_ttft_s: float | None = None,
) -> ParetoPoint | None:
    """The setting with the most tokens per second and GPU whose users each get `speed`; None where
    none does. points: what was priced, by `seqs`, the request slots that were tried."""
    others = [name for name in AXES if name != "max_num_seqs"]
    by_setting: dict[tuple[object, ...], list[ParetoPoint]] = {}
    for point in points:
        by_setting.setdefault(tuple(getattr(point, n) for n in others), []).append(point)
    best: ParetoPoint | None = None

    def bound(own: list[ParetoPoint]) -> float:
        """No more than the slowest of those that are too fast or the fastest of the too slow."""
        slow = [p.gpu_tok_s for p in own if p.stream_tok_s < speed]
        return min(slow) if slow else math.inf

    for own in sorted(by_setting.values(), key=bound, reverse=True):
        if best is not None and bound(own) <= best.gpu_tok_s:
            continue
        top = _fullest(own, workload, speed, seqs, max_ttft_s)
        if top is not None and (best is None or top.gpu_tok_s > best.gpu_tok_s):
            best = top
    return best


def _fullest(
    own: list[ParetoPoint], workload: Workload, speed: float, seqs: Sequence[int],
    max_ttft_s: float | None,
) -> ParetoPoint | None:
    """One setting with as many request slots as give everybody the speed; fewer, of those looked
    at on the way, where a step that grows by a tile makes them serve more."""
    fast = max((p for p in own if p.stream_tok_s >= speed), key=lambda p: p.max_num_seqs,
               default=None)
    base, low = own[0], fast.max_num_seqs if fast else 0
    high = next((count for count in seqs if count > low), None)
    if high is None:
        return fast
    priced: dict[int, ParetoPoint | None] = {low: fast}
    system = base.system.with_(max_num_seqs=high)
    high = min(high, running_limit(system, workload) + 1)

    def too_slow(count: int) -> bool:
        try:
            point = point_of(base.system.with_(max_num_seqs=count), workload, base.k, max_ttft_s)
        except Refused:
            return True
        priced[count] = point
        return point.stream_tok_s < speed

    first_between(too_slow, low, high)
    kept = [p for p in priced.values() if p is not None and p.stream_tok_s >= speed]
    return max(kept, key=lambda p: p.gpu_tok_s, default=None)


def followed(frontier: Sequence[ParetoPoint], speed: float) -> float:
    """Tokens per second and GPU of a frontier (fastest first) at a speed, between its points along
    a straight line in logarithms: what its slowest gives at any lower speed, 0 beyond its
    fastest."""
    if not frontier or speed > frontier[0].stream_tok_s:
        return 0.0
    for fast, slow in itertools.pairwise(frontier):
        if slow.stream_tok_s <= speed:
            width = math.log(fast.stream_tok_s / slow.stream_tok_s)
            share = math.log(fast.stream_tok_s / speed) / width
            return fast.gpu_tok_s * math.pow(slow.gpu_tok_s / fast.gpu_tok_s, share)
    return frontier[-1].gpu_tok_s


def _ratio_90(
    found: ParetoFigures, speed: float, ratio: float, ours: AtSide, plain: AtSide
) -> tuple[float, float | None] | None:
    gains = interval_of(ours.point.system, "speedup", 1.0)
    times = interval_of(plain.point.system, "tpot", 1.0)
    here = [followed(side, speed) for side in (found.speculative, found.plain)]
    if gains is None or times is None or not all(here):
        return None

    def with_it(factor: float) -> float:
        return factor * followed(found.speculative, speed / factor) / here[0]

    def without(factor: float) -> float:
        return factor * followed(found.plain, speed / factor) / here[1]

    def common(factor: float) -> float:
        """Both as much faster; where neither gets there, nothing is learnt."""
        ours, plain = with_it(factor), without(factor)
        return ours / plain if plain else math.inf if ours else 1.0

    moves = [[with_it(gain) for gain in gains], [common(1 / time) for time in times]]
    low = high = 0.0
    for factors in moves:
        logs = [math.log(f) if 0 < f < math.inf else math.copysign(math.inf, f - 1)
                for f in factors]
        low, high = math.hypot(low, min(0.0, *logs)), math.hypot(high, max(0.0, *logs))
    return ratio * math.exp(-low), ratio * math.exp(high) if math.isfinite(high) else None

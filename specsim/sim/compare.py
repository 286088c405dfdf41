"""One load on a deployment with and without speculation, run several times.

Run i of both has the seed `seed + i`: the same requests and random draws, so that the ratio of
the two is the effect of speculation alone (common random numbers). Figures are medians over the
runs, `*_max` the largest, the parts of `time_share` means, which sum to 1; a gain is the median of
the runs' own ratios, paired by seed. Confidence intervals are theirs, at 95 %. A load passes its
SLO as `passing` says, which also decides how many runs there are where nobody said.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, cast

import numpy as np
from numpy.typing import NDArray

from specsim.sim import passing
from specsim.sim import slo as gates
from specsim.sim.build import Deployment
from specsim.sim.figures import Figures, most_of, numbers_in, value_at
from specsim.sim.intervals import mean_of_runs, median_interval, median_or_none
from specsim.sim.loads import Load
from specsim.sim.run import Progress, SimResult, simulate
from specsim.sim.stationarity import Stationarity, judge_trends
from specsim.sim.steplog import Timeline
from specsim.sim.summary import merged_timeline

Report = Callable[[str, int, Progress | None], None]


class Summarise(Protocol):
    """What is kept of a run."""

    def __call__(self, result: SimResult, /, *, completed: bool) -> Figures: ...


# Ratios with / without speculation; above 1 is better in all of them (times are inverted).
OverTime = dict[str, float | list[float] | list[float | None]]
MOST_POINTS = 120
DIGITS = 5  # significant figures: nobody reads more from a curve
GAINS = {
    "output_tok_s": ("output_tok_s", False),
    "tpot_mean": ("tpot_s.mean", True),
    "stream_tok_s_p10": ("stream_tok_s.p10", False),
    "e2el_mean": ("e2el_s.mean", True),
    "ttft_p95": ("ttft_s.p95", True),
    "joules_per_output_token": ("energy.joules_per_output_token", True),
}
# What a stop by precision looks at.
PRECISE = ("tpot_s.mean", "ttft_s.mean", "output_tok_s")
FEWEST_FOR_PRECISION = 3
MOST_REPLICATIONS = 64
NO_INTERVAL = ("window_s", "cost_surface", "slo", "partial", "trend")


@dataclass(frozen=True)
class LoadPlan:
    """make(seed): a fresh load. description: what it is, for people and JSON. total: requests,
    None if the time limits them. context_variation: coefficient of variation of what running
    requests hold. completed: latencies are of the requests that are complete inside the measured
    time (see `summary`)."""

    make: Callable[[int], Load]
    description: Mapping[str, object]
    total: int | None = None
    context_variation: float = 0.0
    completed: bool = False


@dataclass(frozen=True)
class Arm:
    """Figures of one side: median over the runs, and an interval where there are several."""

    figures: Figures
    runs: tuple[Figures, ...]
    stationarity: Stationarity
    confidence_95: dict[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def partial(self) -> bool:
        return bool(self.figures["partial"])

    def to_dict(self) -> dict[str, object]:
        out: dict[str, object] = {**self.figures, "stationarity": self.stationarity.to_dict()}
        if self.confidence_95:
            out["confidence_95"] = {name: list(pair) for name, pair in self.confidence_95.items()}
        return out


@dataclass(frozen=True)
class SimulatedComparison:
    """The result of `compare`. first: the first run with speculation (records, trace).

    gain: how many times better speculation is; each a ratio, with its interval in gain_95.
    timelines: the first run of each side ('with', 'without') over time, see `over_time`."""

    main: Arm
    baseline: Arm | None
    first: SimResult
    gain: dict[str, float | None]
    gain_95: dict[str, tuple[float, float]]
    partial: bool
    seeds: tuple[int, ...]
    timelines: dict[str, OverTime] = field(default_factory=dict)


def compare(
    deployment: Deployment, plan: LoadPlan, seed: int, *, replications: int | None = 1,
    precision: float | None = None, baseline: bool = True, keep_trace: bool = False,
    report: Report | None = None,
) -> SimulatedComparison:
    """Run the load on the deployment and, if asked for, on the same one without speculation.

    replications: None: until the verdict on the SLO is sure, at most `passing.MOST`.
    precision: go on after `replications` runs until the half-width of the intervals of `PRECISE`
    is at most this share of the mean, or MOST_REPLICATIONS runs are done. report(side,
    replication, progress) hears of the progress; side is 'with' or 'without', progress None at
    the start of a run. A run that Ctrl-C cuts short is the last; it counts only if none was
    finished before it.
    """
    plain = deployment.plain() if baseline and deployment.system.speculative else None
    sides = [("with", deployment)] + ([("without", plain)] if plain else [])
    found = run_sides(
        sides, plan, seed, replications=replications, precision=precision, keep_trace=keep_trace,
        report=report,
    )
    main = found.arms["with"]
    # Without speculation the same load without speculation is the run itself.
    same = baseline and not deployment.system.speculative
    other = main if same else found.arms.get("without")
    gain, gain_95 = _gains(main, other)
    seeds = tuple(range(seed, seed + len(main.runs)))
    return SimulatedComparison(
        main, other, found.first, gain, gain_95, found.interrupted, seeds, found.timelines
    )


@dataclass(frozen=True)
class SidesRun:
    """Sides of a comparison by name; first, timelines: see `SimulatedComparison`."""

    arms: dict[str, Arm]
    first: SimResult
    timelines: dict[str, OverTime]
    interrupted: bool


def run_sides(
    sides: Sequence[tuple[str, Deployment]], plan: LoadPlan, seed: int, *, replications: int | None,
    precision: float | None = None, keep_trace: bool = False, report: Report | None = None,
    figures: Summarise = SimResult.summary,
) -> SidesRun:
    """Run the load on each side with seeds seed, seed + 1, ...; see `compare`. figures: what is
    kept of a run."""
    lead = sides[0][0]
    done: dict[str, list[Figures]] = {name: [] for name, _ in sides}
    cut: dict[str, Figures] = {}
    interrupted = False
    timelines: dict[str, OverTime] = {}
    first: SimResult | None = None
    fixed = replications or (1 if precision is not None else passing.MOST)
    last = fixed if precision is None else max(fixed, MOST_REPLICATIONS)
    for i in range(last):
        found: dict[str, Figures] = {}
        try:
            for name, side in sides:
                result = _run(side, plan, seed + i, keep_trace and first is None, name, i, report)
                first = first or result
                if name not in timelines:
                    timelines[name] = over_time(result)
                found[name] = figures(result, completed=plan.completed)
                if result.partial:
                    raise KeyboardInterrupt
        except KeyboardInterrupt:
            # Also between the runs: while a load is made, a table set up, or figures added up.
            if not found and not done[lead]:
                raise
            cut, interrupted = found, True
            break
        for name, summary in found.items():
            done[name].append(summary)
        enough = i + 1 >= max(fixed, FEWEST_FOR_PRECISION)
        if precision is not None and enough and _precise_enough(done.values(), precision):
            break
        if replications is None and precision is None and passing.enough(_judged(done[lead]), last):
            break
    assert first is not None
    if not done[lead]:
        done = {name: [cut[name]] if name in cut else [] for name, _ in sides}
    slo = sides[0][1].config.slo
    arms = {name: _arm(runs, slo) for name, runs in done.items() if runs}
    return SidesRun(arms, first, timelines, interrupted)


def _run(
    side: Deployment, plan: LoadPlan, seed: int, keep_trace: bool, name: str, number: int,
    report: Report | None,
) -> SimResult:
    heard = None
    if report is not None:
        report(name, number, None)
        heard = partial(report, name, number)
    load = plan.make(seed)
    return simulate(
        side.config, load, side.cost, seed, prefill_cost=side.prefill_cost, progress=heard,
        keep_trace=keep_trace,
    )


def _judged(runs: Sequence[Figures]) -> list[Mapping[str, object]]:
    """The gates of every run."""
    return [run["slo"] for run in runs if run["slo"]]


def _arm(runs: list[Figures], slo: dict[str, float]) -> Arm:
    figures = middle_of(runs) if len(runs) > 1 else cast(Figures, {**runs[0]})
    if slo:
        verdict = passing.verdict_of(_judged(runs))
        figures["slo"] = {**gates.judge(slo, figures), "pass": verdict.ok,
                          "verdict": verdict.to_dict()}
    columns: dict[str, list[float]] = {}
    for run in runs:
        for name, value in numbers_in(run):
            if name.partition(".")[0] not in NO_INTERVAL and not name.endswith("_max"):
                columns.setdefault(name, []).append(value)
    confidence = {}
    for name, values in columns.items():
        if len(values) < len(runs):
            continue
        found = mean_of_runs(values) if name.startswith("time_share.") else None
        pair = (
            median_interval(values, most_of(name)) if found is None
            else found.bounded(most_of(name))
        )
        if pair is not None:
            confidence[name] = pair
    figures.pop("trend", None)
    return Arm(figures, tuple(runs), judge_trends(runs), confidence)


def middle_of(runs: Sequence[Figures]) -> Figures:
    """Figure by figure the median of several runs, of `*_max` the largest."""
    return cast(Figures, _middle(runs, ""))


def _middle(values: Sequence[object], name: str) -> object:
    if any(isinstance(x, bool) for x in values):
        return any(values)
    tables = [value for value in values if isinstance(value, dict)]
    if tables:
        # Only counts (censored, time parts) may be missing in a run: there were none.
        keys = dict.fromkeys(key for table in tables for key in table)
        middle = _mean if name == "time_share" else _middle
        return {key: middle([table.get(key, 0) for table in tables], key) for key in keys}
    lists = [value for value in values if isinstance(value, list)]
    if lists:
        return [_middle(items, name) for items in zip(*lists, strict=True)]
    word = next((x for x in values if isinstance(x, str)), None)
    if word is not None:
        return word
    numbers = [x if isinstance(x, int | float) else None for x in values]
    if name.endswith("_max"):
        return max((x for x in numbers if x is not None), default=None)
    return median_or_none(numbers)


def _mean(values: Sequence[float], name: str) -> float:
    return mean_of_runs(values).mean


def _ratio(with_it: Figures, without: Figures, path: str, inverted: bool) -> float | None:
    a, b = value_at(with_it, path), value_at(without, path)
    if inverted:
        a, b = b, a
    return a / b if a is not None and b else None


def _gains(
    main: Arm, other: Arm | None
) -> tuple[dict[str, float | None], dict[str, tuple[float, float]]]:
    gain: dict[str, float | None] = {}
    intervals: dict[str, tuple[float, float]] = {}
    if other is None:
        return gain, intervals
    for name, (path, inverted) in GAINS.items():
        pairs = zip(main.runs, other.runs, strict=True)
        ratios = [_ratio(a, b, path, inverted) for a, b in pairs]
        known = [x for x in ratios if x is not None]
        whole = len(known) == len(ratios)
        gain[name] = (
            median_or_none(known) if whole
            else _ratio(main.figures, other.figures, path, inverted)
        )
        pair = median_interval(known) if whole else None
        if pair is not None:
            intervals[name] = pair
    return gain, intervals


def _precise_enough(sides: Iterable[list[Figures]], precision: float) -> bool:
    for runs in sides:
        for path in PRECISE:
            values = [value_at(run, path) for run in runs]
            known = [x for x in values if x is not None]
            if len(known) < len(values) or mean_of_runs(known).relative > precision:
                return False
    return True


def over_time(result: SimResult) -> OverTime:
    """The `timeline` of `specsim simulate --json`, in at most 120 points: each is the mean over an
    interval of equal width (of TTFT: percentiles of the requests sent in it).

    width_s: of the intervals. t_s: their starts. running, waiting: mean requests in steps and in
    the engines' queues, all replicas. kv_usage: share of the cache blocks held by requests.
    output_tok_s: tokens given out per second. busy: share of the time in which a step ran.
    ttft_p50_s, ttft_p95_s: of the requests sent in the interval that got a token, else None.
    """
    merged = merged_timeline(result.cluster)
    cells = Timeline.FIELDS
    area, width = merged.area, merged.width_s
    count = math.ceil(merged.end_s / width) if merged.end_s > 0 else 0
    area = area[:, :count]
    while count > MOST_POINTS:
        if count % 2:
            area = np.concatenate([area, np.zeros((len(cells), 1))], axis=1)
        area = area[:, ::2] + area[:, 1::2]
        width *= 2
        count = area.shape[1]
    starts = np.arange(count) * width
    spans = np.minimum(starts + width, merged.end_s) - starts
    levels = dict(zip(cells, area / np.maximum(spans, 1e-12), strict=True))
    replicas = result.cluster.replicas
    blocks = sum(replica.run.config.most_kv_blocks for replica in replicas)
    out: OverTime = {
        "width_s": width,
        "t_s": _short(starts),
        "running": _short(levels["running"]),
        "waiting": _short(levels["waiting"]),
        "kv_usage": _short(levels["kv_blocks"] / blocks),
        "output_tok_s": _short(levels["tokens"]),
        "busy": _short(levels["busy"] / len(replicas)),
    }
    arrival = result.records.times("arrival_s")
    ttft = result.records.times("first_token_s") - arrival
    place = np.minimum((arrival / width).astype(np.int64), count - 1)
    for percent in (50, 95):
        values: list[float | None] = [None] * count
        for i in range(count):
            inside = ttft[(place == i) & ~np.isnan(ttft)]
            if len(inside):
                values[i] = _rounded(float(np.percentile(inside, percent)))
        out[f"ttft_p{percent}_s"] = values
    return out


def _short(values: NDArray[np.floating]) -> list[float]:
    return [_rounded(float(value)) for value in values]


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")

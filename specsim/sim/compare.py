"""One load on a deployment with and without speculation, run several times.

Run i of both has the seed `seed + i`: the same requests with the same luck, so that the ratio of
the two is the effect of speculation alone (common random numbers). Figures are means over the
runs, `*_max` the largest; confidence intervals are Student's t at 95 % over the runs (of the
ratios: over the runs' own ratios, paired by seed). SLO gates are judged on the means.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import cast

from specsim.sim import slo as gates
from specsim.sim.build import Deployment
from specsim.sim.figures import Figures, numbers_in, value_at
from specsim.sim.intervals import mean_of_runs
from specsim.sim.loads import Load
from specsim.sim.overtime import OverTime, over_time
from specsim.sim.run import Progress, SimResult, simulate

Report = Callable[[str, int, Progress | None], None]
# Ratios with / without speculation; above 1 is better in all of them (times are inverted).
GAINS = {
    "output_tok_s": ("output_tok_s", False),
    "tpot_mean": ("tpot_s.mean", True),
    "stream_tok_s_p10": ("stream_tok_s.p10", False),
    "e2el_mean": ("e2el_s.mean", True),
    "ttft_p95": ("ttft_s.p95", True),
}
# What a stop by precision looks at.
PRECISE = ("tpot_s.mean", "ttft_s.mean", "output_tok_s")
FEWEST_FOR_PRECISION = 3
MOST_REPLICATIONS = 64
NO_INTERVAL = ("window_s", "cost_surface", "slo", "partial")


@dataclass(frozen=True)
class LoadPlan:
    """make(seed): a fresh load. description: what it is, for people and JSON. context_tokens: what
    a running request holds on average. total: requests, None if the time limits them.
    context_variation: coefficient of variation of what running requests hold."""

    make: Callable[[int], Load]
    description: Mapping[str, object]
    context_tokens: int
    total: int | None = None
    context_variation: float = 0.0


@dataclass(frozen=True)
class Arm:
    """Figures of one side: mean over the runs, and an interval where there are several."""

    figures: Figures
    runs: tuple[Figures, ...]
    confidence_95: dict[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def partial(self) -> bool:
        return bool(self.figures["partial"])

    def to_dict(self) -> dict[str, object]:
        out: dict[str, object] = {**self.figures}
        if self.confidence_95:
            out["confidence_95"] = {name: list(pair) for name, pair in self.confidence_95.items()}
        return out


@dataclass(frozen=True)
class SimulatedComparison:
    """The result of `compare`. first: the first run with speculation (records, trace).

    gain: how many times better speculation is; each a ratio, with its interval in gain_95.
    timelines: the first run of each side ('with', 'without') over time, see `overtime`."""

    main: Arm
    baseline: Arm | None
    first: SimResult
    gain: dict[str, float | None]
    gain_95: dict[str, tuple[float, float]]
    partial: bool
    seeds: tuple[int, ...]
    timelines: dict[str, OverTime] = field(default_factory=dict)


def compare(
    deployment: Deployment,
    plan: LoadPlan,
    seed: int,
    *,
    replications: int = 1,
    precision: float | None = None,
    baseline: bool = True,
    keep_trace: bool = False,
    report: Report | None = None,
) -> SimulatedComparison:
    """Run the load on the deployment and, if asked for, on the same one without speculation.

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
    sides: Sequence[tuple[str, Deployment]],
    plan: LoadPlan,
    seed: int,
    *,
    replications: int,
    precision: float | None = None,
    keep_trace: bool = False,
    report: Report | None = None,
    figures: Callable[[SimResult], Figures] = SimResult.summary,
) -> SidesRun:
    """Run the load on each side with seeds seed, seed + 1, ...; see `compare`. figures: what is
    kept of a run."""
    lead = sides[0][0]
    done: dict[str, list[Figures]] = {name: [] for name, _ in sides}
    cut: dict[str, Figures] = {}
    interrupted = False
    timelines: dict[str, OverTime] = {}
    first: SimResult | None = None
    last = replications if precision is None else max(replications, MOST_REPLICATIONS)
    for i in range(last):
        found: dict[str, Figures] = {}
        try:
            for name, side in sides:
                result = _run(side, plan, seed + i, keep_trace and first is None, name, i, report)
                first = first or result
                if name not in timelines:
                    timelines[name] = over_time(result)
                found[name] = figures(result)
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
        enough = i + 1 >= max(replications, FEWEST_FOR_PRECISION)
        if precision is not None and enough and _precise_enough(done.values(), precision):
            break
    assert first is not None
    if not done[lead]:
        done = {name: [cut[name]] if name in cut else [] for name, _ in sides}
    slo = sides[0][1].config.slo
    arms = {name: _arm(runs, slo) for name, runs in done.items() if runs}
    return SidesRun(arms, first, timelines, interrupted)


def _run(
    side: Deployment,
    plan: LoadPlan,
    seed: int,
    keep_trace: bool,
    name: str,
    number: int,
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


def interval_95(values: Sequence[float]) -> tuple[float, float] | None:
    """Student's t interval of the mean; None for fewer than two values."""
    if len(values) < 2:
        return None
    return mean_of_runs(values).interval


def _arm(runs: list[Figures], slo: dict[str, float]) -> Arm:
    if len(runs) == 1:
        return Arm(runs[0], tuple(runs))
    figures = cast(Figures, _mean(runs, ""))
    if slo:
        passed = sum(bool(run["slo"] and run["slo"]["pass"]) for run in runs)
        figures["slo"] = {**gates.judge(slo, figures), "pass_share": passed / len(runs)}
    columns: dict[str, list[float]] = {}
    for run in runs:
        for name, value in numbers_in(run):
            if name.partition(".")[0] not in NO_INTERVAL:
                columns.setdefault(name, []).append(value)
    confidence = {}
    for name, values in columns.items():
        pair = interval_95(values) if len(values) == len(runs) else None
        if pair is not None:
            confidence[name] = pair
    return Arm(figures, tuple(runs), confidence)


def _mean(values: Sequence[object], name: str) -> object:
    """Mean of equal structures: numbers averaged, '*_max' the largest, None where any is."""
    if any(isinstance(x, bool) for x in values):
        return any(values)
    tables = [value for value in values if isinstance(value, dict)]
    if tables:
        # Only counts (censored, time parts) may be missing in a run: there were none.
        keys = dict.fromkeys(key for table in tables for key in table)
        return {key: _mean([table.get(key, 0) for table in tables], key) for key in keys}
    lists = [value for value in values if isinstance(value, list)]
    if lists:
        return [_mean(items, name) for items in zip(*lists, strict=True)]
    numbers = [x for x in values if isinstance(x, int | float)]
    if len(numbers) < len(values):
        return next((x for x in values if isinstance(x, str)), None)
    return max(numbers) if name.endswith("_max") else math.fsum(numbers) / len(numbers)


def _ratio(
    with_it: Figures, without: Figures, path: str, inverted: bool
) -> float | None:
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
        gain[name] = _ratio(main.figures, other.figures, path, inverted)
        pairs = zip(main.runs, other.runs, strict=True)
        ratios = [_ratio(a, b, path, inverted) for a, b in pairs]
        known = [x for x in ratios if x is not None]
        pair = interval_95(known) if len(known) == len(ratios) else None
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

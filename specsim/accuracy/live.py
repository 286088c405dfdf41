"""A server's measured points beside the simulation of the same requests, as one `AccuracyReport`.

`judge` takes points however they were measured (our own client, or a benchmark tool's file) and a
function that gives the deployment a point is simulated on. Times, rates and the server's batch and
queue become rows; where repeats of a point were measured their relative deviation goes into
`spread`. Points named in `fitted` were seen by the calibration of the deployment and are no
judgement.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from specsim.accuracy.compare import AccuracyReport, Row
from specsim.accuracy.explain_gap import Seen, explain
from specsim.accuracy.live_replay import (
    Figures,
    MeasuredLoad,
    Replay,
    Swap,
    figures_of_run,
    predict,
)
from specsim.accuracy.split import split_of
from specsim.analytic.intervals import interval_for, prediction_class
from specsim.analytic.system import System
from specsim.jsonable import picked
from specsim.units import counted

# What is compared, in the order in which it is shown. p99 stands in where no p95 is reported.
METRICS = (
    "output_tok_s", "requests_per_s", "ttft_mean_s", "ttft_p50_s", "ttft_p95_s", "ttft_p99_s",
    "tpot_mean_s", "tpot_p50_s", "tpot_p95_s", "itl_mean_s", "itl_p50_s", "itl_p95_s",
    "e2el_mean_s", "e2el_p50_s", "e2el_p95_s", "queue_mean_s", "running_mean", "waiting_mean",
    "open_requests_mean", "tokens_per_step",
)
# Judged by --max-error; the others say why.
JUDGED = ("output_tok_s", "tpot_mean_s", "ttft_mean_s", "e2el_mean_s")
LEAST_WAIT = 0.05  # requests waiting, and seconds, below which a relative error says nothing
SEEDS = 3  # simulations, where acceptance is drawn
# system(point, measured): the deployment; measured: with the acceptance that was counted.
SystemOf = Callable[[MeasuredLoad, bool], System]


@dataclass(frozen=True)
class Settings:
    """replay: recorded steps where they are known. assumed: acceptance is given by the user and
    not taken from the measurement. fitted: names of points that a calibration has seen. expected:
    tokens per step that would be predicted without the measurement."""

    assumed: bool = False
    prefix_caching: bool | None = None
    fitted: tuple[str, ...] = ()
    causes: bool = True
    expected: float | None = None


def judge(
    what: str, title: str, points: Sequence[MeasuredLoad], system_of: SystemOf, settings: Settings,
    provenance: Mapping[str, object], warnings: Sequence[str] = (),
) -> AccuracyReport:
    """Simulate every point and put it beside what was measured."""
    seen: list[Seen] = []
    notes = list(warnings)
    for point in points:
        found = _predict(point, system_of(point, not settings.assumed), settings)
        seen.append(Seen(point, figures_of_run(point.run), found))
    rows = []
    spreads = _spreads(seen)
    for item in seen:
        split = "fitted" if item.point.name in settings.fitted else "held-out"
        rows += _rows(item, split, spreads)
    reasons: tuple[dict[str, object], ...] = ()
    if settings.causes:
        def again(point: MeasuredLoad, swap: Swap, measured: bool) -> Replay:
            use = measured or not settings.assumed
            return _predict(point, system_of(point, use), settings, swap, replay=use)

        reasons = explain(seen, again)
    for item in seen:
        notes += [f"{item.point.name}: {text}" for text in item.point.run.warnings]
        notes += _notes(item)
    return AccuracyReport(
        what, title, tuple(rows), {**provenance, "points": [_about(item) for item in seen]},
        reasons, tuple(dict.fromkeys(notes)),
        tuple(parts for item in seen if (parts := split_of(
            item.point.name, item.measured, item.predicted.figures,
            settings.expected if item.predicted.system.speculative else None))),
    )


def _predict(
    point: MeasuredLoad, system: System, settings: Settings, swap: Swap | None = None, *,
    replay: bool | None = None,
) -> Replay:
    use = (not settings.assumed) if replay is None else replay
    return predict(
        point, system, swap=swap, replay=use, prefix_caching=settings.prefix_caching, seeds=SEEDS
    )


def _rows(item: Seen, split: str, spreads: Mapping[tuple[str, str], float]) -> list[Row]:
    out = []
    for metric in METRICS:
        measured, predicted = item.measured.get(metric), item.predicted.figures.get(metric)
        if measured is None or predicted is None:
            continue
        if metric == "ttft_p99_s" and "ttft_p95_s" in item.measured:
            continue
        if metric in ("waiting_mean", "queue_mean_s") and max(measured, predicted) < LEAST_WAIT:
            continue  # nobody waited
        low, high = _interval(item.predicted, metric, predicted)
        out.append(Row(
            item.point.name, metric, measured, predicted, split, low, high,
            spreads.get((item.point.name, metric)),
            "steps replayed" if item.predicted.exact_acceptance else "",
        ))
    return out


def _interval(found: Replay, metric: str, value: float) -> tuple[float | None, float | None]:
    """90 %: from the residuals of public measurements for times per token, throughput and TTFT."""
    kind = prediction_class(found.system)
    if metric in ("tpot_mean_s", "tpot_p50_s"):
        return interval_for("tpot", kind, value)
    if metric == "output_tok_s" and value > 0:
        low, high = interval_for("tpot", kind, 1 / value)
        return 1 / high, 1 / low
    if metric in ("ttft_mean_s", "ttft_p50_s"):
        return interval_for("ttft", kind, value)
    return None, None


def _spreads(seen: Sequence[Seen]) -> dict[tuple[str, str], float]:
    """Relative deviation over points of one name, per metric."""
    values: dict[tuple[str, str], list[float]] = {}
    for item in seen:
        for metric, value in item.measured.items():
            values.setdefault((item.point.name, metric), []).append(value)
    return {
        key: statistics.stdev(found) / statistics.fmean(found)
        for key, found in values.items() if len(found) > 1 and statistics.fmean(found) > 0
    }


def _notes(item: Seen) -> list[str]:
    run, name = item.point.run, item.point.name
    notes = []
    if run.failed:
        notes.append(f"{name}: {counted(run.failed, 'request')} failed; the others are simulated")
    if not item.point.rows:
        notes.append(
            f"{name}: no single requests in {run.source}; mean lengths are simulated, so tails "
            "are those of equal requests"
        )
    hits = item.measured.get("prefix_hit_rate")
    ours = item.predicted.figures.get("prefix_hit_rate", 0.0)
    if hits is not None and abs(hits - ours) > 0.1:
        notes.append(
            f"{name}: prefix cache hits {hits:.0%} measured, {ours:.0%} simulated; send other "
            "prompts per point, or simulate without (--no-prefix-caching)"
        )
    return notes


def _about(item: Seen) -> dict[str, object]:
    run, system = item.point.run, item.predicted.system
    counted = run.acceptance
    used = system.acceptance if system.speculative else None
    return {
        "name": item.point.name,
        **picked(run, "source format date engine engine_version model load=load.kind "
                      "max_concurrency=load.max_concurrency completed failed duration_s "
                      "input_tokens output_tokens"),
        "acceptance_counted": None if counted is None else {
            **picked(counted, "acceptance_length per_position num_drafts"),
            "draft_share": run.draft_share, "scope": counted.scope,
        },
        "acceptance_used": None if used is None else used.to_dict(),
        "steps_replayed": item.predicted.exact_acceptance,
        "simulated_on": system.summary("model", "gpu", "engine", "engine_version", "method", "k"),
        "measured": dict(item.measured), "predicted": _plain(item.predicted.figures),
    }


def _plain(figures: Figures) -> Figures:
    return {name: float(value) for name, value in figures.items()}

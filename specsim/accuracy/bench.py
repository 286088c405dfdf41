"""Points of comparison from the result files of benchmark tools, in their normal form.

A run can be repeated in simulation when its load (a rate, or a number of clients), its lengths and
at least one time of its requests are known; other files (a /metrics dump, a server's log) say
nothing about a load and are refused with what they lack.
"""

import math
from collections.abc import Sequence

from specsim.accuracy.live_replay import MeasuredLoad, figures_of_run
from specsim.errors import FormatError
from specsim.formats.bench.record import BenchRun

MAX_RUNS = 1000


def load_name(run: BenchRun) -> str:
    """'c=4', 'rate=2' or 'all at once', with what the run drafted."""
    load = run.load
    if load.kind == "closed":
        name = f"c={load.max_concurrency}"
    elif load.kind == "open":
        name = f"rate={load.request_rate:g}"
        if load.max_concurrency:
            name += f" c<={load.max_concurrency}"
    else:
        name = "all at once" if load.kind == "burst" else "load unknown"
    return name


def points_of(runs: Sequence[BenchRun]) -> list[MeasuredLoad]:
    """Runs as points; FormatError saying what a run lacks. Runs of one load under different
    labels keep the label in their name; equal ones are repeats of one point."""
    if len(runs) > MAX_RUNS:
        raise FormatError(f"{len(runs)} runs; at most {MAX_RUNS} are compared at once")
    labels = {run.label for run in runs}
    points = []
    for run in runs:
        _check(run)
        name = load_name(run)
        if len(labels) > 1 and run.label:
            name = f"{name} {run.label[:60]}"
        elif run.acceptance is not None and any(other.acceptance is None for other in runs):
            name += " drafts"
        points.append(MeasuredLoad(name, run))
    return points


def _check(run: BenchRun) -> None:
    rows = any(row.success and row.output_tokens for row in run.requests)
    timed = rows and all(row.arrival_s is not None for row in run.requests if row.success)
    lacks = []
    if run.load.kind == "unknown" and not timed:
        lacks.append("a load (request rate or concurrency)")
    if not rows and (run.input_tokens_mean is None or run.output_tokens_mean is None):
        lacks.append("the lengths of its requests")
    measured = figures_of_run(run)
    times = ("ttft_mean_s", "tpot_mean_s", "e2el_mean_s", "output_tok_s", "ttft_p50_s",
             "tpot_p50_s")
    if not any(name in measured for name in times):
        lacks.append("any time or rate of its requests")
    rate = run.load.request_rate
    if rate is not None and not (rate > 0 or math.isinf(rate)):
        lacks.append("a rate above 0")
    if lacks:
        raise FormatError(
            f"{run.source} ({run.format}) cannot be simulated: it lacks {' and '.join(lacks)}"
        )

"""The comparison of `specsim validate run`: held-out steps, then serving, repeats put together.

Steps are rows of their own. Of serving, each situation is a row per figure: the mean over repeats
of what was measured beside the mean of what was predicted before each of them, with the relative
standard deviation of the measured one. Judged against `run_plan.BARS`.
"""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from specsim.accuracy.compare import AccuracyReport, Row
from specsim.accuracy.run_plan import BARS
from specsim.accuracy.run_serving import FIGURES
from specsim.accuracy.run_state import situation


def serving_rows(
    predicted: Mapping[str, Mapping[str, object]], measured: Mapping[str, Mapping[str, object]]
) -> list[Row]:
    """Rows of all situations that were served at least once."""
    repeats: dict[str, list[str]] = {}
    for key in measured:
        if key in predicted:
            repeats.setdefault(situation(key), []).append(key)
    rows = []
    for name, keys in repeats.items():
        for figure in FIGURES:
            found = [_figure(measured[key], figure) for key in keys]
            expected = [_figure(predicted[key], figure) for key in keys]
            mean = statistics.fmean(found)
            spread = statistics.stdev(found) / mean if len(found) > 1 and mean else None
            rows.append(Row(name, figure, mean, statistics.fmean(expected), spread=spread,
                            note=f"{len(found)} runs"))
    return rows


def _figure(line: Mapping[str, object], name: str) -> float:
    figures = line["figures"]
    assert isinstance(figures, dict)
    return float(figures[name])


def run_comparison(
    step_rows: Iterable[Row], served: Sequence[Row], provenance: Mapping[str, object],
    warnings: Iterable[str] = (),
) -> AccuracyReport:
    return AccuracyReport("run", "this machine: predicted before it was measured",
                      (*step_rows, *served), dict(provenance), (), tuple(warnings))


def verdicts(found: AccuracyReport, scale: float = 1.0) -> dict[str, dict[str, Any]]:
    """Each bar beside what was found; inside: both limits hold. scale: of the bars, for short
    runs."""
    summary = found.summary()
    out: dict[str, dict[str, Any]] = {}
    for metric, (bar_median, bar_p90) in BARS.items():
        if metric not in summary:
            continue
        item, median = summary[metric], bar_median * scale
        p90 = None if bar_p90 is None else bar_p90 * scale
        out[metric] = {
            "bar_median": median, "median_abs_error": item["median_abs_error"], "bar_p90": p90,
            "p90_abs_error": item["p90_abs_error"], "worst": item["worst"],
            "count": item["count"],
            "inside": item["median_abs_error"] <= median and (
                p90 is None or item["p90_abs_error"] <= p90),
        }
    return out

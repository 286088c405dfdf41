"""What `specsim validate run` does on a machine: its loads, their order, and the share of time.

First the grid of `specsim measure` (kernels, whole steps, prompts), then a profile is fitted on the
kernels and prompts, the whole steps are predicted, and each serving load is simulated before it is
served. Loads: clients in a closed loop, and Poisson arrivals at shares of the capacity that the
simulation predicts; plain, and drafted by a one-layer head of random weights with forced acceptance
(a head drafts in every step, unlike an n-gram lookup); each `repeats` times with other arrivals.
"""

import json
import os
import random
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from specsim.accuracy.compare import AccuracyReport, Row
from specsim.accuracy.run_serving import FIGURES, ServingLoad
from specsim.checked import json_value
from specsim.errors import FormatError, UsageError
from specsim.files import file_text, told, write_whole
from specsim.jsonable import json_text

MEASURE_SHARE = 0.45  # of the budget
LEAST_REQUESTS = 8
STEPS_METRIC = "step_s"
# Bars of the full run: metric -> (median error or None, 90th percentile or None)
BARS: dict[str, tuple[float, float | None]] = {
    STEPS_METRIC: (0.08, 0.20),
    "output_tok_s": (0.08, None),
    "tpot_s_p50": (0.10, None),
    "ttft_s_p95": (0.30, None),
}


@dataclass(frozen=True, slots=True)
class RunPlan:
    """models: names that `specsim measure` takes, small to large; the first one serves. methods:
    (method, k). closed: numbers of clients. shares: of the predicted capacity. seconds: of
    arrivals, and about as long for closed loops. short: tiny random models."""

    models: tuple[str, ...]
    grid: str = "full"
    methods: tuple[tuple[str, int], ...] = (("none", 0), ("eagle", 3))
    alpha: float = 0.6
    max_num_seqs: int = 16
    prompt_len: int = 128
    output_len: int = 64
    closed: tuple[int, ...] = (4, 16)
    shares: tuple[float, ...] = (0.3, 0.6, 0.9)
    repeats: int = 3
    measure_s: float = 270.0
    seconds: float = 12.0
    seed: int = 0
    short: bool = False

    @property
    def runs(self) -> int:
        """Serving runs in all."""
        return len(self.methods) * (len(self.closed) + len(self.shares)) * self.repeats

    def to_dict(self) -> dict[str, object]:
        """What a work folder belongs to: all but the times, which follow from the budget."""
        return {
            name: value for name, value in asdict(self).items()
            if name not in ("measure_s", "seconds")
        }


def full_plan(
    budget_s: float, models: tuple[str, ...], seed: int = 0, grid: str = "full", repeats: int = 3
) -> RunPlan:
    """The plan for a budget; UsageError when it is too short for its serving runs."""
    bare = RunPlan(models, grid, seed=seed, repeats=repeats)
    seconds = (1 - MEASURE_SHARE) * budget_s / bare.runs * 0.8  # a run also ends and warms up
    if seconds < 3.0:
        raise UsageError(
            f"--budget of {budget_s:g} s leaves {seconds:.1f} s for each of {bare.runs} serving "
            "runs; give at least 4m, or --short for a quick check"
        )
    return RunPlan(models, grid, seed=seed, repeats=repeats, measure_s=MEASURE_SHARE * budget_s,
                   seconds=min(40.0, seconds))


def short_plan(seed: int = 0) -> RunPlan:
    """Under a minute with two tiny models: whether everything works, not how exact it is."""
    return RunPlan(
        ("tiny", "tiny-wide"), "small", methods=(("none", 0), ("eagle", 3)), max_num_seqs=4,
        prompt_len=16, output_len=24, closed=(4,), shares=(0.6,), repeats=1, measure_s=30.0,
        seconds=2.0, seed=seed, short=True,
    )


def load_for(
    plan: RunPlan, method: tuple[str, int], *, share: float = 0.0, clients: int = 0,
    capacity_req_s: float = 1.0, repeat: int = 0,
) -> ServingLoad:
    """A closed loop of `clients`, or Poisson arrivals at `share` of the capacity."""
    name, k = method
    if clients:
        count = max(LEAST_REQUESTS, 2 * clients, round(
            capacity_req_s * plan.seconds * min(1.0, clients / plan.max_num_seqs)))
        return ServingLoad(name, k, plan.alpha, plan.max_num_seqs, plan.prompt_len,
                           plan.output_len, (), clients, count)
    rate = share * capacity_req_s
    rng = random.Random(f"{plan.seed} {name} {k} {share} {repeat}")
    count = max(LEAST_REQUESTS, round(rate * plan.seconds))
    gaps = [0.0, *(rng.expovariate(rate) for _ in range(count - 1))]
    return ServingLoad(name, k, plan.alpha, plan.max_num_seqs, plan.prompt_len, plan.output_len,
                       tuple(accumulate(gaps)))


MAX_FILE_BYTES = 100_000_000


@dataclass
class WorkFolder:
    """The work folder: what is done is kept, and a later call goes on.

        plan.json          the plan; a folder belongs to one
        records.jsonl      of `specsim measure`
        profile.toml, profile-engine.toml, calibration.json
        serving.jsonl      one line per load: first its prediction, then, once served, its
                           measurement

    A prediction is written before its load is served, with the time, and is never written again."""

    folder: Path

    def __post_init__(self) -> None:
        self.records = self.folder / "records.jsonl"
        self.profile = self.folder / "profile.toml"
        self.calibration = self.folder / "calibration.json"
        self.serving = self.folder / "serving.jsonl"

    def open(self, plan: RunPlan) -> None:
        """Make the folder, or check that it belongs to the same plan. UsageError otherwise."""
        path = self.folder / "plan.json"
        wanted = json_text(plan.to_dict(), indent=1)
        if not path.exists():
            write_whole(path, wanted + "\n")
        elif json_value(file_text(path), str(path)) != json.loads(wanted):
            raise UsageError(
                f"{self.folder} holds a run of another plan; choose another --work folder"
            )

    def lines(self) -> Iterator[dict[str, object]]:
        """Whole lines of serving.jsonl; one cut short by a killed run is passed over."""
        if not self.serving.exists():
            return
        if self.serving.stat().st_size > MAX_FILE_BYTES:
            raise FormatError(f"{self.serving} is larger than {MAX_FILE_BYTES} bytes")
        for number, line in enumerate(self.serving.read_bytes().split(b"\n"), 1):
            if not line.strip():
                continue
            try:
                found = json.loads(line)
                _ = found["load"], found["what"]
            except (ValueError, KeyError, TypeError, RecursionError):
                if not line.endswith(b"}"):
                    continue
                raise FormatError(f"{self.serving} line {number} is no line of a run") from None
            yield found

    def done(self) -> tuple[dict[str, dict[str, object]], dict[str, dict[str, object]]]:
        """(predictions, measurements) by the key of their load."""
        predicted: dict[str, dict[str, object]] = {}
        measured: dict[str, dict[str, object]] = {}
        for line in self.lines():
            (predicted if line["what"] == "predicted" else measured)[str(line["load"])] = line
        return predicted, measured

    def add(self, line: dict[str, object]) -> None:
        """Append a line; flushed, so that stopping at any moment loses nothing finished."""
        with told(self.serving, FormatError), self.serving.open("ab") as file:
            # Begins a line of its own, whatever a killed run left of the one before.
            file.write((b"\n" if file.tell() else b"") + json_text(line).encode())
            file.flush()
            os.fsync(file.fileno())


def load_key(method: tuple[str, int], how: str, repeat: int) -> str:
    """'ngram k=3, Poisson 60 %, run 2'."""
    name, k = method
    return f"{f'{name} k={k}' if k else 'plain'}, {how}, run {repeat + 1}"


def situation(key: str) -> str:
    """The key without its repeat."""
    return key.rsplit(", run ", 1)[0]


def serving_rows(
    predicted: Mapping[str, Mapping[str, object]], measured: Mapping[str, Mapping[str, object]]
) -> list[Row]:
    """Rows of all situations that were served at least once, one per figure: the mean over repeats
    of what was measured beside the mean of what was predicted before each of them, with the
    relative standard deviation of the measured one."""
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

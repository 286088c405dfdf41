"""The measuring run: in order, inside its budget, one flushed line per point, resumable.

Before each job its time is estimated; what does not fit into the rest of the budget is passed over
(a later, cheaper job may still fit) and counted. A job that fails is noted and the run goes on: on
a borrowed GPU the other points are worth having. Stopping the process at any moment loses the
point in work and nothing else.
"""

import gc
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TextIO

import torch

from specsim.calibrate.records import Measurement, RunHeader, point_key, read_records
from specsim.errors import FormatError, SpecSimError, UsageError
from specsim.files import check_writable, told
from specsim.jsonable import json_text
from specsim.measure.environment import clocks, device_facts, git_sha, now, software
from specsim.measure.grid import grid_for, jobs_for
from specsim.measure.models import MeasuredModel
from specsim.measure.session import MeasureJob, Session

# A run ends with a little time in hand: estimates are not promises.
_RESERVE = 0.03


@dataclass(frozen=True, slots=True)
class MeasurePlan:
    """What a run is. device: 'cpu' | 'cuda'. threads: of torch on the CPU."""

    device: str
    grid: str
    models: tuple[MeasuredModel, ...]
    experts: MeasuredModel | None
    dtype: str = "bf16"
    seed: int = 0
    threads: int = 1

    @property
    def used(self) -> tuple[MeasuredModel, ...]:
        return (*self.models, *((self.experts,) if self.experts else ()))

    def header(self) -> RunHeader:
        return RunHeader(
            device=device_facts(torch.device(self.device)), software=software(),
            models={model.name: model.to_dict(self.dtype) for model in self.used},
            git_sha=git_sha(), date=now(), seed=self.seed, threads=self.threads, grid=self.grid,
        )


@dataclass(slots=True)
class MeasureSummary:
    """Outcome of a run. points: measured now. known: were in the file already. skipped: did not
    fit into the budget. failed: (what, error)."""

    points: int = 0
    known: int = 0
    skipped: int = 0
    failed: list[tuple[str, str]] = field(default_factory=list)
    elapsed_s: float = 0.0
    interrupted: bool = False

    def to_dict(self) -> dict[str, object]:
        return {"measured": self.points, "known": self.known, "skipped": self.skipped,
                "failed": [list(item) for item in self.failed],
                "elapsed_s": round(self.elapsed_s, 2), "interrupted": self.interrupted}


@dataclass(frozen=True, slots=True)
class PointProgress:
    """Sent before each job. done, total: points. estimate_s: of the job that starts."""

    part: str
    what: str
    done: int
    total: int
    elapsed_s: float
    estimate_s: float


def measure(
    plan: MeasurePlan, out: Path, budget_s: float, *,
    on_progress: Callable[[PointProgress], None] | None = None,
    clock: Callable[[], float] = time.monotonic, started: float | None = None,
    jobs: Sequence[MeasureJob] | None = None,
) -> MeasureSummary:
    """Measure into `out`, continuing what it holds. started: when the budget began, on `clock`.

    jobs: instead of the plan's grid (for tests). Raises UsageError when `out` belongs to another
    machine, software or plan; KeyboardInterrupt is caught, noted in the file and in the summary.
    """
    began = clock() if started is None else started
    grid = grid_for(plan.device, plan.grid)
    if jobs is None:
        jobs = jobs_for(grid, plan.models, plan.experts, plan.dtype, plan.device)
    header = plan.header()
    known = prepare_file(out, header)
    session = Session(torch.device(plan.device), plan.dtype, plan.used, grid.limits, plan.seed)
    summary = MeasureSummary()
    keys_of = [{point_key(p.kind, p.shape) for p in job.points} for job in jobs]
    total = sum(len(job.points) for job in jobs)
    summary.known = sum(len(keys & known) for keys in keys_of)
    deadline = began + budget_s * (1 - _RESERVE)
    with told(out), out.open("a", encoding="utf-8") as file:
        _write(file, header.to_dict())
        try:
            for job, keys in zip(jobs, keys_of, strict=True):
                if keys <= known:
                    continue
                estimate = session.estimate_s(job)
                if clock() + estimate > deadline:
                    summary.skipped += len(keys - known)
                    continue
                if on_progress is not None:
                    done = summary.points + summary.known + summary.skipped
                    on_progress(PointProgress(job.part, _words(job), done, total, clock() - began,
                                              estimate))
                before = clock()
                for found in _run(job, session, summary):
                    if found.key not in known:
                        whole = replace(found, part=job.part, at_s=clock() - began,
                                        stream_bytes_per_s=session.stream_bytes_per_s)
                        _write(file, whole.to_dict())
                        summary.points += 1
                session.learn(job, estimate, clock() - before)
                _free(session.device)
        except KeyboardInterrupt:
            summary.interrupted = True
        summary.elapsed_s = clock() - began
        _write(file, {"record": "end", "date": now(), **summary.to_dict(),
                      "device": clocks(session.device)})
    return summary


def prepare_file(out: Path, header: RunHeader) -> set[str]:
    """Keys of the points `out` holds already; a line that was cut short is removed.

    Raises UsageError when the file's runs were of another machine, software, seed or plan.
    """
    check_writable(out, "--out")
    if not out.exists() or out.stat().st_size == 0:
        with told(out):
            out.parent.mkdir(parents=True, exist_ok=True)
            out.touch()
        return set()
    try:
        found = read_records(out)
    except FormatError as error:
        raise UsageError(f"cannot continue {out}: {error}; choose another --out") from None
    wanted = header.identity()
    for run in found.headers:
        for name, value in run.identity().items():
            if value != wanted[name]:
                raise UsageError(
                    f"{out} was measured with {name} {_short(value)}, this run has "
                    f"{_short(wanted[name])}; choose another --out"
                )
    if found.truncated:
        with out.open("r+b") as file:
            file.truncate(found.good_bytes)
    return {point.key for point in found.points}


def _short(value: object) -> str:
    text = json_text(value, sort_keys=True)
    return text if len(text) <= 120 else text[:117] + "..."


def _run(job: MeasureJob, session: Session, summary: MeasureSummary) -> list[Measurement]:
    try:
        with torch.inference_mode():
            session.probe()
            return job.run(session)
    except (RuntimeError, ValueError, AssertionError, SpecSimError) as error:  # out of memory, ...
        message = " ".join(str(error).split())[:200] or type(error).__name__
        summary.failed.append((_words(job), message))
        return []


def _free(device: torch.device) -> None:
    """Give back a job's cache and graphs: the next may need the memory in other pieces."""
    if device.type == "cuda":
        gc.collect()
        torch.cuda.empty_cache()


def _words(job: MeasureJob) -> str:
    point = job.points[0]
    shape = ", ".join(f"{key} {value}" for key, value in point.shape.items()
                      if key not in ("dtype", "heads", "kv_heads", "head_dim", "n", "vocab"))
    return f"{point.kind}: {shape}"


def _write(file: TextIO, record: dict[str, object]) -> None:
    file.write(json_text(record) + "\n")
    file.flush()
    os.fsync(file.fileno())

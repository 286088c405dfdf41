"""Running a sweep: every task that the journal does not have, on any executor.

Tasks are handed out in batches of about BATCH_S of work, so that what a batch costs besides is
small beside it; tasks that take longer go alone. A batch that ended in a bug or killed its workers
is run again task by task: one that is at fault is found, and the others are finished.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypedDict

from specsim.planning.executors.base import Executor, Job
from specsim.planning.sweep import Sweep, Task, written_options
from specsim.planning.sweep_journal import Journal

BATCH_S = 1.0
MOST_BATCHED = 256
MAX_FAILURES_KEPT = 20
ProgressReport = Callable[[int, int], None]
# From (run, the tasks of a batch: each {'options': ..., 'seed': ...}) to one entry for each:
# {'result': ...} or, where the options are refused, {'error': one line}.
BatchFunction = Callable[[str, list[dict[str, Any]]], list[dict[str, object]]]


class SweepRow(TypedDict):
    """One finished task. task: its index; result: None if refused; error: None if not."""

    task: int
    params: dict[str, object]
    seed: int | None
    result: dict[str, object] | None
    error: str | None


@dataclass(frozen=True)
class SweepRun:
    """How a run went. resumed: tasks the journal had before. finished: tasks it has now, refused
    ones included. refused: tasks whose options were refused (a model that does not fit), which is
    their result. failed: tasks that ended in a bug or killed their workers; they are not kept and
    run again the next time. failures: the first of their errors, by key. elapsed_s: of this run;
    busy_s: seconds that its workers spent in tasks, of `workers` x elapsed_s."""

    sweep: Sweep
    journal: Journal
    resumed: int
    finished: int
    refused: int
    failed: int
    failures: dict[str, str]
    interrupted: bool
    workers: int
    elapsed_s: float
    busy_s: float

    def rows(self) -> Iterator[SweepRow]:
        """One per finished task, in the order of the definition."""
        return rows_of(self.sweep, self.journal, self.journal.offsets)


def rows_of(sweep: Sweep, journal: Journal, wanted: Iterable[int]) -> Iterator[SweepRow]:
    """Of these tasks, which are finished, in the order of the definition."""
    for index in sorted(wanted):
        yield row_of(sweep.task(index), journal.get(index))


def row_of(task: Task, entry: dict[str, object]) -> SweepRow:
    result, error = entry.get("result"), entry.get("error")
    return {
        "task": task.index,
        "params": written_options(task.varied),
        "seed": task.seed,
        "result": result if isinstance(result, dict) else None,
        "error": error if isinstance(error, str) else None,
    }


class _Batches:
    """What is handed out next, in batches whose size follows the time that the last ones took."""

    def __init__(
        self, sweep: Sweep, function: BatchFunction, tasks: Iterable[Task], alone: bool
    ) -> None:
        self.run, self.function, self.tasks = sweep.run, function, tasks
        # Predictions that differ in their last option alone share work: they stay together.
        shares = sweep.run == "predict" and sweep.grid and not alone
        self.together = len([*sweep.grid.values()][-1]) if shares else 1
        self.most, self.size = (1 if alone else MOST_BATCHED), 1
        self.out: dict[str, list[Task]] = {}

    def jobs(self) -> Iterator[Job]:
        held: list[Task] = []
        for task in self.tasks:
            held.append(task)
            whole = (task.index + 1) % self.together == 0
            if len(held) >= (self.size if whole else self.most):
                yield self._job(held)
                held = []
        if held:
            yield self._job(held)

    def _job(self, tasks: list[Task]) -> Job:
        key = str(tasks[0].index)
        self.out[key] = tasks
        values = [{"options": dict(task.options), "seed": task.seed} for task in tasks]
        return Job(key, {"function": self.function, "run": self.run, "tasks": values})

    def took(self, count: int, seconds: float) -> None:
        """A batch of so many tasks has ended."""
        fits = int(count * BATCH_S / max(seconds, 1e-9))
        self.size = max(1, min(self.most, fits, 2 * max(count, self.size)))


def run_batch(payload: dict[str, Any]) -> dict[str, object]:
    """Runs on a worker: the tasks of a batch and how long they took."""
    begin_s = time.perf_counter()
    entries = payload["function"](payload["run"], payload["tasks"])
    return {"entries": entries, "took_s": time.perf_counter() - begin_s}


class _Runner:
    def __init__(
        self, sweep: Sweep, function: BatchFunction, journal: Journal, executor: Executor[Any],
        report: ProgressReport | None, kept: Callable[[], None] | None,
    ) -> None:
        self.sweep, self.function, self.journal = sweep, function, journal
        self.executor, self.report, self.kept = executor, report, kept
        self.failures: dict[str, str] = {}
        self.failed, self.busy_s = 0, 0.0

    def told(self) -> None:
        if self.report is not None:
            self.report(len(self.journal.offsets) + self.failed, self.sweep.count)

    def run(self, tasks: Iterable[Task], alone: bool = False) -> list[Task]:
        """Runs tasks; returns those of batches that ended in an error."""
        batches, broken = _Batches(self.sweep, self.function, tasks, alone), []
        for done in self.executor.run(run_batch, batches.jobs()):
            ended = batches.out.pop(done.key)
            if done.result is None:
                if len(ended) > 1:
                    broken += ended
                else:
                    self._fail(ended[0], done.error or "no result")
            else:
                took_s: Any = done.result["took_s"]
                entries: Any = done.result["entries"]
                self.busy_s += took_s
                batches.took(len(ended), took_s)
                self.journal.add(
                    (task.index, entry) for task, entry in zip(ended, entries, strict=True)
                )
                if self.kept is not None:
                    self.kept()
            self.told()
        return broken

    def _fail(self, task: Task, error: str) -> None:
        self.failed += 1
        if len(self.failures) < MAX_FAILURES_KEPT:
            self.failures[task.key] = error


def run_sweep(
    sweep: Sweep, function: BatchFunction, journal: Journal, executor: Executor[Any],
    report: ProgressReport | None = None, kept: Callable[[], None] | None = None,
) -> SweepRun:
    """Run what is missing.

    function: a module-level one, which workers import. report(finished, total) hears of the
    progress, `kept` whenever the journal has more. Ctrl-C ends the run early; what was finished is
    in the journal."""
    begin_s = time.perf_counter()
    resumed, interrupted = len(journal.offsets), False
    runner = _Runner(sweep, function, journal, executor, report, kept)
    runner.told()
    try:
        if resumed < sweep.count:
            missing = (task for task in sweep.tasks() if task.index not in journal.offsets)
            broken = runner.run(missing)
            if broken:
                runner.run(broken, alone=True)
    except KeyboardInterrupt:
        interrupted = True
    return SweepRun(
        sweep, journal, resumed, len(journal.offsets), journal.refused, runner.failed,
        runner.failures, interrupted, executor.workers, time.perf_counter() - begin_s,
        runner.busy_s,
    )

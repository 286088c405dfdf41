"""Running a sweep: every task that the journal does not have, on any executor."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypedDict

from specsim.planning.executors.base import Executor, Job, TaskFunction
from specsim.planning.sweep import Sweep, Task
from specsim.planning.sweep_journal import Journal
from specsim.planning.values import written

MAX_FAILURES_KEPT = 20
ProgressReport = Callable[[int, int], None]


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
    run again the next time. failures: the first of their errors, by key."""

    sweep: Sweep
    journal: Journal
    resumed: int
    finished: int
    refused: int
    failed: int
    failures: dict[str, str]
    interrupted: bool

    def rows(self) -> Iterator[SweepRow]:
        """One per finished task, in the order of the definition."""
        for task in self.sweep.tasks():
            if task.key in self.journal.offsets:
                yield row_of(task, self.journal.get(task.key))


def row_of(task: Task, entry: dict[str, object]) -> SweepRow:
    result, error = entry.get("result"), entry.get("error")
    return {
        "task": task.index,
        "params": {name: written(value) for name, value in task.varied.items()},
        "seed": task.seed,
        "result": result if isinstance(result, dict) else None,
        "error": error if isinstance(error, str) else None,
    }


def run_sweep(
    sweep: Sweep,
    function: TaskFunction,
    journal: Journal,
    executor: Executor,
    report: ProgressReport | None = None,
) -> SweepRun:
    """Run what is missing.

    function(payload): payload has run, options and seed; it returns {'result': ...} or, where the
    options are refused, {'error': one line}. report(finished, total) hears of the progress. Ctrl-C
    ends the run early; what was finished is in the journal.
    """
    resumed = sum(task.key in journal.offsets for task in sweep.tasks())
    total = sweep.count
    failures: dict[str, str] = {}
    failed, interrupted = 0, False
    if report is not None:
        report(resumed, total)
    if resumed < total:
        try:
            for done in executor.run(function, _jobs(sweep, set(journal.offsets))):
                if done.result is None:
                    failed += 1
                    if len(failures) < MAX_FAILURES_KEPT:
                        failures[done.key] = done.error or "no result"
                else:
                    journal.add(done.key, done.result)
                if report is not None:
                    report(min(total, len(journal.offsets)) + failed, total)
        except KeyboardInterrupt:
            interrupted = True
    finished = refused = 0
    for task in sweep.tasks():
        if task.key in journal.offsets:
            finished += 1
            refused += journal.get(task.key).get("error") is not None
    return SweepRun(
        sweep, journal, resumed, finished, refused, failed, failures, interrupted
    )


def _jobs(sweep: Sweep, have: set[str]) -> Iterator[Job]:
    for task in sweep.tasks():
        if task.key not in have:
            yield Job(
                task.key,
                {"run": sweep.run, "options": dict(task.options), "seed": task.seed},
            )

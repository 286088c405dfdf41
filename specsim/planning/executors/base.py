"""What every executor offers, and what it is given."""

import contextlib
import os
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from itertools import chain, islice
from multiprocessing import resource_tracker
from typing import Generic, NamedTuple, Self, TypeVar

from specsim.errors import UsageError
from specsim.interrupts import held_back

H = TypeVar("H", bound=Hashable)
TaskFunction = Callable[[dict[str, object]], dict[str, object]]
ATTEMPTS = 4  # runs of one task whose worker dies under it, the first one counted
# Tasks handed out per worker: the next one is there when one ends, and no more are held in memory.
WINDOW_PER_WORKER = 3


class Job(NamedTuple):
    """One task: key names it among the others; payload is what its function gets."""

    key: str
    payload: dict[str, object]


class Done(NamedTuple):
    """The end of a task. Exactly one of result and error is set.

    error: what a bug of the function raised, or that its workers died ATTEMPTS times."""

    key: str
    result: dict[str, object] | None
    error: str | None = None


class Executor(Generic[H]):
    """A pool of workers that holds a few tasks per worker handed out.

    A task whose worker died is run again, alone, so that one which kills its worker every time is
    found and the others are not blamed for it. tries: deaths under a task before it is given up;
    told: how many deaths that are to the user (a cluster tries by itself before it tells).

    A subclass says how a task is handed out, which ended, and how. H: what it knows a task by."""

    name: str
    workers: int
    tries = 1
    told = ATTEMPTS

    def run(self, function: TaskFunction, jobs: Iterable[Job]) -> Iterator[Done]:
        """Yields every job once, as it ends."""
        source = iter(jobs)
        again: deque[Job] = deque()  # to be run alone
        deaths: Counter[str] = Counter()
        running: dict[H, Job] = {}
        window = max(1, self.workers) * WINDOW_PER_WORKER
        while True:
            alone = [again.popleft()] if again and not running else []
            fresh = [] if again or alone else islice(source, window - len(running))
            for job in chain(alone, fresh):
                handle = self._hand_out(function, job.payload)
                if handle is None:
                    again.append(job)
                    break
                running[handle] = job
            if not running:
                if again:
                    continue
                return
            for handle in self._ended(running):
                job = running.pop(handle)
                done = self._outcome(handle, job.key)
                if done is not None:
                    yield done
                    continue
                deaths[job.key] += 1
                if deaths[job.key] >= self.tries:
                    yield Done(job.key, None, died(self.told))
                else:
                    again.append(job)

    def _hand_out(self, function: TaskFunction, payload: dict[str, object]) -> H | None:
        """Give a task to the workers; None where they turned out to be dead."""
        raise NotImplementedError

    def _ended(self, running: Mapping[H, Job]) -> Iterable[H]:
        """Wait for the next of these to end."""
        raise NotImplementedError

    def _outcome(self, handle: H, key: str) -> Done | None:
        """How a task ended; None where its worker died."""
        raise NotImplementedError

    def close(self) -> None:
        """Give the workers back at once, whatever they do; also after an error or Ctrl-C."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextlib.contextmanager
def deaf_children() -> Iterator[None]:
    """Processes and threads that are started meanwhile never hear of Ctrl-C, which a terminal
    sends to all of them: this process alone decides what becomes of the work. One that comes
    meanwhile is heard at the end."""
    # It unblocks the signal when it starts, and the first process to be spawned starts it.
    resource_tracker.ensure_running()
    with held_back():
        yield


def default_workers() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return max(1, os.cpu_count() or 1)


def check_workers(workers: int | None) -> int:
    """The number of local workers asked for; UsageError outside 1 to 256."""
    count = default_workers() if workers is None else workers
    if not 1 <= count <= 256:
        raise UsageError(f"--workers is {count}; it must be from 1 to 256")
    return count


def words(error: BaseException) -> str:
    """A bug in one line: its kind and message."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:500]


def died(attempts: int = ATTEMPTS) -> str:
    return f"its worker died {attempts} times (killed, or out of memory)"

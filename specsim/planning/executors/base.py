"""What every executor offers, and what it is given."""

import contextlib
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from multiprocessing import resource_tracker
from types import TracebackType
from typing import NamedTuple, Protocol, Self

from specsim.errors import UsageError

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


class Executor(Protocol):
    """A pool of workers. run: yields every job once, as it ends. close: gives the workers back at
    once, whatever they do; both may be called after an error or Ctrl-C."""

    name: str
    workers: int

    def run(self, function: TaskFunction, jobs: Iterable[Job]) -> Iterator[Done]: ...

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class Closing:
    """`with` for an executor: close at the end, whatever happens."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


@contextlib.contextmanager
def deaf_children() -> Iterator[None]:
    """Processes and threads that are started meanwhile never hear of Ctrl-C, which a terminal
    sends to all of them: this process alone decides what becomes of the work. One that comes
    meanwhile is heard at the end."""
    mask = getattr(signal, "pthread_sigmask", None)  # not on Windows
    if mask is None:
        yield
        return
    # It unblocks the signal when it starts, and the first process to be spawned starts it.
    resource_tracker.ensure_running()
    before = mask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        mask(signal.SIG_SETMASK, before)


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

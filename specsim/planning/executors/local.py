"""Worker processes on this machine: spawned, deaf to Ctrl-C (which is the parent's to handle), and
gone when the parent is.

A worker that is killed breaks the whole pool of the standard library: every task that was handed
out comes back, and a new pool takes them up, one at a time, so that a task which kills its worker
every time is found.
"""

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import connection
from typing import Any

from specsim.errors import UsageError
from specsim.planning.executors.base import (
    ATTEMPTS,
    Done,
    Executor,
    Job,
    TaskFunction,
    deaf_children,
    words,
)

JOIN_S = 5.0  # for a worker to end after it was told to
STILLBORN = 2  # pools whose workers all died before any began
SPAWN = multiprocessing.get_context("spawn")


Handle = Future[dict[str, object]]


class LocalExecutor(Executor[Handle]):
    """A pool of `workers` processes, started with the first task."""

    name = "local"
    tries = ATTEMPTS

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._pool: ProcessPoolExecutor | None = None
        self._began = SPAWN.Value("b", 0, lock=False)  # whether any worker did
        self._stillborn = 0

    def _hand_out(self, function: TaskFunction, payload: dict[str, object]) -> Handle | None:
        if self._pool is None:
            self._pool = ProcessPoolExecutor(self.workers, SPAWN, begin_worker, (self._began,))
        try:
            with deaf_children():
                return self._pool.submit(function, payload)
        except BrokenProcessPool:
            # It broke while nobody looked; this task was not in it.
            self._drop()
            return None

    def _ended(self, running: Mapping[Handle, Job]) -> Iterable[Handle]:
        return wait(running, return_when=FIRST_COMPLETED).done

    def _outcome(self, handle: Handle, key: str) -> Done | None:
        error = None if handle.cancelled() else handle.exception()
        if handle.cancelled() or isinstance(error, BrokenProcessPool):
            self._drop()
            return None
        return Done(key, handle.result()) if error is None else Done(key, None, words(error))

    def _drop(self) -> None:
        """Leave a broken pool; the next task starts another one. UsageError where none can."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)
            self._stillborn += not self._began.value
        if self._stillborn >= STILLBORN:
            raise UsageError(
                "no worker process could begin: each one imports the script first, so write what "
                'starts them under `if __name__ == "__main__":` there'
            )

    def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is None:
            return
        workers = list((pool._processes or {}).values())
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.join(JOIN_S)


def leave_import() -> None:
    """End a worker process that still imports the script it was started by: it would start workers
    of its own."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise SystemExit(1)


def begin_worker(began: Any = None) -> None:
    """Set up a worker process: deaf to Ctrl-C, gone when its parent is. Of forked workers an
    earlier one notices once the later ones, which share its pipe, are gone. began: set to 1."""
    if began is not None:
        began.value = 1
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    """End this process when the one that started it has ended."""
    connection.wait([sentinel])
    os._exit(1)

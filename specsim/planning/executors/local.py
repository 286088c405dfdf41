"""Worker processes on this machine.

Workers are spawned, so that they are alike on every system and inherit no state. They ignore
Ctrl-C, which is the parent's to handle, and end when the parent is gone, however it ended.

A worker that is killed breaks the whole pool of the standard library: every task that was handed
out comes back. A new pool takes them up. Tasks that were there when a pool broke are then run one
at a time, so that a task which kills its worker every time is found and the others are not blamed
for it.
"""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import connection

from specsim.planning.executors.base import (
    ATTEMPTS,
    WINDOW_PER_WORKER,
    Closing,
    Done,
    Job,
    TaskFunction,
    deaf_children,
    died,
    words,
)

JOIN_S = 5.0  # for a worker to end after it was told to


class LocalExecutor(Closing):
    """A pool of `workers` processes, started with the first task."""

    name = "local"

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._pool: ProcessPoolExecutor | None = None

    def run(self, function: TaskFunction, jobs: Iterable[Job]) -> Iterator[Done]:
        """See `Executor.run`."""
        source = iter(jobs)
        again: deque[Job] = deque()  # to be run alone
        breaks: dict[str, int] = {}
        running: dict[Future[dict[str, object]], Job] = {}
        exhausted = False
        while True:
            if again:
                if not running:
                    self._submit(function, again.popleft(), running, again, breaks)
            else:
                while not exhausted and len(running) < self.workers * WINDOW_PER_WORKER:
                    job = next(source, None)
                    if job is None:
                        exhausted = True
                    else:
                        self._submit(function, job, running, again, breaks)
                    if again:
                        break
            if not running:
                if again:
                    continue
                return
            ended, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in ended:
                job = running.pop(future)
                done = _outcome(future, job)
                if done is not None:
                    yield done
                    continue
                breaks[job.key] = breaks.get(job.key, 0) + 1
                self._drop()
                if breaks[job.key] >= ATTEMPTS:
                    yield Done(job.key, None, died(breaks[job.key]))
                else:
                    again.append(job)

    def _submit(
        self,
        function: TaskFunction,
        job: Job,
        running: dict[Future[dict[str, object]], Job],
        again: deque[Job],
        breaks: dict[str, int],
    ) -> None:
        if self._pool is None:
            self._pool = ProcessPoolExecutor(
                self.workers,
                mp_context=multiprocessing.get_context("spawn"),
                initializer=_start,
            )
        try:
            with deaf_children():
                running[self._pool.submit(function, job.payload)] = job
        except BrokenProcessPool:
            # It broke while nobody looked; this task was not in it.
            self._drop()
            again.append(job)

    def _drop(self) -> None:
        """Leave a broken pool; the next task starts another one."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=False, cancel_futures=True)

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


def _outcome(future: Future[dict[str, object]], job: Job) -> Done | None:
    """How a task ended; None if its pool broke."""
    if future.cancelled():
        return None
    error = future.exception()
    if error is None:
        return Done(job.key, future.result())
    if isinstance(error, BrokenProcessPool):
        return None
    return Done(job.key, None, words(error))


def _start() -> None:
    """Set up a worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    """End this process when the one that started it has ended."""
    connection.wait([sentinel])
    os._exit(1)

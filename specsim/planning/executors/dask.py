"""Workers of a Dask cluster: one that is there already, or a private one on this machine.

Dask runs a task again when its worker dies, on another worker, until the scheduler gives up
(`distributed.scheduler.allowed-failures`, 3 by default); nannies start dead workers again.
"""

import logging
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Protocol

from specsim.errors import ServerError
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
from specsim.planning.executors.peers import (
    check_builds,
    lost,
    package,
    without_specsim,
    worker_build,
)

CONNECT_S = 10


class _Closable(Protocol):
    def close(self) -> None: ...


class _Future(Protocol):
    """A task that Dask was given."""

    status: str

    def result(self) -> dict[str, object]: ...

    def exception(self) -> BaseException: ...


class DaskExecutor(Closing):
    """place: HOST:PORT of a scheduler, or 'local' for a private cluster of `workers` processes."""

    def __init__(self, place: str, workers: int) -> None:
        self.name = f"dask://{place}"
        self._distributed = package("distributed", "Dask", "dask")
        self._cluster: _Closable | None = None
        try:
            with deaf_children():
                if place == "local":
                    self._cluster = self._distributed.LocalCluster(
                        n_workers=workers, threads_per_worker=1, processes=True,
                        dashboard_address=None, silence_logs=logging.CRITICAL,
                    )
                place_or_cluster = self._cluster or f"tcp://{place}"
                self._client = self._distributed.Client(place_or_cluster, timeout=CONNECT_S)
        except (OSError, TimeoutError) as error:
            self._end_cluster()
            raise ServerError(
                f"no Dask scheduler answers at {place} within {CONNECT_S} s "
                f"({words(error)[:120]}); start one with `dask scheduler`, or use dask://local"
            ) from None
        try:
            self._check(place)
        except BaseException:
            self.close()
            raise

    def _check(self, place: str) -> None:
        """Workers are there, and would compute the same as this machine."""
        try:
            answers = self._client.run(worker_build)
        except Exception as error:
            raise without_specsim(place, error) from None
        if not answers:
            raise ServerError(
                f"the Dask cluster at {place} has no workers; start some with "
                f"`dask worker tcp://{place}`"
            )
        check_builds(answers.values(), place)
        self.workers = sum(self._client.nthreads().values())

    def run(self, function: TaskFunction, jobs: Iterable[Job]) -> Iterator[Done]:
        """See `Executor.run`. Dask blames every task that waits at a worker for its death, so what
        it gives up is run once more, alone, before anyone is told."""
        source = iter(jobs)
        again: deque[Job] = deque()
        suspects: set[str] = set()
        running: dict[str, Job] = {}
        ended = self._distributed.as_completed()
        window = max(1, self.workers) * WINDOW_PER_WORKER
        while True:
            if again:
                wanted = [] if running else [again.popleft()]
            else:
                wanted = list(islice(source, window - len(running)))
            for job in wanted:
                future = self._client.submit(function, job.payload, pure=False, retries=0)
                running[future.key] = job
                ended.add(future)
            if not running:
                return
            future = next(ended)
            if future.status in ("lost", "pending"):
                # Its result was on a worker that died before it was fetched; Dask makes it anew.
                ended.add(future)
                continue
            job = running.pop(future.key)
            done = self._outcome(future, job.key)
            future.release()
            if done is not None:
                yield done
            elif job.key in suspects:
                yield Done(job.key, None, died(2 * ATTEMPTS))
            else:
                suspects.add(job.key)
                again.append(job)

    def _outcome(self, future: _Future, key: str) -> Done | None:
        """How a task ended; None if Dask gave it up because workers died."""
        if future.status == "finished":
            return Done(key, future.result())
        if future.status == "cancelled":
            raise lost(self.name)
        error = future.exception()
        if isinstance(error, self._distributed.KilledWorker):
            return None
        return Done(key, None, words(error))

    def close(self) -> None:
        client, self._client = getattr(self, "_client", None), None
        if client is not None:
            client.close()
        self._end_cluster()

    def _end_cluster(self) -> None:
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.close()

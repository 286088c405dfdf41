"""Workers of a Dask cluster: one that is there already, or a private one on this machine.

Dask runs a task again when its worker dies, on another worker, until the scheduler gives up
(`distributed.scheduler.allowed-failures`, 3 by default); nannies start most dead workers again.
"""

import logging
import time
from collections.abc import Iterable, Mapping
from typing import Any

from specsim.errors import ServerError
from specsim.planning.executors.base import (
    ATTEMPTS,
    Done,
    Executor,
    Job,
    TaskFunction,
    deaf_children,
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
LOOK_S = 0.1  # between two looks at the workers, while no task ends
EMPTY_S = 15.0  # how long a private cluster may be without a worker; a start takes a few seconds


class DaskExecutor(Executor[str]):
    """place: HOST:PORT of a scheduler, or 'local' for a private cluster of `workers` processes.

    Dask blames every task that waits at a worker for its death, so what it gives up is run once
    more, alone, before anyone is told."""

    tries = 2
    told = 2 * ATTEMPTS

    def __init__(self, place: str, workers: int) -> None:
        self.name = f"dask://{place}"
        self._distributed = package("distributed", "Dask", "dask")
        self._cluster: Any = None
        self._seen_s = time.monotonic()  # when workers were there
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
        self._given: dict[str, Any] = {}  # futures
        self._completed = self._distributed.as_completed()
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

    def _hand_out(self, function: TaskFunction, payload: dict[str, object]) -> str:
        future = self._client.submit(function, payload, pure=False, retries=0)
        self._given[future.key] = future
        self._completed.add(future)
        return str(future.key)

    def _ended(self, running: Mapping[str, Job]) -> Iterable[str]:
        while True:
            self._wait()
            future = next(self._completed)
            if future.status not in ("lost", "pending"):
                return (str(future.key),)
            # Its result was on a worker that died before it was fetched; Dask makes it anew.
            self._completed.add(future)

    def _wait(self) -> None:
        """Until a task ends. A nanny whose worker dies while it starts does not start it again
        (distributed 2026.8), so a private cluster may be left without any: it gets new ones."""
        ready = self._completed.thread_condition
        while not self._completed.has_ready():
            with ready:
                ready.wait_for(self._completed.has_ready, LOOK_S)
            if self._cluster is None:
                continue
            now_s = time.monotonic()
            if self._cluster.scheduler.workers:
                self._seen_s = now_s
            elif now_s - self._seen_s > EMPTY_S:
                self._seen_s = now_s
                self._cluster.scale(0)
                self._cluster.scale(self.workers)

    def _outcome(self, handle: str, key: str) -> Done | None:
        future = self._given.pop(handle)
        try:
            if future.status == "finished":
                return Done(key, future.result())
            if future.status == "cancelled":
                raise lost(self.name)
            error = future.exception()
            if isinstance(error, self._distributed.KilledWorker):
                return None
            return Done(key, None, words(error))
        finally:
            future.release()

    def close(self) -> None:
        client, self._client = getattr(self, "_client", None), None
        if client is not None:
            client.close()
        self._end_cluster()

    def _end_cluster(self) -> None:
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.close()

"""Workers of a Ray cluster: one that is there already (Ray Client port), or a private one here.

Ray runs a task again when its worker dies, ATTEMPTS times in all. A private cluster reports
nothing to anyone and has no dashboard.
"""

import contextlib
import logging
import os
import sys
from collections.abc import Iterable, Mapping

from specsim.errors import ServerError, UsageError
from specsim.planning.executors.base import ATTEMPTS, Done, Executor, Job, TaskFunction, words
from specsim.planning.executors.peers import (
    check_builds,
    lost,
    package,
    without_specsim,
    worker_build,
)

STORE_BYTES = 100_000_000  # results are a few kB each


class RayExecutor(Executor[object]):
    """place: HOST:PORT of a Ray Client server, or 'local' for a private cluster of `workers`."""

    def __init__(self, place: str, workers: int) -> None:
        self.name = f"ray://{place}"
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        # Ray announces a change of a default of its own unless this is set.
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        self._ray = package("ray", "Ray", "ray")
        if self._ray.is_initialized():
            raise UsageError(
                "this process is connected to a Ray cluster already; call ray.shutdown() first"
            )
        # Ray tells of dead workers on standard output, where results go.
        self._talk = contextlib.redirect_stdout(sys.stderr)
        self._talk.__enter__()
        quiet: dict[str, object] = {"log_to_driver": False, "logging_level": logging.CRITICAL}
        try:
            if place == "local":
                self._ray.init(
                    address="local", num_cpus=workers, include_dashboard=False,
                    object_store_memory=STORE_BYTES, **quiet,
                )
            else:
                self._ray.init(address=f"ray://{place}", **quiet)
        except Exception as error:
            self._talk.__exit__(None, None, None)
            raise ServerError(
                f"no Ray cluster can be used at {place} ({words(error)[:160]}); start one with "
                "`ray start --head --ray-client-server-port 10001`, or use ray://local"
            ) from None
        try:
            self._check(place)
        except BaseException:
            self.close()
            raise

    def _check(self, place: str) -> None:
        try:
            version = self._ray.get(self._ray.remote(worker_build).remote())
        except Exception as error:
            raise without_specsim(place, error) from None
        check_builds([version], place)
        self.workers = max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def _hand_out(self, function: TaskFunction, payload: dict[str, object]) -> object:
        remote = self._ray.remote(function).options(num_cpus=1, max_retries=ATTEMPTS - 1)
        return remote.remote(payload)

    def _ended(self, running: Mapping[object, Job]) -> Iterable[object]:
        ended, _ = self._ray.wait(list(running), num_returns=1)
        return list(ended)

    def _outcome(self, handle: object, key: str) -> Done | None:
        errors = self._ray.exceptions
        try:
            return Done(key, self._ray.get(handle))
        except (errors.WorkerCrashedError, errors.OutOfMemoryError):
            return None
        except errors.RayTaskError as error:
            return Done(key, None, words(error.cause or error))
        except (errors.RayError, ConnectionError) as error:
            raise lost(self.name, f" ({words(error)[:120]})") from None

    def close(self) -> None:
        if self._ray.is_initialized():
            self._ray.shutdown()
            self._talk.__exit__(None, None, None)

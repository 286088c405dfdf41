"""Where the tasks of a sweep run: this machine, a Dask cluster or a Ray cluster, one interface.

    with open_executor("local", workers=2) as executor:
        for done in executor.run(function, jobs):
            ...

`function` is a module-level function of one plain dict that returns a plain dict; whoever runs it
imports it by name. Results come in the order in which they end. What they contain does not depend
on the executor: a task takes its randomness from its own payload and shares nothing.
"""

import re
from typing import Any

from specsim.errors import UsageError, closest
from specsim.planning.executors.base import Executor, check_workers

FORMS = "local, dask://HOST:PORT, dask://local, ray://HOST:PORT or ray://local"
_ADDRESS = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):([0-9]{1,5})")


def open_executor(text: str = "local", workers: int | None = None) -> Executor[Any]:
    """The executor named by `text`.

    workers: of a pool or cluster that is started here (default: the cores of this machine); a
    cluster that is already there has its own. UsageError for a form that is not known, for a
    package that is missing, and for a cluster that cannot be reached.
    """
    name = text.strip()
    kind, place = name.partition("://")[::2]
    if name == "local":
        from specsim.planning.executors.local import LocalExecutor

        return LocalExecutor(check_workers(workers))
    if kind not in ("dask", "ray") or "://" not in name:
        hint = closest(kind.lower(), ("local", "dask", "ray"))
        raise UsageError(f"--executor is {name[:60]!r}; {hint}use {FORMS}")
    if place != "local":
        found = _ADDRESS.fullmatch(place)
        if found is None or not 1 <= int(found.group(1)) <= 65535:
            raise UsageError(
                f"--executor is {name[:60]!r}; an address is HOST:PORT, such as "
                f"{kind}://scheduler:{'8786' if kind == 'dask' else '10001'}, or {kind}://local"
            )
        if workers is not None:
            raise UsageError(
                f"--workers is {workers}, but the cluster at {place} has its own; leave it out"
            )
    if kind == "dask":
        from specsim.planning.executors.dask import DaskExecutor

        return DaskExecutor(place, check_workers(workers))
    from specsim.planning.executors.ray import RayExecutor

    return RayExecutor(place, check_workers(workers))

"""Which replica a request goes to.

Load is the number of requests sent to a replica and not yet ended.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import numpy as np

from specsim.sim.replica import Replica
from specsim.sim.ticket import Ticket

STICKY_SESSIONS = 100_000
# A session leaves its replica when that has this many requests more than twice the least.
SPILL = 8


class Router(Protocol):
    def choose(self, ticket: Ticket, replicas: Sequence[Replica]) -> Replica:
        """One of `replicas` (those that are up and have room; at least one)."""
        ...


def least_loaded(replicas: Sequence[Replica]) -> Replica:
    """The lowest load; among equals the first."""
    return min(replicas, key=lambda replica: (replica.outstanding, replica.index))


class RoundRobin:
    """In turn, over the replicas that can take the request."""

    def __init__(self) -> None:
        self._last = -1

    def choose(self, ticket: Ticket, replicas: Sequence[Replica]) -> Replica:
        after = [r for r in replicas if r.index > self._last]
        chosen = (after or replicas)[0]
        self._last = chosen.index
        return chosen


class LeastLoaded:
    def choose(self, ticket: Ticket, replicas: Sequence[Replica]) -> Replica:
        return least_loaded(replicas)


class PowerOfTwo:
    """The less loaded of two drawn at random (Mitzenmacher 2001)."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng([seed, 2])

    def choose(self, ticket: Ticket, replicas: Sequence[Replica]) -> Replica:
        if len(replicas) < 3:
            return least_loaded(replicas)
        first, second = self._generator.choice(len(replicas), size=2, replace=False)
        return least_loaded((replicas[int(first)], replicas[int(second)]))


class PrefixAffinity:
    """A session (or, without one, a first content piece) stays where it was, unless that replica
    has much more to do than the least loaded one."""

    def __init__(self) -> None:
        self._home: OrderedDict[tuple[str, int], int] = OrderedDict()

    def choose(self, ticket: Ticket, replicas: Sequence[Replica]) -> Replica:
        request = ticket.request
        if request.session >= 0:
            name = ("session", request.session)
        elif request.spans:
            name = ("piece", request.spans[0][0])
        else:
            return least_loaded(replicas)
        best = least_loaded(replicas)
        at = self._home.get(name)
        home = next((r for r in replicas if r.index == at), None)
        chosen = home
        if home is None or home.outstanding > 2 * best.outstanding + SPILL:
            chosen = best
        assert chosen is not None
        self._home[name] = chosen.index
        self._home.move_to_end(name)
        if len(self._home) > STICKY_SESSIONS:
            self._home.popitem(last=False)
        return chosen


def make_router(name: str, seed: int) -> Router:
    """One of `config.ROUTERS`."""
    routers: dict[str, Callable[[], Router]] = {
        "round_robin": RoundRobin,
        "least_loaded": LeastLoaded,
        "power_of_two": partial(PowerOfTwo, seed),
        "prefix_affinity": PrefixAffinity,
    }
    return routers[name]()

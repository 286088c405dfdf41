"""Which replica a request goes to.

Load is the number of requests sent to a replica and not yet ended.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

import numpy as np

from specsim.sim.replica import Replica
from specsim.sim.ticket import Ticket

STICKY_SESSIONS = 100_000
# A session leaves its replica when that has this many requests more than twice the least.
SPILL = 8
# Defaults of SGLang's router.
CACHE_THRESHOLD = 0.3
BALANCE_ABS = 64
BALANCE_REL = 1.5


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


class CacheAware:
    """The replica that has seen most of the prompt, as long as loads are balanced; SGLang's router
    with its defaults (sgl-model-gateway, policies/cache_aware.rs).

    It remembers, of what it sent where, the content pieces and their tokens. Where the loads differ
    by more than BALANCE_ABS and by the factor BALANCE_REL, the least loaded replica is taken; where
    no replica knows more than CACHE_THRESHOLD of the prompt, the one that knows the fewest tokens.
    """

    def __init__(self) -> None:
        self._known: dict[int, OrderedDict[int, int]] = {}  # of a replica: piece -> its tokens
        self._tokens: dict[int, int] = {}

    def choose(self, ticket: Ticket, replicas: Sequence[Replica]) -> Replica:
        request = ticket.request
        loads = [replica.outstanding for replica in replicas]
        pieces = _chained(request.spans)
        if max(loads) - min(loads) > BALANCE_ABS and max(loads) > BALANCE_REL * min(loads):
            chosen = least_loaded(replicas)
        else:
            found = [(self._matched(replica.index, pieces), replica) for replica in replicas]
            most = max(tokens for tokens, _ in found)
            if most > CACHE_THRESHOLD * request.prompt_tokens:
                chosen = least_loaded([replica for tokens, replica in found if tokens == most])
            else:
                chosen = min(
                    replicas, key=lambda r: (self._tokens.get(r.index, 0), r.outstanding, r.index)
                )
        self._learn(chosen.index, pieces)
        return chosen

    def _matched(self, index: int, pieces: Sequence[tuple[int, int]]) -> int:
        """Tokens from the beginning that a replica has been sent."""
        known: Mapping[int, int] = self._known.get(index, {})
        total = 0
        for piece, tokens in pieces:
            held = min(known.get(piece, 0), tokens)
            total += held
            if held < tokens:
                break
        return total

    def _learn(self, index: int, pieces: Sequence[tuple[int, int]]) -> None:
        known = self._known.setdefault(index, OrderedDict())
        added = 0
        for piece, tokens in pieces:
            added += max(0, tokens - known.get(piece, 0))
            known[piece] = max(tokens, known.get(piece, 0))
            known.move_to_end(piece)
        while len(known) > STICKY_SESSIONS:
            added -= known.popitem(last=False)[1]
        self._tokens[index] = self._tokens.get(index, 0) + added


def _chained(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """(piece with all before it, its tokens) of a prompt's beginning."""
    out, before = [], 0
    for key, tokens in spans:
        before = hash((before, key))
        out.append((before, tokens))
    return out


def make_router(name: str, seed: int) -> Router:
    """One of `config.ROUTERS`."""
    routers: dict[str, Callable[[], Router]] = {
        "round_robin": RoundRobin,
        "least_loaded": LeastLoaded,
        "power_of_two": partial(PowerOfTwo, seed),
        "prefix_affinity": PrefixAffinity,
        "cache_aware": CacheAware,
    }
    return routers[name]()

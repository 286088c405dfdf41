"""A request on its way through the cluster: what the gateway, router and replica share about it."""

import math
from collections.abc import Callable
from typing import NamedTuple, Optional

from specsim.sim.request import Request


class Counts(NamedTuple):
    """What the engine counted of a request: the whole-number fields of its record."""

    cached_tokens: int = 0
    output_tokens: int = 0
    chunks: int = 0
    verify_steps: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    preemptions: int = 0
    stalls: int = 0


class Times(NamedTuple):
    """When things happened to a request, seconds; negative or NaN where they never did."""

    arrival_s: float = math.nan
    scheduled_s: float = math.nan
    first_token_s: float = math.nan
    last_token_s: float = math.nan
    end_s: float = math.nan


NO_COUNTS, NO_TIMES = Counts(), Times()
Done = Callable[["Ticket", str, float], None]


class Ticket:
    """One live request. replica: where it is, -1 before and between; slot: its place there, -1
    while it has none.

    on_done(ticket, status, time_s) tells whoever sent it that it ended.
    """

    __slots__ = (
        "arrival_s", "attempts", "measured", "on_done", "output_tokens", "replica", "request",
        "request_id", "slot",
    )

    def __init__(
        self,
        request_id: int,
        request: Request,
        arrival_s: float,
        output_tokens: int,
        measured: bool,
        on_done: Optional[Done] = None,  # noqa: UP045 - the alias is a forward reference
    ) -> None:
        self.request_id = request_id
        self.request = request
        self.arrival_s = arrival_s
        self.output_tokens = output_tokens
        self.measured = measured
        self.on_done = on_done
        self.replica = -1
        self.slot = -1
        self.attempts = 1

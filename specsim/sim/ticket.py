"""A request on its way through the cluster: what the gateway, router and replica share about it."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

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


@dataclass(slots=True, eq=False)
class Ticket:
    """One live request. replica: where it is, -1 before and between; slot: its place there, -1
    while it has none. counts, times: what an earlier replica gave it (a prefill replica: its first
    token), which the next one goes on from.

    on_done(ticket, status, time_s) tells whoever sent it that it ended.
    """

    request_id: int
    request: Request
    arrival_s: float
    output_tokens: int
    measured: bool
    on_done: Done | None = None
    replica: int = -1
    slot: int = -1
    attempts: int = 1
    counts: Counts = NO_COUNTS
    times: Times = NO_TIMES

    @property
    def computed(self) -> bool:
        """Whether its prompt is computed, and its cache comes with it."""
        return self.counts.output_tokens > 0

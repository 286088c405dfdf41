"""A request on its way through the cluster: what the gateway, router and replica share about it."""

import math
from collections.abc import Callable
from typing import Optional

from specsim.sim.request import Request

# cached, output, chunks, verify steps, drafted, accepted tokens, preemptions, stalls
Counts = tuple[int, int, int, int, int, int, int, int]
NO_COUNTS: Counts = (0, 0, 0, 0, 0, 0, 0, 0)
# arrival, scheduled, first token, last token, end; negative or NaN where it never came
Times = tuple[float, float, float, float, float]
NO_TIMES: Times = (math.nan, math.nan, math.nan, math.nan, math.nan)
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

"""Open loop: requests arrive at a rate, whether or not the server keeps up.

Requests that share a server whose pace depends only on their number n, a request taking T(n) where
n run, are n at a time with probability

    p(n) ~ rate^n T(1) ... T(n) / n!

whatever the law of their lengths (Cohen 1979), and the work of a request is done beside n others
with the same probability: times are means of those of a closed loop of n + 1. The largest rate that
any batch up to the limit sustains is the capacity; at or beyond it the queue grows without end.

Waiting for one of c slots is approximated as M/G/c by Allen-Cunneen with Poisson arrivals:
    Wq = C(c, rho) / (c mu (1 - rho)) x (1 + cv^2) / 2
with Erlang's C, mu the rate of one slot at the full batch and cv the coefficient of variation of
service. Sources: Erlang 1917; Allen 1990, section 5.
"""

import math
from bisect import bisect_left
from dataclasses import dataclass

from specsim.analytic.closed import SteadyState, closed_loop, running_limit
from specsim.analytic.system import System
from specsim.analytic.workload import Workload
from specsim.errors import UsageError

NEGLIGIBLE = 20  # logarithm of how much likelier the likeliest number of requests is


@dataclass(frozen=True, slots=True)
class OpenState:
    """request_rate: offered. capacity_rate: largest sustainable rate. utilisation: their ratio.
    stable: below capacity. state: the steady state at the batch that this rate keeps running
    (at the full batch when unstable). queue_s: mean wait, infinite when unstable."""

    request_rate: float
    capacity_rate: float
    utilisation: float
    stable: bool
    running: float
    queue_s: float
    ttft_s: float
    tpot_s: float
    output_tok_s: float
    state: SteadyState

    @property
    def stream_tok_s(self) -> float:
        """Tokens per second of one stream."""
        return 1.0 / self.tpot_s if self.tpot_s > 0 else 0.0


def erlang_c(servers: int, load: float) -> float:
    """Probability that an arrival waits in M/M/c; `load` = arrival rate / rate of one server.

    1 at or beyond saturation. Computed by the stable recursion of Erlang B.
    """
    if load >= servers:
        return 1.0
    if load <= 0:
        return 0.0
    blocked = 1.0
    for n in range(1, servers + 1):
        blocked = load * blocked / (n + load * blocked)
    rho = load / servers
    return blocked / (1 - rho + rho * blocked)


def open_loop(
    system: System, workload: Workload, rate: float, service_cv: float = 0.0
) -> OpenState:
    """Steady state at `rate` requests per second (Poisson arrivals).

    service_cv: coefficient of variation of a request's running time; 0 when all are alike.
    UsageError for a rate that is not a positive finite number.
    """
    if not (isinstance(rate, int | float) and math.isfinite(rate) and rate > 0):
        raise UsageError(f"rate is {rate!r}; it must be a positive number of requests per second")
    limit = running_limit(system, workload)
    best = _capacity(system, workload, limit)
    capacity = best.request_rate
    utilisation = rate / capacity
    if utilisation >= 1:
        return OpenState(
            rate, capacity, utilisation, False, best.running, math.inf, math.inf, best.tpot_s,
            capacity * workload.output_len, best,
        )

    slots = int(best.running)
    found = _Batches(system, workload, slots)
    shares, running = found.met(rate)
    tpot_s = sum(share * found.of(n, "tpot_s") for n, share in enumerate(shares, start=1))
    ttft_s = sum(share * found.of(n, "ttft_s") for n, share in enumerate(shares, start=1))
    state = found.state(min(slots, max(1, round(running))))
    slot_rate = capacity / slots
    waits = erlang_c(slots, rate / slot_rate)
    queue_s = waits / (capacity - rate) * (1 + service_cv**2) / 2
    return OpenState(
        rate, capacity, utilisation, True, running, queue_s, ttft_s + queue_s, tpot_s,
        rate * workload.output_len, state,
    )


class _Batches:
    """Closed loops of a deployment by batch, 1 to `slots`: some asked for, linear between them."""

    def __init__(self, system: System, workload: Workload, slots: int) -> None:
        self._system, self._workload, self._slots = system, workload, slots
        self._states: dict[int, SteadyState] = {}
        sizes = {slots}
        size = 1
        while size < slots:
            sizes |= {size, min(slots, size * 3 // 2)}
            size *= 2
        self._sizes = sorted(sizes)

    def state(self, batch: int) -> SteadyState:
        if batch not in self._states:
            self._states[batch] = closed_loop(self._system, self._workload, batch)
        return self._states[batch]

    def of(self, batch: int, field: str) -> float:
        """A field of the state of a batch; `time_s`: how long a request runs in it."""
        at = bisect_left(self._sizes, batch)
        high = self._sizes[at]
        if high == batch:
            state = self.state(batch)
            value = batch / state.request_rate if field == "time_s" else getattr(state, field)
            return float(value)
        low = self._sizes[at - 1]
        share = (batch - low) / (high - low)
        return self.of(low, field) * (1 - share) + self.of(high, field) * share

    def met(self, rate: float) -> tuple[list[float], float]:
        """(shares of the requests' work that is done in a batch of 1, 2, ..., mean running)."""
        logs = [0.0]  # of the weight of so many requests in the system
        most = 0.0
        for n in range(1, self._slots):
            logs.append(logs[-1] + math.log(rate * self.of(n, "time_s") / n))
            most = max(most, logs[-1])
            if logs[-1] < most - NEGLIGIBLE and logs[-1] < logs[-2]:
                break
        if len(logs) == self._slots:
            # One less than the batch, or more, which wait.
            logs[-1] -= math.log1p(-rate * self.of(self._slots, "time_s") / self._slots)
        weights = [math.exp(value - most) for value in logs]
        total = sum(weights)
        shares = [weight / total for weight in weights]
        times = (share * self.of(n, "time_s") for n, share in enumerate(shares, start=1))
        return shares, rate * sum(times)


def _capacity(system: System, workload: Workload, limit: int) -> SteadyState:
    """The batch with the highest request rate: usually the limit, but not always (a batch that
    leaves the captured graphs can be slower), so powers of two on the way are tried as well."""
    sizes = {limit}
    size = 1
    while size < limit:
        sizes.add(size)
        size *= 2
    states = [closed_loop(system, workload, size) for size in sorted(sizes)]
    return max(states, key=lambda s: s.request_rate)

"""Open loop: requests arrive at a rate, whether or not the server keeps up.

The running batch B follows from Little's law: B = rate x (time a request runs at that batch),
solved by bisection, since step time grows with B. The largest rate that any batch up to the
limit sustains is the capacity; at or beyond it the queue grows without end.

Waiting for one of c slots is approximated as M/G/c by Allen-Cunneen with Poisson arrivals:
    Wq = C(c, rho) / (c mu (1 - rho)) x (1 + cv^2) / 2
with Erlang's C, mu the rate of one slot at the full batch and cv the coefficient of variation of
service. Sources: Erlang 1917; Allen 1990, section 5.
"""

import math
from dataclasses import dataclass

from specsim.analytic.closed import SteadyState, closed_loop, running_limit
from specsim.analytic.system import System
from specsim.analytic.workload import Workload
from specsim.errors import UsageError
from specsim.search import first_between


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

    def keeps_up(batch: int) -> bool:
        return closed_loop(system, workload, batch).request_rate >= rate

    low = first_between(keeps_up, 0, int(best.running))
    state = closed_loop(system, workload, low)
    running = rate / state.request_rate * low
    if low > 1:
        # Between two whole batches, time per request is interpolated on the batch.
        below = closed_loop(system, workload, low - 1)
        span = state.request_rate - below.request_rate
        weight = (rate - below.request_rate) / span if span > 0 else 1.0
        running = low - 1 + min(1.0, max(0.0, weight))
        tpot_s = below.tpot_s + weight * (state.tpot_s - below.tpot_s)
        ttft_s = below.ttft_s + weight * (state.ttft_s - below.ttft_s)
    else:
        tpot_s, ttft_s = state.tpot_s, state.ttft_s
    slots = int(best.running)
    slot_rate = capacity / slots
    waits = erlang_c(slots, rate / slot_rate)
    queue_s = waits / (capacity - rate) * (1 + service_cv**2) / 2
    return OpenState(
        rate, capacity, utilisation, True, running, queue_s, ttft_s + queue_s, tpot_s,
        rate * workload.output_len, state,
    )


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

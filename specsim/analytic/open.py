"""Open loop: requests arrive at a rate, whether or not the server keeps up.

p(n) ~ rate^n T(1) ... T(n) / n! for n requests together, whatever the law of their lengths (Cohen
1979), T(n) from `pace`; a request's times are means of those at n + 1. The largest rate that any
batch up to the limit sustains in a closed loop is the capacity; beyond it the queue grows without
end. Waiting for one of c slots is M/G/c by Allen-Cunneen with Poisson arrivals, Wq = C(c, rho) / (c
mu (1 - rho)) x (1 + cv^2) / 2. Sources: Erlang 1917; Allen 1990, section 5. (docs/model.md, Loads.)
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from specsim.analytic.closed import SteadyState, closed_loop, running_limit
from specsim.analytic.pace import Pace, pace
from specsim.analytic.system import System
from specsim.analytic.workload import Workload
from specsim.errors import UsageError

MOST_BUSY = 0.999  # of the slots
ALIKE = 0.02  # rates: batches that serve as many
NEGLIGIBLE = 20  # logarithm of how much likelier the likeliest number of requests is


@dataclass(frozen=True, slots=True)
class OpenState:
    """request_rate: offered. capacity_rate: largest sustainable rate. utilisation: their ratio.
    stable: below capacity. steepness: per cent that TPOT rises when the rate rises by one; infinite
    when unstable. state: the steady state at the batch that this rate keeps running (at the full
    batch when unstable). queue_s: mean wait, infinite when unstable."""

    request_rate: float
    capacity_rate: float
    utilisation: float
    stable: bool
    running: float
    queue_s: float
    ttft_s: float
    tpot_s: float
    output_tok_s: float
    steepness: float
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
    key, states = ("open", workload, rate, service_cv), system.states
    if key not in states:
        states[key] = _steady(system, workload, rate, service_cv)
    found: OpenState = states[key]
    return found


def _steady(system: System, workload: Workload, rate: float, service_cv: float) -> OpenState:
    limit = running_limit(system, workload)
    best = _capacity(system, workload, limit)
    capacity = best.request_rate
    utilisation = rate / capacity
    if utilisation >= 1:
        return OpenState(
            rate, capacity, utilisation, False, best.running, math.inf, math.inf, best.tpot_s,
            capacity * workload.output_len, math.inf, best,
        )

    slots = int(best.running)
    found = _Batches(system, workload, rate, best)
    shares = found.met()
    decode_s, ttft_s = found.mean("decode_s", shares), found.mean("ttft_s", shares)
    tpot_s = decode_s / max(1, workload.output_len - 1)
    running = min(float(slots), rate * (decode_s + ttft_s))
    state = closed_loop(system, workload, min(slots, max(1, round(running))))
    slot_rate = capacity / slots
    waits = erlang_c(slots, rate / slot_rate)
    queue_s = waits / (capacity - rate) * (1 + service_cv**2) / 2
    return OpenState(
        rate, capacity, utilisation, True, running, queue_s, ttft_s + queue_s, tpot_s,
        rate * workload.output_len, found.steepness(shares), state,
    )


class _Batches:
    """Times of a deployment at a rate by batch, up to the one that serves most requests: some
    asked for, linear between.

    None is longer than where a request waits for each place (`most`): a full batch takes no
    prompts, however many come."""

    def __init__(self, system: System, workload: Workload, rate: float, most: SteadyState) -> None:
        self._system, self._workload, self._rate = system, workload, rate
        self._slots = slots = int(most.running)
        self._most_s = most.tpot_s * (workload.output_len - 1)
        self._paces: dict[int, Pace] = {}
        sizes = {slots}
        size = 1
        while size < slots:
            sizes |= {size, min(slots, size * 3 // 2)}
            size *= 2
        self._sizes = sorted(sizes)

    def _pace(self, batch: int) -> Pace:
        if batch not in self._paces:
            found = pace(self._system, self._workload, batch, self._rate)
            if found.decode_s > self._most_s > 0:
                found = found._replace(decode_s=self._most_s, steepness=0.0)
            self._paces[batch] = found
        return self._paces[batch]

    def at(self, batch: int, field: str) -> float:
        """A field of the pace at a batch that is asked for."""
        return float(getattr(self._pace(batch), field))

    def line(self, field: str) -> Iterator[float]:
        """A field of the pace at the batches 1, 2, ..., one after the other."""
        low, before = 0, 0.0
        for high in self._sizes:
            there, span = self.at(high, field), high - low
            for over in range(1, span):
                share = over / span
                yield before * (1 - share) + there * share
            yield there
            low, before = high, there

    def mean(self, field: str, shares: list[float]) -> float:
        pairs = zip(shares, self.line(field), strict=False)
        return sum(share * value for share, value in pairs)

    def steepness(self, shares: list[float]) -> float:
        """d ln T / d ln rate of the mean time T: longer steps of the same batch, whose prompts come
        faster, and a larger batch. With e the elasticity at a given batch the weight of n grows by
        the power n (1 + e) of the rate, so that T grows by e + (1 + e) Cov(T, n) / T."""
        times = list(islice(self.line("decode_s"), len(shares)))
        mean_s = sum(share * time_s for share, time_s in zip(shares, times, strict=True))
        mean_n = sum(share * n for n, share in enumerate(shares, start=1))
        spread = sum(
            share * (n - mean_n) * (time_s - mean_s)
            for n, (share, time_s) in enumerate(zip(shares, times, strict=True), start=1)
        )
        own = self.mean("steepness", shares)
        return own + (1 + own) * spread / mean_s

    def met(self) -> list[float]:
        """Shares of the requests' work that is done in a batch of 1, 2, ..."""
        logs = [0.0]  # of the weight of so many requests in the system
        most = 0.0
        for n, decode_s in zip(range(1, self._slots), self.line("decode_s"), strict=False):
            logs.append(logs[-1] + math.log(self._rate * decode_s / n))
            most = max(most, logs[-1])
            if logs[-1] < most - NEGLIGIBLE and logs[-1] < logs[-2]:
                break
        if len(logs) == self._slots:
            # One less than the batch, or more, which wait.
            busy = min(MOST_BUSY, self._rate * self.at(self._slots, "decode_s") / self._slots)
            logs[-1] -= math.log1p(-busy)
        weights = [math.exp(value - most) for value in logs]
        total = sum(weights)
        return [weight / total for weight in weights]


def _capacity(system: System, workload: Workload, limit: int) -> SteadyState:
    """The batch with the highest request rate: usually the limit, but not always (a batch that
    leaves the captured graphs can be slower), so powers of two on the way are tried as well. Of
    batches that serve alike, as where prompts take all the time, the largest: engines admit."""
    sizes = {limit}
    size = 1
    while size < limit:
        sizes.add(size)
        size *= 2
    states = [closed_loop(system, workload, size) for size in sorted(sizes)]
    most = max(state.request_rate for state in states)
    return next(s for s in reversed(states) if s.request_rate >= (1 - ALIKE) * most)

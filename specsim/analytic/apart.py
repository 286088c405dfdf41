"""Prefill and decoding on replicas apart, at a rate (docs/model.md, Loads).

Requests arrive Poisson. A prefill replica is a chain over step ends, whose mean number in the
system gives the sojourn (Little); of several in turn the wait shrinks as for G/G/1 (Kraemer and
Langenbach-Belz 1976, as in Whitt 1983, eq. 44):

    Wq(ca^2) = Wq(1) ca^2 exp(-2 (1 - rho) (1 - ca^2)^2 / (3 rho ca^2)),    ca^2 = 1 / replicas

The cache of a prompt queues for its link (M/D/1). The first token comes from the prefill replica,
so TTFT ends there; the transfer and what is left of a decode step fall into TPOT. Seconds, tokens.
"""

import math
from dataclasses import dataclass, replace

from specsim.analytic.open import OpenState, open_loop
from specsim.analytic.prompts import passes
from specsim.analytic.system import System
from specsim.analytic.workload import Workload
from specsim.errors import UsageError
from specsim.latency.kv_link import CHUNKS, WHOLE, KVLink, kv_link
from specsim.latency.shape import PrefillChunk, StepShape

MOST_WAITING = 1500  # states of the chain


@dataclass(frozen=True)
class Apart:
    """prefill: the system of a prefill replica. rate: (bytes per second, latency in seconds) of one
    GPU's link. by_chunk: prompts are sent chunk by chunk."""

    prefill: System
    prefill_replicas: int
    decode_replicas: int
    rate: tuple[float, float]
    by_chunk: bool = False

    @property
    def link(self) -> KVLink:
        engine, setup = self.prefill.engine, self.prefill.setup
        return kv_link(
            self.prefill.memory, self.rate, by_chunk=self.by_chunk,
            lanes=self.prefill.parallel.attention_dp,
            states=engine.held_states(setup),
        )

    def plain(self) -> "Apart":
        """The same without speculation."""
        return replace(self, prefill=self.prefill.plain())

    def to_dict(self) -> dict[str, object]:
        """Plain settings, for the record beside a result. kv_link_bytes_per_s: None if infinite."""
        bytes_per_s, latency_s = self.rate
        return {
            "prefill_replicas": self.prefill_replicas,
            "decode_replicas": self.decode_replicas,
            "prefill_tp": self.prefill.parallel.tp,
            "kv_link_bytes_per_s": bytes_per_s if math.isfinite(bytes_per_s) else None,
            "kv_link_latency_s": latency_s,
            "kv_transfer": CHUNKS if self.by_chunk else WHOLE,
        }

    def gpus(self, system: System) -> int:
        """GPUs of all replicas; system: of a decode replica."""
        return (
            self.prefill_replicas * self.prefill.parallel.all_gpus
            + self.decode_replicas * system.parallel.all_gpus
        )


@dataclass(frozen=True, slots=True)
class _Prefill:
    """A prefill replica at one rate. transfer_s: from the first token until a decode replica has
    the cache. capacity_rate: of its steps or its links, whichever is less."""

    capacity_rate: float
    wait_s: float
    ttft_s: float
    transfer_s: float


def decode_load(workload: Workload) -> Workload:
    """What a decode replica sees of the requests."""
    return replace(workload, computed_elsewhere=True, requests_per_client=0)


def apart_open(apart: Apart, system: System, workload: Workload, rate: float) -> OpenState:
    """All replicas at `rate` requests per second in all. system: of a decode replica.

    running: requests that decode, of all decode replicas; state: of one of them."""
    first = _prefill(apart, workload, rate / apart.prefill_replicas)
    count = apart.decode_replicas
    if workload.output_len == 1:  # nothing is left to decode
        raise UsageError(
            "output_len is 1, so nothing decodes; leave out --prefill-replicas and "
            "--decode-replicas, or ask for more tokens"
        )
    then = open_loop(system, decode_load(workload), rate / count)
    capacity = min(first.capacity_rate * apart.prefill_replicas, then.capacity_rate * count)
    stable = rate < capacity
    busy = -math.expm1(-then.running)  # whether a step is in progress when a request comes
    left_s = (0.5 + system.plans_ahead) * then.state.step_s * busy
    gap_s = first.transfer_s + then.queue_s + left_s
    tpot_s = then.tpot_s + gap_s / (workload.output_len - 1)
    return OpenState(
        request_rate=rate,
        capacity_rate=capacity,
        utilisation=rate / capacity,
        stable=stable,
        running=then.running * count,
        queue_s=first.wait_s + then.queue_s if stable else math.inf,
        ttft_s=first.ttft_s if stable else math.inf,
        tpot_s=tpot_s if stable else then.tpot_s,
        output_tok_s=min(rate, capacity) * workload.output_len,
        steepness=then.steepness if stable else math.inf,
        state=then.state,
    )


def _prefill(apart: Apart, workload: Workload, rate: float) -> _Prefill:
    system, link = apart.prefill, apart.link
    prompt, budget = workload.computed_input, system.group_tokens
    groups = system.parallel.attention_dp
    most = max(1, min(groups * max(1, budget // prompt), system.seqs_limit))
    steps, weight = passes(1, prompt, workload.input_len - prompt, budget)
    step_s = [
        weight * sum(system.latency.seconds(_prompts(chunk, count)) for (chunk,) in steps)
        for count in range(1, most + 1)
    ]
    sent_s = link.whole_s(workload.input_len)
    by_link = link.lanes / sent_s if sent_s > 0 else math.inf
    capacity = min(most / step_s[-1], by_link)
    request_s = system.engine.overheads.request_s if system.fidelity != "datasheet" else 0.0
    if rate >= capacity:
        return _Prefill(capacity, math.inf, math.inf, math.inf)
    sojourn_s = batch_sojourn_s(step_s, rate)
    wait_s = max(0.0, sojourn_s - step_s[0]) * _evenness(
        rate * step_s[-1] / most, apart.prefill_replicas
    )
    last_s = sent_s
    if link.by_chunk:
        # Every chunk but the last is sent while the next one is computed, or queues for the link.
        before = (math.ceil(prompt / budget) - 1) * budget / prompt
        last_s = max(sent_s * (1 - before), sent_s - step_s[0] * before)
    loaded = rate / by_link
    queue_s = loaded / (2 * (1 - loaded)) * sent_s
    transfer_s = last_s + queue_s + link.latency_s
    return _Prefill(capacity, wait_s, request_s + step_s[0] + wait_s, transfer_s)


def _prompts(chunk: PrefillChunk, count: int) -> StepShape:
    """A step of prompts that will decode elsewhere: it proposes nothing."""
    return StepShape(prefill=(chunk,) * count)


def batch_sojourn_s(step_s: list[float], rate: float) -> float:
    """Mean time in a server whose step of n requests takes step_s[n - 1], takes all that wait when
    it begins up to the longest, and serves Poisson arrivals at a rate below its capacity.

    Exact, but for states beyond MOST_WAITING."""
    import numpy as np  # not needed where nothing is apart

    most = len(step_s)
    slack = 1 - rate * step_s[-1] / most
    states = min(MOST_WAITING, 2 * most + math.ceil(40 / slack))
    served = np.minimum(np.maximum(np.arange(states), 1), most)
    times = np.array(step_s)[served - 1]
    arrived = rate * times
    moves = np.zeros((states, states))
    counts = np.arange(states)
    factorials = np.concatenate([[0.0], np.cumsum(np.log(counts[1:]))])
    for n in range(states):
        left = max(n, 1) - served[n]
        chance = np.exp(counts * np.log(arrived[n]) - arrived[n] - factorials)
        moves[n, left:] = chance[: states - left]
        moves[n, -1] += max(0.0, 1.0 - moves[n].sum())
    # Stationary shares: all balance equations but one, and the sum.
    balance = moves.T - np.eye(states)
    balance[-1] = 1.0
    share = np.linalg.solve(balance, np.eye(states)[-1])
    inside = np.maximum(counts, 1) * times + rate * times**2 / 2
    cycle_s = float(share @ times) + float(share[0]) / rate
    return float(share @ inside) / cycle_s / rate


def _evenness(rho: float, replicas: int) -> float:
    """Wait of every `replicas`-th request of a Poisson stream over that of a Poisson stream."""
    if replicas == 1 or rho <= 0:
        return 1.0
    variation = 1 / replicas
    return variation * math.exp(
        -2 * (1 - rho) * (1 - variation) ** 2 / (3 * rho * variation)
    )

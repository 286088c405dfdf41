"""Capacity from formulas: where a search by simulation begins, and a fast answer by itself.

People. U people of whom those not being served think for Z seconds on average; up to c of those
who wait are served together, each for S(n) seconds when n are. The number in the system is a
birth-death chain with births (U - n) / Z and deaths min(n, c) / S(min(n, c)), whose steady state
is a product. Who arrives sees the chain of U - 1 people (arrival theorem) and, with n >= c there,
waits for n - c + 1 departures. S comes from `analytic.closed` at the mean prompt of a turn, of
which the prefix cache holds a share: the turns before which a person thought for less time than
the cache keeps a block, that is, its tokens over the tokens written per second.

Requests at a rate: `analytic.open`, with a time to first token whose tail is that of the wait.

Both know means of lengths only: the tails of prompts, bursts and old conversations are the
simulation's. Seconds, tokens. Sources: Kleinrock, Queueing Systems I (1975), sections 3.8, 4.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from specsim.analytic.apart import Apart
from specsim.analytic.closed import SteadyState, closed_loop, running_limit
from specsim.analytic.compare import at_rate
from specsim.analytic.system import System
from specsim.analytic.workload import Workload, request_s
from specsim.errors import SpecSimError
from specsim.planning.capacity_loads import Arrivals, LoadShape, People
from specsim.sim.behaviour import played_turns
from specsim.sim.build import caches_prefixes

MOST_STATES = 60_000
ROUNDS = 4  # of the fixed point of throughput and prefix hits
SPREAD_P10 = 0.8  # p10 of the streams' rates over their mean, where rates are means
WARM_ANSWERS = 2.0
LEAST_REQUESTS = 300
LONGEST_S = 40_000.0
USUAL_HIT = 0.3  # share of what could be cached that is, where nothing says better
TAIL_P95 = math.log(20.0)  # 95th percentile over mean of an exponential wait


@dataclass(frozen=True)
class Turns:
    """Means over the turns of people: prompt tokens (history and message), of which `old` were in
    the prompt (or answer) before and could be cached, output tokens, tokens held half way through
    the answer, and the pauses, one per turn."""

    prompt: float
    old: float
    output: float
    context: float
    pauses_s: tuple[float, ...]

    @property
    def pause_s(self) -> float:
        return float(np.mean(self.pauses_s)) if self.pauses_s else 0.0

    def workload(self, hit: float) -> Workload:
        """The mean turn with a share `hit` of what could be cached found in the cache."""
        prompt = max(1, round(self.prompt))
        share = min(0.999, max(0.0, hit * self.old / self.prompt))
        return Workload(prompt, max(1, round(self.output)), cached_share=share, name="turn")


def turns_of(people: People) -> Turns:
    """Plays the people without an engine."""
    behaviour = people.behaviour
    turns = [
        turn
        for turn in played_turns(
            behaviour, people.duration_s, thinking=people.thinking, settled=people.settled
        )
        if turn.at_s >= people.warmup_s
    ]
    rows: list[tuple[float, ...]] = [
        (turn.prompt_tokens, turn.old_tokens, turn.answer_tokens,
         turn.prompt_tokens + turn.answer_tokens / 2)
        for turn in turns
    ]
    if not rows:
        prompt = behaviour.system_tokens + behaviour.opener_tokens.mean
        answer = behaviour.output_tokens.mean
        rows.append((prompt, behaviour.system_tokens, answer, prompt + answer / 2))
    prompt, old, output, context = np.mean(np.array(rows), axis=0).tolist()
    pauses_s = tuple(turn.pause_s for turn in turns) if people.thinking else ()
    return Turns(prompt, old, output, context, pauses_s)


def usual_workload(shape: LoadShape) -> Workload:
    """Lengths of what a shape sends, with a usual share of people's history in the cache."""
    if isinstance(shape, People):
        return turns_of(shape).workload(USUAL_HIT)
    return shape.workload


@dataclass(frozen=True)
class Crowd:
    """What formulas say about an amount of load. ttft_p95_s is infinite where the queue grows."""

    amount: float
    running: float
    waiting: float
    ttft_mean_s: float
    ttft_p95_s: float
    tpot_s: float
    output_tok_s: float
    request_rate: float
    e2el_s: float
    hit: float = 0.0

    def figure(self, gate: str, output: float) -> float | None:
        """The figure that a gate is about, as far as formulas know it."""
        stream = 1.0 / self.tpot_s if self.tpot_s > 0 else math.inf
        known = {
            "ttft_p95": self.ttft_p95_s,
            "ttft_p99": self.ttft_p95_s * math.log(100.0) / TAIL_P95,
            "ttft_p90": self.ttft_p95_s * math.log(10.0) / TAIL_P95,
            "ttft_mean": self.ttft_mean_s,
            "ttft_p50": self.ttft_mean_s,
            "queue_p95": self.ttft_p95_s,
            "queue_mean": self.ttft_mean_s,
            "stream_tok_s_p10": SPREAD_P10 * stream,
            "stream_tok_s_mean": stream,
            "stream_tok_s_p50": stream,
            "tpot_mean": self.tpot_s,
            "tpot_p50": self.tpot_s,
            "tpot_p95": self.tpot_s / SPREAD_P10,
            "e2el_mean": self.e2el_s,
            "e2el_p50": self.e2el_s,
            "e2el_p95": request_s(self.ttft_p95_s, self.tpot_s / SPREAD_P10, output),
        }
        return known.get(gate)

    def meets(self, slo: Mapping[str, float], output: float) -> bool:
        """Whether all gates hold that formulas know about."""
        if not math.isfinite(self.ttft_p95_s):
            return False
        for gate, limit in slo.items():
            value = self.figure(gate, output)
            if value is None:
                continue
            if value < limit if gate.startswith("stream_tok_s") else value > limit:
                return False
        return True


class CrowdModel:
    """People on a system, by formulas. Steady states are kept between amounts."""

    def __init__(self, system: System, people: People, turns: Turns | None = None) -> None:
        self.system = system
        self.turns = turns or turns_of(people)
        self.thinking = people.thinking
        self._states: dict[tuple[int, float], SteadyState] = {}
        plan = system.memory
        size = plan.kv_bytes_per_token + sum(part for _, part in plan.windows)
        self.caches = caches_prefixes(system)
        self.cache_tokens = plan.pool_bytes / size if size > 0 else math.inf
        self.slots = running_limit(system, self.turns.workload(0.0))

    def _state(self, running: int, hit: float) -> SteadyState:
        key = (running, hit)
        if key not in self._states:
            self._states[key] = closed_loop(self.system, self.turns.workload(hit), running)
        return self._states[key]

    def _hit(self, request_rate: float, held: float, before: float) -> float:
        """Share of the old tokens that the cache still holds when a person comes back."""
        if not self.caches:
            return 0.0
        turns = self.turns
        written = request_rate * (turns.prompt - before * turns.old + turns.output)
        if not self.thinking or written <= 0:
            return 1.0
        free = max(0.0, self.cache_tokens - held * turns.context)
        kept_s = free / written
        return float(np.mean(np.array(turns.pauses_s) < kept_s)) if turns.pauses_s else 1.0

    def at(self, people: float) -> Crowd:
        """The steady state with so many people."""
        count = max(1, round(people))
        if not self.thinking:
            state = closed_loop(self.system, self.turns.workload(1.0), count)
            return Crowd(
                count, state.running, count - state.running, state.ttft_s,
                state.ttft_s * (1 if not state.queue_s else 1.2), state.tpot_s, state.output_tok_s,
                state.request_rate, request_s(state.ttft_s, state.tpot_s, self.turns.output),
                1.0,
            )
        hit = 0.5
        found = self._chain(count, hit)
        for _ in range(ROUNDS):
            new = self._hit(found.request_rate, found.running, hit)
            hit = round((hit + new) / 2, 2)  # few values, so that steady states are shared
            found = self._chain(count, hit)
        return found

    def _chain(self, people: int, hit: float) -> Crowd:
        think_s = max(self.turns.pause_s, 1e-9)
        slots = min(self.slots, people)
        grid = _grid(slots)
        rates = np.interp(
            np.arange(1, slots + 1), grid, [self._state(n, hit).request_rate for n in grid]
        )
        most = min(people, MOST_STATES)
        n = np.arange(0, most + 1)
        deaths = rates[np.minimum(np.maximum(n, 1), slots) - 1]
        logs = np.zeros(most + 1)
        births = (people - n[:-1]) / think_s
        with np.errstate(divide="ignore"):
            logs[1:] = np.cumsum(np.log(births) - np.log(deaths[1:]))
        weight = np.exp(logs - logs.max())
        weight /= weight.sum()
        # An arrival sees the others: states of `people` weighted by who still can arrive.
        seen = weight * (people - n)
        seen = seen / seen.sum() if seen.sum() > 0 else weight
        running = float((weight * np.minimum(n, slots)).sum())
        waiting = float((weight * np.maximum(0, n - slots)).sum())
        rate = float((weight * np.where(n > 0, deaths, 0.0)).sum())
        state = self._state(max(1, round(running)), hit)
        waits = np.maximum(0, n - slots + 1) / rates[-1]
        queue_s = float((seen * waits).sum())
        order = np.searchsorted(np.cumsum(seen), 0.95)
        p95_s = float(waits[min(int(order), most)]) + state.ttft_s
        output = self.turns.output
        return Crowd(
            people, running, waiting, state.ttft_s + queue_s, p95_s, state.tpot_s,
            rate * output, rate, request_s(state.ttft_s + queue_s, state.tpot_s, output), hit,
        )


def _grid(slots: int) -> list[int]:
    """Batch sizes to price: all small ones, then 20 % apart, and the last."""
    sizes, size = {1, slots}, 1
    while size < slots:
        sizes.add(size)
        size = max(size + 1, math.ceil(size * 1.2))
    return sorted(sizes)


def arrivals_at(
    system: System, arrivals: Arrivals, rate: float, apart: Apart | None = None
) -> Crowd:
    """Requests of fixed lengths at a rate, by formulas."""
    workload = arrivals.workload
    state = at_rate(system, workload, rate, apart)
    own_s = state.ttft_s - state.queue_s if state.stable else math.inf
    p95_s = own_s + state.queue_s * TAIL_P95 if state.stable else math.inf
    return Crowd(
        rate, state.running, state.queue_s * rate if state.stable else math.inf, state.ttft_s,
        p95_s, state.tpot_s, state.output_tok_s, rate,
        request_s(state.ttft_s, state.tpot_s, workload.output_len),
    )


def estimate_capacity(
    system: System, shape: LoadShape, slo: Mapping[str, float], apart: Apart | None = None
) -> float:
    """Largest amount of load that meets the gates by formulas, `shape.lowest` when none does."""
    if isinstance(shape, People):
        model = CrowdModel(system, shape)
        output = model.turns.output
        # People beside whom no prompt is computed: as many as without, at least.
        replicas = apart.decode_replicas if apart is not None else 1
        return replicas * _largest(lambda x: model.at(x).meets(slo, output), shape)
    output = float(shape.workload.output_len)

    def fits(rate: float) -> bool:
        try:
            return arrivals_at(system, shape, rate, apart).meets(slo, output)
        except SpecSimError:
            return False

    return _largest(fits, shape)


def lengthened(
    system: System, shape: LoadShape, slo: Mapping[str, float], apart: Apart | None = None
) -> LoadShape:
    """The shape with a warm-up of WARM_ANSWERS answers and LEAST_REQUESTS requests measured at the
    capacity that formulas give, where its times may be stretched: percentiles of a few requests,
    or of a server that is still filling up, say nothing."""
    if not isinstance(shape, Arrivals) or not shape.stretch:
        return shape
    shape = replace(shape, stretch=False)
    rate = estimate_capacity(system, shape, slo, apart)
    try:
        answer_s = arrivals_at(system, shape, rate, apart).e2el_s
    except SpecSimError:
        return shape
    if not math.isfinite(answer_s):
        return shape
    measured_s = max(shape.duration_s - shape.warmup_s, LEAST_REQUESTS / rate, 2 * answer_s)
    warmup_s = min(max(shape.warmup_s, WARM_ANSWERS * answer_s), LONGEST_S / 4)
    total_s = min(warmup_s + measured_s, LONGEST_S)
    return replace(shape, duration_s=float(round(total_s)), warmup_s=float(round(warmup_s)))


def _largest(fits: Callable[[float], bool], shape: LoadShape) -> float:
    """Largest amount that fits: doubling, then bisection to 1 %."""
    low, high = 0.0, max(shape.lowest, 1.0 if shape.whole else 0.01)
    while fits(high):
        low, high = high, high * 2
        if high >= shape.highest:
            return shape.highest
    if low == 0.0 and not shape.whole:
        low = shape.lowest
    while high - low > max(0.01 * high, 1.0 if shape.whole else 0.0):
        middle = (low + high) / 2
        if fits(middle):
            low = middle
        else:
            high = middle
    return max(low, shape.lowest)

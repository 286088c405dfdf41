"""The simulator in degenerate settings against queueing theory.

Ten independent runs each, 99.9 % t-intervals of their means; the first requests of a run are left
out. Seeds are fixed, so these tests are deterministic; each passes on other seeds as well.
"""

import math

import numpy as np
import pytest
from scipy import stats
from thinned import slow

from sim_costs import Linear, Random, config
from specsim.sim.loads import ClosedLoop, OpenLoop
from specsim.sim.request import Request
from specsim.sim.run import simulate

RUNS, REQUESTS, CUT = 10, 3000, 300


def poisson(rate, lengths, seed, requests=REQUESTS):
    """Poisson arrivals of one-token prompts with the given output lengths."""
    generator = np.random.default_rng([seed, 17])
    times = np.cumsum(generator.exponential(1.0 / rate, size=requests))
    outputs = lengths(generator, requests)
    return [Request(float(t), 1, int(n)) for t, n in zip(times, outputs, strict=True)]


def queue_waits(result):
    records = result.records
    order = np.argsort(records.ints("request_id"))
    return (records.times("scheduled_s") - records.times("arrival_s"))[order]


def interval(values, share=0.999):
    values = np.asarray(values)
    half = stats.t.ppf(0.5 + share / 2, len(values) - 1) * values.std(ddof=1) / math.sqrt(
        len(values)
    )
    return values.mean() - half, values.mean() + half


def one_token(generator, count):
    return np.ones(count, dtype=int)


@pytest.mark.parametrize(
    ("rho", "expected", "widest"), [(0.5, 0.5, 0.08), slow(0.8, 2.0, 0.7)]
)
def test_one_server_constant_service_is_md1(rho, expected, widest):
    """Pollaczek-Khinchine for M/D/1: Wq = rho / (2 (1 - rho)) service times."""
    cfg = config(max_num_seqs=1)
    means = [
        queue_waits(simulate(cfg, OpenLoop(poisson(rho, one_token, seed)), Linear(1.0)))[
            CUT:
        ].mean()
        for seed in range(RUNS)
    ]
    low, high = interval(means)
    assert low < expected < high
    assert (high - low) / 2 < widest


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rho", "expected", "widest"), [(0.5, 1.0, 0.2), slow(0.8, 4.0, 1.8)]
)
def test_one_server_exponential_service_is_mm1(rho, expected, widest):
    """M/M/1: Wq = rho / (1 - rho) service times. Each step asks the cost function."""
    cfg = config(max_num_seqs=1, exact_cost=True)
    means = [
        queue_waits(
            simulate(cfg, OpenLoop(poisson(rho, one_token, 50 + seed)), Random(1.0, seed))
        )[CUT:].mean()
        for seed in range(RUNS)
    ]
    low, high = interval(means)
    assert low < expected < high
    assert (high - low) / 2 < widest


def test_one_server_geometric_lengths_is_mg1():
    """Outputs are geometric with mean 5, a step takes 1 s, one request at a time: M/G/1 with
    E[S] = 5, E[S^2] = 45, so Wq = rate E[S^2] / (2 (1 - rho)) = 4.5 at rho 0.5."""
    p = 0.2
    second_moment = (2 - p) / p**2

    def lengths(generator, count):
        return generator.geometric(p, size=count)

    rate = 0.5 * p
    cfg = config(max_num_seqs=1)
    means = [
        queue_waits(simulate(cfg, OpenLoop(poisson(rate, lengths, seed, 1500)), Linear(1.0)))[
            CUT:
        ].mean()
        for seed in range(80, 80 + RUNS)
    ]
    low, high = interval(means)
    assert low < rate * second_moment / (2 * (1 - 0.5)) < high
    assert (high - low) / 2 < 1.5


@pytest.mark.slow
def test_no_limit_constant_step_is_mg_infinity_plus_half_a_step():
    """With slots for all and a step time that ignores the batch nobody waits but for the next
    step boundary: half a step on average if the engine is always busy, then its own steps."""

    def lengths(generator, count):
        return generator.geometric(0.1, size=count)

    cfg = config(max_num_seqs=512, max_num_batched_tokens=8192)
    waits, sojourns = [], []
    for seed in range(RUNS):
        result = simulate(cfg, OpenLoop(poisson(5.0, lengths, 120 + seed)), Linear(1.0))
        waits.append(queue_waits(result)[CUT:].mean())
        records = result.records
        sojourn = records.times("end_s") - records.times("arrival_s")
        order = np.argsort(records.ints("request_id"))
        sojourns.append(sojourn[order][CUT:].mean())
    low, high = interval(waits)
    assert low < 0.5 < high
    assert (high - low) / 2 < 0.02
    low, high = interval(sojourns)
    assert low < 0.5 + 10.0 < high
    assert (high - low) / 2 < 0.4


@pytest.mark.slow
def test_overload_serves_at_capacity():
    """Always b requests in the batch: b / (E[length] step) requests per second."""
    b, mean_length = 8, 10.0

    def lengths(generator, count):
        return generator.geometric(1 / mean_length, size=count)

    cost = Linear(0.010, row=0.002)
    rates = []
    for seed in range(RUNS):
        requests = poisson(1e4, lengths, 160 + seed, requests=3000)
        result = simulate(config(max_num_seqs=b), OpenLoop(requests), cost)
        ends = np.sort(result.records.times("end_s"))
        rates.append(2000 / (ends[2499] - ends[499]))
    # A request's first token comes from its prompt chunk, which is one of the b but no row: the
    # mean step has b - b / mean_length rows.
    step_s = 0.010 + 0.002 * (b - b / mean_length)
    low, high = interval(rates)
    assert low < b / (mean_length * step_s) < high
    assert (high - low) / 2 < 1.5


def test_littles_law_holds_exactly():
    """The area under the number in the system, followed by a listener on the run's own clock,
    equals the sum of the times the records say requests spent in it."""
    changes = []
    generator = np.random.default_rng(5)
    requests = [
        Request(0.0, int(p), int(n)) for p, n in generator.integers(1, 60, size=(500, 2))
    ]

    class Listening(ClosedLoop):
        def start(self, cluster, seed):
            submit = cluster.submit

            def noted(request, on_done=None):
                changes.append((cluster.clock.now, 1))

                def done(ticket, status, time_s):
                    changes.append((cluster.clock.now, -1))
                    on_done(ticket, status, time_s)

                return submit(request, done)

            cluster.submit = noted
            super().start(cluster, seed)

    # A gateway limit keeps the loop outside the engine, where it can be listened to.
    cfg = config(max_num_seqs=6, max_concurrent=9, n_replicas=2)
    result = simulate(cfg, Listening(requests, 25), Linear(0.01, 1e-3, 1e-4))
    area = inside = 0
    last = 0.0
    for now_s, change in changes:
        area += inside * (now_s - last)
        inside, last = inside + change, now_s
    records = result.records
    sojourn = (records.times("end_s") - records.times("arrival_s")).sum()
    assert inside == 0
    assert len(records) == len(requests)
    assert area == pytest.approx(sojourn, rel=1e-12)


def test_busy_period_is_work_conserving():
    """A server that serves one at a time is busy exactly for the sum of its service times."""
    requests = poisson(0.9, one_token, 3, requests=2000)
    result = simulate(config(max_num_seqs=1), OpenLoop(requests), Linear(1.0))
    replica = result.cluster.replicas[0]
    assert replica.stats.busy_s == pytest.approx(2000.0, rel=1e-12)
    assert replica.stats.busy_s <= result.window.end_s


def test_low_load_equals_arithmetic():
    """Requests far apart: TTFT is the prompt's step, TPOT the decode step over tokens per step."""
    cost = Linear(0.004, row=0.001, token=1e-5)
    requests = [Request(100.0 * i, 200, 51) for i in range(20)]
    result = simulate(config(), OpenLoop(requests), cost)
    summary = result.summary()
    assert summary["ttft_s"]["p99"] == pytest.approx(0.004 + 200e-5, rel=1e-9)
    assert summary["tpot_s"]["mean"] == pytest.approx(0.005, rel=1e-9)
    assert summary["e2el_s"]["mean"] == pytest.approx(0.006 + 50 * 0.005, rel=1e-9)

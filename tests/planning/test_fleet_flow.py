"""Replicas and queues through a day: by hand, by properties, and beside the simulator."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thinned import examples

from specsim.planning.fleet_flow import Flow, Scaling, Stream, run_day

STEPS = 48


def scaling(**changes: Any) -> Scaling:
    base: dict[str, Any] = {
        "share": 1.0, "queue": 0.0, "spares": 0, "least": 1, "most": 99, "start": 0, "cool": 0,
        "ahead": 0,
    }
    return Scaling(**{**base, **changes})


def stream(demand: list[float], rule: Scaling, **changes: Any) -> Stream:
    """A model whose replicas carry 10 requests per second within the gates and 12 at most."""
    base: dict[str, Any] = {
        "gpu": "g", "gpus": 2, "believed": 10.0, "capacity": 10.0, "most_rate": 12.0,
    }
    return Stream(demand, scaling=rule, **{**base, **changes})


def day(*streams: Stream, gpus: float = 1000, step_s: float = 60.0, give_up_s: float = 1e9
        ) -> list[Flow]:
    return run_day(streams, lambda gpu, step: gpus, step_s, give_up_s)


def test_a_jump_queues_until_the_new_replica_serves() -> None:
    # 10/s on one replica, 20/s from step 4: the second serves 3 steps later. Until then 8 of 20
    # requests per second wait: 480 a step. Then 24 leave while 20 come: 240 fewer a step, 6 steps.
    demand = [10.0] * 4 + [20.0] * 20
    flow = day(stream(demand, scaling(start=3)))[0]
    assert flow.replicas == [1] * 4 + [2] * 20
    assert flow.ready == [1] * 7 + [2] * 17
    assert flow.queue[:14] == [0] * 4 + [480, 960, 1440, 1200, 960, 720, 480, 240, 0, 0]
    assert flow.holds == [True] * 4 + [False] * 9 + [True] * 11
    # Who comes at the end of step 5 waits while 720 of 960 leave in a step, 240 by 24 per second.
    assert flow.longest_wait_s(60.0) == pytest.approx(60 + 240 / 24)
    assert flow.longest_wait_s(60.0, 6, 7) == pytest.approx(1440 / 24)
    assert flow.share() == pytest.approx((4 * 10 + 11 * 20) / (4 * 10 + 20 * 20))


def test_a_wait_is_counted_by_what_leaves_after_it() -> None:
    # 240 wait at 12 per second for one step (720), never longer than what is left takes.
    flow = Flow([1.0] * 3, [1] * 3, [1] * 3, [4.0, 2.0, 6.0], [240.0, 120.0, 0.0], [0.0] * 3,
                [True] * 3)
    # 240: 120 in the second step, 120 of 360 in the third.
    assert flow.longest_wait_s(60.0) == pytest.approx(60 + 20)
    assert flow.longest_wait_s(60.0, 1, 2) == pytest.approx(20)


def test_fewer_are_kept_for_the_cool_down() -> None:
    demand = [10.0] * 6 + [30.0] * 2 + [10.0] * 16
    flow = day(stream(demand, scaling(cool=4)))[0]
    assert flow.replicas == [1] * 6 + [3] * 2 + [3] * 4 + [1] * 12


def test_a_rule_that_knows_the_day_starts_ahead() -> None:
    demand = [10.0] * 6 + [20.0] * 18
    late, ahead = (day(stream(demand, scaling(start=3, ahead=n)))[0] for n in (0, 3))
    assert ahead.replicas[3:6] == [2, 2, 2] and late.replicas[3:6] == [1, 1, 1]
    assert ahead.share() == 1.0 > (late.share() or 0)


def test_waiting_people_ask_nothing() -> None:
    # 600 people who ask every 30 s: 20 per second, of which one replica serves 12. In the long run
    # (600 - Q) / 30 = 12: 240 wait.
    flow = day(stream([600.0] * STEPS, scaling(most=1), cycle_s=30.0, capacity=300.0,
                      believed=300.0))[0]
    assert flow.queue[-1] == pytest.approx(240, rel=1e-3)
    assert flow.share() == 0.0
    # From one step to the next, of 600 people of whom none waited: dQ/dt = (600 - Q) / 30 - 12.
    calm = [0.0] * 24 + [600.0] * 24
    jump = day(stream(calm, scaling(most=1), cycle_s=30.0))[0]
    euler = 0.0
    for _ in range(60_000):
        euler += ((600 - euler) / 30 - 12) * 1e-3
    assert jump.queue[24] == pytest.approx(euler, rel=1e-3)


def test_who_waits_too_long_gives_up() -> None:
    # 20 come, 12 leave: 8 of 20 give up once the queue is what comes within 100 s.
    flow = day(stream([20.0] * STEPS, scaling(most=1)), give_up_s=100.0)[0]
    assert flow.queue[-1] == pytest.approx(2000)
    assert flow.given_up[-1] == pytest.approx(8 * 60)


def test_without_a_replica_nothing_is_served() -> None:
    flow = day(stream([5.0] * 24, scaling()), gpus=1, give_up_s=30.0)[0]
    assert flow.replicas == [0] * 24 and flow.share() == 0.0
    assert flow.queue[-1] == pytest.approx(150) and sum(flow.given_up) == pytest.approx(24 * 300)


def test_a_queue_target_scales_as_kubernetes_does() -> None:
    # ceil(ready x (waiting per replica / target)): 480 wait for one replica, target 200: 3.
    demand = [1.0] * 4 + [20.0] * 20
    flow = day(stream(demand, scaling(queue=200.0, cool=99)))[0]
    assert flow.replicas[4:7] == [3, 3, 3]
    # One that already waits inside its replica counts too: 2 of a target of 1.
    inside = stream([1.0] * 8, scaling(queue=1.0, most=2), waiting=lambda load: 2.0)
    assert set(day(inside)[0].replicas[1:]) == {2}


def test_the_first_model_takes_the_pool() -> None:
    first, second = (stream([20.0] * 8, scaling()) for _ in range(2))
    a, b = day(first, second, gpus=7)  # replicas of two GPUs
    assert set(a.replicas) == {2} and set(b.replicas) == {1}


def test_a_lost_replica_is_away_until_another_serves() -> None:
    spare, bare = (
        day(stream([20.0] * 24, scaling(spares=n), fails=(5, 9, 1)))[0] for n in (1, 0)
    )
    assert bare.ready[4:10] == [2, 1, 1, 1, 1, 2] and spare.ready[5] == 2
    assert spare.share(5, 9) == 1.0 and bare.share(5, 9) == 0.0


# --- properties ---------------------------------------------------------------------------------

demands = st.lists(st.floats(0, 500), min_size=STEPS, max_size=STEPS)
rules = st.builds(
    scaling, share=st.floats(0.3, 1), spares=st.integers(0, 3), least=st.integers(1, 4),
    start=st.integers(0, 10), cool=st.integers(0, 10), ahead=st.integers(0, 5),
)


@given(demand=demands, more=st.lists(st.floats(1, 3), min_size=STEPS, max_size=STEPS), rule=rules)
@settings(deadline=None, max_examples=examples(60))
def test_more_demand_never_takes_fewer(demand: list[float], more: list[float], rule: Scaling
                                       ) -> None:
    less = day(stream(demand, rule))[0]
    grown = day(stream([d * m for d, m in zip(demand, more, strict=True)], rule))[0]
    assert all(a <= b for a, b in zip(less.replicas, grown.replicas, strict=True))


@given(demand=demands, rule=rules, longer=st.integers(1, 12))
@settings(deadline=None, max_examples=examples(60))
def test_a_longer_start_is_never_better(demand: list[float], rule: Scaling, longer: int) -> None:
    short = day(stream(demand, rule))[0]
    slow = day(stream(demand, replace(rule, start=rule.start + longer)))[0]
    assert slow.replicas == short.replicas
    assert all(a <= b for a, b in zip(slow.ready, short.ready, strict=True))
    assert (slow.share() or 0) <= (short.share() or 0) + 1e-12


@given(demand=demands, rule=rules, spares=st.integers(1, 4))
@settings(deadline=None, max_examples=examples(60))
def test_spares_are_never_cheaper(demand: list[float], rule: Scaling, spares: int) -> None:
    bare = day(stream(demand, replace(rule, spares=0)))[0]
    safe = day(stream(demand, replace(rule, spares=spares)))[0]
    assert sum(safe.replicas) >= sum(bare.replicas)
    for amount, count in zip(demand, safe.replicas, strict=True):
        assert (count - spares) * 10.0 >= amount * (1 - 1e-6)


@given(demand=demands, rule=rules, patience=st.floats(1, 1000))
@settings(deadline=None, max_examples=examples(60))
def test_nothing_is_lost_but_what_gives_up(
    demand: list[float], rule: Scaling, patience: float
) -> None:
    # Who comes in a step is served, given up, or waits at its end.
    flow = day(stream(demand, rule), give_up_s=patience)[0]
    for step in range(1, STEPS):
        came = flow.queue[step - 1] + demand[step] * 60.0
        left = came - flow.queue[step] - flow.given_up[step]
        assert -1e-6 <= left <= flow.most[step] * 60.0 * (1 + 1e-9) + 1e-6


@given(demand=demands, rule=rules, cycle_s=st.floats(0.1, 1e4))
@settings(deadline=None, max_examples=examples(60))
def test_no_more_people_wait_than_there_have_been(
    demand: list[float], rule: Scaling, cycle_s: float
) -> None:
    flow = day(stream(demand, rule, cycle_s=cycle_s))[0]
    assert max(flow.queue) <= max(demand) * (1 + 1e-9)


# --- beside the simulator -----------------------------------------------------------------------


@pytest.mark.slow
def test_the_queue_while_a_replica_starts_is_the_simulators() -> None:
    """One replica at half its throughput, from 120 s on at one and a half times; a second serves
    120 s later. All wait at one gateway: 40 s at most, nobody after 360 s. Two seeds, Poisson: of
    the 4,300 requests until the second serves, one standard deviation is 66, or 2.7 s of one
    replica's work; two seeds and the mean of prompts' delays leave 5 s."""
    from specsim.analytic.open import open_loop
    from specsim.analytic.workload import Workload
    from specsim.api.deployment import build_request
    from specsim.options.groups import DeploymentOptions
    from specsim.sim.build import Deployment
    from specsim.sim.config import Fault
    from specsim.sim.loads import OpenLoop
    from specsim.sim.request import Request
    from specsim.sim.run import simulate

    options = {"model": "llama-3.1-8b", "gpu": "h100-sxm", "method": "none", "max_num_seqs": 32}
    system = build_request(DeploymentOptions.of_values(options)).system
    rate = open_loop(system, Workload(512, 128), 1.0).capacity_rate
    demand = [(0.5 if 10 * i < 120 else 1.5) * rate for i in range(60)]
    flow = day(
        stream(demand, scaling(start=12), believed=rate, capacity=rate, most_rate=rate, gpus=1),
        step_s=10.0,
    )[0]
    assert flow.ready == [1] * 24 + [2] * 36
    settings_ = {
        "n_replicas": 2, "router": "least_loaded", "max_concurrent": 32, "retry": "all",
        "faults": (Fault(1, 0.0, 240.0),),
    }
    deployment = Deployment(system, settings=tuple(settings_.items()))
    waits: list[tuple[float, float]] = []
    for seed in range(2):
        rng, now, requests = np.random.default_rng(seed), 0.0, []
        while now < 600:
            now += rng.exponential(1 / (rate * (0.5 if now < 120 else 1.5)))
            requests.append(Request(now, 512, 128))
        found = simulate(deployment.config, OpenLoop(iter(requests)), deployment.cost, seed,
                         prefill_cost=deployment.prefill_cost)
        waits += [(r.arrival_s, r.first_token_s - r.arrival_s) for r in found.records]
    off_s = [
        np.median([wait for at, wait in waits if abs(at - 10 * (step + 1)) < 5])
        - flow.longest_wait_s(10.0, step, step + 1)
        for step in range(12, 40)
    ]
    assert max(map(abs, off_s)) < 5 and abs(np.mean(off_s)) < 2.5
    assert flow.longest_wait_s(10.0) == pytest.approx(40, rel=0.02)

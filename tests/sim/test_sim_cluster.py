"""Replicas, routers, gateway limits, failures, clients that give up."""

import math
from dataclasses import replace

import numpy as np
import pytest

from sim_costs import PLAIN_RULES, Linear, config, plain_requests
from specsim.errors import UsageError
from specsim.sim.arrivals import gamma_times
from specsim.sim.config import Fault
from specsim.sim.lengths import Uniform
from specsim.sim.loads import OpenLoop, requests_of
from specsim.sim.request import Request
from specsim.sim.run import simulate


def load(rate=20.0, count=300, seed=1):
    return OpenLoop(
        list(requests_of(gamma_times(rate, seed), Uniform(5, 200), Uniform(5, 60), seed,
                         limit=count))
    )


def by_id(result):
    return sorted(result.records, key=lambda record: record.request_id)


def test_round_robin_takes_turns():
    result = simulate(config(n_replicas=3), load(count=30), Linear())
    assert [record.replica for record in by_id(result)] == [0, 1, 2] * 10


def test_least_loaded_sees_the_load_of_the_moment():
    """A long request occupies replica 0; while it runs, short ones alternate only if needed."""
    requests = plain_requests((0.0, 5, 100), (0.1, 5, 2), (0.2, 5, 2), (0.3, 5, 2))
    cfg = config(n_replicas=2, router="least_loaded")
    assert [r.replica for r in by_id(simulate(cfg, OpenLoop(requests), Linear()))] == [0, 1, 1, 1]


def test_power_of_two_balances_better_than_chance_and_repeats():
    cfg = config(n_replicas=8, router="power_of_two", max_num_seqs=4)
    first, again = (simulate(cfg, load(80.0, 400), Linear(0.02)) for _ in range(2))
    assert [r.replica for r in by_id(first)] == [r.replica for r in by_id(again)]
    counts = np.bincount([r.replica for r in first.records], minlength=8)
    assert counts.min() > 400 / 8 / 2


def test_prefix_affinity_keeps_a_session_at_its_cache():
    requests = []
    for turn in range(6):
        for session in range(9):
            prompt = 100 + 50 * turn
            requests.append(
                Request(turn * 10.0 + session * 0.1, prompt, 5, ((session, prompt),), True, session)
            )
    rules = replace(PLAIN_RULES, prefix_caching=True)

    def hit_rate(router):
        cfg = config(rules=rules, n_replicas=4, router=router)
        return simulate(cfg, OpenLoop(requests), Linear()).summary()["prefix_hit_rate"]

    assert hit_rate("prefix_affinity") > 0.6
    assert hit_rate("round_robin") < 0.4


def test_gateway_limit_queues_outside_the_engine():
    """Four at a time in the backend, the fifth waits in the gateway, first come first served."""
    cfg = config(max_concurrent=4)
    requests = plain_requests(*[(0.001 * i, 5, 10) for i in range(12)])
    result = simulate(cfg, OpenLoop(requests), Linear())
    summary = result.summary()
    assert summary["running_max"] == 4
    assert summary["gateway_queue_max"] == 8
    starts = [record.scheduled_s for record in by_id(result)]
    assert starts == sorted(starts)
    assert result.summary()["waiting_max"] == 0


def test_adding_a_replica_never_raises_the_mean_wait():
    waits = []
    for replicas in (1, 2, 3, 4):
        cfg = config(n_replicas=replicas, router="least_loaded", max_num_seqs=4)
        waits.append(simulate(cfg, load(30.0), Linear(0.02)).summary()["queue_s"]["mean"])
    assert waits == sorted(waits, reverse=True)
    assert waits[0] > waits[-1]


FAULTY = [(0.0, 5, 100), (0.0, 5, 100), (0.2, 5, 100)]


@pytest.mark.parametrize(
    ("retry", "statuses"),
    [
        ("none", ["failed", "finished", "failed"]),
        ("unstarted", ["failed", "finished", "finished"]),
        ("all", ["finished", "finished", "finished"]),
    ],
)
def test_failure_loses_what_the_gateway_does_not_send_again(retry, statuses):
    """Replica 0 holds request 0 (streaming) and 2 (waiting for the only slot) when it fails."""
    cfg = config(
        n_replicas=2, max_num_seqs=1, faults=(Fault(0, 0.505, 2.0),), retry=retry
    )
    result = simulate(cfg, OpenLoop(plain_requests(*FAULTY)), Linear())
    records = by_id(result)
    assert [record.status for record in records] == statuses
    if retry == "none":
        assert records[0].output_tokens == 50 and records[0].reason == "replica 0 failed"
        assert records[0].end_s == 0.505
    if retry == "all":
        assert [record.attempts for record in records] == [2, 1, 2]
    summary = result.summary()
    assert sum(summary["requests"][s] for s in ("finished", "failed")) == 3


def test_without_any_replica_requests_wait_until_one_is_back():
    cfg = config(faults=(Fault(0, 0.1, 3.0),), retry="all")
    requests = plain_requests((0.0, 5, 100), (0.5, 5, 2))
    records = by_id(simulate(cfg, OpenLoop(requests), Linear()))
    assert [record.status for record in records] == ["finished", "finished"]
    assert all(record.scheduled_s >= 3.0 for record in records)


def test_a_replica_comes_back_with_an_empty_cache():
    rules = replace(PLAIN_RULES, prefix_caching=True)
    requests = [Request(t, 100, 2, ((1, 100),)) for t in (0.0, 1.0, 5.0)]
    cfg = config(rules=rules, faults=(Fault(0, 2.0, 3.0),))
    records = by_id(simulate(cfg, OpenLoop(requests), Linear()))
    assert [record.cached_tokens for record in records] == [0, 96, 0]


def test_never_coming_back_leaves_requests_unfinished():
    cfg = config(faults=(Fault(0, 0.1),), duration_s=2.0)
    result = simulate(cfg, OpenLoop(plain_requests((0.0, 5, 100), (1.0, 5, 2))), Linear())
    assert [record.status for record in by_id(result)] == ["failed", "unfinished"]


@pytest.mark.parametrize("where", ["gateway", "backlog", "queue", "prefill", "decode", "front end"])
def test_clients_give_up_wherever_their_request_is(where):
    settings = {"request_timeout_s": 0.25}
    requests = [(0.0, 5, 10)]
    if where == "gateway":
        settings["max_concurrent"] = 1
        requests = [(0.0, 5, 20), (0.0, 5, 10)]
    elif where in ("queue", "backlog"):
        settings["max_num_seqs"] = 1
        count = 2 if where == "queue" else 140
        requests = [(0.0, 5, 20)] * count
    elif where == "prefill":
        settings["max_num_batched_tokens"] = 8
        requests = [(0.0, 500, 10)]
    elif where == "front end":
        settings["request_overhead_s"] = 0.5
    else:
        requests = [(0.0, 5, 100), (0.0, 5, 20)]
    result = simulate(config(**settings), OpenLoop(plain_requests(*requests)), Linear())
    late = [record for record in result.records if record.status == "timeout"]
    assert late
    assert all(record.end_s == 0.25 for record in late)
    if where == "decode":
        assert late[0].output_tokens == 25 - 1 or late[0].output_tokens == 25
    summary = result.summary()
    assert summary["error_rate"] == len(late) / len(requests)
    # What was given up has given back its memory and slot (the run itself checks its blocks).
    assert result.cluster.replicas[0].outstanding == 0


def test_front_end_time_is_part_of_ttft():
    cfg = config(request_overhead_s=0.003)
    (record,) = simulate(cfg, OpenLoop(plain_requests((1.0, 200, 3))), Linear()).records
    assert record.ttft_s == pytest.approx(0.003 + 0.010, abs=1e-12)


def test_order_of_equal_times_changes_nothing_but_ids():
    requests = plain_requests(*[(0.5 * (i // 6), 10, 4 + i % 3) for i in range(60)])
    shuffled = []
    for start in range(0, 60, 6):
        shuffled += [requests[start + j] for j in (3, 0, 5, 1, 4, 2)]
    ends = []
    for order in (requests, shuffled):
        result = simulate(config(max_num_seqs=64), OpenLoop(order), Linear(0.01, 1e-3))
        ends.append(sorted(record.end_s for record in result.records))
    assert ends[0] == ends[1]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"max_num_seqs": 1 << 17}, "max_num_seqs is 131072"),
        ({"warmup_s": 5.0, "duration_s": 4.0}, "leaves nothing"),
    ],
)
def test_contradictions_are_refused(settings, words):
    with pytest.raises(UsageError, match=words):
        config(**settings)


def test_fault_that_ends_before_it_begins_is_refused():
    with pytest.raises(UsageError, match="must be later"):
        Fault(0, 5.0, 5.0)
    with pytest.raises(UsageError, match="seconds, 0 or more"):
        Fault(0, math.nan, 5.0)

"""The cache-aware router: hits, balance, and what it does where it knows nothing."""

from dataclasses import replace

import numpy as np
import pytest
from thinned import slow

from sim_costs import PLAIN_RULES, Linear, config
from specsim.sim.loads import OpenLoop
from specsim.sim.request import Request
from specsim.sim.run import simulate

CACHING = replace(PLAIN_RULES, prefix_caching=True)


def run(router: str, requests: list[Request], cost: Linear, **more: object):
    cfg = config(rules=CACHING, n_replicas=4, router=router, **more)
    return simulate(cfg, OpenLoop(requests), cost)


def prompts(documents: int, count: int = 600, rate: float = 30.0, seed: int = 2) -> list[Request]:
    """Questions of 100 tokens about one of some documents of 900."""
    generator = np.random.default_rng(seed)
    times = np.cumsum(generator.exponential(1 / rate, size=count))
    chosen = generator.integers(0, documents, size=count)
    return [
        Request(float(t), 1000, 10, ((int(d), 900),)) for t, d in zip(times, chosen, strict=True)
    ]


@pytest.mark.parametrize("documents", [slow(1), slow(7), 40, slow(600)])
def test_it_hits_no_less_than_taking_turns(documents: int) -> None:
    """A small cache, so that it matters where a document is kept."""
    rates = {
        router: run(router, prompts(documents), Linear(token=1e-5), num_kv_blocks=1000)
        .summary()["prefix_hit_rate"]
        for router in ("round_robin", "cache_aware")
    }
    assert rates["cache_aware"] >= rates["round_robin"]
    if documents == 40:
        assert rates["cache_aware"] > 0.75 and rates["round_robin"] < 0.65


def test_one_popular_document_spreads_when_its_replica_is_overloaded() -> None:
    """All ask about the same: without balance one replica would get everything."""
    result = run("cache_aware", prompts(1, 900, 300.0), Linear(0.01, token=1e-4), max_num_seqs=8)
    counts = np.bincount([record.replica for record in result.records], minlength=4)
    assert counts.min() > 50
    alone = run("cache_aware", prompts(1, 900, 20.0), Linear(0.01, token=1e-6))
    assert len({record.replica for record in alone.records}) == 1  # balanced enough


def test_unknown_prompts_go_where_least_is_known() -> None:
    requests = [Request(0.1 * i, 1000, 2, ((i, 1000),)) for i in range(40)]
    counts = np.bincount(
        [record.replica for record in run("cache_aware", requests, Linear()).records]
    )
    assert counts.tolist() == [10, 10, 10, 10]


def test_a_conversation_that_grows_is_known_by_its_beginning() -> None:
    requests = [
        Request(turn * 5.0 + user, 200 + 300 * turn, 5, ((user, 200 + 300 * turn),), True, user)
        for turn in range(5) for user in range(3)
    ]
    result = run("cache_aware", sorted(requests), Linear())
    homes = {r.session: set() for r in result.records}
    for record in result.records:
        homes[record.session].add(record.replica)
    assert all(len(found) == 1 for found in homes.values()) and len(homes) == 3

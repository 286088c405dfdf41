"""What cannot be served, never ends, or is far too much: clear words, nothing lost, no hang."""

import math

import pytest

from sim_costs import Linear, config, plain_requests
from specsim.errors import CapacityError, UsageError
from specsim.sim.config import SpeculationRules
from specsim.sim.engine_rules import EngineRules
from specsim.sim.loads import ClosedLoop, OpenLoop, requests_of
from specsim.sim.policies.table import drafts_by_batch
from specsim.sim.run import simulate
from specsim.speculation.acceptance import Acceptance


def test_prompt_longer_than_the_cache_is_refused_with_its_numbers():
    cfg = config(num_kv_blocks=10, block_size=16)
    result = simulate(cfg, OpenLoop(plain_requests((0.0, 500, 5), (0.0, 50, 5))), Linear())
    refused, served = sorted(result.records, key=lambda record: record.request_id)
    assert refused.status == "rejected"
    assert refused.reason == (
        "505 tokens (prompt 500, output 5), but the cache holds one request of at most 159"
    )
    assert served.status == "finished"
    assert result.summary()["error_rate"] == 0.5


def test_largest_request_that_fits_is_served_alone():
    cfg = config(num_kv_blocks=10, block_size=16)
    (record,) = simulate(cfg, OpenLoop(plain_requests((0.0, 100, 59))), Linear()).records
    assert record.status == "finished"
    (record,) = simulate(cfg, OpenLoop(plain_requests((0.0, 100, 60))), Linear()).records
    assert record.status == "rejected"


def test_output_is_cut_at_max_model_len():
    cfg = config(max_model_len=120)
    records = sorted(
        simulate(
            cfg, OpenLoop(plain_requests((0.0, 100, 500), (0.0, 120, 5))), Linear()
        ).records,
        key=lambda record: record.request_id,
    )
    assert (records[0].status, records[0].output_tokens) == ("finished", 20)
    assert records[1].status == "rejected"
    assert "max_model_len is 120" in records[1].reason


def test_unchunked_prompt_beyond_the_budget_is_refused():
    cfg = config(chunked_prefill=False, max_num_batched_tokens=64)
    (record,) = simulate(cfg, OpenLoop(plain_requests((0.0, 65, 5))), Linear()).records
    assert "exceeds max_num_batched_tokens 64" in record.reason


def test_closed_loop_of_nothing_but_refusals_ends_with_words():
    endless = requests_of(iter(lambda: 0.0, None), 10_000, 5, 0)
    for clients in ({}, {"n_replicas": 2}):
        cfg = config(num_kv_blocks=10, duration_s=100.0, **clients)
        with pytest.raises(CapacityError, match="requests in a row were refused"):
            simulate(cfg, ClosedLoop(endless, 4), Linear())


def test_overload_of_a_thousand_times_the_capacity_loses_nothing():
    cfg = config(max_num_seqs=8, num_kv_blocks=200)
    result = simulate(cfg, OpenLoop(plain_requests(*[(0.0, 20, 20)] * 3000)), Linear())
    assert len(result.records) == 3000
    assert result.summary()["requests"]["finished"] == 3000
    assert result.summary()["waiting_max"] == 3000 - 8


def test_preemption_storm_ends():
    """Eight requests that grow to 60 tokens in a cache of 100: they displace each other all the
    way and every one ends."""
    cfg = config(num_kv_blocks=100, block_size=1, max_num_seqs=8, reserve_full_isl=False)
    result = simulate(cfg, OpenLoop(plain_requests(*[(0.0, 10, 50)] * 8)), Linear())
    assert result.summary()["preemptions"] > 5
    assert {record.status for record in result.records} == {"finished"}
    assert {record.output_tokens for record in result.records} == {50}


def test_no_progress_is_detected():
    """An engine that admits what it cannot hold, broken on purpose: told, not hung."""
    from specsim.sim.run import Cluster

    class Broken(OpenLoop):
        def start(self, cluster: Cluster, seed: int) -> None:
            # Someone takes all blocks away behind the scheduler's back.
            cluster.replicas[0].core.free_blocks = 0
            super().start(cluster, seed)

    with pytest.raises(CapacityError, match=r"makes no progress at 1\.000 s: 1 requests wait"):
        simulate(config(), Broken(plain_requests((1.0, 5, 5))), Linear())


def test_budget_below_one_verify_step_is_refused():
    with pytest.raises(UsageError, match="verifies 6 tokens per step; raise it"):
        config(max_num_batched_tokens=5, k=5, acceptance=Acceptance.from_rate(0.5, 5))


def test_cache_below_one_verify_step_is_refused():
    with pytest.raises(CapacityError, match="do not hold one token"):
        config(num_kv_blocks=1, block_size=4, k=5, acceptance=Acceptance.from_rate(0.5, 5))


def test_max_model_len_beyond_the_cache_is_refused():
    with pytest.raises(CapacityError, match="holds one request of at most 1599"):
        config(num_kv_blocks=100, max_model_len=2000)


def test_speculation_without_acceptance_is_refused():
    with pytest.raises(UsageError, match="there is no default"):
        config(k=3)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: EngineRules(max_num_seqs=0), "max_num_seqs is 0"),
        (lambda: SpeculationRules(-1), "num_speculative_tokens is -1"),
        (lambda: SpeculationRules(0, verify_tokens=4), "needs the root"),
        (lambda: SpeculationRules(2, adaptive=((1, (3, 1)),)), "must rise"),
        (lambda: SpeculationRules(2, adaptive=((4, (1,)),)), "tiers start at"),
    ],
)
def test_rules_that_no_engine_has_are_refused(make, words):
    with pytest.raises(UsageError, match=words):
        make()


def test_table_by_batch_size_fills_gaps_and_tail():
    spec = SpeculationRules(4, per_batch_size=((1, 2, 9), (5, 6, 1)))
    assert drafts_by_batch(spec.per_batch_size, 4, 8) == [4, 4, 4, 4, 4, 1, 1, 1, 1]
    assert spec.draft_lengths(8) == [0, 1, 4]


def test_nothing_to_do_is_not_an_error():
    result = simulate(config(), OpenLoop([]), Linear())
    summary = result.summary()
    assert summary["requests"]["arrived"] == 0
    assert summary["ttft_s"]["mean"] is None
    assert summary["output_tok_s"] == 0.0


def test_zero_seconds_per_step_ends():
    result = simulate(config(), OpenLoop(plain_requests((0.0, 5, 50), (1.0, 5, 5))), Linear(0.0))
    assert result.summary()["requests"]["finished"] == 2


def test_duration_stops_an_endless_load():
    endless = requests_of(iter(lambda: 0.0, None), 10, 20, 0)
    for replicas in (1, 2):
        cfg = config(duration_s=20.0, n_replicas=replicas)
        result = simulate(cfg, ClosedLoop(endless, 5), Linear())
        assert result.window.end_s == 20.0
        assert result.summary()["requests"]["finished"] > 200
        assert math.isclose(result.summary()["running_mean"], 5.0, rel_tol=0.05)


@pytest.mark.slow
def test_more_requests_than_sixteen_bits_count():
    """Nothing is lost, however many."""
    count = 200_000
    times = (i * 1e-3 for i in range(count))
    result = simulate(
        config(num_kv_blocks=100_000, max_num_seqs=256),
        OpenLoop(requests_of(times, 8, 2, 0)),
        Linear(1e-3),
    )
    assert len(result.records) == count
    assert result.summary()["requests"]["finished"] == count

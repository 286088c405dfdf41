"""Prefill and decoding on replicas apart: theory, conservation, same bytes, failures."""

import itertools
import json
from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thinned import examples, slow

from sim_costs import PLAIN_RULES, SGLANG, Linear, config, plain_requests
from specsim.errors import UsageError
from specsim.latency.kv_link import KVLink
from specsim.sim.arrivals import gamma_times
from specsim.sim.compiled import available
from specsim.sim.config import Fault, SpeculationRules
from specsim.sim.engine_rules import VLLM, PrefillPool
from specsim.sim.lengths import Uniform
from specsim.sim.loads import ClosedLoop, OpenLoop, requests_of
from specsim.sim.request import Request
from specsim.sim.run import simulate
from specsim.speculation.acceptance import Acceptance
from test_sim_theory import interval

ONE_EACH = PrefillPool(1)


def by_id(result):
    return sorted(result.records, key=lambda record: record.request_id)


def load(rate=20.0, count=300, seed=1):
    return OpenLoop(
        list(requests_of(gamma_times(rate, seed), Uniform(5, 200), Uniform(1, 60), seed,
                         limit=count))
    )


def test_one_request_by_hand():
    """100 prompt tokens in one step of 10 ms, 3 ms of link per token and 1 ms of latency, then two
    more tokens in steps of 10 ms."""
    link = KVLink(token_s=0.003, latency_s=0.001)
    cfg = config(prefill=PrefillPool(1, link))
    (record,) = simulate(cfg, OpenLoop(plain_requests((0.0, 100, 3))), Linear()).records
    assert record.first_token_s == pytest.approx(0.010)
    assert record.last_token_s == pytest.approx(0.010 + 0.300 + 0.001 + 0.020)
    assert (record.output_tokens, record.chunks, record.replica) == (3, 3, 1)
    assert record.status == "finished"


def test_chunks_are_sent_while_the_next_ones_are_computed():
    """4 chunks of 25 tokens, 10 ms each to compute and 5 ms to send: only the last is waited for.
    With a link slower than the chunks, all four queue for it."""
    def last_s(by_chunk, token_s):
        cfg = config(
            prefill=PrefillPool(1, KVLink(token_s, by_chunk=by_chunk)), max_num_batched_tokens=25
        )
        (record,) = simulate(cfg, OpenLoop(plain_requests((0.0, 100, 2))), Linear()).records
        return record.last_token_s

    assert last_s(False, 0.0002) == pytest.approx(0.040 + 0.020 + 0.010)
    assert last_s(True, 0.0002) == pytest.approx(0.040 + 0.005 + 0.010)
    assert last_s(True, 0.0008) == pytest.approx(0.010 + 4 * 0.020 + 0.010)


def test_state_and_windows_are_sent_last_and_once():
    link = KVLink(token_s=0.001, windows=((30, 0.001),), state_s=0.007)
    assert link.whole_s(100) == pytest.approx(0.100 + 0.030 + 0.007)
    assert link.whole_s(10) == pytest.approx(0.010 + 0.010 + 0.007)
    cfg = config(prefill=PrefillPool(1, link))
    (record,) = simulate(cfg, OpenLoop(plain_requests((0.0, 100, 2))), Linear()).records
    assert record.last_token_s == pytest.approx(0.010 + 0.137 + 0.010)


def test_a_lane_sends_one_prompt_after_the_other():
    """Two prompts computed in one step; on one link the second waits for the first, on two not."""
    def gaps(lanes):
        cfg = config(prefill=PrefillPool(1, KVLink(0.001, lanes=lanes)))
        found = simulate(cfg, OpenLoop(plain_requests((0.0, 50, 2), (0.0, 50, 2))), Linear())
        return [round(r.last_token_s - r.first_token_s, 6) for r in by_id(found)]

    assert gaps(1) == [0.060, 0.110]
    assert gaps(2) == [0.060, 0.060]


@pytest.mark.parametrize(("rho", "widest"), [slow(0.5, 0.08), slow(0.8, 0.7)])
def test_prefill_of_a_poisson_stream_is_md1_and_decoding_mginf(rho, widest):
    """Infinite link, one replica each, one prompt at a time: TTFT is that of M/D/1. Decode steps
    that cost the same for any batch serve all at once: the mean number decoding is rate x time
    (M/G/infinity), and no gap between tokens is longer than a step and what was left of one."""
    step_s, tokens, count, cut = 0.04, 100, 3000, 300
    waits, running = [], []
    for seed in range(10):
        generator = np.random.default_rng([seed, 5])
        times = np.cumsum(generator.exponential(1 / rho, size=count))
        outputs = generator.integers(1, 2 * tokens, size=count)
        requests = [Request(float(t), 1, int(n)) for t, n in zip(times, outputs, strict=True)]
        cfg = config(
            prefill=PrefillPool(1, rules=replace(PLAIN_RULES, max_num_seqs=1)),
            warmup_s=float(times[cut]), duration_s=float(times[-1]),
        )
        result = simulate(cfg, OpenLoop(requests), Linear(step_s), prefill_cost=Linear(1.0))
        summary = result.summary()
        waits.append(summary["ttft_s"]["mean"] - 1.0)
        running.append(summary["pools"]["decode"]["running_mean"])
        assert summary["transfer_s"]["mean"] == 0.0
        assert summary["itl_s"]["p99"] < 2.1 * step_s
        assert summary["pools"]["prefill"]["busy"] == pytest.approx(rho, rel=0.1)
    low, high = interval(waits)
    assert low < rho / (2 * (1 - rho)) < high and (high - low) / 2 < widest
    low, high = interval(running)
    # Every output length from 1 to 2 tokens - 1 is as likely: tokens - 1 steps on average.
    assert low < rho * (tokens - 1) * step_s < high


SPECULATIVE = SpeculationRules(3)
ACCEPTED = Acceptance.from_mean_length(2.5, 3, source="test")


def busy(rules=VLLM, **more):
    """Short of blocks, so that requests are preempted, with prompts in chunks."""
    return config(
        rules=rules, num_kv_blocks=26, max_num_batched_tokens=64, max_num_seqs=16, n_replicas=2,
        prefill=PrefillPool(2, KVLink(2e-5, latency_s=1e-3, by_chunk=True), num_kv_blocks=40),
        speculation=SPECULATIVE, acceptance=ACCEPTED, router="least_loaded", **more,
    )


def shared(count=400):
    """Requests of 20 prefixes, some with a single token to write."""
    generator = np.random.default_rng(3)
    times = np.cumsum(generator.exponential(0.01, size=count))
    return [
        Request(float(t), 100, int(n), ((int(p), 64),))
        for t, n, p in zip(
            times, generator.integers(1, 80, count), generator.integers(0, 20, count), strict=True
        )
    ]


SMALL_SGLANG = replace(SGLANG, block_size=16)


@pytest.mark.parametrize("rules", [VLLM, replace(VLLM, plan_ahead=True), SMALL_SGLANG])
def test_every_request_and_token_is_accounted_for(rules):
    """`simulate` checks blocks and counters of every replica at its end."""
    requests = shared()
    result = simulate(busy(rules), OpenLoop(requests), Linear(0.005, token=1e-5), seed=4)
    summary = result.summary()
    assert summary["requests"]["finished"] == len(requests)
    assert result.cluster.tokens == sum(request.output_tokens for request in requests)
    assert {r.replica for r in result.records if r.requested_tokens > 1} == {2, 3}
    assert {r.replica for r in result.records if r.requested_tokens == 1} <= {0, 1}
    assert all(replica.core.sending == 0 for replica in result.cluster.replicas)
    assert summary["preemptions"] > 0
    for record in result.records:
        assert record.arrival_s <= record.scheduled_s <= record.first_token_s
        assert record.first_token_s <= record.last_token_s == record.end_s
        assert record.output_tokens == record.requested_tokens


@pytest.mark.slow
@given(
    st.integers(0, 10_000), st.integers(26, 60), st.integers(10, 40), st.booleans(),
    st.floats(0, 1e-3), st.sampled_from([VLLM, replace(VLLM, plan_ahead=True), SMALL_SGLANG]),
    st.sampled_from(["round_robin", "least_loaded", "cache_aware"]),
)
@settings(max_examples=examples(25), deadline=None)
def test_nothing_is_lost_whatever_is_short(
    seed, decode_blocks, prefill_blocks, by_chunk, token_s, rules, router
):
    """Blocks, links and places, with failures of either kind and clients that give up."""
    cfg = replace(
        busy(rules), num_kv_blocks=decode_blocks, router=router, retry="all",
        request_timeout_s=2.0, faults=(Fault(0, 0.3, 0.5), Fault(3, 0.6, 0.9)),
        prefill=PrefillPool(2, KVLink(token_s, by_chunk=by_chunk), num_kv_blocks=prefill_blocks),
    )
    result = simulate(cfg, OpenLoop(shared(120)), Linear(0.005, token=1e-5), seed=seed)
    counts = result.summary()["requests"]
    assert counts["finished"] + counts["timeout"] == 120
    for record in result.records:
        if record.status == "finished":
            assert record.output_tokens == record.requested_tokens
        assert record.output_tokens <= record.requested_tokens


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bytes_compiled_or_not():
    def told(compiled, **more):
        result = simulate(
            busy(compiled=compiled, **more), OpenLoop(shared()), Linear(0.005, token=1e-5), seed=4
        )
        return json.dumps([asdict(r) for r in result.records]), json.dumps(result.summary())

    plain = told(False)
    assert told(False) == plain
    if available():
        assert told(True) == plain


def test_prompts_never_delay_decoding():
    """Long prompts beside a stream: mixed, they stretch its gaps; apart, they do not."""
    requests = plain_requests((0.0, 10, 200), *[(0.1 * i, 4000, 1) for i in range(1, 15)])
    cost = Linear(0.01, token=1e-4)

    def worst_gap(**more):
        cfg = config(**more)
        return simulate(cfg, OpenLoop(requests), cost).summary()["itl_s"]["p99"]

    assert worst_gap() > 0.2
    assert worst_gap(prefill=ONE_EACH) < 0.011


def test_blocks_are_held_until_the_cache_is_sent():
    """One prompt fills the prefill replica; the next is admitted only when the first has left."""
    cfg = config(prefill=PrefillPool(1, KVLink(0.01), num_kv_blocks=8))
    first, second = by_id(
        simulate(cfg, OpenLoop(plain_requests((0.0, 100, 2), (0.0, 100, 2))), Linear())
    )
    assert first.scheduled_s == 0.0
    assert second.scheduled_s == pytest.approx(0.010 + 1.0)


def test_a_closed_loop_waits_for_its_answers():
    cfg = config(prefill=ONE_EACH)
    requests = [Request(0.0, 10, 5)] * 40
    result = simulate(cfg, ClosedLoop(iter(requests), 4, total=40), Linear())
    assert result.summary()["requests"]["finished"] == 40
    sent = [(record.arrival_s, 1) for record in result.records]
    ended = [(record.end_s, -1) for record in result.records]
    assert max(itertools.accumulate(n for _, n in sorted([*sent, *ended]))) == 4


@pytest.mark.parametrize(
    ("replica", "retry", "statuses"),
    [
        (0, "none", {"failed", "finished"}), (1, "none", {"failed", "finished"}),
        (0, "all", {"finished"}), (1, "all", {"finished"}),
    ],
)
def test_failures_of_either_kind_lose_or_repeat_what_was_there(replica, retry, statuses):
    link = KVLink(0.002)
    cfg = config(
        prefill=PrefillPool(1, link), retry=retry, faults=(Fault(replica, 0.5, 1.0),)
    )
    requests = plain_requests(*[(0.05 * i, 50, 20) for i in range(30)])
    result = simulate(cfg, OpenLoop(requests), Linear())
    assert {record.status for record in result.records} == statuses
    assert len(result.records) == 30
    if retry == "all":
        assert max(record.attempts for record in result.records) == 2
        assert all(record.output_tokens == 20 for record in result.records)


def test_computed_requests_wait_while_no_decode_replica_is_up():
    cfg = config(prefill=ONE_EACH, faults=(Fault(1, 0.001, 3.0),))
    (record,) = simulate(cfg, OpenLoop(plain_requests((0.5, 50, 20))), Linear()).records
    assert record.first_token_s == pytest.approx(0.51)
    assert record.last_token_s == pytest.approx(3.0 + 19 * 0.01)


@pytest.mark.parametrize("timeout_s", [0.005, 0.05, 0.2, 0.335])
def test_clients_give_up_in_every_stage(timeout_s):
    """While the prompt is computed, sent, waits for a decode replica, or decodes."""
    cfg = config(prefill=PrefillPool(1, KVLink(0.002)), request_timeout_s=timeout_s,
                 faults=(Fault(1, 0.0, 0.3),))
    result = simulate(cfg, OpenLoop(plain_requests((0.0, 50, 20), (1.0, 50, 2))), Linear())
    first, second = by_id(result)
    assert first.status == "timeout" and first.end_s == pytest.approx(timeout_s)
    assert first.output_tokens == (0 if timeout_s < 0.01 else 1 if timeout_s < 0.31 else 4)
    assert second.status == ("timeout" if timeout_s < 0.12 else "finished")
    assert all(replica.core.sending == 0 for replica in result.cluster.replicas)


def test_what_does_not_fit_is_refused_by_name():
    cfg = config(prefill=PrefillPool(1, num_kv_blocks=4))
    (record,) = simulate(cfg, OpenLoop(plain_requests((0.0, 100, 2))), Linear()).records
    assert record.status == "rejected" and "prefill replica" in record.reason
    with pytest.raises(UsageError, match="max_concurrent"):
        config(prefill=ONE_EACH, max_concurrent=3)


def test_settings_are_plain_numbers():
    told = config(prefill=PrefillPool(2, KVLink(1e-6))).to_dict()
    again = json.loads(json.dumps(told, allow_nan=False))
    assert again["prefill"]["n_replicas"] == 2
    assert again["prefill"]["link"]["token_s"] == 1e-6

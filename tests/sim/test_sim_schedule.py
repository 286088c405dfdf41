"""Schedules worked out by hand, to the microsecond."""

from dataclasses import replace

import pytest

from sim_costs import SGLANG, Linear, config, plain_requests
from specsim.sim.acceptance import Recorded
from specsim.sim.config import SpeculationRules
from specsim.sim.loads import OpenLoop
from specsim.sim.run import simulate


def times(result):
    """By request: (scheduled, first token, end), in milliseconds."""
    out = {}
    for record in result.records:
        stamps = (record.scheduled_s, record.first_token_s, record.end_s)
        out[record.request_id] = tuple(None if t is None else round(t * 1e3, 6) for t in stamps)
    return [out[i] for i in sorted(out)]


THREE = plain_requests((0.0, 4, 3), (0.005, 2, 2), (0.006, 3, 1))
PRICED = Linear(base=0.010, row=0.002, token=0.001)


def test_decode_first_then_prompts_up_to_the_seats():
    """Two slots. 0-14 ms: A's 4 prompt tokens. 14-28: A decodes, B's 2 prompt tokens. 28-42: both
    decode and end. C had no slot before 42, takes 10 + 3 ms."""
    result = simulate(config(max_num_seqs=2), OpenLoop(THREE), PRICED)
    assert times(result) == [(0, 14, 42), (14, 28, 42), (42, 55, 55)]


def test_readback_lag_holds_a_seat_for_one_more_step():
    """As above, but A and B take part in the step from 42 to 56 ms: its plan was made before their
    end was known. C can only start at 56."""
    result = simulate(
        config(max_num_seqs=2, readback_lag_steps=1), OpenLoop(THREE), PRICED
    )
    assert times(result) == [(0, 14, 42), (14, 28, 42), (56, 69, 69)]


def test_long_prompt_runs_in_chunks_of_what_verifying_leaves():
    """Budget 8, one request verifying 1 + 2 tokens: the prompt of 12 gets 5, 5 and 2."""
    cfg = config(
        max_num_seqs=4, max_num_batched_tokens=8, k=2, recorded=Recorded([[0]], k=2)
    )
    requests = plain_requests((0.0, 2, 40), (0.001, 12, 1))
    result = simulate(cfg, OpenLoop(requests), Linear(0.010, token=0.001), keep_trace=True)
    assert times(result)[1] == (12, 54, 54)
    (log,) = result.cluster.replicas[0].stats.trace
    assert log.new[:5].tolist() == [2, 5, 5, 2, 0]


def test_speculation_yields_accepted_plus_one_per_step():
    """Accepted 2, 0, 1 of 2 drafts: 1 (prompt) + 3 + 1 + 2 = 7 tokens in 4 steps of 10 ms."""
    cfg = config(k=2, recorded=Recorded([[2, 0, 1]], k=2))
    (record,) = simulate(cfg, OpenLoop(plain_requests((0.0, 1, 7))), Linear()).records
    assert record.end_s == pytest.approx(0.040, abs=1e-12)
    assert (record.chunks, record.verify_steps) == (4, 3)
    assert (record.drafted_tokens, record.accepted_tokens) == (6, 3)
    assert record.acceptance_length == 2.0


@pytest.mark.parametrize(("output", "steps"), [(2, 2), (3, 2), (5, 2), (6, 3)])
def test_output_ends_inside_what_a_step_accepts(output, steps):
    """k = 3, all accepted: a step yields 4 tokens, of which the client gets what is left."""
    cfg = config(k=3, recorded=Recorded([[3]], k=3))
    (record,) = simulate(cfg, OpenLoop(plain_requests((0.0, 1, output))), Linear()).records
    assert record.output_tokens == output
    assert record.end_s == pytest.approx(steps * 0.010, abs=1e-12)
    assert record.accepted_tokens == 3 * (steps - 1)  # counted before the cut, as vLLM does


def test_preemption_takes_the_last_admitted_and_recomputes():
    """Five blocks of 4. A and B (4 + 8 tokens) both need a third block at 50 ms; B loses its two,
    waits until A ends at 80, computes its 9 tokens anew and goes on."""
    cfg = config(num_kv_blocks=5, block_size=4)
    result = simulate(cfg, OpenLoop(plain_requests((0.0, 4, 8), (0.0, 4, 8))), Linear())
    assert times(result) == [(0, 10, 80), (0, 10, 110)]
    a, b = sorted(result.records, key=lambda record: record.request_id)
    assert (a.preemptions, b.preemptions) == (0, 1)
    assert b.chunks == b.output_tokens == 8
    summary = result.summary()
    assert summary["preemptions"] == 1
    # 7 gaps of A and 6 of B of 10 ms, and B's wait from 50 to 90 ms.
    assert summary["itl_s"]["mean"] == pytest.approx((13 * 0.010 + 0.040) / 14, rel=1e-12)
    assert summary["itl_s"]["p99"] == pytest.approx(0.040, rel=1e-3)
    assert summary["kv_usage_max"] == 0.8  # two blocks each before, three of A after


def test_admission_waits_for_blocks_of_the_whole_prompt():
    """Ten blocks of 4, the running request holds 6 (and 1 more later): a prompt of 20 tokens
    needs 5 at once under reserve_full_isl, although its first chunk of 8 would fit."""
    requests = plain_requests((0.0, 22, 5), (0.001, 20, 1))
    cost = Linear()
    rules = {"num_kv_blocks": 10, "block_size": 4, "max_num_batched_tokens": 32}
    waits = simulate(config(**rules), OpenLoop(requests), cost)
    # The first request ends with its prompt step and 4 more.
    assert times(waits)[1] == (50, 60, 60)
    eager = simulate(config(**rules, reserve_full_isl=False), OpenLoop(requests), cost)
    assert times(eager)[1][0] == 50  # 20 tokens fit the budget, so the first chunk is the prompt
    small = simulate(
        config(**{**rules, "max_num_batched_tokens": 9}, reserve_full_isl=False),
        OpenLoop(requests),
        cost,
    )
    assert times(small)[1][0] < 50


def test_watermark_keeps_blocks_free_but_not_from_a_lone_request():
    requests = plain_requests((0.0, 16, 40), (0.0, 16, 1))
    rules = {"num_kv_blocks": 20, "block_size": 4}
    free = simulate(config(**rules), OpenLoop(requests), Linear())
    assert times(free)[1][0] == 0
    kept = simulate(config(**rules, watermark=0.7), OpenLoop(requests), Linear())
    assert times(kept)[0][0] == 0
    assert times(kept)[1][0] == times(kept)[0][2]


def test_unchunked_prompts_wait_for_a_step_that_holds_them():
    """Budget 16: prompts of 10 and 12 cannot share a step."""
    cfg = config(max_num_batched_tokens=16, chunked_prefill=False)
    result = simulate(
        cfg, OpenLoop(plain_requests((0.0, 10, 1), (0.0, 12, 1))), Linear(0.010)
    )
    assert times(result) == [(0, 10, 10), (10, 20, 20)]


def test_zero_length_output_ends_with_its_prompt():
    result = simulate(config(), OpenLoop(plain_requests((0.0, 8, 0), (0.0, 8, 2))), Linear())
    empty, other = sorted(result.records, key=lambda record: record.request_id)
    assert (empty.status, empty.output_tokens, empty.first_token_s) == ("finished", 0, None)
    assert empty.end_s == pytest.approx(0.010, abs=1e-12)
    assert other.end_s == pytest.approx(0.020, abs=1e-12)
    assert result.summary()["requests"]["finished"] == 2


SGLANG_RULES = replace(
    SGLANG, prefix_caching=False, readback_lag_steps=0, output_reserve=0.0, output_reserve_min=0.0
)


def test_prefill_first_lets_decoding_wait():
    """A decodes at 10-20 ms, waits for B's prompt at 20-30, decodes with B at 30-40."""
    cfg = config(rules=SGLANG_RULES)
    result = simulate(cfg, OpenLoop(plain_requests((0.0, 4, 4), (0.015, 4, 2))), Linear())
    assert times(result) == [(0, 10, 50), (20, 30, 40)]
    # Gaps: A 10, 20, 10 ms, B 10 ms.
    assert result.summary()["itl_s"]["mean"] == pytest.approx(0.0125, rel=1e-9)
    assert result.summary()["tpot_s"]["mean"] == pytest.approx((0.040 / 3 + 0.010) / 2, rel=1e-9)


def test_fewest_tokens_lose_their_blocks_first():
    """40 slots hold A and B (17 each) but not C as well: C, with the fewest tokens, loses."""
    cfg = config(rules=SGLANG_RULES, num_kv_blocks=40, max_num_seqs=3)
    requests = plain_requests((0.0, 5, 12), (0.0, 5, 12), (0.030, 5, 12))
    records = sorted(
        simulate(cfg, OpenLoop(requests), Linear()).records, key=lambda r: r.request_id
    )
    assert [record.preemptions > 0 for record in records] == [False, False, True]


def test_output_reserve_holds_back_admission():
    """40 slots; A may still write 20. With all of that reserved, B (5 + 10) must wait for A."""
    requests = plain_requests((0.0, 5, 21), (0.001, 5, 10))
    freely = config(rules=SGLANG_RULES, num_kv_blocks=40)
    careful = config(
        rules=replace(SGLANG_RULES, output_reserve=1.0, output_reserve_min=1.0), num_kv_blocks=40
    )
    start_free = times(simulate(freely, OpenLoop(requests), Linear()))[1][0]
    start_careful = times(simulate(careful, OpenLoop(requests), Linear()))[1][0]
    assert start_free == 10
    assert start_careful > start_free


def widths(result):
    (log,) = result.cluster.replicas[0].stats.trace
    rows = log.rows > 0
    return log.width[rows].tolist()


def test_dynamic_table_counts_prompts_and_takes_effect_one_step_later():
    """k = 2 for one scheduled request, 0 for two or more. The step that takes in B counts two, so
    the next one verifies nothing; alone again, A verifies 2 one step after B's end."""
    spec = SpeculationRules(2, per_batch_size=((1, 1, 2), (2, 64, 0)))
    cfg = config(k=2, speculation=spec, recorded=Recorded([[0]], k=2))
    result = simulate(
        cfg, OpenLoop(plain_requests((0.0, 2, 9), (0.015, 2, 3))), Linear(), keep_trace=True
    )
    assert widths(result) == [3, 3, 1, 1, 1, 3, 3, 3]


def test_adaptive_length_goes_down_when_nothing_is_accepted():
    """SGLang's rule: after 10 steps without an accepted draft the mean is 0: k falls to the
    shortest of the tier, and stays."""
    spec = SpeculationRules(7, adaptive=((1, (1, 3, 7)),))
    cfg = config(k=7, speculation=spec, recorded=Recorded([[0]], k=7))
    result = simulate(
        cfg, OpenLoop(plain_requests((0.0, 2, 30))), Linear(), keep_trace=True
    )
    # One more step at full width: k is fixed a step ahead.
    assert widths(result) == [8] * 11 + [2] * 18


def test_adaptive_length_goes_up_when_all_is_accepted():
    spec = SpeculationRules(7, adaptive=((1, (1, 3, 7)), (2, (1,))))
    cfg = config(k=7, speculation=spec, recorded=Recorded([[7]], k=7))
    requests = plain_requests((0.0, 2, 160), (0.0, 2, 40))
    result = simulate(cfg, OpenLoop(requests), Linear(), keep_trace=True)
    seen = widths(result)
    assert seen[1] == 2  # two requests: their tier knows only k = 1
    assert seen[-1] == 8


def test_token_budget_leaves_requests_out_of_a_step():
    """Budget 7, width 3: two of three requests run, the third gets nothing and its gap grows."""
    cfg = config(max_num_batched_tokens=7, k=2, recorded=Recorded([[0]], k=2))
    requests = plain_requests((0.0, 2, 6), (0.0, 2, 6), (0.0, 2, 6))
    result = simulate(cfg, OpenLoop(requests), Linear())
    assert times(result) == [(0, 10, 60), (0, 10, 60), (0, 10, 110)]
    summary = result.summary()
    # Ten gaps of 10 ms, four of the third request, and one of 60 ms (10 to 70).
    assert summary["itl_s"]["mean"] == pytest.approx((14 * 0.010 + 0.060) / 15, rel=1e-9)


def test_verify_width_of_a_tree_counts_against_the_budget():
    spec = SpeculationRules(3, verify_tokens=8)
    cfg = config(
        max_num_batched_tokens=15, k=3, speculation=spec, recorded=Recorded([[3]], k=3)
    )
    requests = plain_requests((0.0, 2, 9), (0.0, 2, 9))
    result = simulate(cfg, OpenLoop(requests), Linear(), keep_trace=True)
    assert set(widths(result)) == {8}
    # 15 tokens hold one tree of 8: the second request waits for the first.
    assert times(result) == [(0, 10, 30), (0, 10, 50)]


def test_blocks_cover_drafts_and_lookahead():
    """Blocks of 1 token: a request with 10 cached tokens holds 10 + (1 + 3) + 3 of them while it
    verifies 3 drafts, and keeps what rejected drafts had taken. The gauge is read when a step has
    ended: a request that ends with it has given up its blocks."""
    cfg = config(block_size=1, num_kv_blocks=200, k=3, recorded=Recorded([[0]], k=3))
    result = simulate(cfg, OpenLoop(plain_requests((0.0, 10, 3))), Linear())
    assert result.summary()["kv_usage_max"] == pytest.approx(17 / 200)

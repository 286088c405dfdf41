"""Prefix cache: what is found, what is given up first, and that blocks always add up."""

import random

import pytest

from sim_costs import Linear, config
from specsim.sim.acceptance import Recorded
from specsim.sim.config import SpeculationRules
from specsim.sim.loads import OpenLoop
from specsim.sim.request import Request
from specsim.sim.run import simulate
from specsim.sim.spans import fold_keys, pieces_of

CACHING = {"prefix_caching": True, "block_size": 16}


def cached(requests, **settings):
    """Cached tokens of each request, sent one second apart."""
    spaced = [request._replace(arrival_s=float(i)) for i, request in enumerate(requests)]
    result = simulate(config(**{**CACHING, **settings}), OpenLoop(spaced), Linear(1e-4))
    return [r.cached_tokens for r in sorted(result.records, key=lambda r: r.request_id)]


def talk(key, prompt, output=1, grows=True):
    return Request(0.0, prompt, output, ((key, prompt),), grows)


def test_conversation_finds_prompt_and_answer_of_the_turn_before():
    """100 + 28 tokens: the last one was never computed, so 127 tokens, 7 full blocks of 16."""
    assert cached([talk(1, 100, 28), talk(1, 150)]) == [0, 112]


def test_answers_that_do_not_continue_are_not_found():
    """100 tokens, 6 full blocks: the seventh ends in the answer."""
    assert cached([talk(1, 100, 28, grows=False), talk(1, 150)]) == [0, 96]


def test_a_prompt_always_computes_at_least_one_token():
    """160 tokens are 10 blocks, all present, but the last block must be computed for its logits."""
    assert cached([talk(1, 160), talk(1, 160)]) == [0, 144]
    assert cached([talk(1, 161), talk(1, 161)]) == [0, 160]


def test_drafters_on_hidden_states_recompute_the_last_cached_block():
    spec = SpeculationRules(1)
    settings = {"speculation": spec, "recorded": Recorded([[1]], k=1)}
    assert cached([talk(1, 161), talk(1, 161)], **settings) == [0, 144]
    free = {**settings, "speculation": SpeculationRules(1, drop_last_cached_block=False)}
    assert cached([talk(1, 161), talk(1, 161)], **free) == [0, 160]


def test_other_conversations_share_nothing():
    assert cached([talk(1, 100), talk(2, 100), talk(1, 100)]) == [0, 0, 96]


def test_a_shared_system_prompt_is_found_by_everybody():
    def request(key):
        return Request(0.0, 132, 1, ((7, 64), (key, 68)))

    assert cached([request(1), request(2), request(1), request(2)]) == [0, 64, 128, 128]


def test_pieces_count_blocks_by_where_they_end():
    """A block that spans two pieces belongs to the second: 40 + 40 tokens are 2 + 3 blocks."""
    first = Request(0.0, 81, 1, ((7, 40), (1, 41)))
    other = Request(0.0, 81, 1, ((7, 40), (2, 41)))
    assert cached([first, other, first]) == [0, 32, 80]


def test_pieces_shorter_than_a_block_are_folded_into_the_next():
    request = Request(0.0, 100, 1, ((7, 10), (8, 90)))
    assert pieces_of(request, 16) == [(fold_keys(7, 8), 100)]
    assert cached([request, request, Request(0.0, 100, 1, ((9, 10), (8, 90)))]) == [0, 96, 0]


def test_least_recently_used_goes_first_and_from_its_end():
    """20 blocks. Conversations 1 and 2 fill 10 each. A prompt of 6 blocks takes the end of 1;
    what is left of 1 is its beginning (4 blocks). Its return takes 6 blocks from the end of 2."""
    requests = [talk(1, 160), talk(2, 160), Request(0.0, 96, 1), talk(1, 160), talk(2, 160)]
    assert cached(requests, num_kv_blocks=20) == [0, 0, 0, 64, 64]


def test_running_requests_share_what_is_computed_so_far():
    """Two requests with the same document: the second comes when the first has computed three
    chunks of 64 of it."""
    doc = ((5, 640),)
    requests = [Request(0.0, 641, 50, doc), Request(0.025, 641, 50, doc)]
    cfg = config(**CACHING, max_num_batched_tokens=64)
    result = simulate(cfg, OpenLoop(requests), Linear(0.010))
    first, second = sorted(result.records, key=lambda record: record.request_id)
    assert first.cached_tokens == 0
    # Both share one copy: it is admitted only when budget is left, after the first one's prompt.
    assert second.cached_tokens == 640
    assert result.summary()["kv_usage_max"] <= (40 + 2 * 5) / 10_000


def test_hit_rate_is_cached_over_prompt_tokens():
    spaced = [talk(1, 161)._replace(arrival_s=float(i)) for i in range(4)]
    summary = simulate(config(**CACHING), OpenLoop(spaced), Linear(1e-4)).summary()
    assert summary["prefix_hit_rate"] == pytest.approx(3 * 160 / (4 * 161))


def test_without_caching_nothing_is_found():
    assert cached([talk(1, 100), talk(1, 100)], prefix_caching=False) == [0, 0]


@pytest.mark.parametrize("seed", range(4))
def test_blocks_add_up_under_random_sharing(seed):
    """Memory for few requests, random prefixes, preemptions: every run checks its blocks at the
    end (free + held + cached = all), and nothing is lost."""
    draw = random.Random(seed)
    requests = []
    now_s = 0.0
    for _ in range(200):
        now_s += draw.expovariate(60.0)
        spans = tuple((draw.randint(0, 4), draw.randint(1, 90)) for _ in range(draw.randint(0, 3)))
        prompt = draw.randint(1, 150)
        grows = bool(spans) and draw.random() < 0.5
        requests.append(Request(now_s, prompt, draw.randint(0, 60), spans, grows))
    cfg = config(
        prefix_caching=True,
        block_size=draw.choice([1, 4, 16]),
        num_kv_blocks=260,
        max_num_seqs=16,
        max_num_batched_tokens=128,
    )
    result = simulate(cfg, OpenLoop(requests), Linear(0.005, 1e-4, 1e-5))
    assert {record.status for record in result.records} == {"finished"}
    assert len(result.records) == 200
    replica = result.cluster.replicas[0]
    assert replica.core.free_blocks == 260

"""Layers with a window in one pool with those that keep everything: what is freed, found, lost."""

import random

import pytest
from thinned import some

from sim_costs import Linear, config
from specsim.sim.acceptance import Recorded
from specsim.sim.config import SpeculationRules
from specsim.sim.engine_rules import BlockCosts
from specsim.sim.loads import OpenLoop
from specsim.sim.request import Request
from specsim.sim.run import simulate

# Blocks of 16 tokens; five groups with a window of 64 to one that keeps everything.
WINDOWS = BlockCosts(full_blocks=1, window_blocks=5, window_tokens=64)
CACHING = {"prefix_caching": True, "block_size": 16, "block_costs": WINDOWS}


def run(requests, gap_s=1.0, **settings):
    """Requests sent gap_s apart."""
    spaced = [request._replace(arrival_s=gap_s * i) for i, request in enumerate(requests)]
    return simulate(config(**{**CACHING, **settings}), OpenLoop(spaced), Linear(1e-4))


def cached(requests, **settings):
    records = run(requests, **settings).records
    return [r.cached_tokens for r in sorted(records, key=lambda r: r.request_id)]


def talk(key, prompt, output=1, grows=True):
    return Request(0.0, prompt, output, ((key, prompt),), grows)


def test_a_request_holds_all_of_its_full_layers_and_the_window_of_the_others():
    """320 + 399 tokens, 45 blocks of every group: 270. A chunk of 64 and the window before it, or
    what 16 steps of decoding pass, are 9 blocks of each window at most: 45 + 45 are enough."""
    for caching in (True, False):
        settings = {"prefix_caching": caching, "max_num_batched_tokens": 64}
        result = run([Request(0.0, 320, 399)], num_kv_blocks=90, **settings)
        assert [r.status for r in result.records] == ["finished"]
        figures = result.summary()
        assert figures["preemptions"] == 0
        assert 0.7 < figures["kv_usage_max"] <= 1.0
        assert [r.status for r in run([Request(0.0, 320, 400)], num_kv_blocks=90, **settings)
                .records] == ["rejected"]


def test_a_prefix_is_found_where_full_layers_and_the_last_window_hold_it():
    assert cached([talk(1, 320), talk(1, 400)]) == [0, 320]


def test_a_prefix_whose_window_was_taken_is_no_hit():
    """The pool holds a conversation (20 x 6 blocks) and 60 more. A stranger takes those, then what
    the windows passed first (16 x 5), then of the last window: 24 x 6 blocks are 4 too many. The
    full layers are all there, but nothing is found."""

    def after(stranger: int, blocks: int = 180) -> int:
        return cached([talk(1, 320), Request(0.0, stranger, 1), talk(1, 400)],
                      num_kv_blocks=blocks)[2]

    assert [after(23 * 16 - 1), after(24 * 16 - 1)] == [320, 0]
    assert after(24 * 16 - 1, 186) == 320


def test_of_a_prompt_within_the_window_the_beginning_stays_longest():
    """Four units; the stranger takes what is free and the last unit's first block."""
    requests = [talk(1, 64), Request(0.0, 15 * 16, 1), talk(1, 80)]
    assert cached(requests, num_kv_blocks=24 + 90) == [0, 0, 64]
    assert cached(requests, num_kv_blocks=24 + 89) == [0, 0, 48]


def test_an_answer_that_is_not_sent_again_needs_the_window_behind_the_prompt():
    """The window moves on over the answer, and what it leaves stays findable until it is taken."""
    requests = [talk(1, 320, 160, grows=False), talk(1, 400)]
    assert cached(requests) == [0, 320]
    # 60 blocks are free, 80 were passed by the prompt, then come those that decoding passed.
    for stranger, found in ((23 * 16, 320), (24 * 16, 0)):
        asked = [requests[0], Request(0.0, stranger - 1, 1), requests[1]]
        assert cached(asked, num_kv_blocks=240) == [0, 0, found]


def test_only_the_end_of_a_prompt_is_kept_where_the_engine_keeps_no_more():
    """The next turn goes on from the prompt's end, another branch finds nothing to go on from."""
    last = BlockCosts(1, 5, 64, keeps_last_window=True)
    branch = Request(0.0, 200, 1, ((1, 160), (2, 40)))
    requests = [talk(1, 321), talk(1, 400), branch]
    assert cached(requests, block_costs=last) == [0, 320, 0]
    # The window of the branch, passed in the middle of the first prompt, is still there else.
    assert cached(requests) == [0, 320, 160]


def test_a_drafter_on_hidden_states_needs_one_block_more():
    settings = {"speculation": SpeculationRules(1), "recorded": Recorded([[1]], k=1)}
    assert cached([talk(1, 321), talk(1, 321)], **settings) == [0, 304]
    last = BlockCosts(1, 5, 64, keeps_last_window=True)
    assert cached([talk(1, 321), talk(1, 321)], block_costs=last, **settings) == [0, 304]


def test_a_shared_system_prompt_keeps_its_window_while_people_come():
    def request(key):
        return Request(0.0, 192, 1, ((7, 128), (key, 64)))

    assert cached([request(i) for i in range(6)], num_kv_blocks=400)[1:] == [128] * 5


def test_hits_fall_with_the_memory():
    """Twelve conversations in turn. With room for all of them everything is found, with room for a
    few nothing, and never more with less."""
    turns = [talk(key, 320 + 32 * turn) for turn in range(4) for key in range(12)]
    rates = [
        run(turns, num_kv_blocks=blocks).summary()["prefix_hit_rate"]
        for blocks in (3000, 1600, 1200, 800, 400)
    ]
    assert rates == sorted(rates, reverse=True)
    assert rates[0] > 0.7 and rates[-1] < 0.05


def test_states_limit_the_requests_that_run():
    costs = BlockCosts(full_blocks=1, state_blocks=30)
    found = run(
        [Request(0.0, 16, 40)] * 10, gap_s=0.0, prefix_caching=False, block_costs=costs,
        num_kv_blocks=140,
    ).summary()
    assert found["running_max"] == 4  # 30 + 4 blocks each
    assert found["kv_usage_max"] <= 1.0


@pytest.mark.parametrize("seed", some(range(8), 4))
def test_blocks_add_up_and_every_way_of_stepping_gives_the_same(seed):
    """Random prompts, windows, states and pools, with preemptions: each run checks its blocks at
    its end, all come back, and the gauge is a share."""
    draw = random.Random(seed)
    requests, now_s = [], 0.0
    for _ in range(150):
        now_s += draw.expovariate(30.0)
        spans = tuple((draw.randint(0, 4), draw.randint(1, 190)) for _ in range(draw.randint(0, 3)))
        grows = bool(spans) and draw.random() < 0.5
        requests.append(Request(now_s, draw.randint(1, 350), draw.randint(0, 200), spans, grows))
    costs = BlockCosts(
        draw.choice([0, 1, 2]), draw.choice([1, 5, 10]), draw.choice([2, 17, 64, 200]),
        draw.choice([0, 3]), draw.random() < 0.4,
    )
    block = draw.choice([1, 4, 16])
    unit = costs.full_blocks + costs.window_blocks
    blocks = costs.state_blocks + unit * (560 // block + 30) + draw.randint(0, 1000)
    drops = draw.random() < 0.5
    found = []
    for settings in ({"compiled": False}, {}):
        cfg = config(
            block_costs=costs, num_kv_blocks=blocks, block_size=block, prefix_caching=seed > 0,
            max_num_seqs=16, max_num_batched_tokens=128, plan_ahead=bool(seed % 2),
            speculation=SpeculationRules(2, drop_last_cached_block=drops),
            recorded=Recorded([[0, 1, 2, 1], [2], [0]], k=2), **settings,
        )
        result = simulate(cfg, OpenLoop(requests), Linear(0.005, 1e-4, 1e-5))
        assert {record.status for record in result.records} == {"finished"}
        assert result.cluster.replicas[0].core.free_blocks == blocks
        figures = result.summary()
        assert figures["kv_usage_mean"] <= figures["kv_usage_max"] <= 1.0
        found.append({name: value for name, value in figures.items() if name != "cost_surface"})
    assert found[0] == found[1]

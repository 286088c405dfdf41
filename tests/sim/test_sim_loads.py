"""When requests are sent and how long they are: the clients of real benchmarks, laws, people."""

import itertools
import math
import statistics

import numpy as np
import pytest

from sim_costs import Linear, config, plain_requests
from specsim.errors import UsageError
from specsim.sim import arrivals
from specsim.sim.behaviour import ChatBehaviour
from specsim.sim.humans import Humans
from specsim.sim.lengths import (
    Constant,
    Lognormal,
    Uniform,
    clipped_mean,
    law_from,
    lognormal_with_mean,
)
from specsim.sim.loads import (
    ClosedLoop,
    LimitedOpenLoop,
    OpenLoop,
    bench_random_lengths,
    requests_of,
)
from specsim.sim.run import simulate
from specsim.sim.scenario import find_scenario, list_scenarios, scenario_from


def client_plan(count, rate, burstiness, seed):
    """What the vLLM client does, written as it does it: scalar draws from numpy's global legacy
    generator, a running sum in Python, a factor so that the last is sent at count / rate."""
    np.random.seed(seed)
    delays = []
    for _ in range(count):
        if rate == math.inf:
            delays.append(0.0)
        elif burstiness == math.inf:
            delays.append(1.0 / rate)
        else:
            delays.append(np.random.gamma(shape=burstiness, scale=1.0 / (rate * burstiness)))
    for i in range(1, count):
        delays[i] += delays[i - 1]
    if delays[-1] != 0:
        factor = count / rate / delays[-1]
        delays = [delay * factor for delay in delays]
    return delays


@pytest.mark.parametrize(
    ("rate", "burstiness", "seed"),
    [(2.0, 1.0, 0), (7.5, 0.5, 1), (20.0, 4.0, 42), (3.0, math.inf, 0), (math.inf, 1.0, 0)],
)
def test_bench_serve_times_are_the_clients_to_the_bit(rate, burstiness, seed):
    ours = arrivals.bench_serve_times(50, rate, burstiness=burstiness, seed=seed)
    assert ours.tolist() == client_plan(50, rate, burstiness, seed)
    if rate < math.inf:
        assert ours[-1] == pytest.approx(50 / rate, rel=1e-12)


def test_random_lengths_are_drawn_as_the_client_draws_them():
    """floor(L (1 - r)) to ceil(L (1 + r)), all inputs first, numpy's default generator."""
    ours = bench_random_lengths(100, 1024, 128, range_ratio=0.3, seed=5)
    generator = np.random.default_rng(5)
    inputs = generator.integers(716, 1333, size=100)
    outputs = generator.integers(89, 168, size=100)
    assert ours == list(zip(inputs.tolist(), outputs.tolist(), strict=True))
    assert bench_random_lengths(2, 10, 4) == [(10, 4), (10, 4)]


def first(times, count):
    return [next(times) for _ in range(count)]


def test_gamma_arrivals_have_their_rate_and_burstiness():
    gaps = np.diff(first(arrivals.gamma_times(5.0, 1, burstiness=0.25), 20_000))
    assert gaps.mean() == pytest.approx(0.2, rel=0.05)
    assert gaps.std() / gaps.mean() == pytest.approx(2.0, rel=0.05)  # 1 / sqrt(shape)
    assert first(arrivals.gamma_times(4.0, 1, burstiness=math.inf), 3) == [0.0, 0.25, 0.5]


def test_lognormal_with_a_mean_after_clipping():
    law = lognormal_with_mean(460, 0.8, 1, 2048)
    assert law.mean == pytest.approx(460, rel=1e-9)
    generator = np.random.default_rng(0)
    drawn = [law.draw(generator) for _ in range(40_000)]
    assert statistics.mean(drawn) == pytest.approx(460, rel=0.02)
    assert max(drawn) == 2048.0
    assert clipped_mean(12, 0.7, 0, math.inf) == pytest.approx(12 * math.exp(0.7**2 / 2))
    with pytest.raises(UsageError, match="cannot have the mean"):
        lognormal_with_mean(3000, 0.8, 1, 2048)


def test_laws_from_tables():
    assert law_from(5, "x") == Constant(5.0)
    assert law_from({"dist": "uniform", "low": 1, "high": 3, "plus": 2}, "x").mean == 4.0
    mixture = law_from(
        {"dist": "mixture", "parts": [{"p": 0.25, "dist": "constant", "value": 8},
                                      {"p": 0.75, "dist": "uniform", "low": 0, "high": 2}]}, "x"
    )
    assert mixture.mean == pytest.approx(2.75)
    generator = np.random.default_rng(1)
    drawn = [mixture.draw(generator) for _ in range(8000)]
    assert sum(x == 8 for x in drawn) / 8000 == pytest.approx(0.25, abs=0.02)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("long", "must be a number or a table"),
        ({"dist": "normal"}, "must be one of constant, uniform"),
        ({"dist": "uniform", "low": 1}, "needs high"),
        ({"dist": "uniform", "low": 5, "high": 1}, "below low"),
        ({"dist": "uniform", "low": 1, "high": 2, "hi": 3}, "'hi' does not belong"),
        ({"dist": "mixture", "parts": [{"p": 0.5, "dist": "constant", "value": 1}]}, "sum to 0.5"),
        ({"dist": "lognormal", "sigma": 1}, "either median or mean"),
        ({"dist": "lognormal", "median": 9, "sigma": 50}, "sigma is 50"),
        ({"dist": "lognormal", "median": 9, "sigma": 1, "low": 5, "high": 2}, "high is 2"),
        ({"dist": "values", "values": []}, "at least one number"),
        (-3, "-3; it must be a number from 0 to 1e"),
        (10**400, "an integer of more than 30 digits"),
        (math.inf, "inf; it must be"),
        (math.nan, "nan; it must be"),
        ({"dist": "uniform", "low": 1, "high": math.inf}, "needs an end"),
        ([5], "must be a number or a table"),
        (True, "must be a number"),
    ],
)
def test_broken_laws_are_named(value, words):
    with pytest.raises(UsageError, match=words):
        law_from(value, "[users] opener_tokens")


def test_open_loop_out_of_order_is_refused():
    with pytest.raises(UsageError, match=r"request 1 is sent at 0\.5 s, after one at 1\.0 s"):
        simulate(config(), OpenLoop(plain_requests((1.0, 1, 1), (0.5, 1, 1))), Linear())


def test_closed_loop_keeps_its_number_open():
    requests = list(requests_of(iter(np.zeros(60)), 5, 4, 0, limit=60))
    result = simulate(config(), ClosedLoop(requests, 6), Linear())
    events = sorted(
        [(r.arrival_s, 1) for r in result.records] + [(r.end_s, -1) for r in result.records]
    )
    inside = most = 0
    for _, change in events:
        inside += change
        most = max(most, inside)
    assert most == 6
    # Each request takes a prompt step and three more; ten rounds of six.
    assert result.window.end_s == pytest.approx(10 * 4 * 0.010, rel=1e-9)


def test_client_semaphore_starts_the_clock_when_it_lets_go():
    """All due at 0, two at a time, 40 ms each: TTFT stays 10 ms, as the vLLM client reports."""
    requests = plain_requests(*[(0.0, 4, 4)] * 6)
    result = simulate(config(), LimitedOpenLoop(requests, 2), Linear())
    assert {round(record.ttft_s, 9) for record in result.records} == {0.010}
    assert sorted(round(r.arrival_s, 9) for r in result.records) == [0, 0, 0.04, 0.04, 0.08, 0.08]


def test_closed_loop_inside_the_engine_equals_the_one_outside(monkeypatch):
    """The fast path is the same loop: with a front end, with more clients than slots."""
    from specsim.sim import run

    requests = list(requests_of(iter(np.zeros(80)), Uniform(1, 60), Uniform(0, 30), 3, limit=80))
    cfg = config(max_num_seqs=4, request_overhead_s=0.004, num_kv_blocks=40, readback_lag_steps=1)
    outcomes = []
    for inside in (True, False):
        monkeypatch.setattr(run, "can_supply", lambda _, inside=inside: inside)
        result = simulate(cfg, ClosedLoop(requests, 9), Linear(0.01, 1e-3, 1e-4))
        outcomes.append(sorted(repr(record) for record in result.records))
    assert outcomes[0] == outcomes[1]


HABITS = ChatBehaviour(
    opener_tokens=Constant(100),
    followup_tokens=Constant(10),
    output_tokens=Constant(30),
    compose_s=Constant(5.0),
    system_tokens=50,
    another_turn=0.999999,
    max_turns=3,
    read_tok_s=15.0,
)


def test_people_send_the_history_again_and_think():
    """50 + 100, then + 30 + 10 each turn; 2 s of reading and 5 of writing between the answer and
    the next message; after three turns a new conversation."""
    result = simulate(
        config(prefix_caching=True, duration_s=60.0), Humans(HABITS, 1), Linear(0.010)
    )
    records = sorted(result.records, key=lambda record: record.request_id)
    assert [r.prompt_tokens for r in records[:4]] == [150, 190, 230, 150]
    assert [r.turn for r in records[:4]] == [0, 1, 2, 0]
    assert records[0].session == records[2].session != records[3].session
    for before, after in itertools.pairwise(records):
        assert after.arrival_s - before.end_s == pytest.approx(7.0, abs=1e-9)
    # 150 + 29 tokens are in the cache: 11 blocks of 16.
    assert records[1].cached_tokens == 176
    assert records[3].cached_tokens == 0


def test_people_without_thinking_answer_at_once():
    cfg = config(prefix_caching=True, duration_s=5.0)
    result = simulate(cfg, Humans(HABITS, 8, thinking=False), Linear(0.010))
    assert result.summary()["running_mean"] == pytest.approx(8.0, abs=0.1)


def test_more_people_are_the_same_people_and_more():
    """What user 0 writes does not depend on how many others there are, nor on the engine."""
    habits = find_scenario("mindrouter-chat").behaviour

    def written(users, step_s):
        cfg = config(prefix_caching=True, duration_s=300.0, num_kv_blocks=100_000)
        records = simulate(cfg, Humans(habits, users), Linear(step_s)).records
        own = [r for r in records if r.session >> 20 == 0]
        return [(r.turn, r.prompt_tokens, r.requested_tokens) for r in own]

    alone, crowd = written(1, 0.010), written(5, 0.020)
    assert len(crowd) > 2
    shared = min(len(alone), len(crowd))
    assert alone[:shared] == crowd[:shared]


def test_packaged_scenario_reads_as_published():
    assert "mindrouter-chat" in list_scenarios()
    scenario = find_scenario("mindrouter-chat")
    assert scenario.system["max_num_seqs"] == 48
    assert scenario.behaviour.another_turn == 0.82
    assert scenario.behaviour.output_tokens.mean == pytest.approx(460)
    assert isinstance(scenario.behaviour.compose_s, Lognormal)
    assert scenario.slo["ttft_p95"] == 2.0
    assert "output_tokens" in scenario.assumed


def test_scenario_with_a_misspelt_key_is_refused(tmp_path):
    good = {
        "users": {"opener_tokens": 10, "followup_tokens": 5, "output_tokens": 20, "count": 3}
    }
    assert scenario_from(good, "x").users == 3
    with pytest.raises(UsageError, match=r"\[users\] has no key 'think'"):
        scenario_from({"users": {**good["users"], "think": 3}}, "x")
    with pytest.raises(UsageError, match="did you mean 'max_num_seqs'"):
        scenario_from({**good, "system": {"max_num_seq": 3}}, "x")
    with pytest.raises(UsageError, match="needs output_tokens"):
        scenario_from({"users": {"opener_tokens": 1, "followup_tokens": 1}}, "x")
    with pytest.raises(UsageError, match="did you mean 'mindrouter-chat'"):
        find_scenario("mindrouter-chats")
    broken = tmp_path / "broken.toml"
    broken.write_text("users = [", encoding="utf-8")
    from specsim.errors import FormatError

    with pytest.raises(FormatError, match="not valid TOML"):
        find_scenario(str(broken))

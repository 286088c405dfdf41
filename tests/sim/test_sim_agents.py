"""Agents: calls of the model with tools in between, shared system prompts, compacted contexts."""

import itertools
import statistics
from collections import defaultdict
from dataclasses import replace

import pytest

from sim_costs import Linear, config
from specsim.errors import UsageError
from specsim.sim.behaviour import ChatBehaviour, ToolUse, played_turns
from specsim.sim.humans import Humans
from specsim.sim.lengths import Constant, Uniform
from specsim.sim.run import simulate
from specsim.sim.scenario import find_scenario, list_scenarios, scenario_from

BLOCK = 16
TOOLS = ToolUse(
    calls=Constant(3), call_tokens=Constant(20), result_tokens=Constant(50), wait_s=Constant(2.0),
    at_once=Constant(2),
)
AGENT = ChatBehaviour(
    opener_tokens=Constant(100), followup_tokens=Constant(10), output_tokens=Constant(30),
    compose_s=Constant(5.0), system_tokens=50, another_turn=0.999999, max_turns=2, tools=TOOLS,
)


def run(habits, users=1, thinking=True, seconds=120.0, seed=0, **settings):
    cfg = config(prefix_caching=True, duration_s=seconds, **{"num_kv_blocks": 100_000, **settings})
    result = simulate(cfg, Humans(habits, users, thinking=thinking), Linear(0.010), seed)
    return sorted(result.records, key=lambda record: record.request_id)


def conversations(records):
    found = defaultdict(list)
    for record in records:
        found[record.session].append(record)
    return list(found.values())


def test_a_call_with_tools_is_sent_again_with_their_results():
    """50 + 100; 20 written and two results of 50 added, twice; 30 answered and 10 asked."""
    first, second = conversations(run(AGENT))[:2]
    assert [r.prompt_tokens for r in first] == [150, 270, 390, 430, 550, 670]
    assert [r.requested_tokens for r in first] == [20, 20, 30, 20, 20, 30]
    assert [r.turn for r in first] == [0, 1, 2, 3, 4, 5]
    waits = [after.arrival_s - before.end_s for before, after in itertools.pairwise(first)]
    # 2 s for both tools together; reading 30 / 15 s and composing 5 s after an answer.
    assert waits == pytest.approx([2.0, 2.0, 7.0, 2.0, 2.0])
    assert second[0].prompt_tokens == 150


@pytest.mark.slow
def test_the_slowest_of_several_tools_is_waited_for():
    """Mean of the largest of n uniform times on (0, 1): n / (n + 1)."""
    for count in (1, 4):
        tools = replace(TOOLS, at_once=Constant(count), wait_s=Uniform(0.0, 1.0))
        waits = [
            after.arrival_s - before.end_s
            for calls in conversations(run(replace(AGENT, tools=tools), 40, seconds=300.0))
            for before, after in itertools.pairwise(calls) if before.requested_tokens == 20
        ]
        assert len(waits) > 1000
        assert statistics.mean(waits) == pytest.approx(count / (count + 1), abs=0.03)


@pytest.mark.parametrize("prompts", [0, 1, 3])
def test_an_unbounded_cache_finds_what_was_sent_before_to_the_block(prompts):
    """Within a conversation: prompt and answer but its last token, which was never computed.
    Across conversations: the system prompt, which the first prompts of all have computed."""
    habits = replace(AGENT, system_tokens=500, system_prompts=prompts)
    records = run(habits, users=7, seconds=300.0)
    for number, record in enumerate(records):
        if record.arrival_s == 0 or record.status != "finished":
            continue
        calls = [r for r in records[:number] if r.session == record.session]
        shared = 500 if prompts else 0
        if calls:
            shared = calls[-1].prompt_tokens + calls[-1].output_tokens - 1
        assert record.cached_tokens == shared // BLOCK * BLOCK


def test_a_context_that_outgrows_its_limit_is_compacted():
    """670 tokens would be the last prompt: at 500 the 480 so far are sent for a summary first."""
    habits = replace(
        AGENT, context_limit=500, summary_tokens=Constant(60), system_prompts=1, max_turns=2
    )
    calls = conversations(run(habits))[0]
    # 150, 270, 390 + 30; 430 + 20; + 100 + 20 = 570 is too long: a summary of the 450.
    assert [(r.prompt_tokens, r.requested_tokens) for r in calls] == [
        (150, 20), (270, 20), (390, 30), (430, 20), (450, 60), (210, 20), (330, 30),
    ]
    # The summary reads what is in the cache; after it only the system prompt is found.
    assert calls[4].cached_tokens == (450 - 1) // BLOCK * BLOCK
    assert calls[5].cached_tokens == 50 // BLOCK * BLOCK
    with pytest.raises(UsageError, match="context_limit is 200; it must be above the 1150"):
        replace(AGENT, context_limit=200)


def test_streams_wait_for_no_tools():
    records = run(AGENT, users=4, thinking=False, seconds=20.0)
    for calls in conversations(records):
        for before, after in itertools.pairwise(calls):
            assert after.arrival_s == before.end_s


@pytest.mark.parametrize("cached", [True, False])
def test_users_played_without_an_engine_are_those_of_a_run(cached):
    """The same calls, and as much of each prompt sent before."""
    habits = replace(find_scenario("coding-agent").behaviour, answers_cached=cached)
    played = []
    for call in played_turns(habits, 200.0, thinking=False):
        if call.at_s == 0.0 and played:
            break  # the second user
        played.append((call.prompt_tokens, call.answer_tokens, call.old_tokens))
    records = run(habits, thinking=False, seconds=2000.0, max_model_len=200_000)[: len(played)]
    assert [(r.prompt_tokens, r.requested_tokens) for r in records] == [p[:2] for p in played]
    assert len(records) > 20
    first = records[0].session
    for record, (prompt, _, old) in zip(records, played, strict=True):
        # The first conversation finds no system prompt; an answer lacks its last token.
        there = 0 if record.session == first and record.turn == 0 else old
        assert there >= record.cached_tokens > min(there, prompt - 1) - 1 - BLOCK


@pytest.mark.parametrize("scenario", list_scenarios())
def test_the_same_seed_gives_the_same_bytes(scenario):
    habits = find_scenario(scenario).behaviour
    outcomes = [
        [repr(record) for record in run(habits, 6, seconds=100.0, seed=seed)] for seed in (3, 3, 4)
    ]
    assert outcomes[0] == outcomes[1] != outcomes[2]


def test_tool_assistant_has_the_means_of_its_source():
    """Mooncake's tool and agent trace: prompts of 8,596 tokens, answers of 182."""
    scenario = find_scenario("tool-assistant")
    calls = [
        call for call in played_turns(scenario.behaviour, scenario.duration_s, thinking=True)
        if call.at_s >= scenario.warmup_s
    ]
    assert statistics.mean(c.prompt_tokens for c in calls) == pytest.approx(8596, rel=0.03)
    assert statistics.mean(c.answer_tokens for c in calls) == pytest.approx(182, rel=0.03)


GOOD = {
    "users": {"opener_tokens": 10, "followup_tokens": 5, "output_tokens": 20},
    "tools": {"calls": 2, "call_tokens": 5, "result_tokens": 7, "wait_s": 1},
}
KEYS = [
    *(("users", key) for key in (
        "opener_tokens", "followup_tokens", "output_tokens", "compose_s", "start_s", "count",
        "thinking", "system_tokens", "system_prompts", "another_turn", "max_turns", "read_tok_s",
        "read_max_s", "answers_cached", "context_limit", "summary_tokens",
    )),
    *(("tools", key) for key in ("calls", "call_tokens", "result_tokens", "wait_s", "at_once")),
    *(("stage", key) for key in ("duration_s", "warmup_s", "ladder")),
]


@pytest.mark.parametrize("value", [[], [[1]], 10**400, float("inf"), float("nan"), -1, "", {}])
@pytest.mark.parametrize(("table", "key"), KEYS)
def test_a_broken_value_is_named(table, key, value):
    if key == "ladder" and value == []:
        return  # no stage is a list of stages
    raw = {**GOOD, table: {**GOOD.get(table, {}), key: value}}
    with pytest.raises(UsageError, match=key) as told:
        scenario_from(raw, "x.toml")
    assert len(str(told.value)) < 300


@pytest.mark.parametrize("key", ["name", "source"])
def test_a_name_is_text(key):
    with pytest.raises(UsageError, match=key):
        scenario_from({**GOOD, key: [1]}, "x.toml")

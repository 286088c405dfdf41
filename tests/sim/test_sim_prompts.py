"""Shared prefixes and prompts sent again: what a cache finds, by counting."""

import pytest

from sim_costs import Linear, config
from specsim.api import simulate as command
from specsim.errors import UsageError
from specsim.options.serving import SimulateOptions
from specsim.sim.loads import ClosedLoop, PromptPool
from specsim.sim.request import Request
from specsim.sim.run import simulate

BLOCK, PROMPT = 16, 200


def found(pool, count=60, blocks=100_000, **settings):
    """Cached tokens of each request, one after the other."""
    requests = [Request(0.0, PROMPT, 4, pool.spans(i, PROMPT)) for i in range(count)]
    cfg = config(prefix_caching=True, num_kv_blocks=blocks, **settings)
    records = simulate(cfg, ClosedLoop(requests, 1), Linear()).records
    return [r.cached_tokens for r in sorted(records, key=lambda r: r.request_id)]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(("shared", "groups", "prompts"), [
    (100, 1, 0), (100, 3, 0), (15, 1, 0), (0, 1, 7), (100, 3, 7), (100, 7, 7), (199, 2, 0),
])
def test_an_unbounded_cache_finds_all_that_was_sent_before(shared, groups, prompts, compiled):
    if compiled:
        pytest.importorskip("numba")
    hits = found(PromptPool(shared, groups, prompts), compiled=compiled)
    for number, tokens in enumerate(hits):
        expected = shared if number >= groups else 0
        if prompts and number >= prompts:
            expected = PROMPT - 1  # the logits of the last are needed
        assert tokens == expected // BLOCK * BLOCK


def test_prompts_in_turn_defeat_a_cache_that_holds_fewer():
    """The one used longest ago is given up first, and it is the next to be asked for."""
    per_prompt = -(-(PROMPT + 4) // BLOCK)
    enough, short = 8 * per_prompt, 6 * per_prompt
    assert all(tokens > 0 for tokens in found(PromptPool(prompts=7), blocks=enough)[7:])
    assert not any(found(PromptPool(prompts=7), blocks=short))
    # A prefix that all have is used by each and stays.
    assert set(found(PromptPool(96, prompts=7), blocks=45)[1:]) == {96}


def run(**values):
    options = SimulateOptions.of_values({
        "model": "llama-3.1-8b", "concurrency": 4, "requests": 60, "input_len": 800,
        "output_len": 20, "baseline": False, **values,
    })
    return command.run(options)


def test_the_command_finds_what_its_options_say():
    result = run(shared_prefix=320, prompts=10, prefix_groups=2)
    assert result.load["shared_prefix"] == 320 and result.load["prompts"] == 10
    hit = result.comparison.main.figures["prefix_hit_rate"]
    # 4 of the 10 prompts come at once, before their prefixes are there. With a drafter like this
    # vLLM computes the last cached block anew.
    assert hit * 60 * 800 == pytest.approx(50 * (784 - 16) + 6 * (320 - 16))
    same = run(cached_share=0.4).comparison.main.figures
    assert run(shared_prefix=320).comparison.main.figures == same


@pytest.mark.parametrize(("values", "words"), [
    ({"shared_prefix": 800}, "--shared-prefix is 800; it must be below the 800 tokens"),
    ({"prefix_groups": 2}, "--prefix-groups belongs to --shared-prefix"),
    ({"prompts": 2, "prefix_groups": 3, "shared_prefix": 5}, "3 prefixes cannot begin 2 prompts"),
    ({"prompts": 2, "cached_share": 0.5}, "--cached-share says how much is found, --prompts"),
    ({"trace_speed": 2.0}, "--trace-speed belongs to --trace"),
    ({"prompts": 0}, "--prompts is 0"),
])
def test_what_does_not_go_together_is_named(values, words):
    with pytest.raises(UsageError, match=words):
        run(**values)


def test_a_trace_is_sent_faster(tmp_path):
    path = tmp_path / "own.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens\n0,10,2\n8,10,2\n", encoding="utf-8")
    base = {"model": "llama-3.1-8b", "trace": path, "baseline": False}
    result = command.run(SimulateOptions.of_values({**base, "trace_speed": 4.0}))
    assert result.load["pace"] == "its times at 4 times the speed"
    arrivals = sorted(r.arrival_s for r in result.comparison.first.records)
    assert arrivals == [0.0, 2.0]
    with pytest.raises(UsageError, match="--trace-speed and --rate both set the pace"):
        command.run(SimulateOptions.of_values({**base, "trace_speed": 4.0, "rate": 2.0}))

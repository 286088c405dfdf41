"""From a deployment to a simulation: memory, rules, speculation, cost; agreement with `predict`."""

from dataclasses import replace

import pytest

from specsim.analytic.closed import closed_loop
from specsim.analytic.open import open_loop
from specsim.analytic.system import System
from specsim.analytic.workload import Workload
from specsim.api.deployment import build_request
from specsim.api.simulate_load import fixed_plan
from specsim.errors import CapacityError
from specsim.latency.memory import MemoryPlan
from specsim.latency.shape import PrefillChunk, StepShape
from specsim.options.groups import DeploymentOptions as Options
from specsim.options.serving import SimulateOptions
from specsim.sim.build import (
    Deployment,
    LookupCost,
    acceptance_spread_of,
    cache_blocks,
    engine_rules,
    memory_of,
    request_overhead_s,
    speculation_rules,
    step_cost,
)
from specsim.sim.run import simulate
from specsim.speculation.acceptance_spread import INDEPENDENT, fitted_acceptance_spread

QWEN = {"model": "qwen3.6-27b", "weights": "fp8"}
LLAMA = {"model": "llama-3.1-8b", "method": "eagle3", "k": 3, "acceptance_length": 2.5}
GEMMA = {
    "model": "gemma-4-31b", "weights": "fp8", "kv": "fp8", "method": "draft-model", "k": 4,
    "draft": "gemma-4-31b-it-assistant", "acceptance_length": 3.08,
}


def system(**options: object) -> System:
    return build_request(Options(**options)).system  # type: ignore[arg-type]


def plan(**changes: object) -> MemoryPlan:
    """A pool of 1,000,000 bytes and 10 bytes per token, blocks of 16 tokens."""
    base = MemoryPlan(
        capacity_bytes=2e6, usable_bytes=1.5e6, weight_bytes=4e5, drafter_bytes=1e5,
        reserve_bytes=0.0, kv_bytes_per_token=10.0, windows=(), state_bytes_per_seq=0.0,
        lookahead_tokens=0, block_size=16,
    )
    return replace(base, **changes)


# --- cache ----------------------------------------------------------------------------------------


def test_a_plain_cache_is_its_bytes_over_the_bytes_of_a_block() -> None:
    found = cache_blocks(plan(), 1000)
    assert found.num_kv_blocks == 6250  # 1e6 / (10 x 16)
    assert found.extra_tokens == 0 and found.block_bytes == 160.0


def test_a_state_is_so_many_slots_behind_the_tokens_of_every_request() -> None:
    found = cache_blocks(plan(state_bytes_per_seq=5000.0), 1000)
    assert (found.num_kv_blocks, found.extra_tokens) == (6250, 500)


@pytest.mark.parametrize("context", [64, 99, 100, 101, 1000, 4000])
def test_the_tangent_is_exact_at_its_tokens_and_never_below_elsewhere(context: int) -> None:
    memory = plan(windows=((100, 30.0), (2000, 5.0)), state_bytes_per_seq=700.0)
    found = cache_blocks(memory, context)
    per_token = found.block_bytes / 16

    def held(tokens: int) -> float:
        return tokens * per_token + found.extra_tokens * per_token

    def truth(tokens: int) -> float:
        sliding = min(tokens, 100) * 30.0 + min(tokens, 2000) * 5.0
        return tokens * 10.0 + sliding + 700.0

    # Whole slots: up to one more than the bytes need.
    assert truth(context) <= held(context) <= truth(context) + per_token
    for tokens in (1, 50, 100, 500, 2000, 10_000):
        assert held(tokens) >= truth(tokens) - 1e-9


def test_where_nothing_grows_the_state_alone_limits_the_requests() -> None:
    memory = plan(kv_bytes_per_token=0.0, state_bytes_per_seq=8000.0)
    found = cache_blocks(memory, 800)
    # 10 bytes per token of an 800-token request: 125 of them fill the pool.
    assert found.extra_tokens == 0
    assert found.num_kv_blocks * 16 // 800 == 125
    nothing = cache_blocks(plan(kv_bytes_per_token=0.0), 800)
    assert nothing.num_kv_blocks == 1 << 40


def test_a_prefix_cache_keeps_what_windows_have_passed() -> None:
    memory = plan(windows=((100, 30.0),))
    found = cache_blocks(memory, 1000, max_num_seqs=3)
    # A cached token holds all 40 bytes, a running request of 1000 tokens 13,000 of its 40,000.
    assert found.block_bytes == 640.0 and found.extra_tokens == 0
    assert found.num_kv_blocks == int((1e6 + 3 * 27_000) / 640)
    # Many slots: as many requests as the memory plan holds, and no more.
    full = cache_blocks(memory, 1000, max_num_seqs=10_000)
    assert full.num_kv_blocks * 16 // 1000 == memory.max_requests(1000) == 76


def test_pages_of_one_size_make_longer_blocks() -> None:
    assert memory_of(system(**GEMMA)).block_size == 32  # 16 x 256 against 4 x 512 per token
    assert memory_of(system(**LLAMA)).block_size == 16


def test_a_pool_below_one_block_is_refused() -> None:
    with pytest.raises(CapacityError, match="less than one block"):
        cache_blocks(plan(usable_bytes=5.001e5), 100)


@pytest.mark.parametrize("options", [QWEN, LLAMA, GEMMA])
def test_as_many_requests_run_as_the_memory_plan_holds(options: dict[str, object]) -> None:
    deployed = replace(system(**options), max_num_seqs=4096)
    tokens = 2000
    config = Deployment(deployed, context_tokens=tokens).config
    extra = config.speculation.lookahead + config.step_width
    by_blocks = config.num_kv_blocks * config.rules.block_size // (tokens + extra)
    assert by_blocks == pytest.approx(deployed.memory.max_requests(tokens), rel=0.01)


def test_the_simulation_runs_out_of_memory_where_the_plan_says() -> None:
    deployed = replace(
        system(model="nemotron-3-super", weights="fp8", method="mtp", k=2, acceptance_length=2.4),
        max_num_seqs=256,
    )
    load = fixed_plan(SimulateOptions(concurrency=64, requests=128), Workload(1024, 64))
    config = Deployment(deployed, context_tokens=1056).config
    found = simulate(config, load.make(0), step_cost(deployed), 0).summary()
    assert found["running_max"] == pytest.approx(deployed.memory.max_requests(1056), abs=1)
    assert found["waiting_max"] >= 64 - found["running_max"] - 1
    assert found["kv_usage_max"] > 0.9


def test_a_model_length_that_the_memory_holds_is_taken_even_beside_short_requests() -> None:
    deployed = system(**GEMMA)
    config = Deployment(deployed, 200, settings=(("max_model_len", 262_144),)).config
    assert config.max_model_len is not None and config.max_model_len > 100_000
    shorter = Deployment(deployed, 4000, settings=(("max_model_len", 262_144),))
    assert shorter.config.max_model_len == 262_144
    with pytest.raises(CapacityError, match="max_model_len"):
        _ = Deployment(deployed, 4000, settings=(("max_model_len", 50_000_000),)).config


# --- rules ----------------------------------------------------------------------------------------


def test_rules_carry_the_limits_of_the_deployment() -> None:
    deployed = replace(system(**LLAMA), max_num_seqs=77, max_num_batched_tokens=999)
    rules = engine_rules(deployed)
    assert (rules.max_num_seqs, rules.max_num_batched_tokens, rules.block_size) == (77, 999, 16)
    assert rules.chunked_prefill and not rules.prefill_first and rules.readback_lag_steps == 1


def test_vllm_before_asynchronous_scheduling_knows_its_tokens_at_once() -> None:
    assert engine_rules(system(**LLAMA, engine="vllm==0.10")).readback_lag_steps == 0
    lookup = system(model="llama-3.1-8b", method="ngram", k=3, acceptance_length=2.0)
    assert engine_rules(lookup).readback_lag_steps == 0


def test_sglang_runs_prompts_first_and_48_requests_under_speculation() -> None:
    deployed = system(**LLAMA, engine="sglang")
    rules = engine_rules(deployed)
    assert rules.prefill_first and rules.max_num_seqs == 48 and rules.block_size == 1
    assert rules.output_reserve == 0.7 and rules.victim == "fewest_tokens"
    assert engine_rules(deployed.plain()).max_num_seqs == 4096
    assert engine_rules(replace(deployed, max_num_seqs=64)).max_num_seqs == 64


def test_trtllm_keeps_room_for_all_that_may_still_be_written() -> None:
    rules = engine_rules(system(**LLAMA, engine="trtllm"))
    assert rules.output_reserve == rules.output_reserve_min == 1.0
    assert rules.block_size == 32 and not rules.prefill_first


def test_static_batches_share_no_prefixes_and_recurrent_models_only_on_request() -> None:
    static = system(**LLAMA, engine="transformers")
    assert not engine_rules(static).prefix_caching and engine_rules(static).prefill_first
    hybrid = system(**QWEN)
    assert not engine_rules(hybrid).prefix_caching
    assert engine_rules(hybrid, prefix_caching=True).prefix_caching
    assert engine_rules(system(**LLAMA)).prefix_caching


@pytest.mark.parametrize(
    ("options", "k", "lookahead", "drops"),
    [
        (QWEN, 3, 3, True),
        (LLAMA, 3, 3, True),
        (GEMMA, 4, 4, True),  # vLLM counts the assistant as MTP
        ({"model": "llama-3.1-8b", "method": "ngram", "k": 5, "acceptance_length": 2.0}, 5, 0,
         False),
    ],
)
def test_speculation_asks_for_slots_as_the_method_needs(
    options: dict[str, object], k: int, lookahead: int, drops: bool
) -> None:
    deployed = system(**options)
    rules = speculation_rules(deployed)
    assert rules.num_speculative_tokens == k
    assert rules.lookahead == lookahead and rules.drop_last_cached_block == drops
    with_state = speculation_rules(deployed, extra_tokens=100)
    assert with_state.lookahead == lookahead + 100
    plain = speculation_rules(deployed.plain(), extra_tokens=100)
    assert (plain.num_speculative_tokens, plain.lookahead) == (0, 100)


def test_trees_verify_their_own_width() -> None:
    deployed = system(**{**LLAMA, "engine": "sglang", "tree": "4,16"})
    rules = speculation_rules(deployed)
    assert (rules.num_speculative_tokens, rules.verify_tokens) == (3, 16)


def test_acceptance_spread_is_the_fitted_set_of_the_method() -> None:
    assert acceptance_spread_of(system(**LLAMA)) == fitted_acceptance_spread("eagle-sharegpt")
    assert acceptance_spread_of(system(**LLAMA).plain()) == INDEPENDENT
    found = Deployment(system(**LLAMA), acceptance_spread=INDEPENDENT).config
    assert found.acceptance_spread == INDEPENDENT


def test_the_front_end_takes_the_engines_time_and_none_on_a_datasheet() -> None:
    deployed = system(**LLAMA)
    assert request_overhead_s(deployed) == deployed.engine.overheads.request_s > 0
    assert request_overhead_s(system(**LLAMA, fidelity="datasheet")) == 0.0


# --- cost -----------------------------------------------------------------------------------------


def test_steps_are_priced_by_the_latency_model() -> None:
    deployed = system(**LLAMA)
    assert step_cost(deployed) is deployed.latency


def test_lookups_that_miss_are_priced_between_a_verify_and_a_plain_step() -> None:
    deployed = system(
        model="llama-3.1-8b", method="ngram", k=7, acceptance_length=3.0, draft_share=0.25
    )
    cost = step_cost(deployed)
    assert isinstance(cost, LookupCost) and cost.share == 0.25
    verify, bare = StepShape(64, 8, 64_000.0, num_drafts=7), StepShape(64, 1, 64_000.0)
    full_s, bare_s = deployed.latency.seconds(verify), deployed.latency.seconds(bare)
    assert cost.seconds(verify) == pytest.approx(0.25 * full_s + 0.75 * bare_s, rel=1e-12)
    assert cost.seconds(bare) == bare_s
    prompts = StepShape(prefill=(PrefillChunk(512),))
    assert cost.seconds(prompts) == deployed.latency.seconds(prompts)
    parts = cost.parts(verify)
    assert sum(parts.values()) == pytest.approx(cost.seconds(verify), rel=1e-9)


# --- agreement with the analytic model ------------------------------------------------------------

CHAT = Workload(1024, 256, name="chat")
SYSTEMS = [QWEN, {**LLAMA, "engine": "sglang"}, GEMMA]


@pytest.mark.parametrize("options", SYSTEMS, ids=["qwen-mtp", "llama-eagle3-sglang", "gemma"])
def test_at_low_load_the_time_per_token_is_the_predicted_one(options: dict[str, object]) -> None:
    deployed = system(**options)
    rate = 0.05 * closed_loop(deployed, CHAT, 1).request_rate
    load = fixed_plan(SimulateOptions(rate=rate, requests=600), CHAT)
    for side in (deployed, deployed.plain()):
        found = Deployment(side, load.context_tokens)
        summary = simulate(found.config, load.make(0), found.cost, 0).summary()
        expected = open_loop(side, CHAT, rate)
        assert summary["tpot_s"]["mean"] == pytest.approx(expected.tpot_s, rel=0.03)
        assert summary["ttft_s"]["p50"] == pytest.approx(expected.ttft_s, rel=0.1)


@pytest.mark.parametrize("options", SYSTEMS, ids=["qwen-mtp", "llama-eagle3-sglang", "gemma"])
@pytest.mark.parametrize("clients", [1, 8, 48])
def test_in_a_closed_loop_the_throughput_is_the_predicted_one(
    options: dict[str, object], clients: int
) -> None:
    deployed = system(**options)
    load = fixed_plan(SimulateOptions(concurrency=clients, requests=max(200, 10 * clients)), CHAT)
    for side in (deployed, deployed.plain()):
        found = Deployment(side, load.context_tokens)
        summary = simulate(found.config, load.make(0), found.cost, 0).summary()
        expected = closed_loop(side, CHAT, clients)
        assert summary["output_tok_s"] == pytest.approx(expected.output_tok_s, rel=0.1)
        assert abs(summary["cost_surface"]["median_rel_error"]) < 0.01


def test_the_baseline_has_the_memory_of_the_drafter_and_no_table() -> None:
    found = Deployment(system(**LLAMA), per_batch_size=((1, 4, 3), (5, 1024, 0)))
    assert found.config.speculation.per_batch_size
    plain = found.plain()
    assert plain.config.speculation.num_speculative_tokens == 0
    assert plain.config.acceptance is None and not plain.config.speculation.per_batch_size
    assert plain.config.num_kv_blocks > found.config.num_kv_blocks
    assert plain.plain().config == plain.config

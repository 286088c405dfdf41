"""From a deployment to a simulation: memory, rules, speculation, cost; agreement with `predict`."""

from dataclasses import replace

import pytest
from thinned import diagonal

from specsim.analytic.closed import closed_loop
from specsim.analytic.open import open_loop
from specsim.analytic.system import System
from specsim.analytic.workload import Workload
from specsim.api.deployment import build_request
from specsim.api.simulate_load import fixed_plan
from specsim.errors import CapacityError
from specsim.latency.shape import PrefillChunk, StepShape
from specsim.options.groups import DeploymentOptions as Options
from specsim.options.serving import SimulateOptions
from specsim.sim.build import (
    Deployment,
    MixedCost,
    acceptance_spread_of,
    engine_rules,
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


def test_states_run_out_of_memory_by_the_number_of_requests() -> None:
    deployed = replace(
        system(model="nemotron-3-super", weights="fp8", method="mtp", k=2, acceptance_length=2.4),
        max_num_seqs=256,
    )
    load = fixed_plan(SimulateOptions(concurrency=64, requests=128), Workload(1024, 64))
    config = Deployment(deployed).config
    found = simulate(config, load.make(0), step_cost(deployed), 0).summary()
    # A block, longer than these requests, and one for each state slot of every group.
    fit = config.num_kv_blocks // (1 + config.block_costs.state_blocks)
    assert found["running_max"] == fit
    assert 0.85 * deployed.memory.max_requests(1056) <= fit <= deployed.memory.max_requests(1056)
    assert found["waiting_max"] >= 64 - found["running_max"] - 1
    assert found["kv_usage_max"] > 0.9


def test_a_model_length_that_the_memory_holds_is_taken() -> None:
    deployed = system(**GEMMA)
    longest = Deployment(deployed, settings=(("max_model_len", 262_144),))
    assert longest.config.max_model_len == 262_144
    with pytest.raises(CapacityError, match="max_model_len"):
        _ = Deployment(deployed, settings=(("max_model_len", 50_000_000),)).config


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
    plain = speculation_rules(deployed.plain())
    assert (plain.num_speculative_tokens, plain.lookahead) == (0, 0)


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
    assert isinstance(cost, MixedCost) and cost.draft_share == 0.25
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
        found = Deployment(side)
        summary = simulate(found.config, load.make(0), found.cost, 0).summary()
        expected = open_loop(side, CHAT, rate)
        assert summary["tpot_s"]["mean"] == pytest.approx(expected.tpot_s, rel=0.03)
        assert summary["ttft_s"]["p50"] == pytest.approx(expected.ttft_s, rel=0.1)


@pytest.mark.parametrize(("options", "clients"), diagonal(SYSTEMS, [1, 8, 48]))
def test_in_a_closed_loop_the_throughput_is_the_predicted_one(
    options: dict[str, object], clients: int
) -> None:
    deployed = system(**options)
    load = fixed_plan(SimulateOptions(concurrency=clients, requests=max(200, 10 * clients)), CHAT)
    for side in (deployed, deployed.plain()):
        found = Deployment(side)
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

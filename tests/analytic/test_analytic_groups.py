"""Prompts under data-parallel attention: each group computes its own, in a budget of its own."""

import pytest

import specsim
from specsim.analytic.predict import LoadPoint
from specsim.analytic.prompts import passes
from specsim.analytic.system import System
from specsim.hardware.store import load_profile
from specsim.latency.engine import find_engine
from specsim.model.catalogue import find_model
from specsim.ops.work import UNIFORM, Parallel, Work, attention_share
from specsim.sim.build import engine_rules

QWEN = find_model("Qwen3-235B-A22B-FP8")
H200 = load_profile("h200-sxm")
FOUR = Parallel(1, 4, 4)


@pytest.mark.parametrize(("engine", "each"), [("vllm", 8192), ("trtllm", 8192), ("sglang", 2048)])
def test_the_budget_of_a_group_and_of_all(engine: str, each: int) -> None:
    """vLLM's is per rank; SGLang's is divided (sglang 0.5.23, arg_groups/parallel_hook.py)."""
    system = System(QWEN, H200, find_engine(engine), FOUR, max_num_batched_tokens=8192)
    assert (system.group_tokens, system.round_tokens) == (each, 4 * each)
    rules = engine_rules(system)
    assert (rules.max_num_batched_tokens, rules.groups) == (4 * each, 4)


@pytest.mark.parametrize(("count", "tokens"), [
    (1, 32768), (3, 32768), (4, 500), (5, 5000), (16, 1000), (50, 8192), (7, 300_000),
])
def test_steps_hold_every_token_once_and_no_more_of_a_group_than_its_room(
    count: int, tokens: int
) -> None:
    steps, weight = passes(count, tokens, 0, 32768, 4)
    assert weight * sum(c.new_tokens for step in steps for c in step) == pytest.approx(
        count * tokens, rel=0.02
    )
    for step in steps:
        work = Work(0, 1, 0, tuple((c.new_tokens, c.cached_tokens) for c in step), 0, 0)
        share = attention_share(work, Parallel(1, 4, 4))
        assert share.prefill_tokens <= 8192
        assert share.prefill_tokens * 4 >= work.prefill_tokens  # it is one with most to do


def test_a_group_multiplies_the_rows_of_its_own_prompts() -> None:
    decode, chunk = 64.0, (8192, 0)
    alone = Work(64, 1, 1000, (chunk,), decode + 8192, 64)
    assert attention_share(alone, FOUR).rows == 16 + 8192
    full = Work(64, 1, 1000, (chunk,) * 4, decode + 4 * 8192, 64)
    assert attention_share(full, FOUR).rows == 16 + 8192


def point(groups: int, clients: int, engine: str) -> LoadPoint:
    return specsim.predict(
        "Qwen3-235B-A22B-FP8", method="none", ep=4, engine=engine, concurrency=clients,
        input_len=32768, output_len=512, tp=4 // groups, attention_dp=groups,
    ).points[0]


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_long_prompts_fill_all_groups_but_one_alone_fills_one(engine: str) -> None:
    one, four = point(1, 1, engine), point(4, 1, engine)
    assert four.ttft_s > 1.7 * one.ttft_s
    one, four = point(1, 32, engine), point(4, 32, engine)
    assert four.output_tok_s == pytest.approx(one.output_tok_s, rel=0.25)
    assert four.ttft_s > point(4, 1, engine).ttft_s  # nobody's prompt is faster in company


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_the_simulation_deals_them_alike(engine: str) -> None:
    found = specsim.simulate(
        "Qwen3-235B-A22B-FP8", method="none", ep=4, engine=engine, concurrency=8, requests=64,
        input_len=32768, output_len=512, attention_dp=4,
    )
    assert found.output_tok_s == pytest.approx(point(4, 8, engine).output_tok_s, rel=0.2)


def test_slots_and_schedulers_are_those_of_each_group() -> None:
    """vLLM: max_num_seqs applies per data-parallel rank (vllm 0.33.0, config/scheduler.py). SGLang
    divides what is asked for, not its default (pool_configurator.py)."""
    for name in ("vllm", "sglang", "trtllm"):
        engine = find_engine(name)
        alone = System(QWEN, H200, engine, Parallel(4))
        groups = System(QWEN, H200, engine, FOUR)
        assert groups.seqs_limit == 4 * alone.seqs_limit
        assert System(QWEN, H200, engine, FOUR, max_num_seqs=64).seqs_limit == 64
        few, many = (
            system.latency.step(system.decode_shape(seqs, 2000))
            for system, seqs in ((alone, 200), (groups, 800))
        )
        assert many.host_s == pytest.approx(few.host_s)
        assert many.graphed and few.graphed


@pytest.mark.parametrize("gpu", ["h200-sxm", "gb200"])
def test_more_gpus_for_the_experts_cost_no_more_for_each_gpus_rows(gpu: str) -> None:
    """Between nodes, and among more GPUs than gather all rows, one receives the rows of its own
    experts alone. The passes around the products used to stream those of all, and within an NVL72
    the exchange moved them all: of DeepSeek-R1 on 64 GB200 nine tenths of the step."""
    v3, profile = find_model("deepseek-v3"), load_profile(gpu)

    def step_s(gpus: int) -> tuple[float, float]:
        parallel = Parallel(1, gpus, gpus)
        system = System(v3, profile, find_engine("sglang"), parallel, routing=UNIFORM)
        step = system.latency.step(system.decode_shape(128 * gpus, 2000))
        experts = sum(row.seconds for row in step.breakdown() if row.op.name == "moe.experts")
        return experts, step.total_s

    many, some, few = step_s(64), step_s(16), step_s(8)
    assert many[0] < some[0] < few[0] * 1.1
    assert many[1] < 1.5 * some[1] if gpu == "gb200" else many[1] < 2 * some[1]

"""A sample of benchmarks/simulate_predict.py: both say the same in a steady state."""

import pytest
import simulate_predict as both
from thinned import some

SHORT, CHAT, CODE, LONG = both.LENGTHS.values()


def case(model, tp, engine, lengths, clients=None, *, k=0, method="none", share=None):
    options = {
        "model": model, "tp": tp, "engine": engine, "method": method, "input_len": lengths[0],
        "output_len": lengths[1],
    }
    if k:
        options["k"] = k
    if clients:
        options["concurrency"] = clients
    return both.Case(options, share)


SAMPLE = (
    case("llama-3.1-8b", 1, "vllm", CHAT, 128),
    case("llama-3.1-8b", 8, "vllm", LONG, 16, k=3, method="eagle3"),
    case("llama-3.1-8b", 8, "sglang", SHORT, 256),  # prompts that merge while one group runs
    case("qwen3-30b-a3b", 1, "vllm", SHORT, 32, k=3, method="eagle3"),
    case("qwen3.6-27b", 1, "trtllm", CODE, 64),
    case("deepseek-v3", 8, "sglang", CHAT, 4, k=1, method="mtp"),
    case("gpt-oss-120b", 8, "sglang", LONG, 128),  # prompts around one budget
    case("gemma-3-27b", 1, "vllm", CHAT, 1),
    case("qwen3-8b", 1, "vllm", LONG, 128),  # memory is short
    case("qwen3-8b", 1, "vllm", CHAT, share=0.2),
    case("qwen3-30b-a3b", 1, "sglang", CHAT, share=0.2),
    case("gpt-oss-120b", 1, "trtllm", CODE, share=0.5),
)


@pytest.mark.parametrize("one", some(SAMPLE, 3), ids=lambda one: one.name)
def test_simulate_and_predict_agree(one, monkeypatch):
    monkeypatch.setattr(both, "ARRIVALS", 800)
    gaps = both.gaps_of(one)
    assert gaps.stable
    assert abs(gaps.throughput) <= both.MOST_THROUGHPUT_GAP
    assert abs(gaps.tpot) <= both.MOST_TPOT_GAP
    assert gaps.checked > 0


def test_cases_are_the_same_for_the_same_seed():
    first, second, other = (
        [next(cases) for cases in [both.drawn(seed)] for _ in range(5)] for seed in (1, 1, 2)
    )
    assert first == second != other
    assert len({case.name for case in first}) == 5


def test_a_load_near_what_the_server_keeps_up_with_is_not_stable():
    closed = {"utilisation": None, "steepness": None}
    assert both.stable(closed)
    assert both.stable({"utilisation": 0.8, "steepness": 1.5})
    assert not both.stable({"utilisation": 0.95, "steepness": 1.5})
    assert not both.stable({"utilisation": 0.5, "steepness": 4.0})

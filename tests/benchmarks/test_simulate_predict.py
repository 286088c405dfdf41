"""A sample of benchmarks/simulate_predict.py: both say the same in a steady state."""

import pytest
import simulate_predict as both

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
    case("llama-3.1-8b", 1, "sglang", SHORT, 32),
    case("qwen3-30b-a3b", 1, "vllm", SHORT, 32, k=3, method="eagle3"),
    case("qwen3.6-27b", 1, "trtllm", CODE, 64),
    case("deepseek-v3", 8, "sglang", CHAT, 4, k=1, method="mtp"),
    case("gpt-oss-120b", 1, "vllm", SHORT, 2, k=3, method="eagle3"),
    case("gemma-3-27b", 1, "vllm", CHAT, 1),
    case("qwen3-8b", 1, "vllm", CHAT, share=0.2),
)


@pytest.mark.parametrize("one", SAMPLE, ids=lambda one: one.name)
def test_simulate_and_predict_agree(one):
    gaps = both.gaps_of(one)
    assert abs(gaps.throughput) <= both.MOST_THROUGHPUT_GAP
    assert abs(gaps.tpot) <= both.MOST_TPOT_GAP


def test_cases_are_the_same_for_the_same_seed():
    first = both.cases(5, 1)
    assert first == both.cases(5, 1) and first != both.cases(5, 2)

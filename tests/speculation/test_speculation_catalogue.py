"""The catalogue of measured acceptance: names and lines."""


import pytest

from specsim.speculation import acceptance_catalogue as catalogue
from specsim.speculation.names import normalise_dataset, normalise_method, normalise_model


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("qwen3.6-27b", "Qwen/Qwen3.6-27B-FP8"),
        ("qwen3.5-122b", "Qwen/Qwen3.5-122B-A10B"),
        ("gemma-4-31b", "google/gemma-4-31B-it"),
        ("gemma-4-31b", "gemma-4-31B-it AWQ4"),
        ("llama-3.1-8b", "meta-llama/Llama-3.1-8B-Instruct"),
        ("llama-3-8b", "Meta-Llama-3-8B-Instruct"),
        ("qwen3-30b-2507", "Qwen/Qwen3-30B-A3B-Instruct-2507-FP8"),
        ("nemotron-3-super-120b", "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4"),
        ("glm-5.1", "zai-org/GLM-5.1-FP8"),
        ("qwen3.6-27b", "Qwen3.6-27B Q5_K_XL"),
        ("qwen3.8-27b", "Qwen3.8-27B NVFP4 (nvidia)"),
        ("qwen3.8-flash-next", "Qwen3.8-Flash-Next UD-IQ1_S"),
    ],
)
def test_names_of_one_model_are_one(a: str, b: str) -> None:
    assert normalise_model(a) == normalise_model(b)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("Qwen3.6-27B", "Qwen3.5-27B"),
        ("Qwen3-30B-A3B", "Qwen3-30B-A3B-Instruct-2507"),
        ("Qwen3-30B-A3B", "Qwen3-Coder-30B-A3B-Instruct"),
        ("gemma-4-31B-it", "gemma-4-31B-it QAT W4A16"),
        ("Nemotron-3-Ultra-550B-A55B", "Nemotron-3-Ultra + MTP-Boosting"),
        ("DeepSeek-V4-Pro", "DeepSeek-V4-Pro-0813"),
    ],
)
def test_different_models_stay_different(a: str, b: str) -> None:
    assert normalise_model(a) != normalise_model(b)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("MT-bench (first turn)", "mtbench"),
        ("GSM8K (128 prompts)", "gsm8k"),
        ("GSM8K, Chinese instruction (reason in Chinese)", "GSM8K"),
        ("RedHatAI speculator_benchmarks math_reasoning", "math_reasoning"),
        ("SPEED-Bench qualitative coding", "SPEED-Bench Coding"),
        ("MATH-500", "Math500"),
    ],
)
def test_spellings_of_one_data_set_are_one(a: str, b: str) -> None:
    assert normalise_dataset(a) == normalise_dataset(b)
    assert normalise_dataset("MATH") != normalise_dataset("MATH-500")
    assert normalise_dataset("SPEED-Bench Math") != normalise_dataset("SPEED-Bench")


def test_method_names() -> None:
    assert normalise_method("qwen3_next_mtp") == normalise_method("NEXTN") == "mtp"
    assert normalise_method("draft-model") == normalise_method("STANDALONE") == "draft_model"
    assert normalise_method("EAGLE3") == normalise_method("eagle-3") == "eagle3"
    assert normalise_method("p-eagle") == "p_eagle"


def test_every_line_is_sound() -> None:
    lines = catalogue.measurements()
    assert len(lines) > 1100
    for m in lines:
        assert m.work in (*catalogue.WORKS, "random", "repetitive")
        assert (m.work == "random") == ("random" in m.dataset.lower())
        assert m.grade in ("A", "B")
        assert m.rows
        assert m.k >= 1
        if m.tree_topk == 1:
            assert m.num_draft_tokens == m.k + 1
        assert 1.0 <= m.acceptance_length <= m.num_draft_tokens
        if m.per_position:
            assert len(m.per_position) == m.k
            rounding = 0.005 * m.k + 0.006
            assert 1 + sum(m.per_position) == pytest.approx(m.acceptance_length, abs=rounding)

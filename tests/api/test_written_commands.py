"""The server's command in an answer says what was predicted: read back, it gives the same."""

from typing import Any

import pytest

from specsim import predict, tune
from specsim.errors import ModelConfigError, UsageError
from specsim.latency.engine import find_engine

MOE = "Qwen3-30B-A3B"


def figures(**options: Any) -> Any:
    found: Any = predict(concurrency="1,64", acceptance_length=1.7, **options).to_dict()
    return found["verdict"]["command"], [point["output_tok_s"] for point in found["points"]]


@pytest.mark.parametrize("engine", ["vllm", "vllm==0.11", "sglang", "sglang==0.5.5"])
@pytest.mark.parametrize("launch", [
    {}, {"cuda_graph_max": 0}, {"cuda_graph_max": 24, "async_scheduling": "off"},
    {"routing": "eplb"}, {"async_scheduling": "on", "routing": "eplb"},
], ids=str)
def test_how_steps_are_launched(engine: str, launch: dict[str, Any]) -> None:
    asked = {"model": MOE, "engine": engine}
    command, wanted = figures(**asked, method="eagle3", k=2, tp=4, ep=4, **launch)
    assert ("--enable-eplb" in command) == ("routing" in launch)
    assert figures(**asked, command=command) == (command, pytest.approx(wanted))


def test_nothing_is_evened_out_on_one_gpu() -> None:
    assert "eplb" not in figures(model=MOE, method="eagle3", k=2, routing="eplb")[0]


def test_a_drafter_that_is_known_by_its_acceptance_alone() -> None:
    command, wanted = figures(model=MOE, method="eagle3", k=2)
    assert "zhuyksir/EAGLE3-Qwen3-30B-A3B-DenseHead" in command
    assert figures(model=MOE, command=command) == (command, pytest.approx(wanted))
    with pytest.raises(ModelConfigError, match="not in the catalogue"):
        predict("Llama-3.1-8B", draft="zhuyksir/EAGLE3-Qwen3-30B-A3B-DenseHead")


@pytest.mark.parametrize(("model", "method"), [
    ("Llama-3.1-8B", "eagle3"), ("Llama-3.1-70B", "eagle3"), ("Llama-3.3-70B", "eagle3"),
    ("Qwen3-30B-A3B", "eagle3"), ("Qwen3-8B", "dflash"), ("Qwen3.6-27B", "mtp"),
    ("Qwen3-235B-A22B-Instruct-2507", "eagle3"), ("Vicuna-7B", "eagle"), ("gpt-oss-120b", "eagle3"),
    ("Llama-2-70B", "eagle"), ("Gemma-4-31B", "mtp"),
])
@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_the_acceptance_shown_is_that_of_the_drafter_named(
    engine: str, model: str, method: str
) -> None:
    """Nobody named a drafter: the one whose acceptance stands there is the one in the command."""
    shape: dict[str, Any] = {"model": model, "engine": engine, "tp": 8, "concurrency": 1}
    if method not in find_engine(engine).methods:
        pytest.skip("not in this engine")
    first: Any = predict(method=method, **shape)
    command = first.verdict.command
    assert command is not None and "speculative" in command
    again: Any = predict(**shape, command=command)
    assert first.acceptance_length == pytest.approx(again.acceptance_length, rel=1e-9)
    assert first.points[0].output_tok_s == pytest.approx(again.points[0].output_tok_s, rel=1e-9)
    assert again.verdict.command == command


@pytest.mark.parametrize("model", ["Llama-3.1-8B", "Llama-3.3-70B", "Qwen3-8B"])
def test_what_tune_prints_reads_back(model: str) -> None:
    """Its draft lengths lie on one curve; one that was not measured is asked for beside the
    nearest that was, which can differ by a few per cent of the tokens."""
    shape: dict[str, Any] = {"model": model, "tp": 4, "concurrency": 1}
    best: Any = tune(**shape).answers[0]
    again: Any = predict(**shape, command=best.flags.command)
    assert again.points[0].output_tok_s == pytest.approx(best.best.output_tok_s, rel=0.03)


@pytest.mark.parametrize(("gpu", "asked", "version"), [
    ("a100", "vllm", "0.31"), ("rtx-pro-6000", "vllm", "0.31"), ("a100", "vllm==0.27", "0.27"),
    ("h200", "vllm", "0.25.1"),
])
def test_the_version_said_is_the_one_whose_figures_are_shown(
    gpu: str, asked: str, version: str
) -> None:
    """Before 0.31 vLLM expands the latents of verified rows on these: an engine named without a
    version has the newest kernels, so a command 'of vLLM 0.25.1' would be half as fast."""
    def shown(engine: str) -> tuple[Any, float]:
        found: Any = predict("GLM-4.7-Flash", gpu=gpu, method="mtp", k=3, concurrency=8,
                             engine=engine)
        return found.verdict.written_for, found.points[0].output_tok_s

    assert shown(asked) == shown(f"vllm=={version}")
    assert shown(asked)[0] == f"vLLM {version}"
    plain: Any = predict("Llama-3.1-8B", gpu=gpu, method="eagle3", k=3, concurrency=8)
    assert plain.verdict.written_for == "vLLM 0.25.1"


EAGLE = ('vllm serve meta-llama/Llama-3.1-8B-Instruct --speculative-config \'{"method": "eagle3", '
         '"model": "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B", "num_speculative_tokens": 3}\'')


@pytest.mark.parametrize("again", [
    {"method": "eagle3"}, {"k": 3}, {"draft": "yuhuili/EAGLE3-LLaMA3.1-Instruct-8B"},
    {"method": "EAGLE-3", "k": 3},
], ids=str)
def test_what_a_command_says_of_speculation_may_be_typed_once_more(again: dict[str, Any]) -> None:
    once: Any = predict(command=EAGLE, concurrency=8)
    twice: Any = predict(command=EAGLE, concurrency=8, **again)
    assert twice.points[0].output_tok_s == once.points[0].output_tok_s


@pytest.mark.parametrize(("other", "said"), [
    ({"method": "ngram"}, "--method 'ngram' contradicts --command, which says 'eagle3'"),
    ({"method": "none"}, "--method 'none' contradicts --command, which says 'eagle3'"),
    ({"k": 5}, "--k '5' contradicts --command, which says '3'"),
    ({"draft": "Llama-3.2-1B"}, "--draft 'Llama-3.2-1B' contradicts --command, which .*EAGLE3"),
], ids=str)
def test_what_contradicts_the_speculation_of_a_command_is_named(
    other: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        predict(command=EAGLE, concurrency=8, **other)

"""The server's command in an answer says what was predicted: read back, it gives the same."""

from typing import Any

import pytest

from specsim import predict
from specsim.errors import ModelConfigError

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

"""Flags that say how a server launches its steps."""

import pytest

from specsim.errors import UsageError
from specsim.formats.server_command import parse_command
from specsim.formats.server_flags import told_command

SGLANG = "python -m sglang.launch_server --model-path m"


@pytest.mark.parametrize(("command", "graphs", "ahead"), [
    ("vllm serve m", None, None),
    ("vllm serve m --enforce-eager", 0, None),
    ("vllm serve m --max-cudagraph-capture-size 256", 256, None),
    ("vllm serve m --cuda-graph-sizes 1024", 1024, None),
    ("vllm serve m --cudagraph-capture-sizes 1 2 4 96", 96, None),
    ("vllm serve m --enforce-eager --cuda-graph-sizes 64", 0, None),
    ("vllm serve m --async-scheduling", None, "on"),
    ("vllm serve m --no-async-scheduling", None, "off"),
    ("""vllm serve m -cc '{"cudagraph_mode": "NONE"}'""", 0, None),
    ("""vllm serve m --compilation-config '{"cudagraph_capture_sizes": [1, 8, 32]}'""", 32, None),
    ("vllm serve m --compilation-config.max_cudagraph_capture_size 48", 48, None),
    ("vllm serve m -cc.cudagraph_mode=none --speculative-config.method mtp", 0, None),
    ("""vllm serve m -cc '{"cudagraph_mode": null}'""", None, None),  # null: vLLM's own
    ("""vllm serve m -cc '{"cudagraph_mode": 0, "use_cudagraph": true}'""", 0, None),
    ("vllm serve m -cc.use_cudagraph false", 0, None),
    ("""vllm serve m -cc '{"max_cudagraph_capture_size": null}'""", None, None),
    ("vllm serve m --enforce-eager --no-enforce-eager", None, None),
    ("vllm serve m --no-async-scheduling --async-scheduling", None, "on"),
    ("vllm serve m --async-scheduling --no-async-scheduling", None, "off"),
    ("vllm serve m --no-enable-eplb --no-trust-remote-code", None, None),
    (f"{SGLANG} --disable-cuda-graph", 0, None),
    (f"{SGLANG} --cuda-graph-max-bs 24", 24, None),
    (f"{SGLANG} --cuda-graph-bs 1 2 8 --disable-overlap-schedule", 8, "off"),
    (f"SGLANG_ENABLE_SPEC_V2=1 {SGLANG}", None, "on"),
    (f"env SGLANG_ENABLE_SPEC_V2=0 {SGLANG}", None, None),
])
def test_what_the_flags_mean(command: str, graphs: int | None, ahead: str | None) -> None:
    found = parse_command(command)
    assert found.values.get("cuda_graph_max") == graphs
    assert found.values.get("async_scheduling") == ahead
    assert not found.not_modelled
    assert not found.unknown


def test_what_is_left_of_the_compilation_json_is_named() -> None:
    found = parse_command(
        """vllm serve m -cc '{"cudagraph_mode": "PIECEWISE", "pass_config": {"fuse": true}}'"""
    )
    assert "cuda_graph_max" not in found.values
    assert found.not_modelled == (
        "--compilation-config.pass_config", "--compilation-config.cudagraph_mode"
    )
    assert parse_command("vllm serve m -cc 3").not_modelled == ("--compilation-config 3",)


@pytest.mark.parametrize("words", [
    """-cc '{"max_cudagraph_capture_size": true}'""",
    """-cc '{"max_cudagraph_capture_size": -3}'""",
    """-cc '{"max_cudagraph_capture_size": 1e12}'""",
    """-cc '{"cudagraph_capture_sizes": []}'""",
    """-cc '{"cudagraph_capture_sizes": [1.5, 2]}'""",
    """-cc '{"cudagraph_capture_sizes": [-8]}'""",
    """-cc '{"cudagraph_capture_sizes": {"a": 64}}'""", "--cuda-graph-sizes 0",
    "-cc.cudagraph_capture_sizes many", "--cuda-graph-sizes 1 " + "9" * 5000,
])
def test_batches_that_are_none(words: str) -> None:
    with pytest.raises(UsageError, match=r"batch of CUDA graphs .* must be a whole number from 1"):
        parse_command(f"vllm serve m {words}")


def test_a_long_batch_is_one_number() -> None:
    found = parse_command("vllm serve m --cuda-graph-sizes 1 123456789")
    assert found.values["cuda_graph_max"] == 123456789


@pytest.mark.parametrize("flag", ["--async-scheduling=false", "--enforce-eager=False"])
def test_a_switch_takes_no_value(flag: str) -> None:
    with pytest.raises(UsageError, match="the flag takes no value"):
        parse_command(f"vllm serve m {flag}")


def test_a_field_takes_one() -> None:
    with pytest.raises(UsageError, match="cudagraph-mode without a value"):
        parse_command("vllm serve m -cc.cudagraph_mode --enforce-eager")


def test_a_level_in_one_word_is_no_unknown_flag() -> None:
    found = parse_command("vllm serve m -O3")
    assert (found.not_modelled, found.unknown) == (("--O 3",), ())


def test_no_number() -> None:
    with pytest.raises(UsageError, match="whole number from 1"):
        parse_command(f"{SGLANG} --cuda-graph-max-bs many")


def test_a_server_that_tells_its_flags() -> None:
    told = told_command("sglang", "m", {
        "disable_cuda_graph": False, "cuda_graph_max_bs": 160, "disable_overlap_schedule": True,
    })
    found = parse_command(told).values
    assert (found["cuda_graph_max"], found["async_scheduling"]) == (160, "off")

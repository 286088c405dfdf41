"""Servers in YAML: the file of --config, compose and Kubernetes files, hostile ones."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thinned import examples

from specsim.errors import FormatError, SpecSimError
from specsim.formats.server_command import parse_command

CONFIG = """
model: org/a
tensor-parallel-size: 4
max_num_seqs: 32
enable-expert-parallel: true
enforce-eager: false
seed: null
lora-modules: [x=1, y=2]
speculative-config: {method: mtp, num_speculative_tokens: 2}
"""
COMPOSE = """
x-common: &common
  image: vllm/vllm-openai:v0.20.0
  environment: {VLLM_USE_V1: 0, SEQS: 16}
services:
  llm:
    <<: *common
    command: [--model, "${MODEL:-Qwen/Qwen3-8B}", --max-num-seqs, "$SEQS", --enforce-eager]
  web:
    image: nginx:1
    command: nginx -g 'daemon off;'
"""
KUBERNETES = """
apiVersion: v1
kind: Service
metadata: {name: x}
---
apiVersion: apps/v1
kind: Deployment
spec:
  template:
    spec:
      containers:
        - name: sgl
          image: lmsysorg/sglang:v0.5.23
          env: [{name: MODEL, value: org/b}, {name: SGLANG_ENABLE_SPEC_V2, value: "1"}]
          command: ["/bin/sh", "-c"]
          args: ["python3 -m sglang.launch_server --model-path $(MODEL) --tp 2"]
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "serve.yaml"
    path.write_text(CONFIG, encoding="utf-8")
    return path


@pytest.mark.parametrize("form", ["vllm serve --config {}", "vllm serve --config={} --port 80"])
def test_the_file_of_config_is_read(config: Path, form: str) -> None:
    found = parse_command(form.format(config))
    assert found.model == "org/a"
    assert json.loads(found.values.pop("speculative_config")) == {
        "method": "mtp", "num_speculative_tokens": 2
    }
    assert found.values == {"engine": "vllm", "tp": 4, "ep": 4, "max_num_seqs": 32}
    assert found.not_modelled == ("--lora-modules x=1 y=2",)


def test_what_is_written_beside_the_file_wins(config: Path) -> None:
    found = parse_command(f"vllm serve org/b --max-num-seqs 8 --config {config} -tp 2")
    assert (found.model, found.values["max_num_seqs"], found.values["tp"]) == ("org/b", 8, 2)
    config.write_text("tp: 4\nmodel-path: org/a\n", encoding="utf-8")
    sglang = parse_command(f"sglang serve --config {config} --model-path org/c")
    assert (sglang.model, sglang.values["tp"]) == ("org/c", 4)


def test_compose(tmp_path: Path) -> None:
    path = tmp_path / "compose.yml"
    path.write_text(COMPOSE, encoding="utf-8")
    for text in (COMPOSE, str(path)):
        found = parse_command(text)
        assert found.model == "Qwen/Qwen3-8B"
        assert found.values == {
            "engine": "vllm==0.20.0", "max_num_seqs": 16, "cuda_graph_max": 0,
        }
        assert found.not_modelled == ("VLLM_USE_V1=0",)


def test_compose_with_one_line_or_an_entrypoint() -> None:
    line = parse_command(
        "services:\n  a:\n    image: vllm/vllm-openai:v0.9.2\n    command: >\n"
        "      --model org/a\n      --max-num-seqs 8\n"
    )
    assert (line.model, line.values["max_num_seqs"]) == ("org/a", 8)
    entry = parse_command(
        "image: my/own\nentrypoint: [python3, -m, sglang.launch_server]\n"
        "command:\n- --model\n- org/a\n- --tp\n- 2\nenvironment:\n- SGLANG_SIMULATE_ACC_LEN=2\n"
    )
    assert (entry.engine, entry.model, entry.values["tp"]) == ("sglang", "org/a", 2)
    assert entry.not_modelled == ("SGLANG_SIMULATE_ACC_LEN=2",)


def test_kubernetes() -> None:
    found = parse_command(KUBERNETES)
    assert (found.model, found.values) == (
        "org/b", {"engine": "sglang==0.5.23", "tp": 2, "async_scheduling": "on"}
    )
    assert found.not_modelled == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("services: &a {x: *a}", "holds itself"),
        ("vllm serve --config /no/such.yaml", "no/such.yaml.*copy it here and give its path"),
        ("vllm serve --config", "--config  in --command cannot be used"),
        ("services: {a: {image: x, environment: &a {B: *a}}}", "holds itself"),
        ("services: {a: {image: x, environment: {B: {2020-01-01: 1}}}}", "cannot be read as YAML"),
        (KUBERNETES + "---\n" + KUBERNETES, r"2 servers \((\w+), \1 \(2\)\)"),
        ("~no-such-user/compose.yml", "compose.yml cannot be read"),
        ("/no/compose.yml", "compose.yml cannot be read"),
        ("services:\n  a: {image: nginx}", "no container in it starts a server.*as one line"),
        (COMPOSE + "  two:\n    <<: *common\n    command: --model x", r"2 servers \(llm, two\)"),
        ("services: [", "is not YAML.*line 1"),
        ("services:\n  a:\n    command: {x: 1}", "list of words or one line"),
        ("services: " + "[" * 5000 + "]" * 5000, "nested too deeply"),
        ("services: " + "{a: " * 60 + "1" + "}" * 60, "nested too deeply"),
        ("services:\n" + "\n".join(" " * i + "a:" for i in range(1, 400)), "nested too deeply"),
        ("services:\n" + "- *a\n" * 3, "not YAML.*alias"),
        ("a: &a 1\nservices: [" + "*a, " * 30 + "]", "over 20 aliases"),
        ("services: 2024-13-45", "cannot be read as YAML"),
        ("services: " + "9" * 5000, "cannot be read as YAML"),
        ("services: !!python/object/apply:os.getcwd []", "not YAML"),
        ("services:\n" + "# " * 60_000, "longer than"),
    ],
)
def test_what_cannot_be_read_is_said(text: str, words: str) -> None:
    with pytest.raises(FormatError, match=words):
        parse_command(text)


@pytest.mark.parametrize("content", ["- a", "", "a: 1\n---\nb: 2", "just words"])
def test_a_config_file_is_one_table(config: Path, content: str) -> None:
    config.write_text(content, encoding="utf-8")
    with pytest.raises(FormatError, match="max-num-seqs: 64"):
        parse_command(f"vllm serve --config {config}")


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(st.sampled_from([
    "services:", "command:", " ", "\n", "- ", "[", "]", "{", "&a ", "*a", "<<: ", "vllm serve m",
    "image: vllm/vllm-openai", "args: ", "env: ", "name: ", "1", "true", "''", "? ", "--- ",
])))
def test_any_yaml_gives_a_command_or_an_error(parts: list[str]) -> None:
    try:
        parse_command("services:\n" + "".join(parts))
    except SpecSimError:
        return


@pytest.mark.parametrize("text", ["a: &x [*x]", "a: &x {b: *x}", "a: {2020-01-01: 1}"])
def test_a_config_file_that_no_flag_can_say_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(f"model: org/a\n{text}\n")
    with pytest.raises(FormatError, match="cannot be read as YAML"):
        parse_command(f"vllm serve --config {path}")

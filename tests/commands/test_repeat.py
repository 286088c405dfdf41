"""The command in a result gives the same result again."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from command_line import answer


def run(*arguments: str) -> Any:
    return json.loads(answer(*arguments))


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (
            ("predict", "--concurrency", "1,8", "llama-3.1-8b", "--method=eagle3", "--k", "3",
             "--acceptance-rate", "0.1", "--json"),
            "specsim predict llama-3.1-8b --method eagle3 --k 3 --acceptance-rate 0.1 "
            "--concurrency 1,8",
        ),
        (
            ("explain", "llama-3.1-8b", "--json", "--acceptance", "0.8, 0.6", "--method", "eagle3",
             "--k", "2"),
            "specsim explain llama-3.1-8b --method eagle3 --k 2 --acceptance '0.8, 0.6'",
        ),
        (
            ("simulate", "llama-3.1-8b", "--rate", "inf", "--requests", "20", "--no-baseline",
             "--method", "none", "--json", "--range-ratio", "0.25"),
            "specsim simulate llama-3.1-8b --rate inf --requests 20 --range-ratio 0.25 "
            "--no-baseline --method none",
        ),
    ],
)
def test_options_come_in_one_order_quoted_and_without_outputs(
    arguments: tuple[str, ...], command: str
) -> None:
    first = run(*arguments)
    given = first["command"].replace("--num-speculative-tokens", "--k")
    assert given == command
    again = run(*shlex.split(first["command"])[1:], "--json")
    assert again == first


def test_files_that_are_written_are_left_out(tmp_path: Path) -> None:
    trace = tmp_path / "a trace's.csv"
    trace.write_text("arrival_s,prompt_tokens,output_tokens\n0,10,5\n1,10,5\n", encoding="utf-8")
    records = tmp_path / "records.jsonl"
    found = run("simulate", "llama-3.1-8b", "--method", "none", "--trace", str(trace),
                "--records", str(records), "--json")
    assert "--records" not in found["command"] and str(records) not in found["command"]
    assert shlex.split(found["command"])[-1] == "none" and records.exists()
    assert run(*shlex.split(found["command"])[1:], "--json") == found

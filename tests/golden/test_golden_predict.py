"""`predict --json` of three systems as it was when last looked at.

A golden file guards against change, it proves nothing: what is right is tested elsewhere. When a
number changes on purpose, run `python -m pytest tests/golden --regenerate` and review the diff.
"""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from specsim.commands import app

HERE = Path(__file__).parent
SYSTEMS = {
    # A dense hybrid with its own MTP head on one GPU, from one client to a full batch
    "qwen3.6-27b-mtp": (
        "qwen3.6-27b", "--weights", "fp8", "--method", "mtp", "--k", "3", "--acceptance",
        "0.93,0.75,0.5", "--input-len", "650", "--output-len", "256", "--concurrency", "1,16,64",
    ),
    # A dense model with a tree-drafting EAGLE-3 head on two GPUs, by arrival rate
    "llama-3.1-70b-eagle3-rate": (
        "llama-3.1-70b", "--gpu", "h100-sxm", "--tp", "4", "--engine", "sglang", "--method",
        "eagle3", "--k", "3", "--tree", "4,8", "--acceptance-length", "2.6", "--rate", "0.5,2,50",
    ),
    # Routed experts with latent attention, experts spread over eight GPUs
    "deepseek-v3-mtp-ep": (
        "deepseek-v3", "--tp", "8", "--ep", "8", "--method", "mtp", "--k", "1",
        "--acceptance-rate", "0.85", "--workload", "summarize", "--concurrency", "1,32",
    ),
}
RTOL = 1e-9


def differences(found: Any, golden: Any, where: str = "") -> list[str]:
    """Where two JSON values differ; floats may by RTOL."""
    if isinstance(golden, dict) and isinstance(found, dict):
        out = [f"{where}.{key}: only in one" for key in set(golden) ^ set(found)]
        for key in golden.keys() & found.keys():
            out += differences(found[key], golden[key], f"{where}.{key}")
        return out
    if isinstance(golden, list) and isinstance(found, list):
        if len(golden) != len(found):
            return [f"{where}: {len(found)} entries, not {len(golden)}"]
        pairs = enumerate(zip(found, golden, strict=True))
        return [d for i, (a, b) in pairs for d in differences(a, b, f"{where}[{i}]")]
    numbers = isinstance(golden, float) and isinstance(found, int | float)
    if numbers and math.isclose(found, golden, rel_tol=RTOL, abs_tol=0.0):
        return []
    return [] if found == golden else [f"{where}: {found!r}, golden {golden!r}"]


@pytest.mark.parametrize("name", SYSTEMS)
def test_predictions_are_as_they_were(name: str, regenerate: bool) -> None:
    result = CliRunner().invoke(
        app, ["predict", *SYSTEMS[name], "--json"], catch_exceptions=False
    )
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    path = HERE / f"{name}.json"
    if regenerate:
        path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    golden = json.loads(path.read_text(encoding="utf-8"))
    assert differences(found, golden) == [], (
        "if the change is meant: python -m pytest tests/golden --regenerate, and review the diff"
    )


def test_the_comparison_sees_what_changes() -> None:
    golden = {"a": [1.0, {"b": 2.0}], "c": None, "d": 3}
    assert differences({"a": [1.0 + 1e-12, {"b": 2.0}], "c": None, "d": 3}, golden) == []
    assert differences({"a": [1.0 + 1e-6, {"b": 2.0}], "c": None, "d": 3}, golden)
    assert differences({"a": [1.0], "c": None, "d": 3}, golden)
    assert differences({"a": [1.0, {}], "c": None, "d": 3}, golden)
    assert differences({"a": [1.0, {"b": 2.0}], "c": 0.0, "d": 3}, golden)
    assert differences({"a": [1.0, {"b": 2.0}], "c": None, "d": 4}, golden)

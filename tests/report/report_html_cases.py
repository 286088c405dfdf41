"""Result documents for the tests of the HTML report, made by the commands themselves."""

import json
from functools import cache
from typing import Any

from typer.testing import CliRunner

from specsim.commands import app

EVIL = '</script><script>document.title="owned"</script><img src=x onerror=alert(1)>"\'&@a<b>%{x}'


@cache
def text_of(*arguments: str) -> str:
    result = CliRunner().invoke(app, [*arguments, "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return str(result.stdout)


def prediction() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(text_of(
        "predict", "qwen3.6-27b", "--weights", "fp8", "--acceptance-length", "3.18",
        "--concurrency", "1,2,4,8,16,32,64,128",
    ))  # fmt: skip
    return loaded


def explanation() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(text_of(
        "explain", "llama-3.1-8b", "--method", "eagle3", "--k", "3", "--acceptance-rate", "0.7",
        "--concurrency", "1,16",
    ))  # fmt: skip
    return loaded


def simulation(*more: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(text_of(
        "simulate", "llama-3.1-8b", "--method", "eagle3", "--k", "3", "--acceptance-rate", "0.7",
        "--rate", "8", "--requests", "150", "--slo", "ttft_p95=2,stream_tok_s_p10=40", *more,
    ))  # fmt: skip
    return loaded


def validation() -> dict[str, Any]:
    from specsim.validate.compare import Comparison, Row

    rows = []
    for i in range(24):
        measured = 0.004 * 1.25**i
        rows.append(Row(
            f"decode B={i + 1}", "step_s", measured, measured * (1 + 0.02 * (i % 7 - 3)),
            "fitted" if i % 3 == 0 else "held-out", measured * 0.9, measured * 1.1, 0.02,
        ))  # fmt: skip
        rows.append(Row(f"serve c={i + 1}", "output_tok_s", 40.0 * (i + 1), 43.0 * (i + 1)))
    return Comparison(
        "records", "cpu records", tuple(rows),
        {"device": "a CPU", "command": "specsim validate records x.jsonl", "seeds": [1, 2]},
        ({"cause": "host gap", "evidence": {"share": 0.12, "step_s": 0.004}},),
        ("one row was disturbed",),
    ).to_dict()  # fmt: skip


def mindrouter() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(text_of("predict"))
    return loaded

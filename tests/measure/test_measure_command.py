"""`specsim measure` from a shell."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from measure_helpers import tiny_folder
from specsim.calibrate.records import read_records
from specsim.commands import app
from specsim.errors import UsageError
from specsim.options.values import parse_duration

ROOT = Path(__file__).resolve().parents[2]


def start(*arguments: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "cli.py", "measure", *arguments], cwd=ROOT, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )


@pytest.mark.slow
def test_a_run_its_continuation_and_an_interruption(tmp_path) -> None:
    model, out = tiny_folder(tmp_path / "tiny"), tmp_path / "m.jsonl"
    options = ("--model", str(model), "--out", str(out), "--device", "cpu", "--threads", "1")
    for budget_s in (12, 60, 300):  # a slow machine gets nothing done in the first
        first = start(*options, "--budget", f"{budget_s}s", "--json")
        text, error = first.communicate(timeout=2 * budget_s + 300)
        assert first.returncode == 0 and error == "", error
        result = json.loads(text)
        if result["measured"]:
            break
    assert result["measured"] == len(read_records(out).points) > 0
    assert result["elapsed_s"] > 0 and result["file"] == str(out)

    second = start(*options, "--budget", "600s")
    have = result["measured"]
    for _ in range(3000):  # until it has measured something of its own
        time.sleep(0.1)
        if len(read_records(out).points) > have or second.poll() is not None:
            break
    second.send_signal(signal.SIGINT)
    text, error = second.communicate(timeout=300)
    found = read_records(out)
    if second.returncode == 130:
        assert "interrupted" in text and found.ends[-1]["interrupted"] is True
    else:  # it was done before the signal came
        assert second.returncode == 0
    assert f"in the file already: {have:,} point" in text
    assert "\nin it: " in text and f"\nnext: specsim calibrate {out} -o " in text
    assert len(found.points) > have
    keys = [p.key for p in found.points]
    assert len(set(keys)) == len(keys) and not found.truncated


@pytest.mark.parametrize("arguments,words", [
    (["--budget", "soon"], ["--budget", "soon", "600s"]),
    (["--budget", "-5s"], ["--budget", "-5s"]),
    (["--budget", "inf"], ["--budget"]),
    (["--grid", "huge"], ["--grid", "huge", "small or full"]),
    (["--dtype", "fp64"], ["--dtype", "fp64", "bf16 or fp32"]),
    (["--device", "tpu"], ["--device", "tpu", "cpu or cuda"]),
    (["--threads", "0"], ["--threads", "0"]),
    (["--model", "no-such-model"], ["no-such-model", "smollm2-360m"]),
    (["--model", "smollm2-360m", "--model", "smollm2-360m"], ["given twice"]),
    (["--model", "moe-small"], ["moe-small", "experts"]),
])
def test_bad_options_are_one_clear_line(arguments, words, tmp_path) -> None:
    out = tmp_path / "m.jsonl"
    result = CliRunner().invoke(app, ["measure", "--out", str(out), *arguments])
    assert isinstance(result.exception, UsageError)
    message = str(result.exception)
    assert "\n" not in message and all(word in message for word in words), message
    assert not out.exists()


@pytest.mark.parametrize("text,seconds", [
    ("90", 90.0), ("90s", 90.0), ("10m", 600.0), ("1.5h", 5400.0), ("0.5s", 0.5),
])
def test_durations(text, seconds) -> None:
    assert parse_duration(text, "--budget") == seconds


@pytest.mark.parametrize("text", ["", "s", "0", "nan", "1d", "1e9h", "ten minutes", "1 0s"])
def test_durations_that_are_none(text) -> None:
    with pytest.raises(UsageError, match="--budget"):
        parse_duration(text, "--budget")

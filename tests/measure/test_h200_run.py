"""validation/h200_run.sh: sound shell, and clear words on a machine without a GPU."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "validation" / "h200_run.sh"


def test_the_shell_parses_it() -> None:
    done = subprocess.run(["bash", "-n", str(SCRIPT)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_its_budget_is_under_eight_minutes() -> None:
    """Checks of at most 60 s, then the measuring run and 30 s of grace."""
    text = SCRIPT.read_text("utf-8")
    budget = int(text.split("budget=${2:-")[1].split("}")[0])
    assert "timeout 60 " in text and 60 + budget + 30 <= 480


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="would measure for minutes")
def test_without_a_gpu_it_stops_and_says_why(tmp_path) -> None:
    done = subprocess.run(
        ["bash", str(SCRIPT), str(tmp_path), "20"], capture_output=True, text=True, check=False,
        timeout=120, env=os.environ | {"PYTHON": sys.executable},
    )
    assert done.returncode == 2
    assert "torch sees no CUDA device" in (tmp_path / "measure.log").read_text()
    assert "exit code" in (tmp_path / "checks.log").read_text()
    assert not (tmp_path / "h200.jsonl").exists()

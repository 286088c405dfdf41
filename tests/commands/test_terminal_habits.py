"""Exit codes, NO_COLOR, --version, completion: what people and scripts expect of a command."""

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import specsim
from specsim.commands import main

ROOT = Path(__file__).resolve().parents[2]
ESCAPE = "\x1b["
COLOUR = re.compile(r"\x1b\[[0-9;]*(3[0-9]|9[0-7]|4[0-7])[0-9;]*m")
SPECSIM = (sys.executable, "-m", "specsim")


def environment(**more: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR")}
    return {**kept, "PYTHONPATH": str(ROOT), "SPECSIM_CONFIG": "", "TERM": "xterm-256color", **more}


def run(*words: str, folder: Path = ROOT, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*SPECSIM, *words], cwd=folder, env=environment(**more), capture_output=True, text=True,
        timeout=60, check=False,
    )


def on_a_terminal(*words: str, **more: str) -> str:
    """All that a command writes to a terminal, both streams."""
    master, slave = pty.openpty()
    with subprocess.Popen(
        [*SPECSIM, *words], cwd=ROOT, env=environment(**more), stdout=slave, stderr=slave,
        stdin=slave,
    ) as process:
        os.close(slave)
        parts = []
        end = time.monotonic() + 60
        while time.monotonic() < end:
            ready, _, _ = select.select([master], [], [], 1)
            if not ready:
                if process.poll() is not None:
                    break
                continue
            try:
                data = os.read(master, 65536)
            except OSError:  # the other end is closed
                break
            if not data:
                break
            parts.append(data)
        process.wait(timeout=10)
    os.close(master)
    assert process.returncode == 0
    return b"".join(parts).decode("utf-8", "replace")


def test_version() -> None:
    done = run("--version")
    assert (done.returncode, done.stdout) == (0, f"specsim {specsim.__version__}\n")


def test_done_is_0_and_an_exceeded_limit_1() -> None:
    assert run("gpus").returncode == 0
    table = "validation/data/published/published_measurements.csv"
    done = run("validate", "published", table, "--max-error", "0.0001")
    assert done.returncode == 1 and "median error above" in done.stderr


@pytest.mark.parametrize("words", [
    ("predict", "no-such-model"),
    ("predict", "qwen3.6-27b", "--tp", "0"),
    ("predict", "deepseek-v3", "--gpu", "l4"),
    ("predikt",),
    ("import", "/no/such/file"),
    ("report", "/no/such/file"),
    ("config", "predikt"),
])
def test_what_can_be_corrected_is_2_and_one_line(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["specsim", *words])
    with pytest.raises(SystemExit) as stop:
        main()
    told = capsys.readouterr()
    assert stop.value.code == 2 and told.out == ""
    assert told.err.count("\n") == 1 and told.err.startswith("specsim: ")


def test_so_it_is_in_a_process_of_its_own() -> None:
    done = run("predict", "qwen3.6-27b", "--concurency", "4")
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("specsim: ")


def test_an_interrupted_simulation_is_130_and_prints_what_it_has() -> None:
    with subprocess.Popen(
        [*SPECSIM, "simulate", "llama-3.1-8b", "--rate", "20", "--requests", "200000"], cwd=ROOT,
        env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:
        time.sleep(4)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted" in err and "Traceback" not in err
    assert out == "" or "PARTIAL" in out


PLOTTED = ("crossover", "smollm2-135m", "--method", "ngram", "--k", "3", "--acceptance-length",
           "2.5", "--max-concurrency", "8")


def test_no_color_is_respected_where_it_is_not_empty() -> None:
    assert COLOUR.search(on_a_terminal(*PLOTTED))
    assert ESCAPE not in on_a_terminal(*PLOTTED, NO_COLOR="1")
    assert COLOUR.search(on_a_terminal(*PLOTTED, NO_COLOR=""))
    assert ESCAPE not in run(*PLOTTED).stdout


def test_progress_bars_have_no_colour_with_no_color() -> None:
    words = ("simulate", "llama-3.1-8b", "--rate", "20", "--requests", "3000")
    assert COLOUR.search(on_a_terminal(*words))
    assert not COLOUR.search(on_a_terminal(*words, NO_COLOR="1"))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str) -> None:
    done = run(_SPECSIM_COMPLETE=f"source_{shell}")
    assert done.returncode == 0 and "_SPECSIM_COMPLETE" in done.stdout

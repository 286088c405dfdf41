"""Exit codes, NO_COLOR, --version, completion: what people and scripts expect of a command."""

import codecs
import io
import os
import pty
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import specsim
from specsim.commands import main

ROOT = Path(__file__).resolve().parents[2]
ESCAPE = "\x1b["
COLOUR = re.compile(r"\x1b\[[0-9;]*(3[0-9]|9[0-7]|4[0-7])[0-9;]*m")
SPECSIM = (sys.executable, "-m", "specsim")
LIMIT_S = 300  # waits end with what they wait for; this only stops a test that would never end


def environment(**more: str) -> dict[str, str]:
    kept = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "FORCE_COLOR")}
    return {**kept, "PYTHONPATH": str(ROOT), "SPECSIM_CONFIG": "", "TERM": "xterm-256color", **more}


def run(*words: str, folder: Path = ROOT, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*SPECSIM, *words], cwd=folder, env=environment(**more), capture_output=True, text=True,
        timeout=60, check=False,
    )


@contextmanager
def started_on_a_terminal(
    *words: str, **more: str
) -> Iterator[tuple[subprocess.Popen[bytes], Iterator[str]]]:
    """A command on a terminal, and what it writes there until its end."""
    master, slave = pty.openpty()
    with subprocess.Popen(
        [*SPECSIM, *words], cwd=ROOT, env=environment(COLUMNS="200", **more),
        stdout=slave, stderr=slave, stdin=slave,
    ) as process:
        os.close(slave)
        try:
            yield process, written(master)
        finally:
            process.kill()
            os.close(master)


def written(terminal: int) -> Iterator[str]:
    """All that is written to a terminal, piece by piece, until nobody has it open."""
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    while select.select([terminal], [], [], LIMIT_S)[0]:
        try:
            data = os.read(terminal, 65536)
        except OSError:  # the other end is closed
            return
        if not data:
            return
        yield decode(data)
    raise AssertionError(f"nothing was written for {LIMIT_S} s")


def on_a_terminal(*words: str, **more: str) -> str:
    """All that a command writes to a terminal, both streams."""
    with started_on_a_terminal(*words, **more) as (process, pieces):
        text = "".join(pieces)
        assert process.wait(timeout=LIMIT_S) == 0
    return text


def test_version() -> None:
    done = run("--version")
    assert (done.returncode, done.stdout) == (0, f"specsim {specsim.__version__}\n")


def in_this_process(*words: str) -> int:
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as stop:
        patch.setattr(sys, "argv", ["specsim", *words])
        main()
    return int(stop.value.code or 0)


def test_done_is_0_and_an_exceeded_limit_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("gpus").returncode == 0
    whole = (ROOT / "validation/data/published/published_measurements.csv").read_text()
    table = tmp_path / "few.csv"
    table.write_text("\n".join(whole.splitlines()[:4]) + "\n")
    assert in_this_process("validate", "published", str(table), "--max-error", "0.0001") == 1
    assert "median error above" in capsys.readouterr().err
    # Nothing judged is no error of 0.
    table.write_text(whole.splitlines()[0] + "\n" + "X" + "," * 32 + "X,A,\n")
    assert in_this_process("validate", "published", str(table), "--max-error", "0.5") == 1
    assert "no value was judged" in capsys.readouterr().err


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
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    code, told = in_this_process(*words), capsys.readouterr()
    assert code == 2 and told.out == ""
    assert told.err.count("\n") == 1 and told.err.startswith("specsim: ")


def test_so_it_is_in_a_process_of_its_own() -> None:
    done = run("predict", "qwen3.6-27b", "--concurency", "4")
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.count("\n") == 1 and done.stderr.startswith("specsim: ")


def test_an_interrupted_simulation_is_130_and_prints_what_it_has() -> None:
    """SIGINT once the bar on the terminal counts a request that has ended."""
    words = ("simulate", "llama-3.1-8b", "--rate", "20", "--requests", "100000")
    with started_on_a_terminal(*words) as (process, pieces):
        shown = ""
        for piece in pieces:
            shown += piece
            if re.search(r"\b[1-9]\d* requests", shown):
                break
        process.send_signal(signal.SIGINT)
        shown += "".join(pieces)
        assert process.wait(timeout=LIMIT_S) == 130
    assert "interrupted" in shown and "Traceback" not in shown and "PARTIAL" in shown


PLOTTED = ("crossover", "smollm2-135m", "--method", "ngram", "--k", "3", "--acceptance-length",
           "2.5", "--max-concurrency", "8")


class Screen(io.StringIO):
    """Takes what a command writes in this process as a terminal would."""

    def isatty(self) -> bool:
        return True


def written_to(stream: io.StringIO, *words: str, **more: str) -> str:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("NO_COLOR", "FORCE_COLOR"):
            patch.delenv(name, raising=False)
        for name, value in {"TERM": "xterm-256color", "COLUMNS": "200", **more}.items():
            patch.setenv(name, value)
        patch.setattr(sys, "stdout", stream)
        patch.setattr(sys, "stderr", stream)
        assert in_this_process(*words) == 0
    return stream.getvalue()


def test_no_color_is_respected_where_it_is_not_empty() -> None:
    assert COLOUR.search(on_a_terminal(*PLOTTED, NO_COLOR=""))
    assert COLOUR.search(written_to(Screen(), *PLOTTED))
    assert COLOUR.search(written_to(Screen(), *PLOTTED, NO_COLOR=""))
    assert ESCAPE not in written_to(Screen(), *PLOTTED, NO_COLOR="1")
    assert ESCAPE not in written_to(io.StringIO(), *PLOTTED)


@pytest.mark.slow
def test_progress_bars_have_no_colour_with_no_color() -> None:
    words = ("simulate", "llama-3.1-8b", "--rate", "20", "--requests", "60")
    assert COLOUR.search(on_a_terminal(*words))
    assert not COLOUR.search(on_a_terminal(*words, NO_COLOR="1"))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str) -> None:
    done = run(_SPECSIM_COMPLETE=f"source_{shell}")
    assert done.returncode == 0 and "_SPECSIM_COMPLETE" in done.stdout

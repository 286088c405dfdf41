"""`kill -9` of whole commands: what was there stays whole, and a second run does not notice.

The moment is an event and no time: the kernel ends a process in the middle of a write (a limit on
the size of files), or the process kills itself as a finished file is to take its place. `sweep`
goes on from its journal: tests/planning/test_sweep.py.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIMIT_S = 300  # stops a test that would never end

# Runs `specsim WORDS` and ends it in the middle of a write of over 1 kB, or before the file of
# that name takes its place.
KILLED = """
import os, resource, signal, sys
moment = sys.argv.pop(1)
from specsim.commands import main
def watch(event, args):
    if event == "os.rename" and str(args[1]).endswith(moment):
        os.kill(os.getpid(), signal.SIGKILL)
if moment == "half":
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores it
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
else:
    sys.addaudithook(watch)
main()
"""


def command(*words: str, folder: Path, killed: str = "") -> subprocess.CompletedProcess[str]:
    start = ["-c", KILLED, killed] if killed else ["-m", "specsim"]
    return subprocess.run(
        [sys.executable, "-B", *start, *words], cwd=folder, capture_output=True, text=True,
        timeout=LIMIT_S, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), "SPECSIM_CONFIG": ""},
    )


@pytest.fixture
def records() -> str:
    """What `specsim measure` would write of a small model on a made-up machine."""
    sys.path.insert(0, str(ROOT / "tests" / "calibrate"))
    import calibrate_samples as made

    small, run = {"small": made.SHAPES["small"]}, made.header(names=("small",))
    steps = [*made.kernel_shapes(small, (1, 8, 64)), *made.step_shapes(small)]
    data = made.measured(made.machine(), steps, run, 0.01, 1, made.decoder(step_s=1e-3))
    return "".join(
        json.dumps(line) + "\n" for line in (run.to_dict(), *(r.to_dict() for r in data.records))
    )


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def check_kills(place: Path, words: tuple[str, ...], inputs: dict[str, str], last: str) -> None:
    """Of a command that writes files beside its inputs, the file `last` as the last one."""
    clean, folder = place / "clean", place / "killed"
    for there in (clean, folder):
        there.mkdir()
        for name, text in inputs.items():
            (there / name).write_text(text, encoding="utf-8")
    done = command(*words, folder=clean)
    assert done.returncode == 0, done.stderr
    new = contents(clean)
    written = new.keys() - inputs.keys()
    assert last in written
    for name in written:
        (folder / name).write_bytes(b"old")
    old = contents(folder)
    for moment, expected in (("half", signal.SIGXFSZ), (last, signal.SIGKILL)):
        assert command(*words, folder=folder, killed=moment).returncode == -expected
        found = contents(folder)
        assert any(name.endswith(".part") for name in found)
        for name in old:  # each is whole: the old one, or the new one where its turn had come
            assert found[name] in (old[name], new[name]), (moment, name)
        assert found[last] == old[last]
    assert command(*words, folder=folder).returncode == 0
    assert contents(folder) == new


@pytest.mark.slow
def test_report(tmp_path: Path) -> None:
    result = command("predict", "qwen3-8b", "--json", folder=tmp_path)
    check_kills(
        tmp_path, ("report", "a.json", "-o", "page.html"), {"a.json": result.stdout}, "page.html"
    )


@pytest.mark.slow
def test_calibrate(tmp_path: Path, records: str) -> None:
    words = ("calibrate", "records.jsonl", "-o", "mine.toml", "--report", "report.json")
    check_kills(tmp_path, words, {"records.jsonl": records}, "report.json")


@pytest.mark.slow
def test_capacity_and_its_workers(tmp_path: Path) -> None:
    """It writes no file; its workers end with it, and a second run says what a first one says."""
    words = ("capacity", "llama-3.1-8b", "--method", "none", "--ladder", "1,2", "--duration", "5",
             "--no-baseline", "--slo", "ttft_p95=1", "--jobs", "2", "--json")
    first = subprocess.Popen(
        [sys.executable, "-B", "-m", "specsim", *words], cwd=tmp_path, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    workers: list[int] = []
    end = time.monotonic() + LIMIT_S
    while len(workers) < 2:
        assert time.monotonic() < end and first.poll() is None, "no workers were started"
        children = Path(f"/proc/{first.pid}/task/{first.pid}/children")
        workers = [int(pid) for pid in children.read_text().split()]
        time.sleep(0.01)
    first.kill()
    assert first.communicate() == (b"", None) and first.returncode == -signal.SIGKILL
    while any(alive(pid) for pid in workers):
        assert time.monotonic() < end, "workers outlive the command"
        time.sleep(0.05)
    assert not list(tmp_path.iterdir())
    runs = [command(*words, folder=tmp_path) for _ in range(2)]
    assert [run.returncode for run in runs] == [0, 0] and not list(tmp_path.iterdir())
    assert runs[0].stdout == runs[1].stdout

"""Executors: the same results everywhere, workers that die, tasks that fail, bad addresses."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from specsim.errors import ServerError, SpecSimError, UsageError
from specsim.planning.executors import open_executor
from specsim.planning.executors.base import ATTEMPTS, Done, Job
from specsim.planning.executors.peers import build_id, check_builds

ROOT = Path(__file__).resolve().parents[2]


def square(payload: dict[str, Any]) -> dict[str, Any]:
    """What workers run here; they find it by importing this file's module."""
    if payload.get("raise"):
        raise ValueError("not a\nnumber")
    marker = payload.get("die_once")
    if marker is not None and not Path(marker).exists():
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    if payload.get("die"):
        os.kill(os.getpid(), signal.SIGKILL)
    return {"square": payload["x"] ** 2, "pid": os.getpid()}


@pytest.fixture
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spawned workers get this process's sys.path, which holds this folder under pytest."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


def jobs(count: int, **more: Any) -> Iterator[Job]:
    for i in range(count):
        yield Job(f"t{i}", {"x": i, **more})


def collect(done: Iterator[Done]) -> dict[str, Done]:
    found = {}
    for one in done:
        assert one.key not in found, "a task was reported twice"
        assert (one.result is None) != (one.error is None)
        found[one.key] = one
    return found


@pytest.mark.usefixtures("importable")
def test_every_task_comes_back_once_from_several_processes() -> None:
    with open_executor("local", 2) as pool:
        assert pool.workers == 2
        found = collect(pool.run(square, jobs(40)))
    assert {key: one.result["square"] for key, one in found.items() if one.result} == {
        f"t{i}": i * i for i in range(40)
    }
    pids = {one.result["pid"] for one in found.values() if one.result}
    assert os.getpid() not in pids and len(pids) <= 2


@pytest.mark.usefixtures("importable")
def test_few_tasks_are_drawn_before_they_are_needed() -> None:
    drawn = 0

    def counted() -> Iterator[Job]:
        nonlocal drawn
        for job in jobs(1000):
            drawn += 1
            yield job

    with open_executor("local", 1) as pool:
        next(iter(pool.run(square, counted())))
    assert drawn <= 10


@pytest.mark.usefixtures("importable")
def test_an_error_of_one_task_is_its_own() -> None:
    tasks = [Job("bad", {"x": 1, "raise": True}), *jobs(5)]
    with open_executor("local", 2) as pool:
        found = collect(pool.run(square, iter(tasks)))
    assert found["bad"].error == "ValueError: not a number"
    assert all(found[f"t{i}"].result for i in range(5))


@pytest.mark.usefixtures("importable")
def test_a_killed_worker_is_survived(tmp_path: Path) -> None:
    tasks = [*jobs(4), Job("hit", {"x": 9, "die_once": str(tmp_path / "died")})]
    with open_executor("local", 2) as pool:
        found = collect(pool.run(square, iter(tasks)))
    assert (tmp_path / "died").exists()
    assert all(one.error is None for one in found.values()) and len(found) == 5


@pytest.mark.slow
@pytest.mark.usefixtures("importable")
def test_a_task_that_always_kills_its_worker_is_given_up_and_nobody_else() -> None:
    tasks = [*jobs(3), Job("poison", {"x": 1, "die": True}), *jobs_from(3, 6)]
    with open_executor("local", 2) as pool:
        found = collect(pool.run(square, iter(tasks)))
    assert f"died {ATTEMPTS} times" in (found["poison"].error or "")
    assert sorted(key for key, one in found.items() if one.error) == ["poison"]
    assert len(found) == 7


def jobs_from(start: int, end: int) -> list[Job]:
    return [Job(f"t{i}", {"x": i}) for i in range(start, end)]


@pytest.mark.slow
@pytest.mark.parametrize("guard", [True, False])
def test_a_script_without_a_guard_is_told_to_write_one(guard: bool, tmp_path: Path) -> None:
    """Spawned workers import the script that started them first."""
    script = tmp_path / "study.py"
    guarded = '__name__ == "__main__"' if guard else "True"
    script.write_text(textwrap.dedent(f"""
        import specsim

        if {guarded}:
            try:
                found = specsim.sweep(
                    run="predict", set_=["model=llama-3.1-8b", "method=none"], workers=2,
                    grid=["concurrency=" + ",".join(map(str, range(1, 31)))], journal="kept.jsonl",
                )
                print(found.finished)
            except specsim.errors.UsageError as error:
                print(error)
    """))
    done = subprocess.run(
        [sys.executable, str(script)], env={**os.environ, "PYTHONPATH": str(ROOT)}, cwd=tmp_path,
        capture_output=True, text=True, timeout=120, check=True,
    )
    assert done.stderr == ""
    if guard:
        assert done.stdout == "30\n"
    else:
        assert done.stdout.count("\n") == 1
        assert done.stdout.startswith("no worker process could begin")
        assert 'under `if __name__ == "__main__":`' in done.stdout


def test_workers_end_with_a_parent_that_was_killed(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(textwrap.dedent("""
        import os, sys, time
        from specsim.planning.executors.base import Job
        from specsim.planning.executors import open_executor

        def slow(payload):
            with open(payload["note"], "a") as file:
                file.write(f"{os.getpid()}\\n")
            time.sleep(60)
            return {}

        if __name__ == "__main__":
            pool = open_executor("local", 2)
            list(pool.run(slow, iter([Job(str(i), {"note": sys.argv[1]}) for i in range(2)])))
    """))
    note = tmp_path / "pids"
    parent = subprocess.Popen(
        [sys.executable, str(script), str(note)], env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    try:
        wait_for(lambda: note.exists() and len(note.read_text().split()) == 2)
        parent.kill()
        parent.wait()
        pids = [int(word) for word in note.read_text().split()]
        wait_for(lambda: not any(alive(pid) for pid in pids))
    finally:
        parent.kill()


def wait_for(condition: Any, limit_s: float = 30) -> None:
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.parametrize(
    ("text", "workers", "message"),
    [
        ("locl", None, "did you mean 'local"),
        ("dsk://h:1", None, "did you mean 'dask"),
        ("", None, "use local, dask://"),
        ("http://h:1", None, "use local, dask://"),
        ("dask://", None, "HOST:PORT"),
        ("dask://host", None, "such as dask://scheduler:8786"),
        ("ray://host:99999", None, "HOST:PORT"),
        ("ray://a b:1", None, "HOST:PORT"),
        ("dask://host:8786", 4, "has its own"),
        ("local", 0, "from 1 to 256"),
        ("local", 257, "from 1 to 256"),
    ],
)
def test_bad_executors_are_refused(text: str, workers: int | None, message: str) -> None:
    with pytest.raises(UsageError, match=r"executor|workers") as error:
        open_executor(text, workers)
    assert message in str(error.value)


def test_other_versions_are_refused() -> None:
    check_builds([build_id()], "here")
    with pytest.raises(UsageError, match=r"9\.9, this machine has"):
        check_builds([build_id(), "9.9"], "here")


@pytest.mark.parametrize(("text", "package"), [("dask://h:1", "dask"), ("ray://h:1", "ray")])
def test_missing_packages_say_what_to_install(
    text: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, {"dask": "distributed", "ray": "ray"}[package], None)
    with pytest.raises(UsageError, match=rf"pip install 'specsim-llm\[{package}\]'"):
        open_executor(text)


SCRIPT = """
import sys
sys.path.insert(0, sys.argv[3])
from pathlib import Path
from specsim.planning.executors.base import Job
from specsim.planning.executors import open_executor
import test_executors as here

if __name__ == "__main__":
    marker = Path(sys.argv[2])
    tasks = [Job(f"t{i}", {"x": i}) for i in range(6)]
    tasks.append(Job("hit", {"x": 3, "die_once": str(marker)}))
    tasks.append(Job("bad", {"x": 3, "raise": True}))
    tasks.append(Job("poison", {"x": 3, "die": True}))
    with open_executor(sys.argv[1], 2) as pool:
        found = {one.key: one for one in pool.run(here.square, iter(tasks))}
    assert marker.exists()
    assert [found[f"t{i}"].result["square"] for i in range(6)] == [i * i for i in range(6)]
    assert found["hit"].result["square"] == 9, found["hit"]
    assert found["bad"].error == "ValueError: not a number", found["bad"]
    assert "died" in found["poison"].error, found["poison"]
    print("fine")
"""


@pytest.mark.slow
@pytest.mark.parametrize(("text", "package"), [("dask://local", "distributed"),
                                               ("ray://local", "ray")])
def test_clusters_keep_the_same_contract(text: str, package: str, tmp_path: Path) -> None:
    pytest.importorskip(package)
    script = tmp_path / "cluster.py"
    script.write_text(SCRIPT)
    here = str(Path(__file__).parent)
    done = subprocess.run(
        [sys.executable, str(script), text, str(tmp_path / "died"), here],
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{here}"},
        capture_output=True, text=True, timeout=900, check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip() == "fine"


@pytest.mark.slow
def test_a_private_cluster_without_workers_gets_new_ones(
    monkeypatch: pytest.MonkeyPatch, importable: None
) -> None:
    """Its nannies do not start a worker again that died while it started."""
    pytest.importorskip("distributed")
    from specsim.planning.executors import dask

    monkeypatch.setattr(dask, "EMPTY_S", 0.5)
    with open_executor("dask://local", 1) as pool:
        assert isinstance(pool, dask.DaskExecutor) and pool._cluster is not None
        pool._cluster.scale(0)
        limit_s = time.monotonic() + 60
        while pool._cluster.scheduler.workers and time.monotonic() < limit_s:
            time.sleep(0.05)
        assert not pool._cluster.scheduler.workers
        done = list(pool.run(square, iter([Job("a", {"x": 4})])))
    assert [(one.result or {})["square"] for one in done] == [16]


@pytest.mark.slow
def test_a_scheduler_that_does_not_answer_is_named() -> None:
    pytest.importorskip("distributed")
    with pytest.raises(ServerError, match=r"127\.0\.0\.1:9"):
        open_executor("dask://127.0.0.1:9")
    assert issubclass(ServerError, SpecSimError)

"""A sweep of short simulations on every executor: the same bytes, killed workers, resumption.

    python benchmarks/sweep.py [--tasks 2000] [--executors local,dask://local,ray://local] [--json]

For each executor a fresh `specsim sweep` runs in a process of its own with two workers. When a
quarter of its tasks is finished, one of its workers is killed (SIGKILL); the sweep must finish all
the same. With the first executor the sweep itself is killed too, when three fifths are finished,
and run again. The files that come out must be equal byte for byte. Times are wall seconds of this
machine, start of the workers included; compare with figures of the same machine only.
"""

import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
GRID = {"k": (1, 2, 3, 4, 5), "concurrency": (1, 2, 4, 8)}
FIXED = {
    "model": "llama-3.1-8b", "method": "eagle3", "acceptance_rate": "0.7", "input_len": "100",
    "output_len": "32", "requests": "12", "baseline": "false",
}
POLL_S = 0.05


def words(executor: str, tasks: int, journal: Path, out: Path) -> list[str]:
    command = [sys.executable, "-m", "specsim", "sweep", "--executor", executor, "--workers", "2"]
    for name, value in FIXED.items():
        command += ["--set", f"{name}={value}"]
    combinations = 1
    for name, values in GRID.items():
        command += ["--grid", f"{name}={','.join(map(str, values))}"]
        combinations *= len(values)
    repeats = max(1, tasks // combinations)
    return [*command, "--repeats", str(repeats), "--journal", str(journal), "--out", str(out),
            "--json"]


def finished(journal: Path) -> int:
    return max(0, journal.read_bytes().count(b"\n") - 1) if journal.exists() else 0


def workers_of(parent: int) -> list[int]:
    """Processes below `parent` that run tasks, busiest first."""
    children: dict[int, list[int]] = {}
    spent: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        pid = int(stat.parent.name)
        children.setdefault(int(fields[1]), []).append(pid)
        spent[pid] = int(fields[11]) + int(fields[12])
    found, todo = [], [parent]
    while todo:
        below = children.get(todo.pop(), [])
        todo += below
        found += below
    marks = (b"spawn_main", b"ray::")
    busy = []
    for pid in found:
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if any(mark in line for mark in marks):
            busy.append(pid)
    return sorted(busy, key=lambda pid: -spent.get(pid, 0))


def run(executor: str, tasks: int, folder: Path, kill_sweep: bool) -> dict[str, Any]:
    """One executor: run, kill a worker, kill the sweep if asked for, finish."""
    name = executor.replace("://", "-")
    journal, out = folder / f"{name}.journal.jsonl", folder / f"{name}.jsonl"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = words(executor, tasks, journal, out)
    start = time.monotonic()
    killed_workers, killed_at, runs = 0, 0, 1
    sweep = subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    while sweep.poll() is None and finished(journal) < 0.85 * tasks:
        done = finished(journal)
        if not killed_workers and done >= tasks / 4:
            victims = workers_of(sweep.pid)
            if victims:
                os.kill(victims[0], signal.SIGKILL)
                killed_workers = 1
        if kill_sweep and done >= 0.6 * tasks:
            sweep.kill()
            sweep.wait()
            killed_at, runs = finished(journal), 2
            break
        time.sleep(POLL_S)
    if kill_sweep:
        sweep = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
    output, errors = sweep.communicate()
    if sweep.returncode:
        raise SystemExit(f"{executor}: exit code {sweep.returncode}\n{errors.decode()[-3000:]}")
    result = json.loads(output)
    return {
        "executor": executor,
        "wall_s": round(time.monotonic() - start, 1),
        "runs": runs,
        "tasks": result["tasks"],
        "finished": result["finished"],
        "failed": result["failed"],
        "workers_killed": killed_workers,
        "sweep_killed_at": killed_at,
        "resumed": result["resumed"],
        "bytes": out.stat().st_size,
        "sha256": hashlib.sha256(out.read_bytes()).hexdigest(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--tasks", type=int, default=2000)
    parser.add_argument("--executors", default="local,dask://local,ray://local")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for i, executor in enumerate(given.executors.split(",")):
            rows.append(run(executor, given.tasks, Path(folder), kill_sweep=i == 0))
            if not given.json:
                print(" ".join(f"{key}={value}" for key, value in rows[-1].items()), flush=True)
    same = len({row["sha256"] for row in rows}) == 1
    if given.json:
        print(json.dumps({"rows": rows, "identical": same}, indent=2))
    else:
        print("identical bytes" if same else "THE FILES DIFFER")
    if not same:
        raise SystemExit(1)


if __name__ == "__main__":
    main()

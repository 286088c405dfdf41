"""What a task of a sweep costs besides its own work, on every executor.

    python benchmarks/sweep_overhead.py [--tasks 20000] [--executors local,dask://local] [--json]

The tasks sleep (4 ms each, what a prediction takes) and return the figures of a prediction, so that
nothing is measured but the way there and back: batches, the executor, the journal, Parquet pages.
overhead_ms is workers x wall - time in tasks, per task, from the first batch handed out to the last
line of the journal, once the workers have started; on a machine that other work keeps busy it holds
the wait for a core. cpu_ms is the CPU time of this process and its workers per task, their start
included, which is free of that; rows_s is the writing of the file of all rows, peak_mb the largest
resident set of this process. Compare with figures of the same machine only.
"""

import argparse
import json
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

from specsim.api.sweep_task import run_tasks
from specsim.planning.executors import open_executor
from specsim.planning.sweep import Sweep
from specsim.planning.sweep_journal import Journal
from specsim.planning.sweep_run import run_sweep
from specsim.report.sweep_pages import Pages
from specsim.report.sweeps import write_rows

OPTIONS = {"model": "llama-3.1-8b", "method": "eagle3", "acceptance_rate": 0.7, "k": 3}
TASK_S = 0.004
WARM = Sweep("predict", {"figures": {}}, {"seed": list(range(64))})  # starts the workers


def asleep(run: str, tasks: list[dict[str, Any]]) -> list[dict[str, object]]:
    """What workers run."""
    time.sleep(TASK_S * len(tasks))
    return [{"result": task["options"]["figures"]} for task in tasks]


def ended_cpu_s() -> float:
    """CPU seconds of the workers that have ended."""
    found = resource.getrusage(resource.RUSAGE_CHILDREN)
    return found.ru_utime + found.ru_stime


def measured(executor: str, tasks: int, folder: Path) -> dict[str, Any]:
    load = {"options": {**OPTIONS, "concurrency": 8}, "seed": None}
    figures = run_tasks("predict", [load])[0]["result"]
    before_s, workers_s = time.process_time(), ended_cpu_s()
    sweep = Sweep("predict", {**OPTIONS, "figures": figures},
                  {"seed": list(range(tasks // 16)), "concurrency": list(range(16))})
    name = executor.replace("://", "-")
    out = folder / f"{name}.parquet"
    path = folder / f"{name}.jsonl"
    with Journal.open(path, sweep) as journal, open_executor(executor, 2) as pool:
        with Journal.open(None, WARM) as other:
            run_sweep(WARM, asleep, other, pool)
        pages = Pages(sweep, journal, out)
        run = run_sweep(sweep, asleep, journal, pool, kept=pages.more)
        cpu_s = time.process_time() - before_s
        begin_s = time.perf_counter()
        write_rows(run, str(out))
        pages.end()
        rows_s = time.perf_counter() - begin_s
    overhead_s = run.workers * run.elapsed_s - run.busy_s
    begin_s = time.perf_counter()
    with Journal.open(path, sweep) as journal:
        assert len(journal.offsets) == sweep.count
    return {
        "executor": executor, "tasks": sweep.count, "wall_s": round(run.elapsed_s, 1),
        "overhead_ms": round(1e3 * overhead_s / sweep.count, 3),
        "cpu_ms": round(1e3 * (cpu_s + ended_cpu_s() - workers_s) / sweep.count, 3),
        "rows_s": round(rows_s, 1),
        "journal_read_s": round(time.perf_counter() - begin_s, 1),
        "journal_mb": round(path.stat().st_size / 1e6, 1),
        "parquet_mb": round(out.stat().st_size / 1e6, 1),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tasks", type=int, default=20_000)
    parser.add_argument("--executors", default="local,dask://local")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = [measured(name, given.tasks, Path(folder)) for name in given.executors.split(",")]
    if given.json:
        print(json.dumps({"rows": rows}, indent=2))
        return
    for row in rows:
        print(" ".join(f"{key}={value}" for key, value in row.items()))


if __name__ == "__main__":
    main()

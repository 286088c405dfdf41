"""A sweep on a Slurm cluster: dask-jobqueue submits the jobs whose processes do the work.

    pip install 'specsim-llm[dask,parquet]' dask-jobqueue
    python dask_slurm.py study.toml study.parquet --partition cpu --jobs 10

Run it where `sbatch` works. What is finished is kept: run it again to go on.
"""

import argparse
from pathlib import Path

import specsim


def main() -> None:
    parser = argparse.ArgumentParser(description="A sweep on a Slurm cluster")
    parser.add_argument("study", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--partition", required=True)
    parser.add_argument("--jobs", type=int, default=10)
    given = parser.parse_args()

    from dask_jobqueue import SLURMCluster
    from distributed import Client

    with SLURMCluster(
        queue=given.partition, cores=16, processes=16, memory="32 GB", walltime="02:00:00",
        job_script_prologue=["export OMP_NUM_THREADS=1"],
    ) as cluster:
        cluster.scale(jobs=given.jobs)
        with Client(cluster) as client:
            client.wait_for_workers(16)  # more join as their jobs start, and get tasks
        address = cluster.scheduler_address.removeprefix("tcp://")
        found = specsim.sweep(
            given.study, executor=f"dask://{address}", out=given.out, rows=False
        )
    print(f"{found.finished} of {found.tasks} tasks; workers busy for {found.busy_s:.0f} s")


if __name__ == "__main__":
    main()

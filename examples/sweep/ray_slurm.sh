#!/bin/bash
# A sweep on a Slurm cluster with Ray: `ray symmetric-run` (Ray 2.49 and later) starts Ray on every
# node of the job, runs the command behind -- on the first one and stops Ray again.
#
#   sbatch ray_slurm.sh study.toml study.parquet
#
# Each node needs `pip install 'specsim-llm[ray,parquet]'`. What is finished is kept: submit it again
# to go on.
#SBATCH --job-name=specsim-sweep
#SBATCH --nodes=8
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --time=02:00:00
set -euo pipefail

head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
export OMP_NUM_THREADS=1
srun --nodes="$SLURM_JOB_NUM_NODES" --ntasks="$SLURM_JOB_NUM_NODES" \
    ray symmetric-run --address "$head:6379" --min-nodes "$SLURM_JOB_NUM_NODES" \
    --num-cpus "$SLURM_CPUS_PER_TASK" --ray-client-server-port 10001 -- \
    specsim sweep "$1" --out "$2" --executor ray://127.0.0.1:10001

#!/bin/bash
# A grid on a Slurm cluster:  sbatch --nodes=4 benchmarks/slurm.sh benchmarks/grids/gym_3m.toml
# Submitted again, or requeued by Slurm, it goes on where it was stopped.
#SBATCH --job-name=minerva
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --time=12:00:00
#SBATCH --exclusive
#SBATCH --requeue
#SBATCH --signal=TERM@120
set -euo pipefail

head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
address="$head:$((20000 + SLURM_JOB_ID % 20000))"

# Whoever reaches a Ray can run code with it: this job's own secret, readable by its owner alone, keeps others out.
# It lies in the folder that the job was submitted from, which all of its nodes see.
umask 077
export RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH="$PWD/.ray_token_$SLURM_JOB_ID"
python3 -c "import secrets; print(secrets.token_hex(32), end='')" > "$RAY_AUTH_TOKEN_PATH"
trap 'rm -f "$RAY_AUTH_TOKEN_PATH"' EXIT
umask 022

# Ray's own way to start on every node of a job, run one command on the first, and stop again. It refuses a node that has
# a Ray, and in the end stops every Ray of yours on its nodes: hence --exclusive above.
srun --nodes="$SLURM_JOB_NUM_NODES" --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 \
    ray symmetric-run --address "$address" --min-nodes "$SLURM_JOB_NUM_NODES" --num-cpus "$SLURM_CPUS_PER_TASK" -- \
    minerva benchmark "$@" --executor ray --address "$address"

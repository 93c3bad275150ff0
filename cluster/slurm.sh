#!/usr/bin/env bash
# One run on the nodes of a Slurm allocation: sbatch cluster/slurm.sh jobs/flickr30k.yaml [key=value ...]
# Change the lines below for your cluster. The folder of this checkout, its .venv, the data and the run directory
# (`output`) have to lie on storage that all nodes see. Submitted again, the run goes on where it stopped.
#SBATCH --job-name=repair_ray
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --gpus-per-node=8
#SBATCH --time=24:00:00
#SBATCH --requeue
# Ray's nodes get this long to end after a pre-emption.
#SBATCH --signal=B:TERM@120

set -euo pipefail

if [ $# -lt 1 ]; then
  echo "usage: sbatch cluster/slurm.sh CONFIG [key=value ...]" >&2
  exit 2
fi
# Slurm runs a copy of this file, so that its own path says nothing.
cd "${SLURM_SUBMIT_DIR:?start this with sbatch, from the root of the checkout}"
# shellcheck source=/dev/null
source .venv/bin/activate

# Each filter reads to the end: one that stops early would end the command before it, and with it this script.
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | awk 'NR == 1')
# An address by number: Ray compares it with those of each node to tell which one is the head.
head_ip=$(srun --nodes=1 --ntasks=1 --nodelist="$first" hostname --ip-address | tr ' ' '\n' |
  awk 'NF && !/^127\./ && !/:/ && !found { print; found = 1 }')
# A port of this job's own, as a node may hold several jobs' heads one after another.
address="$head_ip:$((20000 + SLURM_JOB_ID % 20000))"

# Whoever reaches a port of Ray could run code otherwise. One token for all nodes, in no process list.
umask 077
export RAY_AUTH_MODE=token
export RAY_AUTH_TOKEN_PATH="$SLURM_SUBMIT_DIR/.ray-token-$SLURM_JOB_ID"
python -c 'import secrets; print(secrets.token_hex(32), end="")' > "$RAY_AUTH_TOKEN_PATH"
trap 'rm -f "$RAY_AUTH_TOKEN_PATH"' EXIT

# The nodes of a large allocation do not come within Ray's 30 s.
export RAY_SYMMETRIC_RUN_CLUSTER_WAIT_TIMEOUT=600
export RAY_USAGE_STATS_ENABLED=0

# Every node starts Ray; the run itself starts on the first, once all are there. Its exit code is this job's.
srun --nodes="$SLURM_JOB_NUM_NODES" --ntasks="$SLURM_JOB_NUM_NODES" --kill-on-bad-exit=1 \
  ray symmetric-run \
  --address "$address" \
  --min-nodes "$SLURM_JOB_NUM_NODES" \
  --num-cpus "${SLURM_CPUS_ON_NODE:?}" \
  --num-gpus "${SLURM_GPUS_ON_NODE:-0}" \
  -- env "RAY_ADDRESS=$address" python -m repair_ray run "$@" &
# In the background, as bash handles a signal only between two commands; a wait that a signal ends is taken up again.
running=$!
trap 'kill -TERM "$running" 2> /dev/null || true' TERM
code=0
while kill -0 "$running" 2> /dev/null; do
  code=0
  wait "$running" || code=$?
done
exit "$code"

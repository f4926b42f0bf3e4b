#!/bin/bash
#SBATCH --job-name=demo
#SBATCH --comment=hostcore:demo.1f
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node=a100:8
#SBATCH --cpus-per-task=96
#SBATCH --mem=61036M
#SBATCH --account=physics
#SBATCH --partition=gpu
#SBATCH --qos=high
#SBATCH --constraint=a100|h100
#SBATCH --time=1-12:00:00
#SBATCH --signal=B:USR1@300
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --exclusive
#SBATCH --mail-type=FAIL

# A run of hostcore. What is quoted here arrives as it is.
run_dir='/shared/my runs/demo'
launch=demo.1f
requeue=yes
ranks=8
restarts=2
command=(
  /opt/python
  -P
  -m
  hostcore
  resume
  '/shared/my runs/demo'
  --launched
)

notes=$run_dir/config/slurm.$SLURM_JOB_ID
log=$run_dir/logs/slurm-$SLURM_JOB_ID.out
if [ ! -d "$run_dir/config" ]; then
  echo "hostcore: $SLURMD_NODENAME does not see the run directory $run_dir" >&2
  exit 72
fi

# One launch is one job. If it was submitted twice, because the first answer was lost, the later one ends here.
# A job that was requeued finds its own number.
if [ -n "$launch" ]; then
  (set -C; echo "$SLURM_JOB_ID" >"$run_dir/config/slurm.$launch") 2>/dev/null
  owner=$(cat "$run_dir/config/slurm.$launch")
  if [ "$owner" != "$SLURM_JOB_ID" ]; then
    echo "hostcore: this launch was taken before: $owner" >&2
    exit 0
  fi
fi
rm -f "$notes.end" "$notes.pid" "$notes.asked"
: >"$notes.start"

# How it ended, for those who ask when Slurm has forgotten it.
note_end() {
  local code=$?
  [ -n "$requeued" ] || echo "$code" >"$notes.end"
  exit "$code"
}
requeued=
trap note_end EXIT

# USR1: the time limit is near. INT: cancelled. TERM: Slurm preempts, requeues or cancels it, and knows what is next.
# The run hears it, writes a checkpoint and ends; one rank tells the others. Before there is one, nothing has begun.
step='' heard='' asked=''
ask() {
  heard=$1
  [ "$asked" = INT ] || asked=$1
  echo "$asked" >"$notes.asked"
  if [ -s "$notes.pid" ]; then
    kill -s "$1" "$(cat "$notes.pid")" 2>/dev/null
  elif [ -n "$step" ]; then
    kill -s TERM "$step" 2>/dev/null
  fi
}
trap 'ask USR1' USR1
trap 'ask INT' INT
trap 'ask TERM' TERM

# What the job's launcher setting `before` says.
set -e
module load cuda
set +e

# On each node: becomes an agent of torchrun's. They meet on the first one, at a port of this job's.
task() {
  local notes=$1 log=$2 runs=$3 ranks=$4 restarts=$5 first address port python is_host=0
  shift 5
  if [ "$SLURM_NODEID" = 0 ]; then
    is_host=1
    exec >>"$log" 2>&1
  fi
  export HOSTCORE_RUNS_DIR=$runs
  first=$(address_of "$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)")
  address=$(address_of "$SLURMD_NODENAME")
  port=$((20000 + SLURM_JOB_ID % 10000))
  python=$1
  set -- bash -c "$(declare -f rank); rank \"\$@\"" rank "$notes" "$@"
  # torchrun makes one $ of two.
  exec "$python" -P -m torch.distributed.run --nnodes="$SLURM_JOB_NUM_NODES" --nproc-per-node="$ranks" \
    --max-restarts="$restarts" --rdzv-backend=c10d --rdzv-id="$SLURM_JOB_ID.${SLURM_RESTART_COUNT:-0}" \
    --rdzv-endpoint="$first:$port" --rdzv-conf="is_host=$is_host" --local-addr="$address" \
    --no-python "${@//\$/\$\$}"
}
# Becomes a rank, which hostcore adopts. What was asked to stop is not started again.
rank() {
  local notes=$1
  shift
  [ ! -e "$notes.asked" ] || exit 0
  [ "$SLURM_NODEID.$LOCAL_RANK" != 0.0 ] || echo "$$" >"$notes.pid"
  exec "$@"
}
# Slurm's own address of a node: its name may be unknown to the resolver.
address_of() {
  scontrol show node --oneliner "$1" | sed -n 's/.* NodeAddr=\([^ ]*\).*/\1/p'
}
task=$(declare -f task rank address_of)
task_arguments=("$notes" "$log" "$(dirname "$run_dir")" "$ranks" "$restarts" "${command[@]}")

code=0
if [ -z "$asked" ]; then
  srun --nodes="$SLURM_JOB_NUM_NODES" --ntasks="$SLURM_JOB_NUM_NODES" --ntasks-per-node=1 --export=ALL --mpi=none \
    --kill-on-bad-exit=1 ${SLURM_CPUS_PER_TASK:+--cpus-per-task="$SLURM_CPUS_PER_TASK"} \
    bash -c "$task; task \"\$@\"" task "${task_arguments[@]}" </dev/null &
  step=$!
  [ -z "$asked" ] || ask "$asked"
  # A signal ends the waiting, and nothing else.
  while heard=; wait "$step"; code=$?; [ -n "$heard" ]; do :; done
fi

# torchrun makes 1 of every exit code, and a run that was asked to stop too early says nothing.
result=$run_dir/result.json
if [ ! "$result" -nt "$notes.start" ]; then
  case $asked in INT) code=130 ;; USR1 | TERM) code=75 ;; esac
elif [ -n "$ranks" ]; then
  code=$("${command[0]}" -I -c 'import json, sys; print(json.load(open(sys.argv[1]))["exit_code"])' "$result") || code=1
fi
if [ "$code" = 75 ] && [ "$asked" = USR1 ] && [ "$requeue" = yes ]; then
  echo "hostcore: job $SLURM_JOB_ID goes back into the queue, and on from its checkpoint" >&2
  trap '' TERM
  scontrol requeue "$SLURM_JOB_ID" && requeued=yes
fi
exit "$code"

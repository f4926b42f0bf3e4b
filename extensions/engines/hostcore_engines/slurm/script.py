"""The batch script: claims the launch, starts the run on the nodes, forwards signals, and records the end.

Beside ``config/run.json`` it leaves

======================  ====================================================================================
``slurm.LAUNCH``        the job that runs this launch: the first one that writes the file
``slurm.JOB.start``     empty; as old as the newest start of the job
``slurm.JOB.pid``       the process on the first node that signals are for
``slurm.JOB.asked``     the last signal that the script was asked to forward
``slurm.JOB.end``       the exit code, once it is over; Slurm itself forgets that after some minutes
======================  ====================================================================================
"""

import shlex
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Final

import attrs

_CLAIM: Final = r"""notes=$run_dir/config/slurm.$SLURM_JOB_ID
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
"""

#: On one node with one rank.
_ONE_RANK: Final = r"""# On the node: becomes the run.
task() {
  local notes=$1 log=$2
  shift 2
  echo "$$" >"$notes.pid"
  # srun would keep the last line until it is complete.
  exec "$@" >>"$log" 2>&1
}
task=$(declare -f task)
task_arguments=("$notes" "$log" "${command[@]}")
"""

_RANKS: Final = r"""# On each node: becomes an agent of torchrun's. They meet on the first one, at a port of this job's.
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
"""

_RUN: Final = r"""code=0
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
"""


@attrs.frozen(kw_only=True)
class BatchScript:
    """Contents of a batch script."""

    #: Of sbatch.
    options: Sequence[str]
    run_dir: str
    #: See :func:`hostcore_engines.slurm.request.key_of`.
    launch: str
    command: Sequence[str]
    nodes: int
    ranks_per_node: int
    #: How often torchrun starts ranks again that have failed.
    max_restarts: int
    requeue: bool
    #: Lines of bash.
    before: Sequence[str]

    def text(self) -> str:
        """The script."""
        several = self.nodes * self.ranks_per_node > 1
        before = ["# What the job's launcher setting `before` says.", "set -e", *self.before, "set +e", ""]
        parts = [
            "\n".join(["#!/bin/bash", *(f"#SBATCH {option}" for option in self.options), ""]),
            self._values(several=several),
            _CLAIM,
            *(["\n".join(before)] if self.before else []),
            _RANKS if several else _ONE_RANK,
            _RUN,
        ]
        return "\n".join(parts)

    def _values(self, *, several: bool) -> str:
        lines = [
            "# A run of hostcore. What is quoted here arrives as it is.",
            f"run_dir={shlex.quote(self.run_dir)}",
            f"launch={shlex.quote(self.launch)}",
            f"requeue={'yes' if self.requeue else 'no'}",
            f"ranks={self.ranks_per_node if several else ''}",
            f"restarts={self.max_restarts if several else ''}",
            "command=(",
            *(f"  {shlex.quote(one)}" for one in self.command),
            ")",
        ]
        return "\n".join([*lines, *self._own_output(), ""])

    def _own_output(self) -> list[str]:
        """Return the line that opens the log, where Slurm's options cannot name it."""
        return [] if output_option(self.run_dir) else ['exec >>"$run_dir/logs/slurm-$SLURM_JOB_ID.out" 2>&1']


def log_of(run_dir: str, job: str) -> PurePosixPath:
    """Return the path of a job's output, that of all its starts."""
    return PurePosixPath(run_dir, "logs", f"slurm-{job}.out")


def note_of(run_dir: str, name: str) -> PurePosixPath:
    """One of the script's files: ``LAUNCH`` or ``JOB.what``."""
    return PurePosixPath(run_dir, "config", f"slurm.{name}")


def output_option(run_dir: str) -> str | None:
    """Return Slurm's option for the output; None if it has none for this path: a backslash turns ``%j`` off."""
    if "\\" in run_dir or "\n" in run_dir:
        return None
    return f"--output={log_of(run_dir.replace('%', '%%'), '%j')}"

"""Slurm's record of a job, as the status of a launch."""

import re
import signal
import time
from typing import Any, Final

import attrs

from hostcore_hookspecs import LaunchStatus

#: By state: it has not begun, or begins again.
_WAITING: Final = frozenset({"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT"})
#: It is over; all else is some way of running.
_OVER: Final = frozenset(
    {
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "DEADLINE",
        "FAILED",
        "LAUNCH_FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "RECONFIG_FAIL",
        "REVOKED",
        "TIMEOUT",
    }
)
#: What Slurm did to it, in words.
_WORDS: Final = {
    "BOOT_FAIL": "a node of it could not be booted",
    "CANCELLED": "it was cancelled",
    "DEADLINE": "its deadline has passed",
    "LAUNCH_FAILED": "Slurm could not launch it",
    "NODE_FAIL": "a node of it has failed",
    "OUT_OF_MEMORY": "it took more memory than it had asked for (resources.memory_per_node_gb)",
    "PREEMPTED": "it was preempted",
    "RECONFIG_FAIL": "a node of it could not be configured",
    "REVOKED": "another cluster has taken it",
    "TIMEOUT": "its time limit was reached",
}
#: Explanations of Slurm's reasons for waiting that are unclear by themselves.
_REASONS: Final = {
    "AssociationJobLimit": "the account runs as many jobs as it may",
    "BeginTime": "it was requeued, and Slurm waits two minutes before it looks at it again",
    "BadConstraints": "no node can ever have what it asks for",
    "Dependency": "it waits for another job",
    "JobHeldAdmin": "an administrator holds it back",
    "JobHeldUser": "it is held back: scontrol release",
    "PartitionConfig": "the partition cannot have what it asks for: too many nodes, processors or too much memory",
    "PartitionDown": "the partition is down",
    "PartitionTimeLimit": "the partition does not allow that time limit",
    "Priority": "others are before it",
    "ReqNodeNotAvail": "a node that it needs is not available",
    "Resources": "it waits for nodes to become free",
}

_CANCELLED_CODE: Final = 130
_PREEMPTED_CODE: Final = 75


@attrs.frozen(kw_only=True)
class SlurmJob:
    """A job as ``scontrol show job`` prints it."""

    id: str
    name: str
    state: str
    #: ``None`` for none.
    reason: str = "None"
    exit_code: int = 0
    #: Of the batch script; 0: none ended it.
    signal: int = 0
    restarts: int = 0
    time_limit: str = ""
    #: As Slurm prints it: local time, without a zone. Of a waiting job: when it may begin, if that is known.
    start_time: str = ""
    end_time: str = ""
    nodes: str = ""

    @property
    def is_waiting(self) -> bool:
        """True if the job has not begun, or is to begin again."""
        return self.state in _WAITING

    @property
    def is_over(self) -> bool:
        """True if nothing of the job runs any more, and nothing will."""
        return self.state in _OVER

    @property
    def code(self) -> int | None:
        """Exit code of the batch script, or its signal below zero; None if it is not the script's own.

        Slurm ends scripts with signals of its own where it cancels them.
        """
        if self.state in ("COMPLETED", "FAILED") and self.reason != "JobLaunchFailure":
            return -self.signal if self.signal else self.exit_code
        return None

    def ended_within(self, seconds: float) -> bool:
        """Return whether the job has ended within the last ``seconds``, by this machine's clock."""
        try:
            ended = time.mktime(time.strptime(self.end_time, "%Y-%m-%dT%H:%M:%S"))
        except ValueError:
            return False
        return time.time() - ended < seconds


#: The first of each counts: what users have written comes later.
_FIELDS: Final = {
    "id": r"^JobId=(\S+)",
    "name": r" JobName=(.*)$",
    "state": r"^\s+JobState=(\S+)",
    "reason": r"^\s+JobState=\S+ Reason=(.*) Dependency=",
    "exit_code": r"^\s+Requeue=.* ExitCode=(\d+):",
    "signal": r"^\s+Requeue=.* ExitCode=\d+:(\d+)",
    "restarts": r"^\s+Requeue=.* Restarts=(\d+)",
    "time_limit": r"^\s+RunTime=\S+ TimeLimit=(\S+)",
    "start_time": r"^\s+StartTime=(\S+)",
    "end_time": r"^\s+StartTime=\S+ EndTime=(\S+)",
    "nodes": r"^\s+NodeList=(\S+)",
}
_NUMBERS: Final = ("exit_code", "signal", "restarts")


def parse_job(shown: str) -> SlurmJob:
    """Parse the output of ``scontrol show job``.

    :raises ValueError: If it is something else.
    """
    found = {name: match[1] for name, it in _FIELDS.items() if (match := re.search(it, shown, re.MULTILINE))}
    if "id" not in found or "state" not in found:
        raise ValueError(f"scontrol has printed something else than a job: {shown[:200]!r}")
    fields: dict[str, Any] = {name: int(text) if name in _NUMBERS else text for name, text in found.items()}
    return SlurmJob(**{"name": "", **fields})


def status_under_way(job: SlurmJob) -> LaunchStatus:
    """Return the status of a launch whose job is not over."""
    again = f", start {job.restarts + 1}" if job.restarts else ""
    if job.is_waiting:
        return LaunchStatus(status="submitted", message=f"job {job.id} {_waits(job)}{again}")
    words = {"RUNNING": f"runs on {job.nodes}", "COMPLETING": "is ending", "SUSPENDED": "is suspended"}
    return LaunchStatus(status="running", message=f"job {job.id} {words.get(job.state, job.state.lower())}{again}")


def _waits(job: SlurmJob) -> str:
    if job.state == "CONFIGURING":
        return f"has its nodes, and they are made ready: {job.nodes}"
    if job.state in ("REQUEUE_HOLD", "SPECIAL_EXIT"):
        return f"was requeued and is held back: {job.reason}"
    # ReqNodeNotAvail has more after a comma: (UnavailableNodes:node7).
    words = _REASONS.get(job.reason.partition(",")[0].strip())
    known = job.start_time[:1].isdecimal()
    return (
        f"waits: {job.reason}"
        + (f" ({words})" if words else "")
        + (f"; expected to start {job.start_time}" if known and job.reason != "BeginTime" else "")
    )


def status_at_the_end(job: SlurmJob | None, result: LaunchStatus | None, code: int | None, *, log: str) -> LaunchStatus:
    """Return the status of a launch whose job is over.

    :param job: Slurm's record; None: it has forgotten the job.
    :param result: Result of the run; None if it left none.
    :param code: Exit code noted by the batch script; None if it has not.
    :param log: Where its output is.
    """
    state = job.state if job else ""
    if result is not None:
        if state == "CANCELLED" and result.status == "preempted":
            # Slurm sends SIGTERM whether it cancels or preempts, and the run takes it for a preemption.
            return attrs.evolve(result, status="cancelled", message="it was cancelled in Slurm; it wrote a checkpoint")
        if state in _WORDS and state != "CANCELLED" and result.status != "succeeded":
            return attrs.evolve(result, message=f"{result.message} (Slurm: {state}, {_WORDS[state]})".strip())
        return result
    if job is not None and state in _WORDS:
        limit = f" ({job.time_limit})" if state == "TIMEOUT" else ""
        status = {"CANCELLED": "cancelled", "PREEMPTED": "preempted"}.get(state, "failed")
        nothing = "" if status == "cancelled" else f", and it has left no result; its last words are in {log}"
        return LaunchStatus(status=status, message=f"{state}: {_WORDS[state]}{limit}{nothing}")
    if job is not None and job.reason == "JobLaunchFailure":
        message = "Slurm could not start the batch script; does the node see the run directory?"
        return LaunchStatus(status="failed", message=f"JobLaunchFailure: {message}")
    return _status_of_code(job.code if job and job.code is not None else code, log)


def _status_of_code(code: int | None, log: str) -> LaunchStatus:
    where = f"its last words are in {log}"
    if code is None:
        return LaunchStatus(status="lost", message="Slurm does not know the job any more, and it has left no result")
    if code == 0:
        return LaunchStatus(status="lost", message=f"it ended without a result; {where}", exit_code=0)
    if code in (_CANCELLED_CODE, -signal.SIGINT):
        return LaunchStatus(status="cancelled", message="it was cancelled before it began", exit_code=code)
    if code == _PREEMPTED_CODE:
        message = f"it was asked to end before it began; {where}"
        return LaunchStatus(status="preempted", message=message, exit_code=code)
    how = f"was killed by signal {-code}" if code < 0 else f"ended with {code}"
    return LaunchStatus(status="failed", message=f"it {how}, without a result; {where}", exit_code=code)

"""The status of a run: everything that ``hostcore status`` shows, read from its directory at one instant."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from hostcore.checkpoints.find import committed
from hostcore.checkpoints.names import record_name
from hostcore.checkpoints.record import CommitRecord
from hostcore.events.times import moment
from hostcore.runs.attempts import read_claim
from hostcore.runs.contract import artifact_folders
from hostcore.runs.directory import RunDirectory
from hostcore.runs.history import AttemptHistory, History
from hostcore.runs.lease import Lease
from hostcore.runs.result import RunResult, RunWarning
from hostcore.runs.summary import RunSummary, known_record, summarize
from hostcore_builtin_plugins.progress import RunProgress
from hostcore_hookspecs.errors import RunError
from hostcore_hookspecs.launcher import LaunchStatus


@attrs.frozen(kw_only=True)
class CheckpointSeen:
    """A committed checkpoint, as its record has it; its files were not read."""

    record: CommitRecord
    #: Its folder; absolute.
    folder: Path
    #: When it was committed, in milliseconds since 1970.
    saved_ms: int

    def as_dict(self) -> dict[str, Any]:
        """The checkpoint as plain JSON."""
        record = self.record
        return {
            "step": record.step,
            "epoch": record.epoch,
            "final": record.final,
            "attempt": record.attempt,
            "bytes": record.size,
            "path": str(self.folder),
            "saved_ms": self.saved_ms,
        }


@attrs.frozen(kw_only=True)
class RunStatus:
    """The status of a run at one instant."""

    directory: RunDirectory
    summary: RunSummary
    #: How the newest attempt ended; None if it has not.
    result: RunResult | None
    #: How far and how fast, as far as events tell.
    progress: RunProgress
    metrics: Mapping[str, float | None]
    #: Metric, value and step of the best value so far; see :class:`hostcore.runs.best.BestValue`.
    best: Mapping[str, Any] | None
    attempts: Sequence[AttemptHistory]
    checkpoints: Sequence[CheckpointSeen]
    plugins: Sequence[Mapping[str, Any]]
    #: Those of the newest attempt, by rank; empty while they are not known.
    devices: Sequence[str]
    #: The checkpoint of another run that it began from.
    parent: str | None
    #: What is known of the end of a lost run.
    lost: str | None
    #: The processes of a run that is running: ``host``, ``supervisor``, ``workers`` by rank; None of any other run.
    processes: Mapping[str, Any] | None
    #: What the user should know although the status does not say it.
    warnings: Sequence[RunWarning] = ()

    @property
    def data(self) -> str | None:
        """The fingerprint of the training data, of the newest attempt that has found them; None without one."""
        return next((one.data for one in reversed(self.summary.used) if one.data is not None), None) or None

    @property
    def reason(self) -> str | None:
        """Why it ended before its last step."""
        return self.result.reason if self.result else None

    @property
    def error(self) -> RunError | None:
        """Why it failed."""
        return self.result.error if self.result else None

    @property
    def can_go_on(self) -> bool:
        """See :func:`can_go_on`."""
        return can_go_on(self.summary, self.checkpoints)

    @property
    def places(self) -> dict[str, Path]:
        """Where to look for more."""
        rank = self.error.rank if self.error else None
        output = self.directory.rank_output(self.summary.attempt, rank or 0)
        hooks = self.directory.rank_hooks(self.summary.attempt, 0)
        places = {
            "events": self.directory.events,
            "output": output,
            "hook calls": hooks,
            "loss curve": self.directory.loss_plot,
        }
        there = {name: path for name, path in places.items() if path.exists() and path.stat().st_size}
        samples = {"samples": self.directory.samples} if self.directory.has_samples else {}
        return {**there, **samples, "everything": self.directory.path}

    def as_dict(self) -> dict[str, Any]:
        """What ``hostcore status --json`` prints."""
        return {
            **self.summary.as_dict(),
            "metrics": dict(self.metrics),
            "checkpoints": [one.as_dict() for one in self.checkpoints],
            "attempts": [one.as_dict() for one in self.attempts],
            "reason": self.reason,
            "error": attrs.asdict(self.error) if self.error else None,
            "best": dict(self.best) if self.best else None,
            "lost": self.lost,
            "processes": self.processes,
            "eta_seconds": self.progress.eta_seconds if self.summary.status == "running" else None,
            "samples_per_second": self.progress.samples_per_second if self.summary.status == "running" else None,
            "devices": list(self.devices),
            "plugins": [dict(one) for one in self.plugins],
            "data": self.data,
            "parent": self.parent,
            "directory": str(self.directory.path),
            "warnings": [attrs.asdict(one) for one in self.warnings],
        }


def can_go_on(summary: RunSummary, checkpoints: Collection[object]) -> bool:
    """Whether there is something left to do in a run, and a checkpoint to do it from."""
    return bool(checkpoints) and summary.status in ("failed", "cancelled", "preempted", "lost")


def inspect_run(
    directory: RunDirectory, history: History, *, told: LaunchStatus | None = None, checkpoints: Path | None = None
) -> RunStatus:
    """Read the status of a run.

    :param history: Of this run; it reads on from where it was.
    :param told: What its launcher says, if it was already asked, and has brought what its mirror says: both matter for
        a run that goes on where its directory is not seen. Else that is done here.
    :param checkpoints: Where its checkpoints are, for callers that do not trust the worker's own record of them.
    :raises HostcoreError: When one of the run's files is not what hostcore wrote.
    """
    if told is None and directory.launch.exists():
        from hostcore.supervisor.remote.watching import refresh_far  # for the few runs that need it

        refresh_far(directory)
    summary = summarize(directory, told=told)
    history.read_on()
    record = known_record(directory)  # a start that fails is taken back at any moment
    result = RunResult.read(directory.result) if summary.ended_ms is not None else None
    progress = RunProgress()
    for event in history.status_events:
        progress.update(event)
    if summary.ended_ms is None:  # events are fresher than the lease
        summary = attrs.evolve(summary, step=max(summary.step, progress.step))
    return RunStatus(
        directory=directory,
        summary=summary,
        result=result,
        progress=progress,
        metrics={**(result.metrics if result else {}), **history.metrics},
        best=(result.best if result else None) or history.best,
        attempts=history.attempts(running=summary.status == "running", seen_ms=summary.seen_ms),
        checkpoints=checkpoints_in(checkpoints or artifact_folders(directory, summary.attempt)[0]),
        plugins=record.plugins,
        devices=history.devices,
        parent=record.parent,
        lost=last_sign(directory, summary) if summary.status == "lost" else None,
        processes=_processes(directory, summary.attempt) if summary.status == "running" else None,
        # The log of a run that goes on elsewhere may not be here, nor what an earlier hostcore has not written.
        warnings=(result.warnings if result else ()) or history.warnings,
    )


def _processes(directory: RunDirectory, attempt: int) -> dict[str, Any] | None:
    """The processes of an attempt; None while nothing of them is known here."""
    lease, claim = Lease.read(directory.lease), read_claim(directory.attempts, attempt)
    own = lease if lease and lease.attempt == attempt else None
    holder = own or claim
    if holder is None:
        return None
    workers = list(own.workers) if own else []
    return {"host": holder.process.host, "supervisor": holder.process.pid, "workers": workers}


def checkpoints_in(folder: Path) -> list[CheckpointSeen]:
    """The committed checkpoints of a folder, oldest first."""
    seen = []
    for record in committed(folder):
        try:
            saved_ms = (folder / record_name(record.step)).stat().st_mtime_ns // 1_000_000
        except FileNotFoundError:  # removed in this moment
            continue
        seen.append(CheckpointSeen(record=record, folder=folder / record.folder_name, saved_ms=saved_ms))
    return seen


def last_sign(directory: RunDirectory, summary: RunSummary) -> str:
    """What is known of the end of a lost run."""
    lease, claim = Lease.read(directory.lease), read_claim(directory.attempts, summary.attempt)
    holder = lease or claim
    who = f"its supervisor (process {holder.process.pid} on {holder.process.host})" if holder else "its supervisor"
    since = f"; its last sign of life was at {moment(lease.renewed_ms)}" if lease else ""
    return f"{who} died without writing a result{since}"

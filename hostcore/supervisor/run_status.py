"""The status of a run at one instant: what every command and every page shows of it.

Read from a run directory here; a service sends the same as JSON (``hostcore status --json``).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from hostcore.checkpoints.find import committed
from hostcore.checkpoints.names import folder_name, record_name
from hostcore.checkpoints.record import CommitRecord
from hostcore.events.times import moment
from hostcore.runs.attempts import read_claim
from hostcore.runs.contract import artifact_folders
from hostcore.runs.directory import RunDirectory, runs_dir
from hostcore.runs.history import AttemptHistory, History
from hostcore.runs.lease import Lease
from hostcore.runs.result import RunResult, RunWarning
from hostcore.runs.summary import RunSummary, known_record, summarize
from hostcore_builtin_plugins.progress import RunProgress
from hostcore_hookspecs.errors import RunError
from hostcore_hookspecs.launcher import LaunchStatus

#: Of a field that is no part of the JSON document.
_BESIDE: Final = {"json": False}


@attrs.frozen(kw_only=True)
class CommittedCheckpoint:
    """A committed checkpoint, by its record; its files were not read."""

    step: int
    epoch: int
    final: bool
    attempt: int
    bytes: int
    #: Its folder.
    path: str | None = None
    #: When it was committed, in milliseconds since 1970; None where that is not known.
    saved_ms: int | None

    @classmethod
    def of(cls, record: CommitRecord, *, saved_ms: int | None, path: str | None = None) -> "CommittedCheckpoint":
        """Return the checkpoint of a commit record."""
        return cls(
            step=record.step,
            epoch=record.epoch,
            final=record.final,
            attempt=record.attempt,
            bytes=record.size,
            path=path,
            saved_ms=saved_ms,
        )

    @property
    def name(self) -> str:
        """Name of its folder."""
        return folder_name(self.step)


@attrs.frozen(kw_only=True)
class RunStatus:
    """The status of a run. The fields are those of the JSON document, in its order, and what stands beside it."""

    summary: RunSummary = attrs.field(metadata=_BESIDE)
    metrics: Mapping[str, float | None]
    #: Oldest first.
    checkpoints: Sequence[CommittedCheckpoint]
    attempts: Sequence[AttemptHistory]
    #: Why it ended before its last step.
    reason: str | None
    #: Why it failed.
    error: RunError | None
    #: Metric, value and step of the best value so far; see :attr:`hostcore.runs.findings.Findings.best`.
    best: Mapping[str, Any] | None
    #: What is known of the end of a lost run.
    lost: str | None
    #: The processes of a run that is running: ``host``, ``supervisor``, ``workers`` by rank; None of any other run.
    processes: Mapping[str, Any] | None
    #: None in the document of a run that is not running, as is the rate.
    eta_seconds: float | None
    samples_per_second: float | None
    #: Those of the newest attempt, by rank; empty while they are not known.
    devices: Sequence[str]
    plugins: Sequence[Mapping[str, Any]]
    #: The fingerprint of the training data, of the newest attempt that has found them; None without one.
    data: str | None
    #: The checkpoint of another run that it began from.
    parent: str | None
    #: The run directory; None where it is not on this machine.
    directory: str | None
    #: Warnings for the user beside the status.
    warnings: Sequence[RunWarning] = ()
    #: Where it was launched, and its id there; empty where that is not known.
    engine: str = attrs.field(default="", metadata=_BESIDE)
    #: Message of its engine; may be empty.
    detail: str = attrs.field(default="", metadata=_BESIDE)
    #: The words of the command that continues it.
    resume: Sequence[str] = attrs.field(metadata=_BESIDE)
    #: Files and addresses with more, by name.
    places: Mapping[str, str] = attrs.field(metadata=_BESIDE)

    @property
    def can_go_on(self) -> bool:
        """Return whether there is something left to do, and a checkpoint to do it from."""
        return bool(self.checkpoints) and self.summary.status in ("failed", "cancelled", "preempted", "lost")

    def as_dict(self) -> dict[str, Any]:
        """Return the document that ``hostcore status --json`` prints."""
        document = attrs.asdict(self, filter=lambda field, _: field.metadata.get("json", True))
        paceless = {} if self.summary.status == "running" else {"eta_seconds": None, "samples_per_second": None}
        return {**self.summary.as_dict(), **document, **paceless}


def inspect_run(
    directory: RunDirectory, history: History, *, told: LaunchStatus | None = None, checkpoints: Path | None = None
) -> RunStatus:
    """Read the status of a run from its directory.

    :param history: Of this run; it reads on from where it was.
    :param told: Status by its launcher, where the caller has polled it and brought the mirror's news: both matter for
        a run whose directory is elsewhere. Otherwise both are done here.
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
    status, error = summary.status, result.error if result else None
    used = [one.data for one in summary.used if one.data is not None]
    elsewhere = directory.path.parent != runs_dir()
    return RunStatus(
        summary=summary,
        metrics={**(result.metrics if result else {}), **history.metrics},
        checkpoints=checkpoints_in(checkpoints or artifact_folders(directory, summary.attempt)[0]),
        attempts=history.attempts(running=status == "running", seen_ms=summary.seen_ms),
        reason=result.reason if result else None,
        error=error,
        best=(result.best if result else None) or history.best,
        lost=last_sign(directory, summary) if status == "lost" else None,
        processes=_processes(directory, summary.attempt) if status == "running" else None,
        eta_seconds=progress.eta_seconds,
        samples_per_second=progress.samples_per_second,
        devices=history.devices,
        plugins=record.plugins,
        data=(used[-1] if used else None) or None,
        parent=record.parent,
        directory=str(directory.path),
        # The log of a remote run may not be here, nor values that an earlier hostcore has not written.
        warnings=(result.warnings if result else ()) or history.warnings,
        resume=["hostcore", "resume", str(directory.path) if elsewhere else summary.run_id],
        places=_places(directory, attempt=summary.attempt, rank=(error.rank if error else None) or 0),
    )


def _places(directory: RunDirectory, *, attempt: int, rank: int) -> dict[str, str]:
    """Return the files of a run that have content, by name.

    :param rank: Whose output is named.
    """
    files = {
        "events": directory.events,
        "output": directory.rank_output(attempt, rank),
        "hook calls": directory.rank_hooks(attempt, 0),
        "loss curve": directory.loss_plot,
    }
    there = {name: path for name, path in files.items() if path.exists() and path.stat().st_size}
    samples = {"samples": directory.samples} if directory.has_samples else {}
    return {name: str(path) for name, path in {**there, **samples, "everything": directory.path}.items()}


def _processes(directory: RunDirectory, attempt: int) -> dict[str, Any] | None:
    """The processes of an attempt; None while nothing of them is known here."""
    lease, claim = Lease.read(directory.lease), read_claim(directory.attempts, attempt)
    own = lease if lease and lease.attempt == attempt else None
    holder = own or claim
    if holder is None:
        return None
    workers = list(own.workers) if own else []
    return {"host": holder.process.host, "supervisor": holder.process.pid, "workers": workers}


def checkpoints_in(folder: Path) -> list[CommittedCheckpoint]:
    """Return the committed checkpoints of a folder, oldest first."""
    found = []
    for record in committed(folder):
        try:
            saved_ms = (folder / record_name(record.step)).stat().st_mtime_ns // 1_000_000
        except FileNotFoundError:  # removed in this moment
            continue
        path = str(folder / record.folder_name)
        found.append(CommittedCheckpoint.of(record, saved_ms=saved_ms, path=path))
    return found


def last_sign(directory: RunDirectory, summary: RunSummary) -> str:
    """Describe the last sign of life of a lost run."""
    lease, claim = Lease.read(directory.lease), read_claim(directory.attempts, summary.attempt)
    holder = lease or claim
    who = f"its supervisor (process {holder.process.pid} on {holder.process.host})" if holder else "its supervisor"
    since = f"; its last sign of life was at {moment(lease.renewed_ms)}" if lease else ""
    return f"{who} died without writing a result{since}"

"""Runs as ``hostcore list`` and ``hostcore status`` show them: derived from their directories, nothing else is kept."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from hostcore.runs.attempts import newest_attempt
from hostcore.runs.directory import RunDirectory
from hostcore.runs.documents import CorruptDocument, UnreadableDocument
from hostcore.runs.lease import Lease
from hostcore.runs.record import RunRecord
from hostcore.runs.result import RunResult
from hostcore_hookspecs.errors import HostcoreError


class UnknownRun(HostcoreError):
    """There is no such run."""

    code = "run.unknown"


@attrs.frozen(kw_only=True)
class RunSummary:
    """One line of ``hostcore list``."""

    run_id: str
    #: ``submitted``, ``running``, ``succeeded``, ``failed``, ``cancelled``, ``preempted`` or ``lost``.
    status: str
    trainer: str
    #: Finished steps.
    step: int
    #: 0: no limit.
    max_steps: int
    attempt: int
    #: Milliseconds since 1970.
    submitted_ms: int
    #: None while it runs, and for a lost run.
    ended_ms: int | None

    def as_dict(self) -> dict[str, Any]:
        """The summary as plain JSON."""
        return attrs.asdict(self)


def summarize(directory: RunDirectory) -> RunSummary:
    """The summary of a run.

    A run is running while its supervisor lives; a run whose supervisor died without a result is lost.

    :raises UnknownRun: When the folder is no run.
    """
    try:
        record = RunRecord.read(directory.record)
    except FileNotFoundError as error:
        raise UnknownRun(
            f"there is no run {directory.run_id!r} in {directory.path.parent}",
            file=str(directory.path),
            hint="`hostcore list` shows the runs there are; HOSTCORE_RUNS_DIR says where they are looked for",
        ) from error
    lease = Lease.read(directory.lease)
    result = RunResult.read(directory.result)
    attempt = newest_attempt(directory.attempts)
    ended = result if result and result.attempt == attempt and not (lease and lease.is_live) else None
    return RunSummary(
        run_id=directory.run_id,
        status=ended.status if ended else "running" if lease and lease.is_live else "lost",
        trainer=record.job["trainer"],
        step=ended.step if ended else lease.step if lease else 0,
        max_steps=record.job.get("max_steps", 0),
        attempt=attempt,
        submitted_ms=record.submitted_ms,
        ended_ms=ended.ended_ms if ended else None,
    )


def list_runs(runs: Path) -> tuple[list[RunSummary], list[Mapping[str, str]]]:
    """All runs of a folder, newest first; and what is there but cannot be read: path and error."""
    found: list[RunSummary] = []
    broken: list[Mapping[str, str]] = []
    folders = sorted(path for path in runs.iterdir() if path.is_dir()) if runs.is_dir() else []
    for folder in folders:
        try:
            found.append(summarize(RunDirectory(folder)))
        except UnknownRun:
            continue
        except (CorruptDocument, UnreadableDocument) as error:
            broken.append({"path": str(folder), "error": str(error)})
    return sorted(found, key=lambda run: run.submitted_ms, reverse=True), broken

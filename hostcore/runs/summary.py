"""Runs as ``hostcore list`` and ``hostcore status`` show them: derived from their directories, nothing else is kept."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import attrs

from hostcore.runs.attempts import Claim, is_held, newest_attempt, read_claim
from hostcore.runs.directory import RunDirectory
from hostcore.runs.documents import CorruptDocument, UnreadableDocument
from hostcore.runs.lease import Lease
from hostcore.runs.record import RunRecord
from hostcore.runs.result import EXIT_CODES, FAILED, RunResult
from hostcore.runs.statuses import ALIVE
from hostcore.runs.used import Used, used_by
from hostcore_builtin_plugins.processes import seconds_since_change
from hostcore_hookspecs.errors import HostcoreError, RunError

if TYPE_CHECKING:
    from hostcore.runs.launch import Launch
    from hostcore_hookspecs.launcher import LaunchStatus

A = TypeVar("A")

#: An attempt is claimed a moment before its lease is written; for so long its claim stands for the lease.
_OPENING_MS = 10_000


class UnknownRun(HostcoreError):
    """There is no such run."""

    code = "run.unknown"


@attrs.frozen(kw_only=True)
class RunSummary:
    """One line of ``hostcore list``."""

    run_id: str
    #: One of :data:`STATUSES`.
    status: str
    trainer: str
    #: Finished steps, over all attempts; while it runs, as of its last sign of life.
    step: int
    #: Steps it will have when it ends, whether the job says so in steps or in epochs. 0: not known.
    max_steps: int
    #: The newest; 0 before the first.
    attempt: int
    #: When it was first submitted, in milliseconds since 1970.
    submitted_ms: int
    #: None while it runs, and for a lost run.
    ended_ms: int | None
    #: When the newest attempt began; None if that is not known.
    started_ms: int | None = attrs.field(default=None, metadata={"json": False})
    #: The newest attempt's end or, without one, its last sign of life; None if there was none.
    seen_ms: int | None = attrs.field(default=None, metadata={"json": False})
    #: What its attempts used, as far as that is recorded, oldest first.
    used: Sequence[Used] = attrs.field(default=(), metadata={"json": False})

    def as_dict(self) -> dict[str, Any]:
        """The summary as plain JSON."""
        return attrs.asdict(self, filter=lambda field, _: field.metadata.get("json", True))

    def is_of(self, trainer: str | None) -> bool:
        """Whether it is a run of a trainer, whose distribution may be left out; None: of any."""
        return trainer is None or trainer in (self.trainer, self.trainer.rpartition("/")[2])

    def seconds(self, now: int) -> float | None:
        """How long the newest attempt has taken, or has been going on; None if that is not known.

        :param now: Milliseconds since 1970.
        """
        until = now if self.status == "running" else self.seen_ms
        return None if self.started_ms is None or until is None else max(0, until - self.started_ms) / 1000


def unrecorded(summary: RunSummary, *, told: str, ended_ms: int) -> RunResult:
    """How a run ended that wrote no result of it, or none that is seen here.

    :param summary: Of the run; over.
    :param told: Why it ended so, as far as that is known; may be empty.
    :param ended_ms: Milliseconds since 1970.
    """
    failed = summary.status in ("failed", "lost")
    kind = "RunLost" if summary.status == "lost" else "LaunchFailed"
    return RunResult(
        run_id=summary.run_id,
        status=summary.status,
        exit_code=EXIT_CODES.get(summary.status, FAILED),
        reason=None if failed else told or None,
        attempt=summary.attempt,
        step=summary.step,
        epoch=0,
        error=RunError(type=kind, message=told) if failed else None,
        started_ms=summary.started_ms or summary.submitted_ms,
        ended_ms=ended_ms,
    )


def known_record(directory: RunDirectory) -> RunRecord:
    """The record of a run.

    :raises UnknownRun: When there is none: the folder is no run, or its start was taken back.
    """
    try:
        return RunRecord.read(directory.record)
    except FileNotFoundError as error:
        raise UnknownRun(
            f"there is no run {directory.run_id!r} in {directory.path.parent}",
            file=str(directory.path),
            hint="`hostcore list` shows the runs there are; HOSTCORE_RUNS_DIR or --runs-dir says where",
        ) from error


def summarize(directory: RunDirectory, *, told: "LaunchStatus | None" = None) -> RunSummary:
    """The summary of a run.

    A run is running while its supervisor lives; a run whose supervisor died without a result is lost. Of one that goes
    on where this directory is not seen, its launcher tells.

    :param told: What the launcher says, if it was already asked.
    :raises UnknownRun: When the folder is no run.
    :raises CorruptDocument, UnreadableDocument: When one of its files cannot be read.
    """
    record = known_record(directory)
    if (launch := _far_launch(directory)) is not None:
        return _summary_from_afar(directory, record, launch, told)
    # The lease is removed after the result was written: read the other way round, an end could be missed.
    lease, held = Lease.read(directory.lease), is_held(directory)
    result = RunResult.read(directory.result)
    attempt = max(newest_attempt(directory.attempts), result.attempt if result else 0)
    newest = read_claim(directory.attempts, attempt)
    of_newest = result if result and result.attempt == attempt else None
    is_without_lease = not of_newest and (lease is None or lease.attempt < attempt)
    lives = held or (is_without_lease and is_opening(directory, attempt, newest))
    awaited = not lives and _is_awaited(directory, attempt, told)
    ended = None if lives or awaited else of_newest
    return RunSummary(
        run_id=directory.run_id,
        status=ended.status if ended else "running" if lives else "submitted" if awaited else "lost",
        trainer=record.job["trainer"],
        step=ended.step if ended else (lease.step if lease else 0) or (result.step if result else 0),
        max_steps=record.total_steps or record.job.get("max_steps", 0),
        attempt=attempt,
        submitted_ms=record.submitted_ms,
        ended_ms=ended.ended_ms if ended else None,
        started_ms=newest.started_ms if newest else None,
        seen_ms=ended.ended_ms if ended else lease.renewed_ms if lease else None,
        used=used_by(record, attempt=attempt, file=directory.record),
    )


def _far_launch(directory: RunDirectory) -> "Launch | None":
    """The launch of a run that goes on where its directory is not seen; None for any other."""
    if not directory.launch.exists():
        return None
    from hostcore.runs.launch import Launch  # it loads launchers, for the few runs that need them

    launch = Launch.read(directory.launch)
    return launch if launch is not None and not launch.sees_run_dir else None


def _summary_from_afar(
    directory: RunDirectory, record: RunRecord, launch: "Launch", told: "LaunchStatus | None"
) -> RunSummary:
    from hostcore.runs.remote_status import launcher_status, newest_sign

    result = RunResult.read(directory.result)
    attempt = newest_attempt(directory.attempts)
    newest = read_claim(directory.attempts, attempt)
    begun = attempt >= launch.attempt
    ended = result if result and begun and result.attempt == attempt else None
    if ended is None and told is None:
        told = launcher_status(directory, launch, begun=begun)
    step, seen_ms = newest_sign(directory.events)
    return RunSummary(
        run_id=directory.run_id,
        status=ended.status if ended else told.status if told else "lost",
        trainer=record.job["trainer"],
        step=ended.step if ended else max(step, result.step if result else 0),
        max_steps=record.total_steps or record.job.get("max_steps", 0),
        attempt=attempt,
        submitted_ms=record.submitted_ms,
        ended_ms=ended.ended_ms if ended else None,
        started_ms=newest.started_ms if newest else None,
        seen_ms=ended.ended_ms if ended else seen_ms,
        used=used_by(record, attempt=attempt, file=directory.record),
    )


def is_opening(directory: RunDirectory, attempt: int, claim: Claim | None) -> bool:
    """Whether an attempt without a lease may be about to get it.

    :param claim: None if there is none, or if it has not been written yet: its file comes first.
    """
    if claim is not None and claim.process.is_here:
        return time.time() * 1000 - claim.started_ms < _OPENING_MS and claim.process.runs
    try:
        return seconds_since_change(directory.attempts / f"{attempt}.json") * 1000 < _OPENING_MS
    except FileNotFoundError:
        return False


def _is_awaited(directory: RunDirectory, attempt: int, told: "LaunchStatus | None") -> bool:
    """Whether an attempt is still to begin: the first, or the next one after an end.

    :param told: What its launcher has just said of it; it is asked if not given.
    """
    if not directory.launch.exists():
        return attempt == 0
    from hostcore.runs.launch import awaited_launch, launched_is_gone  # they load launchers, for the few that need it

    if awaited_launch(directory) is None:
        return False
    return told.status in ALIVE if told else not launched_is_gone(directory)


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


def sorted_by_value(items: Iterable[A], value: Callable[[A], float | None], *, reverse: bool) -> list[A]:
    """Sort by a number, stably; those without a finite one come last, whatever the direction."""
    kept = list(items)
    valued = [(number, item) for item in kept if (number := value(item)) is not None]
    ordered = [item for _, item in sorted(valued, key=lambda pair: pair[0], reverse=reverse)]
    return [*ordered, *(item for item in kept if value(item) is None)]

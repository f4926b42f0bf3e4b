"""Runs as ``hostcore list`` and ``hostcore status`` show them: derived from their directories, nothing else is kept."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import attrs
import orjson

from hostcore.runs.attempts import AttemptClaim, is_held, is_opening, newest_attempt, read_claim
from hostcore.runs.directory import RunDirectory
from hostcore.runs.documents import CorruptDocument, UnreadableDocument
from hostcore.runs.lease import Lease
from hostcore.runs.record import RunRecord
from hostcore.runs.result import EXIT_CODES, FAILED, RunResult
from hostcore.runs.statuses import ALIVE
from hostcore.runs.used import Used, used_by
from hostcore_hookspecs.errors import HostcoreError, RunError

if TYPE_CHECKING:
    from hostcore.runs.launch import Launch
    from hostcore_hookspecs.launcher import LaunchStatus

A = TypeVar("A")

#: Of the end of an event log, to find the newest step in.
_TAIL_BYTES: Final = 1 << 16


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
    #: Steps at its end, whether the job gives them in steps or in epochs. 0: not known.
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
    #: The plugins and data of its attempts, as far as they are recorded, oldest first.
    used: Sequence[Used] = attrs.field(default=(), metadata={"json": False})

    def as_dict(self) -> dict[str, Any]:
        """The summary as plain JSON."""
        return attrs.asdict(self, filter=lambda field, _: field.metadata.get("json", True))

    def is_of(self, trainer: str | None) -> bool:
        """Return whether it is a run of a trainer, whose distribution may be left out; None: of any."""
        return trainer is None or trainer in (self.trainer, self.trainer.rpartition("/")[2])

    def seconds(self, now: int) -> float | None:
        """Return the duration of the newest attempt, so far or in all; None if that is not known.

        :param now: Milliseconds since 1970.
        """
        until = now if self.status == "running" else self.seen_ms
        return None if self.started_ms is None or until is None else max(0, until - self.started_ms) / 1000


def unrecorded(summary: RunSummary, *, told: str, ended_ms: int) -> RunResult:
    """Make the result of a run that wrote none, or none that is visible here.

    :param summary: Of the run; over.
    :param told: The reason of its end, as far as that is known; may be empty.
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
    """Return the record of a run.

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


@attrs.frozen(kw_only=True)
class _AttemptState:
    """The state of a run's newest attempt, by the files that are visible here."""

    status: str
    attempt: int
    claim: AttemptClaim | None
    #: The result of this attempt, once it has ended.
    ended: RunResult | None
    #: Finished steps, and the time of the last sign of life, while there is no result.
    step: int
    seen_ms: int | None


def summarize(directory: RunDirectory, *, told: "LaunchStatus | None" = None) -> RunSummary:
    """Summarize a run.

    A run is running while its supervisor lives; a run whose supervisor died without a result is lost. The status of a
    run that executes where this directory is not visible is that of its launcher.

    :param told: The status by the launcher, if it was already polled.
    :raises UnknownRun: When the folder is no run.
    :raises CorruptDocument, UnreadableDocument: When one of its files cannot be read.
    """
    record = known_record(directory)
    launch = _remote_launch(directory)
    state = _local_state(directory, told) if launch is None else _remote_state(directory, launch, told)
    ended = state.ended
    return RunSummary(
        run_id=directory.run_id,
        status=ended.status if ended else state.status,
        trainer=record.job["trainer"],
        step=ended.step if ended else state.step,
        max_steps=record.total_steps or record.job.get("max_steps", 0),
        attempt=state.attempt,
        submitted_ms=record.submitted_ms,
        ended_ms=ended.ended_ms if ended else None,
        started_ms=state.claim.started_ms if state.claim else None,
        seen_ms=ended.ended_ms if ended else state.seen_ms,
        used=used_by(record, attempt=state.attempt, file=directory.record),
    )


def _local_state(directory: RunDirectory, told: "LaunchStatus | None") -> _AttemptState:
    # The lease is removed after the result was written: read the other way round, an end could be missed.
    lease, held = Lease.read(directory.lease), is_held(directory)
    result = RunResult.read(directory.result)
    attempt = max(newest_attempt(directory.attempts), result.attempt if result else 0)
    claim = read_claim(directory.attempts, attempt)
    of_newest = result if result and result.attempt == attempt else None
    is_without_lease = not of_newest and (lease is None or lease.attempt < attempt)
    lives = held or (is_without_lease and is_opening(directory, attempt, claim))
    awaited = not lives and _is_awaited(directory, attempt, told)
    return _AttemptState(
        status="running" if lives else "submitted" if awaited else "lost",
        attempt=attempt,
        claim=claim,
        ended=None if lives or awaited else of_newest,
        step=(lease.step if lease else 0) or (result.step if result else 0),
        seen_ms=lease.renewed_ms if lease else None,
    )


def _remote_launch(directory: RunDirectory) -> "Launch | None":
    """Return the launch of a run that executes where its directory is not visible; None for any other."""
    if not directory.launch.exists():
        return None
    from hostcore.runs.launch import Launch  # it loads launchers, for the few runs that need them

    launch = Launch.read(directory.launch)
    return launch if launch is not None and not launch.sees_run_dir else None


def _remote_state(directory: RunDirectory, launch: "Launch", told: "LaunchStatus | None") -> _AttemptState:
    from hostcore.runs.launch import launcher_status

    result = RunResult.read(directory.result)
    attempt = newest_attempt(directory.attempts)
    begun = attempt >= launch.attempt
    ended = result if result and begun and result.attempt == attempt else None
    if ended is None and told is None:
        told = launcher_status(directory, launch, begun=begun)
    step, seen_ms = _newest_sign(directory.events)
    return _AttemptState(
        status=told.status if told else "lost",
        attempt=attempt,
        claim=read_claim(directory.attempts, attempt),
        ended=ended,
        step=max(step, result.step if result else 0),
        seen_ms=seen_ms,
    )


def _newest_sign(events: Path) -> tuple[int, int | None]:
    """Return the newest step in a log of events, and the time of its newest event: 0 and None without one."""
    from hostcore.events.reader import newest_lines

    step, seen_ms = 0, None
    for line in reversed(newest_lines(events, most=_TAIL_BYTES)):
        try:
            event: dict[str, Any] = orjson.loads(line)
            seen_ms = seen_ms or _number(event["time_ms"])
            step = _number(event.get("step") or 0)
        except (ValueError, KeyError, TypeError):
            continue  # the first line may be cut
        if step:
            break
    return step, seen_ms


def _number(value: Any) -> int:
    """Return a number that databases have room for.

    :raises ValueError: It is none.
    """
    if type(value) is not int or not 0 <= value < 2**63:
        raise ValueError(value)
    return value


def _is_awaited(directory: RunDirectory, attempt: int, told: "LaunchStatus | None") -> bool:
    """Return whether an attempt is still to begin: the first, or the next one after an end.

    :param told: The status by its launcher, which is polled if not given.
    """
    if not directory.launch.exists():
        return attempt == 0
    from hostcore.runs.launch import awaited_launch, launched_is_gone  # they load launchers, for the few that need it

    if awaited_launch(directory) is None:
        return False
    return told.status in ALIVE if told else not launched_is_gone(directory)


def list_runs(runs: Path) -> tuple[list[RunSummary], list[Mapping[str, str]]]:
    """Return all runs of a folder, newest first; and the path and the error of those that cannot be read."""
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

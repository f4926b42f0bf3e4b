"""The worker's checkpoints: their contents, and the restoration of a run.

A checkpoint is made in two halves. In the loop: everything is encoded and copied, and the trainer's own
``save_checkpoint`` writes its files. In a thread: hashing, writing, syncing, the commit, its event, and the removal of
old ones. One write is in flight at a time; callbacks are called in the loop, after the step in which it ended.

On several ranks all of them call the same methods of the trainer and of the callbacks, at the same step. The first one
writes what they return, the random states of all, and commits; of tensors that are spread over the ranks, each one
writes its part. What goes wrong on one of them goes wrong on all. Where their machines do not share the folder, what
each machine has written is brought to the first rank's before it commits, and a checkpoint to all before a restore.
"""

import errno
from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any, Protocol

import attrs

from hostcore.checkpoints.commit import Draft
from hostcore.checkpoints.encoding import TRAINER_FOLDER
from hostcore.checkpoints.errors import CheckpointError
from hostcore.checkpoints.find import CommittedRecords, committed, verify
from hostcore.checkpoints.leftovers import remove_uncommitted
from hostcore.checkpoints.prune import prune, retired
from hostcore.checkpoints.record import CommitRecord, CommittedFile
from hostcore.checkpoints.sharded import shards_folder
from hostcore.checkpoints.state import read_state
from hostcore.plugins.load import Component
from hostcore.runs.attempts import newest_claim
from hostcore.worker import randomness
from hostcore.worker.checkpoints.capture import Capture, Captured, CaptureSource
from hostcore.worker.checkpoints.resuming import ResumeSearch, random_states, restore
from hostcore.worker.checkpoints.trainer_state import STATE
from hostcore.worker.ranks.outcome import DistributedError, on_all, on_first
from hostcore_builtin_plugins.background import in_background
from hostcore_hookspecs import events
from hostcore_hookspecs.errors import HostcoreError
from hostcore_hookspecs.run_state import Checkpoint

Call = Callable[..., Any]

#: The code of the errors about a file system that refuses.
_NOT_WRITTEN = "checkpoint.write"
#: What a file system refuses with; any other OSError is a mistake of the plugin that it comes from.
_REFUSALS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.ESTALE})


class Superseded(HostcoreError):
    """A newer attempt of this run has started, so this one may not write any more."""

    code = "run.superseded"


class Emit(Protocol):
    """Appends an event to the rank's log."""

    def __call__(self, payload: events.Payload, *, step: int | None = None, epoch: int | None = None) -> None:
        """Append an event; of the present step, unless ``step`` is given."""


@attrs.frozen(kw_only=True)
class _InFlight:
    """A checkpoint that a thread writes: the loop waits for the copy of its state, and the thread for the disk."""

    step: int
    final: bool
    #: Of the commit; None on the ranks that do not commit.
    record: Future[CommitRecord | None]


@attrs.define(kw_only=True, eq=False)
class Checkpointer:
    """Saves and restores one run."""

    #: Where the checkpoints lie; absolute.
    folder: Path
    attempts: Path
    attempt: int
    keep: int
    #: Whether the run fails when a checkpoint cannot be written; else only the last one must be.
    required: bool
    #: Whether uploaders may still need old checkpoints: they are retired, and the supervisor removes them.
    mirrored: bool
    source: CaptureSource
    #: None without an implementation.
    on_checkpoint_saved: Call | None
    emit: Emit
    #: Waits until the log is on the disk: a checkpoint must not be ahead of its own metrics.
    sync_log: Callable[[], None]
    #: Whether a write has ended that has not been reported yet. Read by the loop at every step.
    has_news: bool = False
    #: The same, as this rank alone knows; see :class:`hostcore.worker.ranks.meeting.News`.
    news_here: bool = False
    #: Whether an epoch has ended since the checkpoint begun last, so that it lacks what callbacks did there.
    lags: bool = False
    #: How many writes have been reported.
    acted: int = 0
    _capture: Capture = attrs.field(init=False)
    #: Looked at after each save.
    _records: CommittedRecords = attrs.field(init=False)
    _in_flight: _InFlight | None = None
    #: The errors of old checkpoints that could not be removed.
    _unremoved: set[str] = attrs.field(factory=set)
    _abandoned: bool = False
    #: What kept the event of a checkpoint from being written.
    _log_error: OSError | None = None
    #: Step and ``final`` of the checkpoint begun last.
    _begun: tuple[int, bool] | None = None

    def __attrs_post_init__(self) -> None:
        self._capture = Capture(self.source)
        self._records = CommittedRecords(self.folder)

    def rehearse(self) -> None:
        """See that a checkpoint could hold the present state. Copies and writes nothing.

        After the first step: optimizers make their state in it, and torch's ``get_optimizer_state_dict`` steps one that
        has none.

        :raises CheckpointError: When what a component gave cannot be stored.
        :raises DistributedError: When that is so on another rank.
        """
        self._capture.rehearse()

    def save(self, *, final: bool) -> None:
        """Begin a checkpoint of the present state; returns as soon as training may go on.

        One that cannot be written is a warning, and training continues; the last one of a run must be written.

        :raises CheckpointError: When what the trainer gave cannot be stored; when the checkpoint cannot be begun or the
            one before could not be written, for instance because the disk is full, and it must be.
        :raises Superseded: When a newer attempt runs.
        :raises DistributedError: When that is so on another rank.
        """
        run_state = self.source.progress.state
        if run_state.step == 0 or self._begun in ((run_state.step, final), (run_state.step, True)):
            return
        self.finish()
        begun: list[Draft] = []
        folder: Path | None = None
        own = [TRAINER_FOLDER] if self.source.trainer.save_checkpoint is not None else []
        try:
            folder = Path(on_first(self.source.ranks, lambda: self._begin(begun)))
            folder = self.source.nodes.prepare(folder, own)
            captured = self._capture.capture(folder, final=final)
        except BaseException as error:  # noqa: BLE001 - raised again, unless it is the disk's
            for draft in begun:
                draft.discard()
            if folder is not None:
                self.source.nodes.discard(folder.name)
            self._note_failure(error, step=run_state.step, final=final)
            return
        self._begun, self.lags = (run_state.step, final), False
        written_to = folder
        epoch = run_state.epoch  # by now: the thread comes to it later
        group = self.source.ranks.for_writing if captured.shards is not None else None

        def write() -> CommitRecord | None:
            try:
                return self._write(begun[0] if begun else None, written_to, captured, group, epoch=epoch, final=final)
            finally:
                self.news_here = self.source.commits
                if self.source.ranks.world_size == 1:
                    self.has_news = True

        record = in_background(write, f"checkpoint of step {run_state.step}")
        self._in_flight = _InFlight(step=run_state.step, final=final, record=record)

    def outdate(self) -> None:
        """Note that a checkpoint of the present step would hold another state than the one before."""
        self._begun = None

    def finish(self) -> None:
        """Wait for the write in flight, if there is one, and report its end.

        :raises CheckpointError: When it could not be written, and must be.
        :raises Superseded: When a newer attempt runs.
        :raises DistributedError: When that is so on another rank.
        """
        if self._in_flight is None:
            return
        written, self._in_flight = self._in_flight, None
        wait([written.record])
        self.has_news = self.news_here = False
        self.acted += 1
        try:
            saved, existing = on_all(self.source.ranks, lambda: self._outcome(written))[0]
        except BaseException as error:  # noqa: BLE001 - raised again, unless it is the disk's
            self._note_failure(error, step=written.step, final=written.final)
            return
        if self._log_error is not None:
            raise self._log_error
        self.source.progress.note_checkpoints(existing)
        if self.on_checkpoint_saved is not None:
            with randomness.kept():  # the step after which it is called depends on the disk
                self.on_checkpoint_saved(saved, self.source.progress.state, self.source.ctx)

    def finish_alone(self) -> None:
        """The same after the run has failed on this rank: the others may not answer any more, and are not asked."""
        if self.source.ranks.world_size == 1:
            self.finish()
        elif self._in_flight is not None:
            written, self._in_flight = self._in_flight, None
            written.record.result()

    def abandon(self) -> None:
        """Let nothing more be committed: the run is over, and does not wait."""
        self._abandoned = True

    def _outcome(self, written: _InFlight) -> tuple[Checkpoint, tuple[Checkpoint, ...]] | Any:
        """Return the written checkpoint and all existing ones, as the first rank sends them to the others."""
        record = written.record.result()
        return (self._describe(record), self._existing()) if record is not None else None

    def _note_failure(self, error: BaseException, *, step: int, final: bool) -> None:
        """Go on without a checkpoint, if that is possible; on all ranks alike."""
        self._begun = None
        if final or self.required or not _is_the_disks(error):
            raise error
        what, reason = f"the checkpoint of step {step} could not be written", str(error)
        message = reason if reason.startswith(what) else f"{what}: {reason}"
        self.emit(events.Warning(code="checkpoint.not_written", message=message), step=step)

    def _begin(self, begun: list[Draft]) -> str:
        """Make the folder of a checkpoint; its path."""
        if not Path(self.source.ctx.run_dir).is_dir():  # else it would be made anew, with nothing but the checkpoint
            raise CheckpointError("the run directory was removed", code="run.gone", file=self.source.ctx.run_dir)
        begun.append(Draft.begin(self.folder, step=self.source.progress.state.step, attempt=self.attempt))
        if self.source.trainer.save_checkpoint is not None:
            (begun[0].folder / TRAINER_FOLDER).mkdir()
        return str(begun[0].folder)

    def _write(
        self, draft: Draft | None, folder: Path, captured: Captured, group: Any, *, epoch: int, final: bool
    ) -> CommitRecord | None:
        """Write what was copied and commit it. Runs in a thread of its own, and touches nothing that trains.

        :param draft: What to commit; None on the ranks that only write their parts.
        """
        try:
            if captured.shards is not None:  # first, as the other ranks do: they wait for one another here
                captured.shards.write(shards_folder(folder, STATE), group)
            sealed = self.source.nodes.collect(folder, lambda: self._write_snapshots(folder, captured))
            if draft is None:
                return None
        except BaseException:
            if draft is not None:
                draft.discard()
            raise
        record = draft.commit(epoch=epoch, final=final, sealed=sealed, may_commit=self._refuse_if_superseded)
        try:
            best = {one.metric: one.value for one in self.source.progress.best.values() if one.step == record.step}
            path = f"{self.folder.name}/{record.folder_name}"  # below the run directory, where the folder usually lies
            payload = events.CheckpointSaved(path=path, bytes=record.size, final=record.final, best=best)
            self.emit(payload, step=record.step, epoch=record.epoch)  # here: the loop may be in a long step
            self._prune(record)
        except OSError as error:  # of the log; the checkpoint is there
            self._log_error = error
        return record

    def _write_snapshots(self, folder: Path, captured: Captured) -> list[CommittedFile]:
        """Write what this rank writes alone; nothing but on the first."""
        sealed = [file for name, snapshot in captured.snapshots.items() for file in snapshot.write(folder, name)]
        if self.source.commits:
            self.sync_log()
        return sealed

    def _prune(self, newest: CommitRecord) -> None:
        try:
            if self._unremoved:  # again: a file may have been open, or busy
                remove_uncommitted(self.folder, self.attempt + 1, unremoved=[])
            removed = _retired_steps(self.folder) if self.mirrored else ()
            records = [record for record in self._records.look() if record.step not in removed]
            final = {record.step for record in records if record.final}
            kept = {one.step for one in self.source.progress.best.values()}
            if (restore := self.source.requests.owed.restore) is not None:
                kept.add(restore[0])
            protect = {newest.step, *final, *kept}
            prune(self.folder, keep=self.keep, protect=protect, records=records, only_retire=self.mirrored)
        except OSError as error:
            self._warn_of_unremoved(error, step=newest.step, epoch=newest.epoch)

    def _warn_of_unremoved(self, error: OSError, *, step: int | None = None, epoch: int | None = None) -> None:
        """Warn of a checkpoint that could not be removed: once of each, although each later save tries it again."""
        if str(error) not in self._unremoved:
            self._unremoved.add(str(error))
            message = f"an old checkpoint could not be removed, and is tried again later: {error}"
            self.emit(events.Warning(code="checkpoint.not_removed", message=message), step=step, epoch=epoch)

    def _refuse_if_superseded(self) -> None:
        if self._abandoned:
            raise Superseded("the run is over")
        newest = newest_claim(self.attempts)
        if newest > self.attempt:
            raise Superseded(f"attempt {newest} of this run has started; attempt {self.attempt} may not write any more")

    def restore(self, search: ResumeSearch) -> Callable[[], None] | None:
        """Load what was found to go on from: what the first rank has found.

        :return: What restores the random states, to be called before the first batch is prepared; None at step 0.
        """
        for skip in search.skipped:
            path = f"{self.folder.name}/{skip.path.name}"
            self.emit(events.CheckpointSkipped(path=path, reason=skip.reason))
        for error in search.unremoved:
            self._warn_of_unremoved(error)
        folder = restore(self.source, search, emit=self.emit)
        if folder is None:
            return None
        existing = on_first(self.source.ranks, self._existing)
        self.source.progress.note_checkpoints(existing)
        restore_randomness = random_states(self.source, folder, emit=self.emit)
        own = on_first(self.source.ranks, lambda: folder.parent == self.folder)
        step = self.source.progress.state.step
        if own:  # without a step of this attempt, what is committed, and uploaded, stays as it is
            self._begun = (step, any(one.step == step and one.final for one in existing))
        path = f"{self.folder.name}/{folder.name}" if own else str(folder)
        self.emit(events.RunResumed(path=path, owed=self.source.requests.owed.names))
        return restore_randomness

    def restore_trainer(self, step: int) -> None:
        """Load the trainer's state, and nothing else, from a checkpoint of the run.

        :raises CheckpointError: When there is none of this step that verifies.
        """
        self.finish()
        found = Path(on_first(self.source.ranks, lambda: str(self._verified(step))))
        folder = self.source.nodes.bring(found)
        host: Any = read_state(folder, "host")
        self.source.trainer.load(self.source.state, folder, host, self.source.ctx)
        self.source.mistakes.forget()
        self.outdate()

    def _verified(self, step: int) -> Path:
        record = next((one for one in committed(self.folder) if one.step == step), None)
        if record is None:
            raise CheckpointError(
                f"a component asks for the trainer's state of step {step}, of which there is no checkpoint",
                file=str(self.folder),
                hint="request_restore takes the step of one of run_state.checkpoints",
            )
        verify(self.folder, record)
        return self.folder / record.folder_name

    def _existing(self) -> tuple[Checkpoint, ...]:
        removed = _retired_steps(self.folder)  # first: one that goes meanwhile is in neither
        return tuple(self._describe(one) for one in committed(self.folder) if one.step not in removed)

    def _describe(self, record: CommitRecord) -> Checkpoint:
        return Checkpoint(
            step=record.step,
            epoch=record.epoch,
            path=str(self.folder / record.folder_name),
            bytes=record.size,
            final=record.final,
        )


def _retired_steps(folder: Path) -> set[int]:
    return {claim.step for claim in retired(folder)}


def _is_the_disks(error: BaseException) -> bool:
    if isinstance(error, OSError) or (isinstance(error, DistributedError) and error.errno is not None):
        return error.errno in _REFUSALS
    return getattr(error, "code", None) == _NOT_WRITTEN


def stateful(callbacks: Iterable[Component]) -> dict[str, Component]:
    """The callbacks that keep a state, by the label of their use."""
    return {one.use: one for one in callbacks if hasattr(one.instance, "callback_state")}

"""The worker's checkpoints: what goes into one, and how a run comes back from it.

A checkpoint is taken in two halves. In the loop: everything is encoded and copied, and the trainer's own
``save_checkpoint`` writes its files. In a thread: hashing, writing, syncing, the commit, its event, and the removal of
old ones. One write is in flight at a time; callbacks hear of it in the loop, after the step in which it ended.
"""

import errno
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

import attrs

from hostcore.checkpoints.commit import Draft
from hostcore.checkpoints.errors import CheckpointError
from hostcore.checkpoints.find import committed, verify
from hostcore.checkpoints.prune import prune
from hostcore.checkpoints.record import CommitRecord
from hostcore.checkpoints.snapshot import StateBuffer, StateSnapshot
from hostcore.checkpoints.state import read_state
from hostcore.runs.attempts import newest_attempt
from hostcore.worker import randomness
from hostcore.worker.feed.feed import Feed
from hostcore.worker.progress import Progress
from hostcore.worker.resuming import Search
from hostcore.worker.saving import BackgroundWrite, Written
from hostcore_hookspecs import events
from hostcore_hookspecs.context import StepContext
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


class InvalidState(HostcoreError):
    """What a trainer returned as its state is none."""

    code = "trainer.invalid_state"


class Emit(Protocol):
    """Appends an event to the rank's log."""

    def __call__(self, payload: events.Payload, *, step: int | None = None, epoch: int | None = None) -> None:
        """Append an event; of the present step, unless it says another."""


@attrs.frozen(kw_only=True)
class TrainerCalls:
    """The trainer's methods that a checkpoint needs; None where it has none."""

    state_dict: Call
    load_state_dict: Call
    save_checkpoint: Call | None
    load_checkpoint: Call | None


@attrs.define(kw_only=True, eq=False)
class Checkpointer:
    """Saves and restores one run."""

    #: Where the checkpoints lie; absolute.
    folder: Path
    attempts: Path
    attempt: int
    rank: int
    keep: int
    #: Whether the run fails when a checkpoint cannot be written; else only the last one must be.
    required: bool
    ctx: StepContext
    #: What the trainer's ``configure`` returned.
    state: Any
    trainer: TrainerCalls
    #: Callback components that keep a state, by the label of their use.
    callbacks: Mapping[str, Any]
    #: None: nobody implements it.
    on_checkpoint_saved: Call | None
    feed: Feed
    progress: Progress
    emit: Emit
    #: Waits until the log is on the disk: a checkpoint must not be ahead of its own metrics.
    sync_log: Callable[[], None]
    #: Whether a write has ended that nobody has been told of. Read by the loop at every step.
    has_news: bool = False
    #: Memory for the copies, used again by each.
    _buffers: Mapping[str, StateBuffer] = attrs.field(init=False)
    _in_flight: BackgroundWrite | None = None
    _abandoned: bool = False
    #: What kept the event of a checkpoint from being written.
    _log_error: OSError | None = None
    #: Step and ``final`` of the checkpoint begun last.
    _begun: tuple[int, bool] | None = None

    def __attrs_post_init__(self) -> None:
        self._buffers = {name: StateBuffer() for name in ("state", "host", f"rank-{self.rank}")}

    def save(self, *, final: bool) -> None:
        """Begin a checkpoint of the present state; returns as soon as training may go on.

        One that cannot be written is a warning, and training goes on; the last one of a run must be written.

        :raises CheckpointError: When what the trainer gave cannot be stored; when the checkpoint cannot be begun or the
            one before could not be written, for instance because the disk is full, and it must be.
        :raises Superseded: When a newer attempt runs.
        """
        run_state = self.progress.state
        if run_state.step == 0 or self._begun == (run_state.step, final):
            return
        self.finish()
        draft: Draft | None = None
        try:
            draft = Draft.begin(self.folder, step=run_state.step, attempt=self.attempt)
            snapshots = self._take(draft.folder, final=final)
        except BaseException as error:  # noqa: BLE001 - raised again, unless it is the disk's
            if draft is not None:
                draft.discard()
            self._settle(Written(step=run_state.step, final=final, error=error))
            return
        self._begun = (run_state.step, final)
        epoch = run_state.epoch  # by now: the thread comes to it later
        self._in_flight = BackgroundWrite(
            lambda: self._write(draft, snapshots, epoch=epoch, final=final),
            step=run_state.step,
            final=final,
            when_ended=self._note_news,
        )

    def _note_news(self) -> None:
        self.has_news = True

    def finish(self) -> None:
        """Wait for the write in flight, if there is one, and tell how it ended.

        :raises CheckpointError: When it could not be written, and must be.
        :raises Superseded: When a newer attempt runs.
        """
        if self._in_flight is not None:
            written, self._in_flight, self.has_news = self._in_flight.wait(), None, False
            self._settle(written)

    def abandon(self) -> None:
        """Let nothing more be committed: the run is over, and does not wait."""
        self._abandoned = True

    def _settle(self, written: Written) -> None:
        """Tell how a write ended."""
        error = written.error
        if error is not None:
            self._begun = None
            if written.final or self.required or not _is_the_disks(error):
                raise error
            what, reason = f"the checkpoint of step {written.step} could not be written", str(error)
            message = reason if reason.startswith(what) else f"{what}: {reason}"
            self.emit(events.Warning(code="checkpoint.not_written", message=message))
            return
        if self._log_error is not None:
            raise self._log_error
        record = written.record
        assert record is not None
        self.progress.note_checkpoints(tuple(self._describe(one) for one in committed(self.folder)))
        if self.on_checkpoint_saved is not None:
            with randomness.kept():  # the step after which it is called depends on the disk
                self.on_checkpoint_saved(self._describe(record), self.progress.state, self.ctx)

    def _take(self, folder: Path, *, final: bool) -> Mapping[str, StateSnapshot]:
        """Copy everything that a checkpoint holds. The random states come last: what ran before may draw."""
        info = None
        state = self.trainer.state_dict(self.state)
        if not isinstance(state, dict):
            raise InvalidState(
                f"state_dict returned {type(state).__name__}, not a dictionary, so nothing could be resumed from it",
                hint="return everything that is needed to continue: model, optimizer, scheduler",
            )
        snapshots = {"state": self._buffers["state"].snapshot(state)}
        if self.trainer.save_checkpoint is not None:
            own = folder / "trainer"
            own.mkdir()
            info = self.trainer.save_checkpoint(self.state, self.progress.state.step, str(own), final, self.ctx)
        host = {
            "run_id": self.ctx.job.run_id,
            "progress": self.progress.stored(),
            "cursor": self.progress.stored_cursor(),
            "data": dict(self.feed.identity()),
            "shard_rows": list(self.feed.shard_rows),
            "callbacks": {use: callback.callback_state() for use, callback in self.callbacks.items()},
            "scaler": None if self.ctx.scaler is None else self.ctx.scaler.state_dict(),
            "trainer_checkpoint": None if info is None else dict(info),
        }
        snapshots["host"] = self._buffers["host"].snapshot(host)
        rank = f"rank-{self.rank}"
        snapshots[rank] = self._buffers[rank].snapshot({"random": randomness.capture()})
        return snapshots

    def _write(self, draft: Draft, snapshots: Mapping[str, StateSnapshot], *, epoch: int, final: bool) -> CommitRecord:
        """Write what was copied and commit it. Runs in a thread of its own, and touches nothing that trains."""
        try:
            sealed = [file for name, snapshot in snapshots.items() for file in snapshot.write(draft.folder, name)]
            self.sync_log()
        except BaseException:
            draft.discard()
            raise
        record = draft.commit(epoch=epoch, final=final, sealed=sealed, may_commit=self._refuse_if_superseded)
        try:
            best = {one.metric: one.value for one in self.progress.best.values() if one.step == record.step}
            payload = events.CheckpointSaved(path=self._shown(record), bytes=record.size, final=record.final, best=best)
            self.emit(payload, step=record.step, epoch=record.epoch)  # here: the loop may be in a long step
            self._prune(record)
        except OSError as error:  # of the log; the checkpoint is there
            self._log_error = error
        return record

    def _prune(self, newest: CommitRecord) -> None:
        try:
            final = {record.step for record in committed(self.folder) if record.final}
            best = {one.step for one in self.progress.best.values()}
            prune(self.folder, keep=self.keep, protect={newest.step, *final, *best})
        except OSError as error:
            reason = f"an old checkpoint could not be removed: {error}"
            warning = events.Warning(code="checkpoint.not_removed", message=reason)
            self.emit(warning, step=newest.step, epoch=newest.epoch)

    def _refuse_if_superseded(self) -> None:
        if self._abandoned:
            raise Superseded("the run is over")
        newest_claim = newest_attempt(self.attempts)
        if newest_claim > self.attempt:
            raise Superseded(
                f"attempt {newest_claim} of this run has started; attempt {self.attempt} may not write any more"
            )

    def restore(self, search: Search) -> Callable[[], None] | None:
        """Load what was found to go on from.

        :return: What restores the random states, to be called before the first batch is prepared; None at step 0.
        """
        for skip in search.skipped:
            path = f"{self.folder.name}/{skip.path.name}"
            self.emit(events.CheckpointSkipped(path=path, reason=skip.reason))
        if search.point is None:
            if search.skipped:
                lost = f"none of the {len(search.skipped)} checkpoints verifies: the run starts again at step 0"
                self.emit(events.Warning(code="checkpoint.none", message=lost))
            return None
        folder, host = search.point.found.folder, search.point.host
        self._load_trainer(folder, host)
        for use, callback in self.callbacks.items():
            if use in host["callbacks"]:
                callback.load_callback_state(host["callbacks"][use])
        self.progress.load(host["progress"], digest=host["cursor"]["digest"])
        self.progress.note_checkpoints(tuple(self._describe(one) for one in committed(self.folder)))
        states: Any = read_state(folder, f"rank-{self.rank}")
        own = folder.parent == self.folder
        self.emit(events.RunResumed(path=self._shown(search.point.found.record) if own else str(folder)))
        return lambda: randomness.restore(states["random"])

    def restore_trainer(self, step: int) -> None:
        """Load the trainer's state, and nothing else, from a checkpoint of the run.

        :raises CheckpointError: When there is none of this step that verifies.
        """
        self.finish()
        record = next((one for one in committed(self.folder) if one.step == step), None)
        if record is None:
            raise CheckpointError(
                f"a component asks for the trainer's state of step {step}, of which there is no checkpoint",
                file=str(self.folder),
                hint="request_restore takes the step of one of run_state.checkpoints",
            )
        verify(self.folder, record)
        folder = self.folder / record.folder_name
        host = read_state(folder, "host")
        assert isinstance(host, Mapping)
        self._load_trainer(folder, host)

    def _load_trainer(self, folder: Path, host: Mapping[str, Any]) -> None:
        payload = read_state(folder, "state")
        self.trainer.load_state_dict(self.state, payload, self.ctx)
        if self.trainer.load_checkpoint is not None and (folder / "trainer").is_dir():
            self.trainer.load_checkpoint(self.state, str(folder / "trainer"), payload, self.ctx)
        if self.ctx.scaler is not None and host["scaler"] is not None:
            self.ctx.scaler.load_state_dict(host["scaler"])

    def _describe(self, record: CommitRecord) -> Checkpoint:
        return Checkpoint(
            step=record.step,
            epoch=record.epoch,
            path=str(self.folder / record.folder_name),
            bytes=record.size,
            final=record.final,
        )

    def _shown(self, record: CommitRecord) -> str:
        """The checkpoint below the run directory, which is where its folder usually lies."""
        return f"{self.folder.name}/{record.folder_name}"


def _is_the_disks(error: BaseException) -> bool:
    if isinstance(error, OSError):
        return error.errno in _REFUSALS
    return getattr(error, "code", None) == _NOT_WRITTEN


def stateful(callbacks: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """The callbacks that keep a state, by the label of their use."""
    return {use: callback for use, callback in callbacks if hasattr(callback, "callback_state")}

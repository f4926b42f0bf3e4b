"""The worker's checkpoints: what goes into one, and how a run comes back from it."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import attrs

from hostcore.checkpoints.commit import commit
from hostcore.checkpoints.errors import CheckpointError
from hostcore.checkpoints.find import committed
from hostcore.checkpoints.prune import prune
from hostcore.checkpoints.record import CommitRecord
from hostcore.checkpoints.state import read_state, write_state
from hostcore.runs.attempts import newest_attempt
from hostcore.worker import randomness
from hostcore.worker.feed.feed import Feed
from hostcore.worker.progress import Progress
from hostcore.worker.resuming import Search
from hostcore_hookspecs import events
from hostcore_hookspecs.context import StepContext
from hostcore_hookspecs.errors import HostcoreError
from hostcore_hookspecs.run_state import Checkpoint

Call = Callable[..., Any]
Emit = Callable[[events.Payload], None]

#: The code of the errors about a file system that refuses.
_NOT_WRITTEN = "checkpoint.write"


class Superseded(HostcoreError):
    """A newer attempt of this run has started, so this one may not write any more."""

    code = "run.superseded"


class InvalidState(HostcoreError):
    """What a trainer returned as its state is none."""

    code = "trainer.invalid_state"


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
    ctx: StepContext
    #: What the trainer's ``configure`` returned.
    state: Any
    trainer: TrainerCalls
    #: Callback components that keep a state, by the label of their use.
    callbacks: Mapping[str, Any]
    on_checkpoint_saved: Call
    feed: Feed
    progress: Progress
    emit: Emit
    #: Waits until the log is on the disk: a checkpoint must not be ahead of its own metrics.
    sync_log: Callable[[], None]
    #: Step and ``final`` of the checkpoint written last.
    _saved: tuple[int, bool] | None = None

    def save(self, *, final: bool) -> None:
        """Commit a checkpoint of the present state.

        One that cannot be written is a warning, and training goes on; the last one of a run must be written.

        :raises CheckpointError: When the last checkpoint cannot be written, for instance because the disk is full; or
            when what the trainer gave cannot be stored.
        :raises Superseded: When a newer attempt runs.
        """
        run_state = self.progress.state
        if run_state.step == 0 or self._saved == (run_state.step, final):
            return
        try:
            record = commit(
                self.folder,
                step=run_state.step,
                epoch=run_state.epoch,
                final=final,
                attempt=self.attempt,
                fill=lambda folder: self._fill(folder, final=final),
                may_commit=self._refuse_if_superseded,
            )
        except (OSError, CheckpointError) as error:
            if final or getattr(error, "code", _NOT_WRITTEN) != _NOT_WRITTEN:
                raise
            reason = f"checkpoint at step {run_state.step} could not be written: {error}"
            self.emit(events.Warning(code="checkpoint.not_written", message=reason))
            return
        self._saved = (record.step, record.final)
        self._prune(record.step)
        saved = self._describe(record)
        self.progress.note_checkpoints(tuple(self._describe(one) for one in committed(self.folder)))
        self.emit(events.CheckpointSaved(path=self._shown(record), bytes=saved.bytes, final=final))
        self.sync_log()
        self.on_checkpoint_saved(saved, run_state, self.ctx)

    def _prune(self, newest_step: int) -> None:
        try:
            final = {record.step for record in committed(self.folder) if record.final}
            prune(self.folder, keep=self.keep, protect={newest_step, *final})
        except OSError as error:
            reason = f"an old checkpoint could not be removed: {error}"
            self.emit(events.Warning(code="checkpoint.not_removed", message=reason))

    def _fill(self, folder: Path, *, final: bool) -> None:
        """Write everything into a checkpoint's folder. The random states come last: what ran before may draw."""
        info = None
        state = self.trainer.state_dict(self.state)
        if not isinstance(state, dict):
            raise InvalidState(
                f"state_dict returned {type(state).__name__}, not a dictionary, so nothing could be resumed from it",
                hint="return everything that is needed to continue: model, optimizer, scheduler",
            )
        write_state(folder, "state", state)
        if self.trainer.save_checkpoint is not None:
            own = folder / "trainer"
            own.mkdir()
            info = self.trainer.save_checkpoint(self.state, self.progress.state.step, str(own), final, self.ctx)
        host = {
            "run_id": self.ctx.job.run_id,
            "progress": self.progress.stored(),
            "data": dict(self.feed.identity()),
            "callbacks": {use: callback.callback_state() for use, callback in self.callbacks.items()},
            "trainer_checkpoint": None if info is None else dict(info),
        }
        write_state(folder, "host", host)
        write_state(folder, f"rank-{self.rank}", {"random": randomness.capture()})

    def _refuse_if_superseded(self) -> None:
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
        payload = read_state(folder, "state")
        self.trainer.load_state_dict(self.state, payload, self.ctx)
        if self.trainer.load_checkpoint is not None and (folder / "trainer").is_dir():
            self.trainer.load_checkpoint(self.state, str(folder / "trainer"), payload, self.ctx)
        for use, callback in self.callbacks.items():
            if use in host["callbacks"]:
                callback.load_callback_state(host["callbacks"][use])
        self.progress.load(host["progress"])
        self.progress.note_checkpoints(tuple(self._describe(one) for one in committed(self.folder)))
        states: Any = read_state(folder, f"rank-{self.rank}")
        own = folder.parent == self.folder
        self.emit(events.RunResumed(path=self._shown(search.point.found.record) if own else str(folder)))
        return lambda: randomness.restore(states["random"])

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


def stateful(callbacks: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """The callbacks that keep a state, by the label of their use."""
    return {use: callback for use, callback in callbacks if hasattr(callback, "callback_state")}

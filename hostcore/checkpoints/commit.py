"""Writing a checkpoint: there whole, or not at all, whenever the power goes."""

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path

import attrs

from hostcore.checkpoints import durable
from hostcore.checkpoints.errors import CheckpointError, writing
from hostcore.checkpoints.leftovers import settle
from hostcore.checkpoints.names import Claim, Purpose
from hostcore.checkpoints.record import CommitRecord, CommittedFile
from hostcore.checkpoints.sealing import seal


def _always() -> None:
    """Without a condition."""


@attrs.frozen(eq=False)
class Draft:
    """A checkpoint that is being written, replacing an older one of the same step.

    The protocol, each line on the disk before the next begins::

        begin    a hidden folder; the caller writes the files into it
        commit   the files that are not sealed yet are, then the folder; the record is written to a hidden file
                 an older version: rename its record to a hidden name (it is withdrawn), then its folder
                 rename the folder to step-000200
                 rename the record to step-000200.json          <- from here on the checkpoint exists
                 remove the older version

    After an error nothing has changed: the hidden files are gone and an older version is back in its place.
    After a crash, ``remove_uncommitted`` of the next attempt does the same.

    ``begin`` is cheap; ``commit`` waits for the disk, and may be called from another thread.
    """

    _claim: Claim

    @classmethod
    def begin(cls, directory: Path, *, step: int, attempt: int) -> "Draft":
        """Make the hidden folder, after what an earlier draft of the same step and attempt may have left is undone.

        :param directory: The run's ``checkpoints`` folder; created if missing.
        :param step: Finished steps.
        :param attempt: The attempt that writes, from 1.
        :raises CheckpointError: When the file system refuses.
        """
        draft = cls(Claim(directory.absolute(), step, attempt))
        try:
            with draft._writing():
                durable.make_folder(draft._claim.directory)
                settle(draft._claim)
                durable.make_hidden_folder(draft.folder)
        except BaseException:
            draft.discard()
            raise
        return draft

    @property
    def folder(self) -> Path:
        """The folder for the files; absolute. It has another name once it is committed."""
        return self._claim.hidden_folder("tmp")

    def commit(
        self,
        *,
        epoch: int,
        final: bool,
        sealed: Iterable[CommittedFile] = (),
        may_commit: Callable[[], None] = _always,
    ) -> CommitRecord:
        """Make it a checkpoint. Called once; when it raises, the draft is discarded.

        :param final: Whether it is the last checkpoint of the run.
        :param sealed: The files that ``StateSnapshot.write`` wrote: they are on the disk and are not hashed again.
        :param may_commit: Called once before anything that others can see is touched; raises to refuse, because a
            higher attempt has taken over.
        :raises CheckpointError: When the file system refuses, or the folder holds something that is not a regular
            file, or a sealed file has changed.
        """
        claim = self._claim
        try:
            with self._writing():
                files = seal(self.folder, sealed)
                # The name of the folder before that of the record, which alone would mean that the folder has moved;
                # and the name of the directory, which a killed attempt may have made and not brought to the disk.
                durable.fsync_folder(claim.directory)
                durable.fsync_folder(claim.directory.parent)
                record = CommitRecord(step=claim.step, epoch=epoch, final=final, attempt=claim.attempt, files=files)
                durable.write_file(claim.hidden_record("tmp"), [record.to_json()])
                durable.fsync_folder(claim.directory)
            may_commit()
            with self._writing():
                _publish(claim)
        except BaseException:
            self.discard()
            raise
        _remove(claim, "old")
        return record

    def discard(self) -> None:
        """Remove what was written, unless it is committed. What cannot be removed now, the next attempt removes."""
        claim = self._claim
        if os.path.lexists(claim.hidden_folder("tmp")):
            _remove(claim, "tmp")
        # Else the folder has moved to its place. If an error kept it there, the hidden record marks it as no
        # checkpoint, and an older version waits under its hidden name: the next attempt needs both.

    def _writing(self) -> AbstractContextManager[None]:
        return writing(f"the checkpoint of step {self._claim.step}", self._claim.directory)


def commit(
    directory: Path,
    *,
    step: int,
    epoch: int,
    final: bool,
    attempt: int,
    fill: Callable[[Path], None],
    may_commit: Callable[[], None] = _always,
) -> CommitRecord:
    """Write a checkpoint in one go; see :class:`Draft`.

    :param fill: Writes the files into the empty folder it is given. Its exceptions go through unchanged.
    :raises CheckpointError: As :meth:`Draft.begin` and :meth:`Draft.commit` do.
    """
    draft = Draft.begin(directory, step=step, attempt=attempt)
    try:
        fill(draft.folder)
    except BaseException:
        draft.discard()
        raise
    return draft.commit(epoch=epoch, final=final, may_commit=may_commit)


def _remove(claim: Claim, purpose: Purpose) -> None:
    # The record first: beside a missing folder it would mean that the folder has moved to its place.
    # What cannot be removed now stays hidden, and the next attempt removes it.
    with suppress(OSError):
        durable.remove_file(claim.hidden_record(purpose))
        durable.remove_folder(claim.hidden_folder(purpose))


def _publish(claim: Claim) -> None:
    """Do the renames of the protocol; on an error, undo those that were done, in their order."""
    moves = [
        *_make_room(claim),
        (claim.hidden_folder("tmp"), claim.folder),
        (claim.hidden_record("tmp"), claim.record),
    ]
    done: list[tuple[Path, Path]] = []
    try:
        for source, target in moves:
            done.append((source, target))  # before it is done: an interrupt may come between
            durable.move(source, target)
    except BaseException:
        for source, target in reversed(done):
            if os.path.lexists(target) and not os.path.lexists(source):
                durable.move(target, source)
        raise


def _make_room(claim: Claim) -> Sequence[tuple[Path, Path]]:
    """The renames that free the names of a step: an older version's record is withdrawn before its folder moves.

    A folder without a record of ours may be a user's: it is set aside under a visible name, and stays.
    """
    occupied = [path for path in (claim.record, claim.folder) if os.path.lexists(path)]
    if _is_ours(claim):
        hidden = {claim.record: claim.hidden_record("old"), claim.folder: claim.hidden_folder("old")}
        return [(path, hidden[path]) for path in occupied]
    return [(path, _unused(path.with_name(f"{path.name}.set-aside"))) for path in occupied]


def _is_ours(claim: Claim) -> bool:
    try:
        return CommitRecord.from_json(claim.record.read_bytes()).step == claim.step
    except (CheckpointError, FileNotFoundError, IsADirectoryError):
        return False


def _unused(path: Path) -> Path:
    number = 1
    while os.path.lexists(candidate := path.with_name(f"{path.name}-{number}")):
        number += 1
    return candidate

"""Removal of what a crash in the middle of a commit or a prune leaves."""

import errno
import os
from pathlib import Path
from typing import Final

from hostcore.checkpoints import durable
from hostcore.checkpoints.names import Claim, claims

#: Errors about a file that something holds; the others are the file system's own.
_HELD: Final = frozenset({errno.EPERM, errno.EACCES, errno.EBUSY, errno.ENOTEMPTY})

#: How often files may vanish while they are removed.
_TRIES: Final = 100


def settle(claim: Claim) -> None:
    """Undo what a commit of this claim left half-done, and finish what a prune did. Can itself be cut off anywhere.

    The hidden names show how far it came; the renames and their order are in ``commit``.
    """
    if not any(os.path.lexists(path) for path in claim.hidden):
        return
    # What is seen here may not be on the disk yet. A power cut must not undo what has been acted upon.
    durable.fsync_folder(claim.directory)
    written = not os.path.lexists(claim.hidden_folder("tmp")) and os.path.lexists(claim.hidden_record("tmp"))
    pruned = os.path.lexists(claim.hidden_record("pruned"))
    if (written or pruned) and not os.path.lexists(claim.record):
        durable.remove_folder(claim.folder)  # moved into place, never published; or withdrawn
    # Before an older version comes back: its folder would look like one that was never published.
    durable.remove_file(claim.hidden_record("tmp"))
    if pruned:
        durable.remove_file(claim.retired)
    if not os.path.lexists(claim.record):
        _put_back(claim.hidden_folder("old"), claim.folder)
        _put_back(claim.hidden_record("old"), claim.record)
    for purpose in ("tmp", "old", "pruned"):
        durable.remove_folder(claim.hidden_folder(purpose))
        durable.remove_file(claim.hidden_record(purpose))


def _settle_beside_others(claim: Claim) -> None:
    """Settle a claim, also while another process removes what it has retired."""
    for _ in range(_TRIES):
        try:
            return settle(claim)
        except FileNotFoundError:
            continue
    settle(claim)
    return None


def _older(claim: Claim) -> tuple[Path, Path]:
    """Return the place of an older version of the step that a commit was about to replace."""
    return claim.hidden_folder("old"), claim.hidden_record("old")


def _put_back(hidden: Path, visible: Path) -> None:
    if os.path.lexists(hidden) and not os.path.lexists(visible):
        durable.move(hidden, visible)


def remove_uncommitted(directory: Path, attempt: int, *, unremoved: list[OSError] | None = None) -> list[int]:
    """Undo what earlier attempts left half-done. For the holder of the newest attempt, before it looks for checkpoints.

    An older version of a step that was about to be replaced comes back; everything else that was never committed goes.
    What is not ours by name and record stays.

    :param directory: The run's ``checkpoints`` folder; may be missing.
    :param attempt: The attempt that asks. What itself and later ones have left is not touched.
    :param unremoved: Gets the errors about what is held (an immutable or busy file, ``.nfs…``) and is in no one's way:
        it is no checkpoint, and the next call tries it again. None: they are raised, as all others are.
    :return: The steps concerned.
    :raises OSError: When something cannot be removed or put back.
    """
    if not directory.is_dir():
        return []
    earlier = [claim for claim in claims(directory.absolute()) if claim.attempt < attempt]
    for claim in earlier:
        try:
            _settle_beside_others(claim)
        except OSError as error:
            replaced = not os.path.lexists(claim.record) and any(map(os.path.lexists, _older(claim)))
            if unremoved is None or replaced or error.errno not in _HELD:
                raise
            unremoved.append(error)
    return sorted({claim.step for claim in earlier})

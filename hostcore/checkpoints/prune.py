"""Removing the checkpoints that are not to be kept."""

from collections.abc import Collection, Sequence
from pathlib import Path

from hostcore.checkpoints import durable
from hostcore.checkpoints.errors import CheckpointError
from hostcore.checkpoints.find import committed, verify
from hostcore.checkpoints.names import Claim
from hostcore.checkpoints.record import CommitRecord


def prune(
    directory: Path, *, keep: int, protect: Collection[int], records: Sequence[CommitRecord] | None = None
) -> list[int]:
    """Remove old checkpoints: first the record, so that a half-removed one is none, then the folder.

    Nothing is removed before a newer checkpoint has been verified, and nothing that has no commit record of ours.

    :param directory: The run's ``checkpoints`` folder; may be missing.
    :param keep: How many of the newest to keep.
    :param protect: Steps to keep besides them: the best and the final one.
    :param records: Those of all checkpoints, oldest first, for callers that have just looked; else they are read.
    :return: The steps that were removed, oldest first.
    :raises OSError: When a checkpoint cannot be removed, after all others were; it does not count as one any more.
    """
    if keep < 0:
        raise ValueError(f"keep must not be negative: {keep}")
    records = committed(directory) if records is None else records
    unwanted = [record for record in records[: max(len(records) - keep, 0)] if record.step not in protect]
    if not unwanted:
        return []
    verified = _newest_verified(directory, records, above=unwanted[0].step)
    removable = [record for record in unwanted if verified is not None and record.step < verified]
    failures: list[OSError] = []
    for record in removable:
        try:
            _remove(Claim(directory.absolute(), record.step, record.attempt))
        except OSError as error:
            failures.append(error)
    if failures:
        raise failures[0]
    return [record.step for record in removable]


def _newest_verified(directory: Path, records: Sequence[CommitRecord], *, above: int) -> int | None:
    for record in reversed(records):
        if record.step <= above:
            break
        try:
            verify(directory, record)
        except CheckpointError:
            continue  # the next search for a checkpoint reports it
        return record.step
    return None


def _remove(claim: Claim) -> None:
    # The withdrawn record keeps a hidden name until the folder is gone: after a crash it says that the folder is ours.
    durable.move(claim.record, claim.hidden_record("pruned"))
    durable.remove_folder(claim.folder)
    durable.remove_file(claim.hidden_record("pruned"))

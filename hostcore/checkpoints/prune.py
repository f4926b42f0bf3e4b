"""Removing the checkpoints that are not to be kept.

The worker calls :func:`prune`, which removes them at once, or, where uploaders may still need them, retires
them with a mark beside the commit record: the supervisor removes them when they have been uploaded.
"""

from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from hostcore.checkpoints import durable
from hostcore.checkpoints.errors import CheckpointError
from hostcore.checkpoints.find import committed, verify
from hostcore.checkpoints.names import Claim, retired_claim
from hostcore.checkpoints.record import CommitRecord


def prune(
    directory: Path,
    *,
    keep: int,
    protect: Collection[int],
    records: Sequence[CommitRecord] | None = None,
    only_retire: bool = False,
) -> list[int]:
    """Remove or retire old checkpoints.

    Nothing is removed before a newer checkpoint has been verified, and nothing that has no commit record of ours.

    :param directory: The run's ``checkpoints`` folder; may be missing.
    :param keep: How many of the newest to keep.
    :param protect: Steps to keep besides them: the best and the final one.
    :param records: Those of all checkpoints, oldest first, for callers that have just looked; else they are read.
    :param only_retire: Mark them, and leave their removal to the supervisor.
    :return: The steps concerned, oldest first.
    :raises OSError: When a checkpoint cannot be removed or marked; the others are removed first.
    """
    claims = _unwanted(directory, keep=keep, protect=protect, records=records)
    (retire if only_retire else remove)(claims)
    return [claim.step for claim in claims]


def _unwanted(
    directory: Path, *, keep: int, protect: Collection[int], records: Sequence[CommitRecord] | None
) -> list[Claim]:
    """Return the old checkpoints that are not to be kept, oldest first."""
    if keep < 0:
        raise ValueError(f"keep must not be negative: {keep}")
    records = committed(directory) if records is None else records
    found = [record for record in records[: max(len(records) - keep, 0)] if record.step not in protect]
    verified = _newest_verified(directory, records, above=found[0].step) if found else None
    return [
        Claim(directory.absolute(), record.step, record.attempt)
        for record in found
        if verified is not None and record.step < verified
    ]


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


def remove(claims: Iterable[Claim]) -> None:
    """Remove checkpoints: first the record, so that a half-removed one is none, then the folder.

    :raises OSError: When a checkpoint cannot be removed, after all others were; it does not count as one any more.
    """
    failures: list[OSError] = []
    for claim in claims:
        try:
            # The withdrawn record keeps a hidden name until the folder is gone: after a crash it identifies the folder.
            durable.move(claim.record, claim.hidden_record("pruned"))
            durable.remove_folder(claim.folder)
            durable.remove_file(claim.retired)
            durable.remove_file(claim.hidden_record("pruned"))
        except OSError as error:
            failures.append(error)
    if failures:
        raise failures[0]


def remove_retired(claim: Claim) -> None:
    """Remove a retired checkpoint, unless its step was written again, or another process removes it.

    What is left after an error, :func:`hostcore.checkpoints.leftovers.settle` removes.

    :raises OSError: When it cannot be removed.
    """
    with suppress(FileNotFoundError):
        if _attempt_of(claim.record) == claim.attempt:
            remove([claim])


def retire(claims: Iterable[Claim]) -> None:
    """Mark checkpoints as kept only until they have been uploaded.

    :raises OSError: When the file system refuses.
    """
    for claim in claims:
        claim.retired.touch()


def retired(directory: Path) -> list[Claim]:
    """Return the checkpoints that are kept only until they have been uploaded, oldest first.

    A mark of an older version of a step, which was written again, does not count.

    :param directory: The run's ``checkpoints`` folder; may be missing.
    """
    names = [path.name for path in directory.iterdir()] if directory.is_dir() else []
    marks = sorted(mark for name in names if (mark := retired_claim(name)) is not None)
    claims = (Claim(directory.absolute(), step, attempt) for step, attempt in marks)
    return [claim for claim in claims if _attempt_of(claim.record) == claim.attempt]


def _attempt_of(record: Path) -> int | None:
    try:
        return CommitRecord.from_json(record.read_bytes(), file=record).attempt
    except (OSError, CheckpointError):
        return None

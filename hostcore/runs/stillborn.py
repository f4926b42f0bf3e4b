"""Runs that never were: their first supervisor was killed between making the folders and writing the record."""

from hostcore.runs.claims import read_claim
from hostcore.runs.directory import RunDirectory
from hostcore.runs.lease import Lease


def is_stillborn(directory: RunDirectory) -> bool:
    """Whether a run directory holds nothing but what is made before the record, by somebody who is gone."""
    if not directory.path.is_dir() or directory.record.exists():
        return False
    own = {directory.lease, directory.attempts / "1.json"}
    folders = {directory.record.parent, directory.attempts, directory.logs, directory.checkpoints, directory.samples}
    for path in directory.path.rglob("*"):
        is_torn = path.name.startswith(".") and path.name.endswith(".tmp")
        if path not in folders and path not in own and not is_torn:
            return False  # somebody's folder
    lease, claim = Lease.read(directory.lease), read_claim(directory.attempts, 1)
    if lease is not None and lease.is_live:
        return False
    return claim is None or not claim.process.is_here or not claim.process.runs


def remove_stillborn(directory: RunDirectory) -> None:
    """Remove a run directory that :func:`is_stillborn`, so that the run can begin."""
    if is_stillborn(directory):
        directory.remove()

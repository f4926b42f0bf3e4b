"""Orphaned runs: the first supervisor was killed after it made the run directory, and before it wrote the record."""

from hostcore.runs.attempts import read_claim
from hostcore.runs.directory import RunDirectory
from hostcore.runs.lease import Lease


def is_orphaned(directory: RunDirectory) -> bool:
    """Whether a run directory holds only what is made before the record, by a process that is gone."""
    if not directory.path.is_dir() or directory.record.exists():
        return False
    own = {directory.lease, directory.attempts / "1.json"}
    folders = {directory.record.parent, directory.attempts, directory.logs, directory.checkpoints, directory.samples}
    for path in directory.path.rglob("*"):
        is_torn = path.name.startswith(".") and path.name.endswith(".tmp")
        if path not in folders and path not in own and not is_torn:
            return False  # a folder of other content
    lease, claim = Lease.read(directory.lease), read_claim(directory.attempts, 1)
    if lease is not None and lease.is_live:
        return False
    return claim is None or not claim.process.is_here or not claim.process.runs


def remove_orphaned(directory: RunDirectory) -> None:
    """Remove a run directory that :func:`is_orphaned`, so that the run can begin."""
    if is_orphaned(directory):
        directory.remove()

"""Orphaned runs: the first supervisor was killed after it made the run directory, and before it wrote the record."""

from hostcore.runs.attempts import await_proof, read_claim
from hostcore.runs.directory import RunDirectory
from hostcore.runs.summary import is_opening


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
    claim = read_claim(directory.attempts, 1)
    if claim is not None and claim.process.is_here:
        return not claim.process.runs
    return not await_proof(directory) and (claim is None or not is_opening(directory, 1, claim))


def remove_orphaned(directory: RunDirectory) -> None:
    """Remove a run directory that :func:`is_orphaned`, so that the run can begin."""
    if is_orphaned(directory):
        directory.remove()

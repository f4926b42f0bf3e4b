"""Errors of checkpoints."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hostcore_hookspecs.errors import HostcoreError


class CheckpointError(HostcoreError):
    """A checkpoint cannot be written, is not there, or differs from its commit record."""

    code = "checkpoint.invalid"


class UnstorableState(CheckpointError):
    """A training state holds a value that a checkpoint cannot bring back.

    :param pointer: Where in the state: ``/optimizer/state/0/exp_avg``.
    :param what: The value in words: ``a defaultdict``.
    """

    code = "checkpoint.unstorable"

    def __init__(self, pointer: str, what: str, **where: Any) -> None:
        place = f"at {pointer}" if pointer else "as a whole"
        super().__init__(f"the state {place} is {what}, which a checkpoint cannot store", pointer=pointer, **where)


@contextmanager
def writing(what: str, place: Path) -> Iterator[None]:
    """Convert an error of the file system into an error about the lost checkpoint and the intact ones.

    :param what: What is being written: ``the checkpoint of step 200``.
    :param place: The file or folder to name where the file system names none.
    """
    try:
        yield
    except OSError as error:
        raise CheckpointError(
            f"{what} could not be written: {error.strerror or error}",
            code="checkpoint.write",
            file=str(error.filename or place),
            hint="Earlier checkpoints are intact. Make room or mend the permissions, then resume the run.",
        ) from error

"""What can be wrong with a checkpoint."""

from typing import Any

from hostcore_hookspecs.errors import HostcoreError


class CheckpointError(HostcoreError):
    """A checkpoint cannot be written, is not there, or is not what its commit record says."""

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

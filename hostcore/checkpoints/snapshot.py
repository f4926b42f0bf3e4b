"""Copies of training states, taken while the loop waits and written while it goes on."""

from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

import attrs

from hostcore.checkpoints.encoding import Encoded, allocate, copy_leaves, encode_whole
from hostcore.checkpoints.errors import writing
from hostcore.checkpoints.layout import Layout, lay_out
from hostcore.checkpoints.record import CommittedFile
from hostcore.checkpoints.sealing import write_sealed

if TYPE_CHECKING:
    import torch


class StateBuffer:
    """Takes snapshots, each into the memory of the one before: new memory costs several times what the copy does.

    So it has one snapshot at a time. To take the next waits until that is written, and ends it.
    """

    def __init__(self) -> None:
        #: Grows with the state; never shrinks.
        self._memory: torch.Tensor | None = None
        #: Held while a thread reads or writes the memory.
        self._lock = Lock()
        self._current: StateSnapshot | None = None

    def snapshot(self, value: object) -> "StateSnapshot":
        """Copy a tree of values. Whatever becomes of them when this has returned, the snapshot is as it was.

        :raises UnstorableState: When the tree holds a value that would not come back equal; ``pointer`` says which.
        :raises CheckpointError: When there is no memory for it.
        """
        return self.copy(encode_whole(value))

    def copy(self, encoded: Encoded) -> "StateSnapshot":
        """The same of a state that is encoded already; without its tensors that are spread over ranks.

        :raises CheckpointError: When there is no memory for it.
        """
        leaves = encoded.leaves
        layout = lay_out(leaf.entry for leaf in leaves)
        with self._lock:
            self._current = None
            memory = self._reserve(layout.size, pinned=any(leaf.on_cuda for leaf in leaves))
            copy_leaves(leaves, memory, layout.begins)
            self._current = StateSnapshot(document=encoded.document, layout=layout if leaves else None, buffer=self)
            return self._current

    def _reserve(self, size: int, *, pinned: bool) -> "torch.Tensor":
        memory = self._memory
        if memory is None or len(memory) < size or (pinned and not memory.is_pinned()):
            # A state that grows a little each time, as a history does, must not need new memory each time.
            room = size if memory is None else size + size // 8
            memory = self._memory = None  # gives the old one back first
            memory = self._memory = allocate(room, pinned=pinned)
        return memory

    def _write(self, snapshot: "StateSnapshot", path: Path, layout: Layout) -> CommittedFile:
        with self._lock:
            if self._current is not snapshot:
                raise RuntimeError("the memory of this snapshot holds a newer one")
            assert self._memory is not None
            return write_sealed(path, [layout.header, self._memory.numpy().data[: layout.size]])


@attrs.frozen(kw_only=True, eq=False)
class StateSnapshot:
    """A state as it was; valid until its buffer takes the next."""

    _document: bytes
    #: None: there are no tensors.
    _layout: Layout | None
    _buffer: StateBuffer

    def write(self, folder: Path, name: str) -> tuple[CommittedFile, ...]:
        """Write ``<name>.json`` and, if there are tensors or arrays, ``<name>.safetensors``. They are on the disk then.

        :param folder: The folder of a :class:`~hostcore.checkpoints.commit.Draft`, whose ``commit`` takes what is
            returned as ``sealed``.
        :raises CheckpointError: When the file system refuses.
        """
        path = folder / f"{name}.json"
        with writing(f"the state {name!r}", path):
            files = [write_sealed(path, [self._document])]
            if self._layout is not None:
                files.append(self._buffer._write(self, path.with_suffix(".safetensors"), self._layout))
        return tuple(files)


def write_state(folder: Path, name: str, value: object) -> tuple[CommittedFile, ...]:
    """Copy and write a small state in one go, as :class:`StateBuffer` and :class:`StateSnapshot` do.

    :raises CheckpointError: As they do.
    """
    return StateBuffer().snapshot(value).write(folder, name)

"""Copies of training states, taken while the loop waits and written while it continues.

On a CUDA device the process runs ahead of its steps, which are queued in streams. This order keeps a snapshot whole:

1. The device is waited for, so no stream still writes the state, whichever streams the trainer computes in.
2. The copies into pinned memory are queued without blocking, in the current stream, and waited for once.
3. Then ``snapshot`` returns, and the loop makes the next step, whose optimizer writes over the state. Files are written
   from main memory alone. The next snapshot writes over that, and waits for the lock of the thread that writes files.

Parts that are spread over ranks are copied by torch's ``DefaultStager``, behind the same wait, and waited for too.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

import attrs

from hostcore.checkpoints import durable
from hostcore.checkpoints.encoding import Encoded, TensorLeaf, allocate, copy_leaves, encode_whole
from hostcore.checkpoints.errors import CheckpointError, writing
from hostcore.checkpoints.layout import ALIGNMENT, Layout, lay_out
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

        :raises UnstorableState: When the tree holds a value that would not come back equal; ``pointer`` locates it.
        :raises CheckpointError: When there is no memory for it.
        """
        return self.copy(encode_whole(value))

    def copy(self, encoded: Encoded) -> "StateSnapshot":
        """The same of a state that is encoded already; without its tensors that are spread over ranks.

        :raises CheckpointError: When there is no memory for it.
        """
        leaves = encoded.leaves
        files = _places(encoded)
        size = max((file.end for file in files.values()), default=0)
        with self._lock:
            self._current = None
            memory = self._reserve(size, pinned=any(leaf.on_cuda for leaf in leaves))
            copy_leaves(leaves, memory, [files[leaf.file].place_of(leaf) for leaf in leaves])
            self._current = StateSnapshot(document=encoded.document, files=files, buffer=self)
            return self._current

    def _reserve(self, size: int, *, pinned: bool) -> "torch.Tensor":
        memory = self._memory
        if memory is None or len(memory) < size or (pinned and not memory.is_pinned()):
            # A state that grows a little each time, as a history does, must not need new memory each time.
            room = size if memory is None else size + size // 8
            memory = self._memory = None  # gives the old one back first
            memory = self._memory = allocate(room, pinned=pinned)
        return memory

    def _write(self, snapshot: "StateSnapshot", folder: Path, name: str, file: "_FileBuffer") -> CommittedFile:
        with self._lock:
            if self._current is not snapshot:
                raise RuntimeError("the memory of this snapshot holds a newer one")
            assert self._memory is not None
            return write_sealed(folder, name, [file.layout.header, self._memory.numpy().data[file.begin : file.end]])


@attrs.frozen(eq=False)
class _FileBuffer:
    """One safetensors file in the memory of a buffer."""

    layout: Layout
    #: In the memory, in bytes.
    begin: int

    @property
    def end(self) -> int:
        return self.begin + self.layout.size

    def place_of(self, leaf: TensorLeaf) -> int:
        """Return the place of one of the file's tensors in the memory."""
        return self.begin + self.layout.begins[leaf.entry.key]


def _places(encoded: Encoded) -> Mapping[str, _FileBuffer]:
    """A place in the memory for each file, by what the leaves call it; the state's own first, if there is one."""
    by_file: dict[str, list[TensorLeaf]] = {file: [] for file in encoded.files}
    for leaf in encoded.leaves:
        by_file.setdefault(leaf.file, []).append(leaf)
    places: dict[str, _FileBuffer] = {}
    end = 0
    for file in sorted(by_file):
        layout = lay_out((leaf.entry for leaf in by_file[file]), encoded.files.get(file, {}))
        places[file] = _FileBuffer(layout, begin=end + -end % ALIGNMENT)
        end = places[file].end
    return places


@attrs.frozen(kw_only=True, eq=False)
class StateSnapshot:
    """A state as it was; valid until its buffer takes the next."""

    _document: bytes
    _files: Mapping[str, _FileBuffer]
    _buffer: StateBuffer

    def write(self, folder: Path, name: str) -> tuple[CommittedFile, ...]:
        """Write ``<name>.json``, ``<name>.safetensors`` if there are tensors or arrays, and the files that hold others.

        They are on the disk then.

        :param folder: The folder of a :class:`~hostcore.checkpoints.commit.Draft`, whose ``commit`` takes what is
            returned as ``sealed``.
        :raises CheckpointError: When the file system refuses, or a file of tensors is there already.
        """
        with writing(f"the state {name!r}", folder / f"{name}.json"):
            written = [write_sealed(folder, f"{name}.json", [self._document])]
            for file, part in self._files.items():
                if file:
                    _make_way(folder / file)
                written.append(self._buffer._write(self, folder, file or f"{name}.safetensors", part))
        return tuple(written)


def _make_way(path: Path) -> None:
    """Make the folder of a file that the trainer has named."""
    if os.path.lexists(path):
        raise CheckpointError(
            f"{path.name} is there already, where a TensorFile of that name is to be written",
            code="checkpoint.content",
            file=str(path),
            hint="save_checkpoint has written it, or a callback has a file of the same name: give one of them another.",
        )
    durable.make_folder(path.parent)


def write_state(folder: Path, name: str, value: object) -> tuple[CommittedFile, ...]:
    """Copy and write a small state in one go, as :class:`StateBuffer` and :class:`StateSnapshot` do.

    :raises CheckpointError: As they do.
    """
    return StateBuffer().snapshot(value).write(folder, name)

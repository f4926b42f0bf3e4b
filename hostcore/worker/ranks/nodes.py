"""Files of a checkpoint where the ranks' machines do not share the folder that it lies in.

A checkpoint lies on the machine of the first rank. Ranks that do not see it there (by their contract) have a
folder of the same name on their own machine::

    bring      before a restore: the first rank broadcasts the files, and one rank of each machine writes them
    collect    after all ranks have written: one rank of each machine sends its files to the first, for its folder

Both go through a gloo group of their own. A file that cannot be read or written on one rank is an error on all, once
all have come to the end: none waits for another.
"""

import hashlib
import os
import shutil
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import attrs
import torch
import torch.distributed as dist

from hostcore.checkpoints.errors import writing
from hostcore.checkpoints.find import load_record
from hostcore.checkpoints.record import CommittedFile
from hostcore.checkpoints.sealing import files_below
from hostcore.worker.ranks.outcome import on_all
from hostcore.worker.ranks.protocol import Ranks

if TYPE_CHECKING:
    from io import BufferedIOBase

T = TypeVar("T")

#: What is sent at once, and held in memory for that.
_PIECE_BYTES: Final = 8 << 20


@attrs.frozen(kw_only=True, eq=False)
class Nodes:
    """Ranks that see the first rank's folder of checkpoints, and ranks with a folder of their own."""

    rank: int = 0
    world_size: int = 1
    #: Of checkpoints, as this rank sees it.
    folder: Path
    #: The ranks that receive and send for their machines, the first one of each that does not see the first's folder.
    carriers: Sequence[int] = ()
    #: None where all ranks see one folder.
    group: Any = None
    #: Whether this rank does not.
    is_apart: bool = False

    @classmethod
    def of(cls, ranks: Ranks, folder: Path, *, is_apart: bool) -> "Nodes":
        """Learn of the others. A collective.

        :param folder: Of checkpoints, as this rank sees it; it exists where ``is_apart``.
        """
        told = ranks.gather(_identity(folder) if is_apart else None) if ranks.world_size > 1 else [None]
        carriers = [rank for rank, each in enumerate(told) if each is not None and each not in told[:rank]]
        return cls(
            rank=ranks.rank,
            world_size=ranks.world_size,
            folder=folder,
            carriers=carriers,
            group=ranks.for_writing if carriers else None,
            is_apart=is_apart,
        )

    @property
    def _carries(self) -> bool:
        return self.rank in self.carriers

    def gather(self, value: Any) -> list[Any]:
        """The values of all ranks, by rank; see :class:`hostcore.worker.ranks.protocol.Exchange`."""
        values: list[Any] = [None] * self.world_size
        dist.all_gather_object(values, value, group=self.group)
        return values

    def prepare(self, folder: Path, below: Sequence[str]) -> Path:
        """A folder to write a checkpoint into. A collective.

        :param folder: The first rank's; it is there.
        :param below: Folders in it that are there as well.
        :return: This rank's.
        :raises CheckpointError, DistributedError: When one of them cannot be made.
        """
        if not self.carriers:
            return folder
        own = self.folder / folder.name if self.is_apart else folder

        def make() -> None:
            with writing("the checkpoint", own):
                for path in (own, *(own / name for name in below)):
                    path.mkdir(parents=True, exist_ok=True)

        on_all(self, make)
        return own

    def discard(self, name: str) -> None:
        """Remove this machine's folder of a checkpoint, which lies on the first rank's, or nowhere."""
        if self._carries:
            shutil.rmtree(self.folder / name, ignore_errors=True)

    def collect(self, folder: Path, write: Callable[[], T]) -> T:
        """Write what this rank has, and send it to the first rank. A collective, in the thread that writes.

        Where several machines have written a file of one name, the first rank's counts.

        :param folder: This rank's, which is gone after that on all machines but the first rank's.
        :param write: Writes into it.
        :raises CheckpointError, DistributedError: When one rank could not write, or a file could not be sent.
        """
        if not self.carriers:
            return write()
        written: list[T] = []

        def write_and_list() -> list[tuple[str, int]]:
            written.append(write())
            if not self._carries:
                return []
            with writing("the checkpoint", folder):
                return [(name, path.stat().st_size) for name, path in files_below(folder)]

        try:
            failure: OSError | None = None
            listed = on_all(self, write_and_list)
            for carrier in self.carriers:
                for name, size in listed[carrier]:
                    if self.rank in (0, carrier):
                        failure = self._send(carrier, folder / name, size) or failure
            on_all(self, lambda: _raise("the checkpoint", failure, folder))
        finally:
            self.discard(folder.name)
        return written[0]

    def _send(self, carrier: int, path: Path, size: int) -> OSError | None:
        """Send a file to the first rank, or receive it there."""
        if self.rank == carrier:
            with _Pieces(path, size, "rb") as pieces:
                for piece in pieces:
                    dist.send(pieces.read(piece), dst=0, group=self.group)
            return pieces.failure
        with _Pieces(path, size, "xb") as pieces:  # not where there is one
            for piece in pieces:
                dist.recv(piece, src=carrier, group=self.group)
                pieces.write(piece)
        return None if isinstance(pieces.failure, FileExistsError) else pieces.failure

    def bring(self, folder: Path) -> Path:
        """Have a checkpoint on all machines; one that was brought before is gone. A collective.

        :param folder: The first rank's path.
        :return: This rank's.
        :raises CheckpointError, DistributedError: When one rank could not read or write it.
        """
        if not self.carriers:
            return folder
        own = self.folder / folder.name if self.is_apart else folder
        files = on_all(self, lambda: load_record(folder).record.files if self.rank == 0 else None)[0]
        assert files is not None
        on_all(self, self._make_room)
        failure: OSError | None = None
        for file in files:
            failure = self._broadcast(own / file.path, file) or failure
        on_all(self, lambda: _raise("the copy of the checkpoint on this machine", failure, own))
        return own

    def _make_room(self) -> None:
        if not self._carries:
            return
        with writing("the copy of the checkpoint on this machine", self.folder):
            for left in self.folder.iterdir():
                shutil.rmtree(left)

    def _broadcast(self, path: Path, file: CommittedFile) -> OSError | None:
        """Send a file to all ranks; those that carry write it."""
        with _Pieces(path, file.size, "rb" if self.rank == 0 else "wb" if self._carries else "") as pieces:
            for piece in pieces:
                if self.rank == 0:
                    pieces.read(piece)
                dist.broadcast(piece, src=0, group=self.group)
                pieces.write(piece)
        if pieces.failure is None and pieces.sha256 != file.sha256:
            return OSError(f"{file.path} is not what its commit record says")
        return pieces.failure


class _Pieces:
    """A file in pieces of memory, to be sent or received; what fails is kept until all pieces have come by.

    :param size: How many bytes will come by, whatever the file has.
    :param mode: How the file is opened; empty: not at all.
    """

    def __init__(self, path: Path, size: int, mode: str) -> None:
        self._path, self._size, self._mode = path, size, mode
        self._opened = ExitStack()
        self._file: BufferedIOBase | None = None
        self._digest = hashlib.sha256()
        self.failure: OSError | None = None

    def __enter__(self) -> "_Pieces":
        self._try(self._open)
        return self

    def __exit__(self, *_: object) -> None:
        self._try(self._opened.close)

    def _open(self) -> None:
        if self._mode not in ("", "rb"):
            self._path.parent.mkdir(parents=True, exist_ok=True)
        if self._mode:
            self._file = cast("BufferedIOBase", self._opened.enter_context(self._path.open(self._mode)))

    def __iter__(self) -> Iterator[torch.Tensor]:
        """Pieces to be filled; they share their memory."""
        buffer = torch.zeros(min(self._size, _PIECE_BYTES), dtype=torch.uint8, device="cpu")
        for start in range(0, self._size, _PIECE_BYTES):
            yield buffer[: min(_PIECE_BYTES, self._size - start)]

    def read(self, piece: torch.Tensor) -> torch.Tensor:
        """Fill a piece from the file."""

        def read() -> None:
            assert self._file is not None
            if self._file.readinto(_memory(piece)) != len(piece):
                raise OSError(f"{self._path} is shorter than it was")

        self._try(read)
        return piece

    def write(self, piece: torch.Tensor) -> None:
        """Write a piece, if the file is one to write; and add it to the digest."""
        file, memory = self._file, _memory(piece)
        self._digest.update(memory)
        if file is not None and self._mode != "rb":
            self._try(lambda: file.write(memory))

    @property
    def sha256(self) -> str:
        """Of what has come by."""
        return self._digest.hexdigest()

    def _try(self, action: Callable[[], object]) -> None:
        if self.failure is None:
            try:
                action()
            except OSError as error:
                self.failure = error


def _memory(piece: torch.Tensor) -> memoryview:
    return piece.numpy().data


def _identity(folder: Path) -> tuple[str, int, int]:
    """Return the identity of a folder among those of all machines."""
    found = os.stat(folder)  # noqa: PTH116
    return socket.gethostname(), found.st_dev, found.st_ino


def _raise(what: str, failure: OSError | None, folder: Path) -> None:
    with writing(what, folder):
        if failure is not None:
            raise failure

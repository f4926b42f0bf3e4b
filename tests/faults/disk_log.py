"""A recording of every file system call of the commit protocol, for ``disk_replay``."""

import errno
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any
from unittest.mock import patch

import attrs

from hostcore.checkpoints import durable

_ROOM = str(Path(durable.__file__).parent)


@attrs.frozen
class Call:
    """A call that changed something, or made a change durable."""

    #: ``mkdir``, ``create``, ``truncate``, ``write``, ``fsync``, ``rename``, ``unlink`` or ``rmdir``.
    kind: str
    #: Below the recorded folder; ``.`` is that folder.
    path: str
    #: Of a rename.
    target: str = ""
    #: Of a write.
    data: bytes = b""
    #: The functions of ``hostcore.checkpoints`` that led to it, outermost first; empty for a trainer's own calls.
    site: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.path}{self.target and f' to {self.target}'} by {self.site or 'the trainer'}"


@attrs.frozen
class Mark:
    """What the protocol promises from here on about the checkpoint of a step.

    ``may be``: it may have this content too. ``is``: it has been acknowledged, and has this content. ``may go``: it may
    be gone.
    """

    promise: str
    step: int
    content: str = ""


Entry = Call | Mark
#: Told kind, number (from 1, of that kind) and path of a call: what becomes of it instead; None: it is done.
Disturbance = Callable[[str, int, str], str | None]


def undisturbed(kind: str, number: int, path: str) -> None:
    """Every call is done."""


class RecordingOs:
    """Stands in for ``os`` in ``durable``: does the calls and writes them down. Nothing waits for a disk here.

    :param root: The folder whose calls are recorded.
    :param disturbance: ``"skipped"``: the call is neither done nor recorded, and succeeds. ``"fails"``: it is not done.
        ``"fails after"``: it is done, and says that it failed.
    """

    def __init__(self, root: Path, disturbance: Disturbance = undisturbed) -> None:
        self.log: list[Entry] = []
        self._root = root
        self._disturbance = disturbance
        self._counts: dict[str, int] = {}
        self._open: dict[int, str] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def _do(self, kind: str, path: str, call: Callable[[], Any], **details: Any) -> Any:
        self._counts[kind] = self._counts.get(kind, 0) + 1
        fate = self._disturbance(kind, self._counts[kind], path)
        if fate == "skipped":
            return None
        result = None
        if fate != "fails":
            result = call()
            data = details.pop("data", None)
            if data is not None:
                details["data"] = bytes(data[:result])
            self.log.append(Call(kind, path, site=_site(), **details))
        if fate:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(self._root / path))
        return result

    def _below(self, path: Path | str) -> str:
        return os.path.relpath(path, self._root)

    def open(self, path: Path, flags: int, mode: int = 0o777) -> int:
        below = self._below(path)
        if not flags & os.O_CREAT:
            descriptor = os.open(path, flags, mode)
        elif not os.path.lexists(path):
            descriptor = self._do("create", below, lambda: os.open(path, flags, mode))
        else:
            assert flags & os.O_TRUNC
            descriptor = self._do("truncate", below, lambda: os.open(path, flags, mode))
        self._open[descriptor] = below
        return descriptor

    def close(self, descriptor: int) -> None:
        del self._open[descriptor]
        os.close(descriptor)

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        return self._do("write", self._open[descriptor], lambda: os.write(descriptor, data), data=data)

    def fsync(self, descriptor: int) -> None:
        self._do("fsync", self._open[descriptor], lambda: None)

    def mkdir(self, path: Path) -> None:
        self._do("mkdir", self._below(path), lambda: os.mkdir(path))  # noqa: PTH102

    def rename(self, source: Path, target: Path) -> None:
        rename = lambda: os.rename(source, target)  # noqa: E731, PTH104
        self._do("rename", self._below(source), rename, target=self._below(target))

    def unlink(self, path: Path) -> None:
        self._do("unlink", self._below(path), lambda: os.unlink(path))  # noqa: PTH108

    def rmdir(self, path: Path) -> None:
        self._do("rmdir", self._below(path), lambda: os.rmdir(path))  # noqa: PTH106

    def put(self, path: Path, content: bytes) -> None:
        """Write a file as anybody does who never heard of fsync."""
        descriptor = self.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        self.write(descriptor, content)
        self.close(descriptor)

    def mark(self, promise: str, step: int, content: str = "") -> None:
        """Write down a promise."""
        self.log.append(Mark(promise, step, content))


@contextmanager
def recording(root: Path, disturbance: Disturbance = undisturbed) -> Iterator[RecordingOs]:
    """Record what ``hostcore.checkpoints`` does below a folder. Large writes are cut, so that there is more to lose."""
    recorder = RecordingOs(root, disturbance)
    with patch.object(durable, "os", recorder), patch.object(durable, "_CHUNK_BYTES", 1024):
        yield recorder


def _site() -> str:
    names: list[str] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        if code.co_filename.startswith(_ROOM) and "<" not in code.co_name:
            names.append(code.co_qualname)
        frame = frame.f_back
    return " > ".join(reversed(names))

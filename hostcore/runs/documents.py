"""Small JSON documents that are there whole or not at all."""

import os
import threading
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, BinaryIO, Final, TypeVar, get_args

import attrs
import orjson

from hostcore.events.bounds import TextCutter
from hostcore.events.folder_sync import sync_folder
from hostcore.events.regular_file import open_regular
from hostcore.events.strict_json import dump
from hostcore_hookspecs.errors import HostcoreError

T = TypeVar("T")

#: Of a document, in bytes: more than any that hostcore writes.
_MOST: Final = 64 << 20
#: Of one that is longer, read at once.
_PIECE: Final = 1 << 20


class CorruptDocument(HostcoreError):
    """A file of the run directory is not what hostcore wrote."""

    code = "run.corrupt"


class UnreadableDocument(HostcoreError):
    """A file of the run directory may not be read by this user."""

    code = "run.unreadable"


def write_document(path: Path, value: object) -> None:
    """Replace a file by a JSON document, atomically and durably.

    :raises OSError: When it cannot be written; what was there before is intact.
    """
    _replace(path, dump(value, indent=True))


def write_text(path: Path, text: str) -> None:
    """Replace a file by a text in the same way; see :func:`write_document`."""
    _replace(path, text.encode())


def _replace(path: Path, content: bytes) -> None:
    # Of this process, as remove_torn() wants it, and of this thread: a service may write one document in two.
    temporary = path.with_name(f".{path.name}.{threading.get_ident()}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def remove_torn(folder: Path) -> None:
    """Remove what writers of documents that were killed have left in a folder; those of living processes stay."""
    for path in folder.glob(".*.json.*.tmp"):
        pid = path.name.split(".")[-2]
        if pid.isdecimal() and not lives(int(pid)):
            path.unlink(missing_ok=True)


def lives(pid: int) -> bool:
    """Whether there is a process of a number on this machine."""
    try:
        os.kill(pid, 0)
    except OSError as error:
        return isinstance(error, PermissionError)
    return True


def read_document(path: Path, *, cut_texts: bool = False) -> dict[str, Any]:
    """A JSON document.

    :param cut_texts: Whether the texts of one that is too long are cut, so that the rest of it can be read.
    :raises FileNotFoundError: When there is none, or something that is no regular file.
    :raises CorruptDocument: When it is not a JSON object.
    :raises UnreadableDocument: When it is there and cannot be read.
    """
    try:
        with open_regular(path) as file:
            content: bytes | None = file.read(_MOST + 1)
            if content and len(content) > _MOST:
                content = _cut(content, file) if cut_texts else None
        if content is None:
            raise CorruptDocument(f"longer than {_MOST:,} bytes", file=str(path))
        found = orjson.loads(content)
    except NotADirectoryError as error:  # a file lies where one of its folders should be
        raise FileNotFoundError(*error.args) from error
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UnreadableDocument(f"cannot be read: {error.strerror}", file=str(path)) from error
    except orjson.JSONDecodeError as error:
        raise CorruptDocument(f"not a JSON document: {error}", file=str(path)) from error
    if not isinstance(found, dict):
        raise CorruptDocument("not a JSON object", file=str(path))
    return found


def _cut(begin: bytes, rest: BinaryIO) -> bytes | None:
    """A document with its texts cut; None if it is too long even so."""
    cutter = TextCutter(_MOST)
    piece = begin
    while piece and cutter.record is not None:
        cutter.feed(piece)
        piece = rest.read(_PIECE)
    return cutter.record


def construct(cls: type[T], found: Any, *, file: Path) -> T:
    """A value from what a document holds.

    Fields that this version does not know are passed over: a newer hostcore may have written them.

    :raises CorruptDocument: When a field is missing, or no number or text where there should be one.
    """
    try:
        fields = [field for field in attrs.fields(cls) if field.name in found]  # type: ignore[arg-type]
        for field in fields:
            if not _fits(found[field.name], field.type):
                raise TypeError(f"{field.name} is {found[field.name]!r:.100}")
        return cls(**{field.name: found[field.name] for field in fields})
    except TypeError as error:
        raise CorruptDocument(f"not a {cls.__name__}: {error}", file=str(file)) from error


def _fits(value: object, wanted: Any) -> bool:
    """Whether a value is of a type, as far as that is one of plain JSON; of any other, everything is."""
    wanted = get_args(wanted) if isinstance(wanted, UnionType) else (wanted,)
    return not set(wanted) <= _PLAIN or type(value) in wanted or (type(value) is int and float in wanted)


_PLAIN: Final = frozenset({str, int, float, bool, NoneType})

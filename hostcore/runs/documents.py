"""Small JSON documents, written atomically; and the attrs classes that they hold."""

import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, BinaryIO, Final, TypeVar, get_args, get_origin

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
    """Return whether there is a process of a number on this machine."""
    try:
        os.kill(pid, 0)
    except OSError as error:
        return isinstance(error, PermissionError)
    return True


def read_document(path: Path, *, cut_texts: bool = False) -> dict[str, Any]:
    """Read a JSON document.

    :param cut_texts: Cut the texts of a document that is too long, so that the rest of it can be read.
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
    """Return a document with its texts cut; None if it is too long even so."""
    cutter = TextCutter(_MOST)
    piece = begin
    while piece and cutter.record is not None:
        cutter.feed(piece)
        piece = rest.read(_PIECE)
    return cutter.record


def from_document(cls: type[T], found: Any, *, file: Path) -> T:
    """Make an attrs class from what a document holds; classes inside it, and tuples of such, from what they hold.

    Fields that this version does not know are ignored: a newer hostcore may have written them.

    :raises CorruptDocument: When a field is missing, or not of its type as far as that is one of plain JSON; the
        ``pointer`` names the field.
    """
    if not isinstance(found, Mapping):
        raise CorruptDocument(f"not a {cls.__name__}: {found!r:.100}", pointer="", file=str(file))
    arguments = {}
    for field in attrs.fields(cls):  # type: ignore[arg-type]
        problem = "is missing" if field.default is attrs.NOTHING else None
        if field.name in found:
            try:
                arguments[field.name] = _value(found[field.name], field.type, file)
                continue
            except TypeError:
                problem = f"is {found[field.name]!r:.100}, not {_named(field.type)}"
        if problem:
            message = f"not a {cls.__name__}: {field.name} {problem}"
            raise CorruptDocument(message, pointer=f"/{field.name}", file=str(file))
    return cls(**arguments)


def _value(value: Any, wanted: Any, file: Path) -> Any:
    """Return the value of a field.

    :raises TypeError: When it is not of the type.
    """
    options = get_args(wanted) if isinstance(wanted, UnionType) else (wanted,)
    if (cls := next(filter(attrs.has, options), None)) is not None:
        is_made = isinstance(value, cls) or (value is None and NoneType in options)
        return value if is_made else from_document(cls, value, file=file)
    items = get_args(wanted)
    if get_origin(wanted) in (Sequence, tuple) and (attrs.has(items[0]) or items[0] is str):
        if not isinstance(value, list | tuple):
            raise TypeError
        return tuple(_value(one, items[0], file) for one in value)
    if items == (str, str):
        return {key: _value(one, str, file) for key, one in _require_object(value).items()}
    if set(options) <= _PLAIN and type(value) not in options and not (type(value) is int and float in options):
        raise TypeError
    return value


def _require_object(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise TypeError
    return value


def _named(wanted: Any) -> str:
    return wanted.__name__ if isinstance(wanted, type) and not get_args(wanted) else str(wanted)


_PLAIN: Final = frozenset({str, int, float, bool, NoneType})

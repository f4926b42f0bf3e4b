"""The commit record: the file that makes a folder a checkpoint.

Its file is JSON whose last line but one is the SHA-256 of everything above that line::

    {
      "step": 200,
      ...
      "sha256": "5f1c..."
    }

So a record is either, byte for byte, what hostcore wrote, or none.
"""

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Final

import attrs
import orjson

from hostcore.checkpoints.errors import CheckpointError
from hostcore.checkpoints.names import folder_name

_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_IN_WORDS: Final = {int: "a whole number", bool: "true or false", str: "a string", list: "a list"}


def _with_checksum(above: bytes) -> bytes:
    """The content of a record's file, from all that is above the line with the checksum."""
    return above + f'  "sha256": "{hashlib.sha256(above).hexdigest()}"\n}}\n'.encode()


_CHECKSUM_BYTES: Final = len(_with_checksum(b""))


def _inside(_file: "CommittedFile", _attribute: "attrs.Attribute[str]", path: str) -> None:
    parts = PurePosixPath(path).parts
    if not parts or path != "/".join(parts) or ".." in parts or "\0" in path or path.startswith("/"):
        raise ValueError(f"'path' must be a plain path below the checkpoint's folder, not {path!r}")


def _distinct(_record: "CommitRecord", _attribute: "attrs.Attribute[Any]", files: "tuple[CommittedFile, ...]") -> None:
    seen: set[str] = set()
    for file in files:
        if file.path in seen:
            raise ValueError(f"'files' lists {file.path!r} twice")
        seen.add(file.path)


@attrs.frozen(kw_only=True)
class CommittedFile:
    """One file of a checkpoint."""

    #: Below the checkpoint's folder, with ``/``.
    path: str = attrs.field(validator=_inside)
    #: In bytes.
    size: int = attrs.field(validator=attrs.validators.ge(0))
    #: Lower-case hexadecimal.
    sha256: str = attrs.field(validator=attrs.validators.matches_re(_SHA256))


@attrs.frozen(kw_only=True)
class CommitRecord:
    """Contents of a checkpoint. A checkpoint exists if and only if its record does and verifies."""

    #: Finished steps.
    step: int = attrs.field(validator=attrs.validators.ge(0))
    epoch: int = attrs.field(validator=attrs.validators.ge(0))
    #: Whether it is the last checkpoint of the run.
    final: bool
    #: The attempt that wrote it, from 1.
    attempt: int = attrs.field(validator=attrs.validators.ge(1))
    #: Sorted by path.
    files: tuple[CommittedFile, ...] = attrs.field(validator=_distinct)

    @property
    def folder_name(self) -> str:
        """The name of the checkpoint's folder, beside the record."""
        return folder_name(self.step)

    @property
    def size(self) -> int:
        """The size of all files together, in bytes."""
        return sum(file.size for file in self.files)

    def to_json(self) -> bytes:
        """The record as the content of its file."""
        fields = orjson.dumps(attrs.asdict(self), option=orjson.OPT_INDENT_2)
        return _with_checksum(fields.removesuffix(b"\n}") + b",\n")

    @classmethod
    def from_json(cls, content: bytes, *, file: Path | None = None) -> "CommitRecord":
        """Read the content of a record's file, strictly.

        :param file: Where it comes from, for the error.
        :raises CheckpointError: When it is not exactly what :meth:`to_json` writes.
        """
        try:
            if content != _with_checksum(content[:-_CHECKSUM_BYTES]):
                raise ValueError("it is not what was written (its own SHA-256 is missing or differs)")
            document = orjson.loads(content)
            del document["sha256"]
            fields = _fields(document, cls, "the record")
            fields["files"] = tuple(
                CommittedFile(**_fields(entry, CommittedFile, f"file {number}"))
                for number, entry in enumerate(fields["files"], start=1)
            )
            return cls(**fields)
        except ValueError as error:  # orjson.JSONDecodeError is one
            raise CheckpointError(
                f"not a commit record: {error}",
                code="checkpoint.record",
                file=str(file) if file else None,
                hint="A commit record is written by hostcore and never edited; use another checkpoint.",
            ) from error


def _fields(value: object, cls: type[attrs.AttrsInstance], where: str) -> dict[str, Any]:
    """The fields of one object of a record: all of them, no others, each of its exact JSON type."""
    if not isinstance(value, Mapping):
        raise ValueError(f"{where} is not a JSON object")
    known = {field.name: list if field.name == "files" else field.type for field in attrs.fields(cls)}
    for name in known.keys() - value.keys():
        raise ValueError(f"{where} has no {name!r}")
    for name in value.keys() - known.keys():
        raise ValueError(f"{where} has an unknown key {name!r}")
    for name, kind in known.items():
        if type(value[name]) is not kind:  # True is an int, but not a step
            raise ValueError(f"{name!r} in {where} must be {_IN_WORDS[kind]}")
    return dict(value)

"""Generated samples: text as it is, pictures within the page."""

import base64
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from hostcore.cli.wording import shortened
from hostcore_builtin_plugins.progress import format_bytes

_MOST_FILES: Final = 8
_LONGEST_TEXT: Final = 4_000
#: Of a picture, and of all pictures together.
_PICTURE_BYTES: Final = 400_000
_PICTURES_BYTES: Final = 1_000_000
#: What pictures begin with.
_PICTURE_TYPES: Final = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
}
_WEBP: Final = (b"RIFF", b"WEBP")


@attrs.frozen(kw_only=True)
class SampleFile:
    """A file of a sample: a picture, a text, or a note with the reason that it is neither."""

    name: str
    #: A ``data:`` URI.
    picture: str | None = None
    text: str | None = None
    note: str | None = None


@attrs.frozen(kw_only=True)
class Sample:
    """A generated sample."""

    title: str
    #: The prompt or the instruction of the request; may be empty.
    asked: str
    files: Sequence[SampleFile]
    #: How many files are not shown.
    left_out: int


class _Album:
    """Reads files for the page while there is room for their pictures."""

    def __init__(self) -> None:
        self._room = _PICTURES_BYTES

    def read(self, path: Path) -> SampleFile:
        """A file: the picture, the beginning of the text, or how large it is."""
        try:
            size = path.stat().st_size
            with path.open("rb") as file:
                start = file.read(4 * _LONGEST_TEXT)
            kind = _picture_type(start)
            if kind and size <= min(_PICTURE_BYTES, self._room):
                self._room -= size
                content = base64.b64encode(path.read_bytes()).decode()
                return SampleFile(name=path.name, picture=f"data:{kind};base64,{content}")
        except OSError as error:  # removed in this moment, or not for this user
            return SampleFile(name=path.name, note=f"cannot be read: {error.strerror}")
        if not kind and (text := _text(start, whole=size <= len(start))) is not None:
            rest = f"\n… ({format_bytes(size)} altogether)" if size > len(start) else ""
            return SampleFile(name=path.name, text=shortened(text, _LONGEST_TEXT) + rest)
        what = "too large to be shown here" if kind else "not shown here"
        return SampleFile(name=path.name, note=f"{format_bytes(size)}, {what}")


def newest_samples(folder: Path, requests: Sequence[Mapping[str, Any]], *, most: int) -> tuple[list[Sample], int]:
    """The samples of the newest steps, newest first; and how many older ones there are.

    :param folder: The run's ``samples``; each lies in ``step-<step>/<number>``.
    :param requests: What the job has asked for, by number.
    :param most: How many of them, at most.
    """
    found = list(_samples(folder))
    album = _Album()
    newest = sorted(found[-most:], key=lambda path: (-_number(path.parent)[0], *_number(path)))
    return [_sample(album, path, requests) for path in newest], len(found) - len(newest)


def _samples(folder: Path) -> Iterator[Path]:
    """The folders of samples, oldest first."""
    if not folder.is_dir():
        return
    for step in sorted((path for path in folder.iterdir() if _is_plain(path)), key=_number):
        if step.is_dir():
            yield from sorted((path for path in step.iterdir() if _is_plain(path) and path.is_dir()), key=_number)


def _is_plain(path: Path) -> bool:
    """Return whether a path is no part of something unfinished, and leads nowhere else."""
    return not path.name.startswith(".") and not path.is_symlink()


def _number(path: Path) -> tuple[int, str]:
    digits = path.name.rpartition("-")[2]
    return (int(digits) if digits.isdecimal() else 0, path.name)


def _sample(album: _Album, path: Path, requests: Sequence[Mapping[str, Any]]) -> Sample:
    step, number = _number(path.parent)[0], _number(path)[0]
    request = requests[number] if number < len(requests) else {}
    files = [Path(folder, name) for folder, _, names in os.walk(path) for name in sorted(names)]
    plain = [file for file in files if _is_plain(file) and file.is_file()]
    return Sample(
        title=f"Step {step:,}, sample {number}",
        asked=str(request.get("prompt") or request.get("instruction") or ""),
        files=list(map(album.read, plain[:_MOST_FILES])),
        left_out=max(0, len(plain) - _MOST_FILES),
    )


def _picture_type(start: bytes) -> str | None:
    if start[:4] == _WEBP[0] and start[8:12] == _WEBP[1]:
        return "image/webp"
    return next((kind for begin, kind in _PICTURE_TYPES.items() if start.startswith(begin)), None)


def _text(start: bytes, *, whole: bool) -> str | None:
    """Bytes as text; None if they are none."""
    if b"\0" in start:
        return None
    try:
        return start.decode()
    except UnicodeDecodeError as error:
        cut = not whole and error.start >= len(start) - 3  # in the middle of a character
        return start[: error.start].decode() if cut else None

"""Generated samples: text as it is, pictures within the page."""

import base64
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from hostcore.cli.report_page.markup import Html, element, join, shortened
from hostcore.cli.report_page.tables import left_out
from hostcore_builtin_plugins.progress import format_bytes

#: The newest are shown, up to so many.
_MOST_SAMPLES: Final = 24
_MOST_FILES: Final = 8
_LONGEST_TEXT: Final = 4_000
_LONGEST_PROMPT: Final = 500
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


class _Album:
    """Puts files into the page while there is room."""

    def __init__(self) -> None:
        self._room = _PICTURES_BYTES

    def show(self, path: Path, alternative: str) -> Html:
        """A file: the picture, the beginning of the text, or how large it is."""
        size = path.stat().st_size
        with path.open("rb") as file:
            start = file.read(4 * _LONGEST_TEXT)
        kind = _picture_type(start)
        if kind and size <= min(_PICTURE_BYTES, self._room):
            self._room -= size
            content = base64.b64encode(path.read_bytes()).decode()
            return element("img", src=f"data:{kind};base64,{content}", alt=alternative, title=path.name)
        if not kind and (text := _text(start, whole=size <= len(start))) is not None:
            rest = f"\n… ({format_bytes(size)} altogether)" if size > len(start) else ""
            return element("pre", shortened(text, _LONGEST_TEXT) + rest, tabindex=0, class_="scroll")
        what = "too large to be shown here" if kind else "not shown here"
        return element("p", element("code", path.name), f" ({format_bytes(size)}, {what})", class_="note")


def samples_section(folder: Path, requests: Sequence[Mapping[str, Any]]) -> Html | None:
    """The newest generated samples; None if there are none.

    :param folder: The run's ``samples``; each lies in ``step-<step>/<number>``.
    :param requests: What the job has asked for, by number.
    """
    found = list(_samples(folder))
    if not found:
        return None
    album = _Album()
    newest = sorted(found[-_MOST_SAMPLES:], key=lambda path: (-_number(path.parent)[0], *_number(path)))
    shown = [_sample(album, path, requests) for path in newest]
    return join(element("div", *shown, class_="samples"), left_out(len(found) - len(shown)))


def _samples(folder: Path) -> Iterator[Path]:
    """The folders of samples, oldest first."""
    if not folder.is_dir():
        return
    for step in sorted((path for path in folder.iterdir() if _is_plain(path)), key=_number):
        if step.is_dir():
            yield from sorted((path for path in step.iterdir() if _is_plain(path) and path.is_dir()), key=_number)


def _is_plain(path: Path) -> bool:
    """Whether it is no part of something unfinished, and leads nowhere else."""
    return not path.name.startswith(".") and not path.is_symlink()


def _number(path: Path) -> tuple[int, str]:
    digits = path.name.rpartition("-")[2]
    return (int(digits) if digits.isdecimal() else 0, path.name)


def _sample(album: _Album, path: Path, requests: Sequence[Mapping[str, Any]]) -> Html:
    step, number = f"{_number(path.parent)[0]:,}", _number(path)[0]
    request = requests[number] if number < len(requests) else {}
    asked = shortened(str(request.get("prompt") or request.get("instruction") or ""), _LONGEST_PROMPT)
    files = [Path(folder, name) for folder, _, names in os.walk(path) for name in sorted(names)]
    plain = [file for file in files if _is_plain(file) and file.is_file()]
    title = f"Step {step}, sample {number}"
    shown: list[Html] = []
    for file in plain[:_MOST_FILES]:
        try:
            shown.append(album.show(file, f"{title}: {asked or file.name}"))
        except OSError as error:  # removed in this moment, or not for this user
            shown.append(element("p", f"{file.name} cannot be read: {error.strerror}", class_="note"))
    rest = len(plain) - _MOST_FILES
    return element(
        "section",
        element("h3", title),
        element("p", asked, class_="prompt") if asked else None,
        *shown,
        element("p", f"{rest:,} more files are not shown.", class_="note") if rest > 0 else None,
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

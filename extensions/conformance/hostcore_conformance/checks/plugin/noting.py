"""Programs and modules that this process starts, as an audit hook sees them."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

_SHELLS: Final = ("sh", "bash", "dash", "zsh")
#: Sets to note in; an audit hook cannot be taken away.
_seen: list[set[str]] = []
_hooked: Final[list[bool]] = []


@contextmanager
def noted() -> Iterator[set[str]]:
    """Note the programs and the modules that this process starts."""
    if not _hooked:
        sys.addaudithook(_note)
        _hooked.append(True)
    _seen.append(set())
    try:
        yield _seen[-1]
    finally:
        _seen.pop()


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if not _seen:
        return
    if event == "import":
        _seen[-1].add(str(arguments[0]))
    elif event == "os.system":
        _seen[-1].add(_text(arguments[0]))
    elif event in ("subprocess.Popen", "os.posix_spawn", "os.exec"):
        given = arguments[1] if isinstance(arguments[1], list | tuple) else [arguments[1]]
        line = [_text(one) for one in given]
        _seen[-1].update((_text(arguments[0]), *line[:1]))
        if line and line[0].rpartition("/")[2] in _SHELLS:
            _seen[-1].update(line)


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)

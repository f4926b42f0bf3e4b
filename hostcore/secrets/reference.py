"""References to secrets: ``{"$secret": "env:NAME"}`` and ``{"$secret": "file:/path"}``.

A job keeps its references, and so does every record of it. They are resolved right before the settings of one plugin
are structured, in the process that loads the plugin; :mod:`hostcore.secrets.scrub` hides their values from then on.
"""

import difflib
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from hostcore.errors import Errors
from hostcore.secrets.scrub import HIDDEN, remember
from hostcore_hookspecs.errors import HostcoreError

#: The key that makes an object a reference.
KEY: Final = "$secret"
_FORM: Final = '{"$secret": "env:NAME"} or {"$secret": "file:/path"}'
_LARGEST_FILE: Final = 64 * 1024


class SecretText(str):
    """The value of a secret among the settings of a plugin, until they are structured."""

    __slots__ = ()

    def __repr__(self) -> str:
        return repr(HIDDEN)


def is_reference(value: Any) -> bool:
    """Return True for a JSON value that is meant as a reference, well-formed or not."""
    return isinstance(value, Mapping) and KEY in value


def references(value: Any, pointer: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield every reference in a value, with its JSON pointer."""
    if is_reference(value):
        yield pointer, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from references(item, _below(pointer, key))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from references(item, f"{pointer}/{index}")


def resolve_secrets(settings: Any, pointer: str = "") -> Any:
    """Return a copy of settings with :class:`SecretText` in place of references; the values are hidden from now on.

    :param settings: Plain JSON: the settings of one plugin, or a part of them.
    :param pointer: The pointer of the settings in the job.
    :raises Errors: ``secret.reference``, ``secret.unset``, ``secret.file``, ``secret.value``: every reference that is
        malformed, has no value, or has a value that cannot be hidden.
    """
    errors: list[HostcoreError] = []

    def resolved(value: Any, at: str) -> Any:
        if not is_reference(value):
            return value
        try:
            return SecretText(reveal(value))
        except HostcoreError as error:
            error.pointer = at
            errors.append(error)
            return None

    if next(references(settings), None) is None:
        return settings
    found = replaced(settings, resolved, pointer)
    if errors:
        raise Errors(errors)
    return found


def without_marks(value: Any) -> Any:
    """Return a value with plain strings in place of :class:`SecretText`, for a library that takes plain JSON."""
    return replaced(value, lambda leaf, _: str(leaf) if isinstance(leaf, SecretText) else leaf)


def replaced(value: Any, replace: Callable[[Any, str], Any], pointer: str = "") -> Any:
    """Return a copy of plain JSON with other leaves.

    :param replace: Returns what stands for a scalar or a reference, by it and its JSON pointer.
    :param pointer: The pointer of the value.
    """
    if isinstance(value, Mapping) and not is_reference(value):
        return {key: replaced(item, replace, _below(pointer, key)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [replaced(item, replace, f"{pointer}/{index}") for index, item in enumerate(value)]
    return replace(value, pointer)


def remember_secrets(job: Any) -> None:
    """Hide the values of all references of a job from now on, in this process.

    To be called before any plugin of the job is imported, since plugins of one process see each other. A reference
    without a value is skipped: loading the plugin that needs it reports the error.

    :param job: A job as plain JSON, or a part of it.
    """
    for _, reference in references(job):
        try:
            reveal(reference)
        except HostcoreError:
            continue


def parse(reference: Mapping[str, Any]) -> tuple[str, str]:
    """Return ``env`` or ``file``, and the name or the path.

    :raises HostcoreError: ``secret.reference``.
    """
    text = reference[KEY]
    kind, colon, name = text.partition(":") if isinstance(text, str) else ("", "", "")
    if len(reference) == 1 and colon and name and kind in ("env", "file"):
        return kind, name
    hint = 'nothing else may stand beside "$secret"' if len(reference) > 1 else None
    raise HostcoreError(f"not a reference to a secret: expected {_FORM}", code="secret.reference", hint=hint)


def reveal(reference: Mapping[str, Any]) -> str:
    """Return the value of a reference; it is hidden from now on.

    :raises HostcoreError: When it has no value, or one that cannot be hidden.
    """
    kind, name = parse(reference)
    value = _of_environment(name) if kind == "env" else _of_file(Path(name))
    remember(value, f"the environment variable {name}" if kind == "env" else f"the file {name}")
    return value


def _below(pointer: str, key: str) -> str:
    """Return the pointer of a key of an object (RFC 6901)."""
    return f"{pointer}/{key.replace('~', '~0').replace('/', '~1')}"


def _of_environment(name: str) -> str:
    """Return the value of an environment variable.

    :raises HostcoreError: ``secret.unset``.
    """
    value = os.environ.get(name)
    if value is None:
        near = difflib.get_close_matches(name.upper(), os.environ, n=1)
        raise HostcoreError(
            f"the environment variable {name} is not set",
            code="secret.unset",
            hint=f'did you mean "{near[0]}"?'
            if near
            else f"set it for the process that starts the run: export {name}=…",
        )
    return value


def _of_file(path: Path) -> str:
    """Return the text of a file, without the newline at its end.

    :raises HostcoreError: ``secret.file``.
    """
    try:
        found = path.stat()
        if stat.S_ISDIR(found.st_mode):
            raise _file_error(path, "is a folder")
        if not stat.S_ISREG(found.st_mode):  # a pipe can be read once, and several processes need it
            raise _file_error(path, "is not a regular file")
        if found.st_size > _LARGEST_FILE:
            raise _file_error(path, f"is larger than {_LARGEST_FILE // 1024} KB, too large for a secret")
        text = path.read_bytes().decode()
    except UnicodeDecodeError:
        raise _file_error(path, "is not UTF-8 text") from None
    except (OSError, ValueError) as error:
        reason = (getattr(error, "strerror", None) or "not a file name").lower()
        raise _file_error(path, f"cannot be read: {reason}") from None
    return text.removesuffix("\n").removesuffix("\r")


def _file_error(path: Path, problem: str) -> HostcoreError:
    return HostcoreError(f"the file of a secret, {path}, {problem}", code="secret.file", file=str(path))

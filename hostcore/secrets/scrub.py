"""A filter for all text that leaves a process. In: the secrets that the process knows. Out: text with stars for them.

A value is found as it is, in JSON and Python, percent-encoded, and in base64 of the value or of ``user:value``; a value
of several lines also by each of its lines. Nothing is searched while no secret is known.
"""

import re
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from hostcore_hookspecs.errors import HostcoreError

#: What stands in place of a secret, however long it is.
HIDDEN: Final = "********"
#: Characters that a secret has at least: shorter texts match unrelated ones.
SHORTEST: Final = 8
#: Bytes of the beginning of a secret that are hidden at the end of a stream.
_SHORTEST_BEGINNING: Final = 4

_lock: Final = threading.Lock()
_values: dict[str, None] = {}
#: All notations of all values, the longest first.
_forms: tuple[bytes, ...] = ()
_pattern: re.Pattern[bytes] = re.compile(b"")
_when_known: list[Callable[[], object]] = []


def remember(value: str, origin: str = "the value") -> None:
    """Hide a value from now on, in this process.

    :param origin: The place of the value, for an error.
    :raises HostcoreError: ``secret.value``, for a value that cannot be hidden: it is too short, or not text.
    """
    _require_hidable(value, origin)
    with _lock:
        if value in _values:
            return
        _values[value] = None
        _compile()
        waiting = list(_when_known)
        _when_known.clear()
    for call in waiting:
        call()


def _require_hidable(value: str, origin: str) -> None:
    """Require a value that does not match unrelated text.

    :raises HostcoreError: ``secret.value``.
    """
    plain = value.strip()
    problem, hint = None, f"a secret has at least {SHORTEST} characters"
    if not plain:
        problem = "is empty"
    elif len(plain) < SHORTEST:
        problem = f"has fewer than {SHORTEST} characters: it cannot be told from other text"
    elif value != value.encode(errors="replace").decode():
        problem, hint = "is not text in UTF-8", "encode it, in base64 for example, and have the plugin decode it"
    if problem:
        raise HostcoreError(f"{origin}, a secret, {problem}", code="secret.value", hint=hint)


def forget_all() -> None:
    """Know no secret any more."""
    with _lock:
        _values.clear()
        _compile()


def _compile() -> None:
    global _forms, _pattern  # noqa: PLW0603 - the secrets of a process
    _forms = tuple(sorted({form for value in _values for form in _notations(value)}, key=len, reverse=True))
    _pattern = re.compile(b"|".join(map(re.escape, _forms)))


def _notations(value: str) -> Iterator[bytes]:
    """Yield a value, and each of its lines, as other text may hold it."""
    # `hostcore --help` waits for this module.
    import base64
    import json
    from urllib.parse import quote, quote_plus

    for part in {value.strip(), *(line.strip() for line in value.splitlines())}:
        if len(part) < SHORTEST:
            continue
        quoted = (json.dumps(part, ensure_ascii=False), json.dumps(part), repr(part))
        for text in (part, *(one[1:-1] for one in quoted), quote(part, safe=""), quote(part), quote_plus(part)):
            yield text.encode()
        for before in range(3):  # `user:` shifts the groups of three bytes
            raw = bytes(before) + part.encode()
            # Only the characters that no neighbor has bits in.
            yield base64.b64encode(raw)[-(-before * 8 // 6) : len(raw) * 8 // 6]


def known() -> tuple[str, ...]:
    """Return the values that are hidden."""
    return tuple(_values)


def when_known(call: Callable[[], object]) -> None:
    """Call something when a first secret becomes known: at once, if one is."""
    with _lock:
        if not _values:
            _when_known.append(call)
            return
    call()


def is_in(text: bytes) -> bool:
    """Return True for a text that shows a secret."""
    return any(form in text for form in _forms)  # ten times as fast as the pattern


def scrub(text: str) -> str:
    """Return a text with stars in place of secrets."""
    return scrub_bytes(text.encode(errors="surrogatepass")).decode(errors="surrogatepass") if _forms else text


def scrub_bytes(text: bytes) -> bytes:
    """Return a text in UTF-8 with stars in place of secrets."""
    return _pattern.sub(HIDDEN.encode(), text) if is_in(text) else text


def scrubbed(value: Any) -> Any:
    """Return plain JSON with stars in all of its strings, keys included. Numbers stay as they are."""
    if not _forms:
        return value
    if isinstance(value, str):
        return scrub(value)
    if isinstance(value, Mapping):
        return {scrubbed(key): scrubbed(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [scrubbed(item) for item in value]
    return value


class SecretFilter:
    """A stream of UTF-8 in pieces; a secret that is cut is hidden, too: its beginning waits for the next piece."""

    def __init__(self) -> None:
        self._held = b""

    def feed(self, piece: bytes) -> bytes:
        """Return what can be shown after another piece."""
        text = self._held + piece
        cut = _begin_of_doubt(text)
        self._held = text[cut:]
        return scrub_bytes(text[:cut])

    def finish(self) -> bytes:
        """Return the rest at the end of the stream; a beginning of a secret is hidden if it is long enough."""
        rest, self._held = self._held, b""
        return HIDDEN.encode() if len(rest) >= _SHORTEST_BEGINNING else rest


def _begin_of_doubt(text: bytes) -> int:
    """Return the last place where a text can be cut without cutting a secret, be it whole or just begun at the end."""
    cut = len(text)
    for form in _forms:
        at = text.find(form[:1], max(0, len(text) - len(form) + 1))
        while 0 <= at < cut:
            if form.startswith(text[at:]):
                cut = at
            at = text.find(form[:1], at + 1)
    if cut < len(text) and is_in(text):
        cut = min([cut, *(match.start() for match in _pattern.finditer(text) if match.start() < cut < match.end())])
    return cut

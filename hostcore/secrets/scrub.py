"""What must never be shown: the values of secrets, known to a whole process, replaced wherever text leaves it.

A value is found as it is, and as JSON, ``repr``, a URL, HTML or base64 would write it. Nothing is looked for while no
secret is known. Standard library alone: this runs in the process behind a worker's output, too.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, AnyStr, Final, Generic

#: What stands in place of a secret, however long it is.
HIDDEN: Final = "********"
#: Characters that a secret has at least: shorter texts match unrelated ones.
SHORTEST: Final = 8
#: Characters of the beginning of a secret that are hidden at the end of a text.
_SHORTEST_BEGINNING: Final = 4
#: Lines of a secret of several lines that are looked for by themselves.
_SHORTEST_LINE: Final = 12
#: Characters of base64 that are looked for: fewer are found by chance.
_SHORTEST_BASE64: Final = 12

_lock: Final = threading.Lock()
_values: dict[str, None] = {}
_texts: tuple[str, ...] = ()
_bytes: tuple[bytes, ...] = ()
_when_known: list[Callable[[], object]] = []


def remember(value: str) -> None:
    """Never show a value from now on, in this process.

    :param value: Text that UTF-8 can hold, of at least :data:`SHORTEST` characters; a shorter one is passed over.
    """
    global _texts, _bytes  # noqa: PLW0603 - what a process knows
    with _lock:
        if value in _values or len(value.strip()) < SHORTEST:
            return
        _values[value] = None
        _texts = forms_of(_values)
        _bytes = encoded(_texts)
        waiting = list(_when_known)
        _when_known.clear()
    for call in waiting:
        call()


def forget_all() -> None:
    """Know no secret any more."""
    global _texts, _bytes
    with _lock:
        _values.clear()
        _texts, _bytes = (), ()


def known() -> tuple[str, ...]:
    """The values that are not to be shown."""
    return tuple(_values)


def known_forms() -> tuple[str, ...]:
    """Everything that they may look like; see :func:`forms_of`."""
    return _texts


def when_known(call: Callable[[], object]) -> None:
    """Call something as soon as a first secret is known: at once, if one is."""
    with _lock:
        if not _values:
            _when_known.append(call)
            return
    call()


def is_in(text: str | bytes) -> bool:
    """Whether a text shows anything of what is known."""
    if not _texts:
        return False
    if isinstance(text, str):
        return any(form in text for form in _texts)
    return any(form in text for form in _bytes)


def scrub(text: str) -> str:
    """A text with stars in place of secrets."""
    return replaced(text, _texts, HIDDEN) if _texts else text


def scrub_bytes(line: bytes) -> bytes:
    """The same for text in UTF-8."""
    return replaced(line, _bytes, HIDDEN.encode()) if _bytes else line


def scrubbed(value: Any) -> Any:
    """Plain JSON with stars in all of its strings, keys included. Numbers stay as they are."""
    if not _texts:
        return value
    if isinstance(value, str):
        return scrub(value)
    if isinstance(value, Mapping):
        return {scrubbed(key): scrubbed(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [scrubbed(item) for item in value]
    return value


def forms_of(values: Iterable[str]) -> tuple[str, ...]:
    """Everything that values may look like in a text, the longest first."""
    forms: dict[str, None] = {}
    for value in values:
        for part in _parts(value):
            for written in (part, *_base64(part)):
                for form in _written(written):
                    # A text that holds JSON may itself become a string of JSON.
                    forms |= dict.fromkeys((form, _in_json(form)))
    return tuple(sorted((form for form in forms if len(form) >= SHORTEST), key=len, reverse=True))


def encoded(forms: Iterable[str]) -> tuple[bytes, ...]:
    """Forms as bytes of UTF-8."""
    return tuple(form.encode() for form in forms)


def _parts(value: str) -> Iterator[str]:
    """A value, and what is left of it where white space gets lost, or lines are shown by themselves."""
    yield value
    yield value.strip()
    yield " ".join(value.split())
    lines = [line.strip() for line in value.splitlines()]
    if len(lines) > 1:
        yield from (line for line in lines if len(line) >= _SHORTEST_LINE)


def _written(text: str) -> Iterator[str]:
    """A text in the notations in which it may stand inside another."""
    import html
    import json
    from urllib.parse import quote, quote_plus

    yield text
    yield _in_json(text)
    yield json.dumps(text)[1:-1]
    # With other text around it, both kinds of quotes may be in one string: then the single ones are escaped.
    yield from (repr(text)[1:-1], ascii(text)[1:-1], repr(text + "\"'")[1:-4], ascii(text + "\"'")[1:-4])
    for quoted in (quote(text, safe=""), quote(text), quote_plus(text)):
        yield quoted
        yield _with_small_escapes(quoted)
    yield html.escape(text)
    yield html.escape(text, quote=False)


def _in_json(text: str) -> str:
    import json

    return json.dumps(text, ensure_ascii=False)[1:-1]


def _with_small_escapes(quoted: str) -> str:
    """``%2F`` as ``%2f``."""
    head, *rest = quoted.split("%")
    return "%".join([head, *(part[:2].lower() + part[2:] for part in rest)])


def _base64(text: str) -> Iterator[str]:
    """What base64 makes of a text, wherever it stands in what is encoded: ``user:password`` in an HTTP header."""
    import base64

    raw = text.encode()
    for before in range(3):
        # Only the characters that no neighbour has a part in.
        first, last = -(-before * 8 // 6), (before + len(raw)) * 8 // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            sure = encode(b"\0" * before + raw).decode()[first:last]
            if len(sure) >= _SHORTEST_BASE64:
                yield sure


def replaced(text: AnyStr, forms: Sequence[AnyStr], hidden: AnyStr) -> AnyStr:
    """A text with every form replaced; where forms overlap, all that they cover is one."""
    spans = _spans(text, forms)
    if not spans:
        return text
    parts: list[AnyStr] = []
    at = 0
    for begin, end in spans:
        parts += [text[at:begin], hidden]
        at = end
    parts.append(text[at:])
    return hidden[:0].join(parts)


def _spans(text: AnyStr, forms: Sequence[AnyStr], covered: int = 0) -> list[tuple[int, int]]:
    """Where forms stand in a text, in order, overlapping ones joined.

    :param covered: How much of the beginning is a span already.
    """
    found = [(0, covered)] if covered else []
    for form in forms:
        at = text.find(form)
        while at >= 0:
            found.append((at, at + len(form)))
            at = text.find(form, at + 1)
    joined: list[tuple[int, int]] = []
    for begin, end in sorted(found):
        if joined and begin < joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((begin, end))
    return joined


class Stream(Generic[AnyStr]):
    """Scrubs text that comes in pieces: a secret that is cut is found all the same.

    What may be the beginning of a secret waits for the next piece.

    :param forms: See :func:`forms_of`; more of them may become known later.
    :param hidden: What to put in their place.
    """

    def __init__(self, forms: Sequence[AnyStr], hidden: AnyStr) -> None:
        self.forms: Sequence[AnyStr] = forms
        self._hidden: AnyStr = hidden
        self._held: AnyStr = hidden[:0]
        #: How much of what is held belongs to a secret for which the stars are out already.
        self._covered = 0

    def feed(self, piece: AnyStr) -> AnyStr:
        """What can be shown, now that a piece has come."""
        text = self._held + piece
        return self._shown(text, self._first_doubtful(text))

    def finish(self) -> AnyStr:
        """What was held back, at the end of the text; hidden if that is more than chance would have."""
        text, self._held = self._held, self._held[:0]
        if len(text) >= _SHORTEST_BEGINNING and not self._covered:
            return self._hidden
        return text[self._covered :]

    def _shown(self, text: AnyStr, doubtful: int) -> AnyStr:
        """What can be shown of a text up to where something doubtful begins, which is kept."""
        parts: list[AnyStr] = []
        at, covered = 0, self._covered
        for begin, end in _spans(text, self.forms, covered):
            goes_on = begin == 0 and covered > 0
            if begin >= doubtful and not goes_on:
                break
            parts += [] if goes_on else [text[at:begin], self._hidden]
            at = end
        parts.append(text[at:doubtful])
        self._held, self._covered = text[doubtful:], max(0, at - doubtful)
        return text[:0].join(parts)

    def _first_doubtful(self, text: AnyStr) -> int:
        """Where the longest end of a text begins that a form begins with."""
        first = len(text)
        for form in self.forms:
            at = text.find(form[:1], max(0, len(text) - len(form) + 1))
            while 0 <= at < first:
                if form.startswith(text[at:]):
                    first = at
                at = text.find(form[:1], at + 1)
        return first

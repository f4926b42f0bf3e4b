"""HTML that is escaped by construction: a string becomes a part of the page as text, whatever it holds."""

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Final

import orjson

Attribute = str | int | float | bool | None
"""The value of an attribute; True: the bare name, None and False: left out."""

_VOID: Final = frozenset({"img", "input", "link", "meta"})
_ESCAPES: Final = {ord("&"): "&amp;", ord("<"): "&lt;", ord(">"): "&gt;", ord('"'): "&quot;", ord("'"): "&#39;"}
#: Control characters are not allowed in HTML; they become pictures of themselves.
_PICTURES: Final[Mapping[int, int]] = {
    **{code: 0x2400 + code for code in range(0x20) if chr(code) not in "\t\n"},
    0x7F: 0x2421,
    **dict.fromkeys(range(0x80, 0xA0), 0xFFFD),
}
#: Marks that let a text read otherwise than it is written; right-to-left scripts do without them.
_REORDERING: Final = dict.fromkeys([*range(0x202A, 0x202F), *range(0x2066, 0x206A)], 0xFFFD)
_TEXT: Final[dict[int, int | str]] = {**_PICTURES, **_REORDERING, **_ESCAPES}


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def escape(text: str) -> Html:
    """Text as it appears in a page or in an attribute; what is HTML already stays as it is."""
    if isinstance(text, Html):
        return text
    return Html(text.encode(errors="replace").decode().translate(_TEXT))


def shortened(text: str, most: int) -> str:
    """A text, or the beginning of it with a word about the rest.

    :param most: Characters.
    """
    return text if len(text) <= most else f"{text[:most]} … ({len(text) - most:,} more characters)"


def join(*parts: str | None) -> Html:
    """Parts one after the other; None is left out."""
    return Html("".join(escape(part) for part in parts if part is not None))


def element(name: str, /, *children: str | None, **attributes: Attribute) -> Html:
    """An element.

    :param attributes: By their names, with ``_`` for ``-`` and one behind a name that Python keeps for itself.
    """
    written = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{escape(str(value))}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    return Html(f"<{name}{written}>" if name in _VOID else f"<{name}{written}>{join(*children)}</{name}>")


def data(name: str, value: object) -> Html:
    """A value for the script of the page, in an element that is not executed."""
    # Inside a script element only its end tag counts, and nothing is unescaped: no angle bracket may be there.
    text = orjson.dumps(value).decode()
    escapes = {code: f"\\u{code:04x}" for code in (*map(ord, "<>&\u2028\u2029"), *_REORDERING)}
    return element("script", Html(text.translate(escapes)), type="application/json", id=name)


def table(
    caption: str, head: Sequence[str], rows: Iterable[Sequence[str | None]], *, numeric: Container[int] = ()
) -> Html:
    """A table whose first column names its rows.

    :param numeric: The columns that hold numbers, from 0.
    """

    def cell(column: int, content: str | None) -> Html:
        kind = "number" if column in numeric else None
        return element("td", content, class_=kind) if column else element("th", content, scope="row", class_=kind)

    return table_of(caption, head, (element("tr", *map(cell, range(len(head)), row)) for row in rows), numeric=numeric)


def table_of(caption: str, head: Sequence[str], rows: Iterable[Html], *, numeric: Container[int] = ()) -> Html:
    """A table of rows that are HTML already."""
    columns = [
        element("th", name, scope="col", class_="number" if column in numeric else None)
        for column, name in enumerate(head)
    ]
    written = element(
        "table",
        element("caption", caption),
        element("thead", element("tr", *columns)),
        element("tbody", *rows),
    )
    # What is wider than the page is scrolled, which has to be possible from the keyboard, too.
    return element("div", written, class_="scroll table", tabindex=0, role="region", aria_label=caption)


def facts(pairs: Iterable[tuple[str, str]]) -> Html:
    """Names and values."""
    return element("dl", *(join(element("dt", name), element("dd", value)) for name, value in pairs))

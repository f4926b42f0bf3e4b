"""Text of jobs, plugins, files and servers on a terminal: control characters are shown there, and not obeyed.

A terminal takes orders from what is printed on it: a title, a link, text that is moved, hidden or copied elsewhere.
"""

import re
from typing import Final

#: C0 without tab and line feed, DEL, C1, line separators, the controls that reorder text, and surrogates.
_CONTROLS: Final = "\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
_IN_TEXT: Final = re.compile(f"[{_CONTROLS}]")
_IN_LINE: Final = re.compile(f"[\t\n{_CONTROLS}]")
#: SGR: colours, bold and the like.
_IN_OUTPUT: Final = re.compile(f"(?P<sgr>\x1b\\[(?P<codes>[0-9;:]*)m)|(?P<end>\r?\n)|(?P<back>\r)|[{_CONTROLS}]")
#: What may be the beginning of one of these, at the end of a piece.
_UNFINISHED: Final = re.compile("(?:\x1b(?:\\[[0-9;:]{0,32})?|\r)\\Z")
_RESET: Final = "\x1b[0m"


def visible(text: str, *, one_line: bool = False) -> str:
    r"""A text with every control character escaped as Python would: ``\x1b``, ``\x07``, ``\u202e``.

    :param one_line: Also line feeds and tabs, which stay otherwise: the text is not to begin a line of its own.
    """
    return (_IN_LINE if one_line else _IN_TEXT).sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


class OutputFilter:
    """Output of a program, piece by piece, for people: it keeps its colours and progress bars, and no more.

    On a terminal, SGR sequences and carriage returns pass; colours end with their line. Elsewhere colours are left out,
    and a carriage return begins a new line. All other control characters are escaped.

    :param terminal: Whether it is shown on a terminal.
    """

    def __init__(self, *, terminal: bool) -> None:
        self._terminal = terminal
        self._held = ""
        self._colored = False

    def feed(self, piece: str) -> str:
        """Return the text to show now; an escape sequence that may continue waits for the next piece."""
        text = self._held + piece
        unfinished = _UNFINISHED.search(text)
        self._held = unfinished[0] if unfinished else ""
        return _IN_OUTPUT.sub(self._shown, text[: len(text) - len(self._held)])

    def finish(self) -> str:
        """Return the text that was held back, at the end of the output, and the end of its colours."""
        text, self._held = self._held, ""
        return _IN_OUTPUT.sub(self._shown, text) + self._end_of_colors()

    def _shown(self, found: re.Match[str]) -> str:
        if found["sgr"]:
            if self._terminal:
                self._colored = bool(found["codes"].strip("0;:"))
            return found[0] if self._terminal else ""
        if found["end"]:
            return f"{self._end_of_colors()}\n"
        if found["back"]:
            return "\r" if self._terminal else "\n"
        return _escape(found)

    def _end_of_colors(self) -> str:
        colored, self._colored = self._colored, False
        return _RESET if colored else ""

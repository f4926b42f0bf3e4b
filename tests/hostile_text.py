"""Text that would steer a terminal, and what of it a screen still has."""

import re

ORDERS = (
    *("\x1b]0;own\x07", "\x1b]8;;http://evil\x1b\\", "\x1b[2J", "\x1b[8m", "\x1b[1A", "\x1bc"),
    *("\x9b2J", "\x90q\x9c", "\x07", "\x08", "\x7f", "\r", "\x85", "\u2028", "\u202e", "\u2066", "\u2069"),
)
HOSTILE = f"<{'|'.join(ORDERS)}>"
#: Of :data:`HOSTILE`, as people are to see it.
TITLE_SHOWN = r"\x1b]0;own\x07"

#: The colours of the host: bold or not, reset and the eight of every terminal.
_OWN_COLOURS = re.compile(r"\x1b\[(?:0|1|22|3[0-7])m")
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def orders_in(screen: str) -> list[str]:
    """Everything in what a terminal got that it would obey, beside line ends and the host's own colours."""
    return _OBEYED.findall(_OWN_COLOURS.sub("", screen.replace("\r\n", "\n")))

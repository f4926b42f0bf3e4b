"""Names of metrics and parameters as trackers take them.

A name that a tracker takes stays as it is. Any other is changed and ends with a mark made of the original, so that two
names never become one, and a resumed run continues its curves: the result depends on the name alone.
"""

import hashlib
import re
import unicodedata
from collections.abc import Container
from typing import Final

_MARK_CHARACTERS: Final = 8
#: Everything but letters and digits of any script, and ``_-. :/``.
_NOT_IN_PATHS: Final = re.compile(r"[^\w\-. :/]")


def distinct(name: str, wanted: str, *, characters: int | None = None, reserved: Container[str] = ()) -> str:
    """Return the name that a tracker gets in place of another.

    :param name: The original.
    :param wanted: The name that the tracker takes; may be that of other originals, too.
    :param characters: The most that the tracker takes.
    :param reserved: Names with a meaning of their own.
    """
    if wanted == name and name not in reserved and (characters is None or len(name) <= characters):
        return name
    mark = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()[:_MARK_CHARACTERS]
    return f"{wanted[: None if characters is None else characters - len(mark) - 1]}-{mark}"


def as_path(name: str) -> str:
    """Return a name of letters, digits and ``_-. :/`` alone, none of whose parts between ``/`` is empty or dots."""
    text = _NOT_IN_PATHS.sub("_", unicodedata.normalize("NFC", name))
    text = "/".join("_" if part in ("", ".", "..") else part for part in text.split("/"))
    return f"_{text}" if text.startswith("..") else text

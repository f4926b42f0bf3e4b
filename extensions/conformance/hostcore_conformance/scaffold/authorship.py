"""Whose name stands in the licence."""

import subprocess
from pathlib import Path
from typing import Final

from hostcore_hookspecs.errors import HostcoreError

#: Stands where the author's name belongs, and is too conspicuous to be published by mistake.
PLACEHOLDER: Final = "[YOUR NAME]"

_GIT_SECONDS: Final = 10


def author_named(text: str) -> str:
    """A name as it was given.

    :raises HostcoreError: If it is none that a licence can carry.
    """
    name = text.strip()
    if not name or not name.isprintable():
        raise HostcoreError(
            f"{text!r} cannot be an author's name" + (": it is empty" if not name else ""),
            code="scaffold.author",
            hint="--author 'Ada Lovelace'",
        )
    return name


def author_of_git(folder: Path) -> str | None:
    """The ``user.name`` that git would write into a commit in a folder; None if it knows none, or is not here."""
    command = ["git", "-C", str(folder), "config", "--get", "user.name"]
    try:
        answer = subprocess.run(
            command, capture_output=True, check=False, stdin=subprocess.DEVNULL, timeout=_GIT_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    name = answer.stdout.decode("utf-8", "replace").strip()
    return name if answer.returncode == 0 and name and name.isprintable() else None

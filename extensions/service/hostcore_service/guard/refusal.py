"""Refusal of a job from others."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

from hostcore_hookspecs.errors import HostcoreError


class NotAllowed(HostcoreError):
    """A job from others has something that is not allowed."""

    code = "job.not_allowed"


def matches(text: str, patterns: Sequence[str]) -> bool:
    """Return whether a text matches one of some patterns (``*``, ``?``), case-sensitively."""
    return any(fnmatchcase(text, pattern) for pattern in patterns)

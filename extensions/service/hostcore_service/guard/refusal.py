"""How a job from others is refused."""

from collections.abc import Sequence
from fnmatch import fnmatchcase

from hostcore_hookspecs.errors import HostcoreError


class NotAllowed(HostcoreError):
    """A job from others says what it may not."""

    code = "job.not_allowed"


def matches(text: str, patterns: Sequence[str]) -> bool:
    """Whether one of some patterns (``*``, ``?``) is that of a text; upper and lower case are different."""
    return any(fnmatchcase(text, pattern) for pattern in patterns)

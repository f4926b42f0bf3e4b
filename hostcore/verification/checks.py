"""Checks of a run: what was looked at, and what was found."""

from typing import Any, Final, Literal

import attrs

Status = Literal["ok", "failed", "warning", "skipped"]

#: How many of the same kind a message names.
MOST_NAMED: Final = 5


@attrs.frozen(kw_only=True)
class RunCheck:
    """One thing that was checked."""

    #: What: ``log.sequence``, ``checkpoint.content``.
    id: str
    #: ``failed``: something was lost, skipped, repeated or changed. ``warning``: something is left over that does
    #: no harm. ``skipped``: there is nothing to check, and the message has the reason.
    status: Status
    #: What was found; one line.
    message: str
    #: Where, below the run directory if it lies there; None for the run as a whole.
    path: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """The check as plain JSON."""
        return attrs.asdict(self)


def judged(id_: str, problems: list[str], *, otherwise: str, path: str | None = None) -> RunCheck:
    """A check that fails if there are problems.

    :param problems: In words, in the order in which they were found.
    :param otherwise: Message without problems.
    """
    if not problems:
        return RunCheck(id=id_, status="ok", message=otherwise, path=path)
    more = f"; and {len(problems) - MOST_NAMED} more" if len(problems) > MOST_NAMED else ""
    return RunCheck(id=id_, status="failed", message="; ".join(problems[:MOST_NAMED]) + more, path=path)

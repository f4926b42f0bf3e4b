"""Requests to a run: files in its directory, so that they can come from another machine that sees the folder."""

from typing import Any

import attrs

from hostcore.events.writer import now_ms
from hostcore.runs.directory import RunDirectory
from hostcore.runs.documents import CorruptDocument, UnreadableDocument, read_document, write_document


@attrs.frozen(kw_only=True)
class CancelRequest:
    """``control/cancel.attempt-<n>.json``: a request that an attempt ends. Later attempts are not meant."""

    requested_by: str
    reason: str
    #: Whether not to wait for a checkpoint: the worker is killed at once, as by a second Ctrl-C.
    force: bool = False
    #: Milliseconds since 1970.
    requested_ms: int


def request_cancel(
    directory: RunDirectory, attempt: int, *, requested_by: str, reason: str, force: bool = False
) -> None:
    """Ask the supervisor of an attempt to end it; asked again, only ``force`` adds anything.

    The attempt may not have begun yet: its supervisor finds the request then.

    :raises OSError: When the request cannot be written.
    """
    before = read_cancel(directory, attempt)
    if before is not None and (before.force or not force):
        return
    request = before or CancelRequest(requested_by=requested_by, reason=reason, requested_ms=now_ms())
    path = directory.cancel_request(attempt)
    path.parent.mkdir(exist_ok=True)
    write_document(path, attrs.asdict(attrs.evolve(request, force=force)))


def read_cancel(directory: RunDirectory, attempt: int) -> CancelRequest | None:
    """Return the request to end an attempt; None, at the price of one system call, if there is none.

    The file's presence is the request: an empty one that was made by hand counts as well.
    """
    path = directory.cancel_request(attempt)
    try:
        found: dict[str, Any] = read_document(path)
    except FileNotFoundError:
        return None
    except (CorruptDocument, UnreadableDocument):
        found = {}
    requested_ms = found.get("requested_ms")
    return CancelRequest(
        requested_by=str(found.get("requested_by") or "user"),
        reason=str(found.get("reason") or "cancelled by the user"),
        force=found.get("force") is True,
        requested_ms=requested_ms if isinstance(requested_ms, int) else now_ms(),
    )

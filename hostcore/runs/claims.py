"""Claims read back: who started an attempt, and when."""

from pathlib import Path

import attrs

from hostcore.runs.documents import CorruptDocument, UnreadableDocument, construct, read_document
from hostcore.runs.lease import ProcessIdentity


@attrs.frozen(kw_only=True)
class Claim:
    """``attempts/<n>.json``."""

    attempt: int
    #: The supervisor.
    process: ProcessIdentity
    #: Milliseconds since 1970.
    started_ms: int


def read_claim(folder: Path, attempt: int) -> Claim | None:
    """The claim of an attempt; None if there is none.

    None as well for a file that says nothing: its name alone is the claim, and it may be read while it is written.
    """
    path = folder / f"{attempt}.json"
    try:
        found = read_document(path)
        process = construct(ProcessIdentity, found.get("process") or {}, file=path)
        return construct(Claim, {**found, "process": process}, file=path)
    except (FileNotFoundError, CorruptDocument, UnreadableDocument):
        return None

"""The backlog of uploads: what each uploader has copied in this attempt, and what it has left to copy."""

from collections.abc import Mapping, Sequence

import attrs


@attrs.frozen(kw_only=True)
class Copied:
    """A unit that has arrived."""

    #: As events have it.
    path: str
    #: Place of its last file: of a checkpoint, its commit record.
    uri: str
    #: Those that were copied now; others of it may have been there.
    files: int
    bytes: int


@attrs.frozen(kw_only=True)
class Backlog:
    """The uploads of one uploader in this attempt, those that were made and those that are left."""

    #: Left to copy; what was given up does not count.
    files: int = 0
    bytes: int = 0
    #: Arrived.
    uploaded_files: int = 0
    uploaded_bytes: int = 0
    #: Of ``uploaded_files``: were there before with the same content, and not written again.
    existed_files: int = 0
    copied: Sequence[Copied] = ()
    #: The paths of units of which the ledger knew all files.
    known: Sequence[str] = ()
    #: The paths of units that are still to be copied.
    left: Sequence[str] = ()
    #: The last failures of those of them that are tried again.
    failing: Mapping[str, str] = attrs.field(factory=dict)
    #: The reasons for which units were given up, by path.
    given_up: Mapping[str, str] = attrs.field(factory=dict)
    #: The reason for which the uploader cannot be used in this attempt; None if it can.
    unusable: str | None = None
    #: The time for which nothing has got through, in seconds; 0 without an outage.
    outage_seconds: float = 0.0

    @property
    def is_complete(self) -> bool:
        """True if everything that there was has arrived."""
        return not self.left and not self.given_up and self.unusable is None

    @property
    def is_failing(self) -> bool:
        """True if there is something left, and nothing of it gets through."""
        return bool(self.left) and (self.outage_seconds > 0 or len(self.failing) == len(self.left))


@attrs.frozen(kw_only=True)
class Backlogs:
    """The backlogs of all uploaders."""

    by_uploader: Mapping[str, Backlog]

    @property
    def is_complete(self) -> bool:
        """True if everything that there was has arrived everywhere."""
        return all(one.is_complete for one in self.by_uploader.values())

    @property
    def files(self) -> int:
        """Left to copy, all uploaders together."""
        return sum(one.files for one in self.by_uploader.values())

    @property
    def bytes(self) -> int:
        """Left to copy, all uploaders together."""
        return sum(one.bytes for one in self.by_uploader.values())

    @property
    def uploaded_files(self) -> int:
        """Arrived in this attempt, all uploaders together."""
        return sum(one.uploaded_files for one in self.by_uploader.values())

    @property
    def uploaded_bytes(self) -> int:
        """Arrived in this attempt, all uploaders together."""
        return sum(one.uploaded_bytes for one in self.by_uploader.values())

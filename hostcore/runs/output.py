"""Output of the workers of a run, read back and while it grows."""

from collections.abc import Iterator

from hostcore.events.reader import GrowingLog
from hostcore.runs.attempts import newest_attempt
from hostcore.runs.directory import RunDirectory
from hostcore_hookspecs.errors import HostcoreError


class UnknownPart(HostcoreError):
    """A run has no such attempt, or no such rank."""

    code = "run.unknown_part"


class RankOutput:
    """Output of the workers of a rank: of one attempt, or of the newest and those that begin meanwhile.

    :param only: This attempt alone.
    :param begin: Where to read on: an attempt, and a place in its output in bytes; at the beginning of the newest one's
        if not given.
    """

    def __init__(
        self, directory: RunDirectory, rank: int, *, only: int | None = None, begin: tuple[int, int] | None = None
    ) -> None:
        self._directory = directory
        self._rank = rank
        self._only = only
        attempt, offset = begin or (only or newest_attempt(directory.attempts), 0)
        self._open(attempt, offset)

    def _open(self, attempt: int, offset: int = 0) -> None:
        self._attempt = attempt
        self._log = GrowingLog(self._directory.rank_output(attempt, self._rank), offset=offset)

    @property
    def place(self) -> tuple[int, int]:
        """Behind what was read: see ``begin``."""
        return self._attempt, self._log.offset

    def read(self, *, longest: int = -1) -> Iterator[bytes]:
        """Yield the lines that were added since the last time.

        :param longest: See :meth:`GrowingLog.read`.
        """
        while True:
            following = self._only is None and newest_attempt(self._directory.attempts) > self._attempt
            yield from self._log.read(longest=longest)
            if not following:
                return
            rest = self.rest()
            self._open(self._attempt + 1)
            if rest:
                yield rest + b"\n"

    def rest(self) -> bytes:
        """Return a last line without an end."""
        return self._log.rest()


def require_attempt(directory: RunDirectory, attempt: int | None) -> None:
    """Require that a run has had an attempt.

    :raises UnknownPart: When it has not.
    """
    newest = newest_attempt(directory.attempts)
    if attempt is not None and attempt > newest:
        raise UnknownPart(
            f"the run {directory.run_id!r} has no attempt {attempt}",
            code="run.unknown_attempt",
            file=str(directory.attempts),
            hint=f"its newest is attempt {newest}" if newest else "it has not begun yet",
        )


def require_rank(directory: RunDirectory, attempt: int | None, rank: int | None) -> None:
    """Require that an attempt has a rank; the newest attempt if none is given. Every one is taken to have rank 0.

    :raises UnknownPart: When it has not.
    """
    ranks = directory.ranks(attempt or newest_attempt(directory.attempts))
    if rank and rank not in ranks:
        raise UnknownPart(
            f"the run {directory.run_id!r} has no rank {rank}",
            code="run.unknown_rank",
            file=str(directory.logs),
            hint=f"its ranks are 0 to {ranks[-1]}" if len(ranks) > 1 else "it has rank 0 alone",
        )

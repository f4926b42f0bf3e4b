"""A run of a folder of this machine."""

from collections.abc import Callable, Iterator, Sequence

from hostcore.cli.event_lines import is_wanted
from hostcore.cli.report import name_of, places_in
from hostcore.cli.run_client import RunHandle, RunLog
from hostcore.events.reader import GrowingLog
from hostcore.runs.attempts import newest_attempt
from hostcore.runs.directory import RunDirectory
from hostcore.runs.following import follow, is_over, wait
from hostcore.runs.history import History
from hostcore.runs.output import RankOutput, require_attempt, require_rank
from hostcore.runs.result import RunResult
from hostcore.runs.summary import RunSummary, summarize
from hostcore.supervisor.cancelling import Cancellation, cancel
from hostcore.supervisor.run_status import RunStatus, inspect_run, last_sign


class FolderRun(RunHandle):
    """A run of a folder.

    :param directory: Of the run.
    """

    def __init__(self, directory: RunDirectory) -> None:
        self._directory = directory
        self._history = History(directory)

    @property
    def run_id(self) -> str:
        """Return its id."""
        return self._directory.run_id

    @property
    def words(self) -> Sequence[str]:
        """Name it by its id, or by its path if it is not where runs are looked for."""
        return [name_of(self._directory)]

    def is_over(self) -> bool:
        """Return whether it has ended, or is lost, by its directory or its launcher."""
        return is_over(self._directory)

    def wait(self) -> None:
        """Wait."""
        wait()

    def status(self) -> RunStatus:
        """Return its status by its directory."""
        return inspect_run(self._directory, self._history)

    def events(self, *, attempt: int | None, since: int | None) -> RunLog:
        """Return its event log."""
        self._require(attempt, None)
        log = GrowingLog(self._directory.events)

        def read() -> Iterator[bytes]:
            return (line for line in log.read() if is_wanted(line, attempt=attempt, since=since))

        return _FolderLog(self._directory, read, attempt=attempt)

    def output(self, *, attempt: int | None, rank: int | None) -> RunLog:
        """Return the output of a rank."""
        self._require(attempt, rank)
        output = RankOutput(self._directory, rank or 0, only=attempt)
        return _FolderLog(self._directory, output.read, output.rest, attempt=attempt)

    def _require(self, attempt: int | None, rank: int | None) -> None:
        _refresh(self._directory)
        require_attempt(self._directory, attempt)
        require_rank(self._directory, attempt, rank)

    def cancel(self, *, reason: str, force: bool, wait: bool, watch: Callable[[RunSummary], None]) -> Cancellation:
        """Request its end of its supervisor, or end it if it has none."""
        return cancel(self._directory, reason=reason, force=force, wait=wait, watch=watch)

    def places(self, result: RunResult) -> Sequence[tuple[str, str]]:
        """Name its files, and the command that resumes it."""
        return places_in(self._directory, result)


def _refresh(directory: RunDirectory) -> None:
    """Refresh a run of another machine from its mirror, if that is due."""
    if directory.launch.exists():
        from hostcore.supervisor.remote.watching import refresh_far

        refresh_far(directory)


class _FolderLog:
    """A :class:`~hostcore.cli.run_client.RunLog`.

    :param read: Returns the lines that were added since its last call.
    :param rest: Returns a last line without an end.
    """

    def __init__(
        self,
        directory: RunDirectory,
        read: Callable[[], Iterator[bytes]],
        rest: Callable[[], bytes] = lambda: b"",
        *,
        attempt: int | None,
    ) -> None:
        self.file: str | None = str(directory.events)
        self._directory = directory
        self._attempt = attempt
        self.history = read
        self.rest = rest

    def follow(self) -> Iterator[bytes]:
        """Iterate over new lines until the run, or the attempt, is over."""
        return follow(self.history, is_over=self._is_over, wait=wait)

    def _is_over(self) -> bool:
        begun_again = self._attempt is not None and newest_attempt(self._directory.attempts) > self._attempt
        over = begun_again or is_over(self._directory)
        _refresh(self._directory)  # after the end was seen: all of it is read then
        return over

    def empty_because(self) -> str:
        """Return nothing: it was not written yet."""
        return ""

    def lost_because(self) -> str:
        """Return the last sign of life of its supervisor."""
        if self._attempt not in (None, newest_attempt(self._directory.attempts)):
            return ""
        summary = summarize(self._directory)
        return last_sign(self._directory, summary) if summary.status == "lost" else ""

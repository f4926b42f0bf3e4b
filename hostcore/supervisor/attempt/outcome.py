"""The outcome of an attempt: gathers what its ranks report and how their processes ended, and decides how it ended."""

from hostcore.events.writer import now_ms
from hostcore.supervisor.attempt.ending import End, died, forced, stalled
from hostcore.supervisor.attempt.journal import Journal
from hostcore.supervisor.attempt.root_cause import Failure, deciding_rank, first_failure, has_failed, is_consequence
from hostcore.supervisor.attempt.stopping import Stopping
from hostcore.supervisor.workers.session import Member, WorkerSession
from hostcore_hookspecs import events
from hostcore_hookspecs.errors import RunError


class Outcome:
    """How the ranks of an attempt have ended, and what the attempt's end is."""

    def __init__(self, workers: WorkerSession, journal: Journal, stopping: Stopping) -> None:
        self._workers = workers
        self._journal = journal
        self._stopping = stopping
        #: What ranks say of their failures over the line, because their logs could not take it.
        self._told: dict[int, Failure] = {}

    def tell(self, rank: int, error: RunError) -> None:
        """A rank says over the line how it has failed."""
        failure = Failure(rank=rank, time_ms=now_ms(), error=error, is_consequence=is_consequence(error))
        self._told.setdefault(rank, failure)

    @property
    def is_complete(self) -> bool:
        """Whether every rank has said how it has ended."""
        said = self._journal.said
        return bool(self._workers.members) and all(member.rank in said for member in self._workers.members)

    @property
    def has_failed(self) -> bool:
        """Whether any rank has failed, so that the others cannot go on."""
        return has_failed(self._workers.members, self._journal.said, self._told)

    @property
    def failure(self) -> RunError | None:
        """Why it has failed, as the ranks say themselves."""
        found = first_failure([], self._journal.said, self._told, of_death=self._died)
        return found.error if found else None

    def end(self, *, submitted: bool) -> tuple[End, int | None]:
        """How it has ended: what the ranks said; what was done to them; or that one died.

        :param submitted: Whether the workers were told to go.
        :return: The end, and the rank in whose log it stands; None if it stands in none.
        """
        members, said, stopping = self._workers.members, self._journal.said, self._stopping
        failure = first_failure(members, said, self._told, of_death=self._died)
        if stopping.stalled is not None and not (self.is_complete and failure is None):
            error = stalled(stopping.stalled, step=self._journal.step, members=members)
            return events.RunFailed(error=error), None
        if stopping.asked is not None:
            status, reason = stopping.asked.status, stopping.killed
            if not submitted:  # in this process, a Ctrl-C ends the worker by itself
                return forced(status, reason or f"{stopping.asked.reason} before the run had started"), None
            failed_by_itself = failure is not None and not failure.is_consequence
            if reason is not None and not self.is_complete and not failed_by_itself:
                return forced(status, reason), None
        rank = deciding_rank(said, failure)
        if rank is not None:
            return said[rank].payload, rank  # type: ignore[return-value]
        assert failure is not None
        return events.RunFailed(error=failure.error), None

    def _died(self, member: Member) -> RunError:
        return died(member, step=self._journal.step)

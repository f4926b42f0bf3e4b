"""Output of a job's workers, or the log that its engine has; see :mod:`hostcore_service.jobs.history`."""

import base64
import re
from typing import Final, Literal

import orjson

from hostcore.plugins.launching import JobLauncher
from hostcore.runs.attempts import newest_attempt
from hostcore.runs.directory import RunDirectory
from hostcore.runs.output import RankOutput, require_attempt, require_rank
from hostcore.secrets.scrub import scrub
from hostcore_hookspecs.errors import HostcoreError
from hostcore_service.http.problems import RequestError
from hostcore_service.jobs.streams import PollResult, StreamChunk
from hostcore_service.jobs.visibility import NotVisible, is_visible
from hostcore_service.planning import directory_of, launcher_for
from hostcore_service.services import Service
from hostcore_service.store.job import StoredJob

#: What one look brings, in bytes; and of one line, which comes in pieces if it is longer.
_LOOK_BYTES: Final = 1 << 17
_LONGEST: Final = 1 << 16

_WORKER_CURSOR: Final = re.compile(r"w\.([0-9]{1,9})\.([0-9]{1,18})", re.ASCII)
_ENGINE_CURSOR: Final = re.compile(r"l\.([0-9]{1,9})\.([A-Za-z0-9_-]*)", re.ASCII)

#: Who has printed what is wanted.
Printer = Literal["worker", "launcher"]


class JobOutput:
    """Reads what was printed of a job; see :class:`hostcore_service.jobs.streams.Source`.

    Each look determines where the output is: for a job that waits, that is not known yet.

    :param cursor: Of the piece before; empty for the beginning.
    :param source: By whom; the ranks if not given or, where the run directory is not seen from here, the launcher.
    :param rank: Of the ranks: this one, in place of rank 0.
    :param attempt: Of the ranks: in this one alone.
    :raises NotVisible: When the ranks are wanted, and the run directory is not seen from here.
    :raises HostcoreError: When there is no such job, attempt or rank, or the cursor is none.
    """

    def __init__(
        self,
        service: Service,
        run_id: str,
        cursor: str,
        *,
        source: Printer | None,
        rank: int | None,
        attempt: int | None,
    ) -> None:
        self._service = service
        self._run_id = run_id
        self._source = source
        self._rank = rank
        self._attempt = attempt
        if source == "launcher" and self._of_ranks is not None:
            raise RequestError(
                f"what a launcher has is of no {self._of_ranks} alone",
                pointer=f"/query/{self._of_ranks}",
                hint="leave it out, or ask for source=worker",
            )
        job = service.job(run_id)
        self.far = self._is_far(job)
        self._output = self._opened(job, cursor)

    def look(self) -> PollResult:
        """Return output added since the last poll."""
        job = self._service.job(self._run_id)  # before the output: what was printed before the end is read after it
        far = self._is_far(job)
        if far == self.far:
            return self._output.look(job)
        self.far = far
        self._output = self._opened(job, "")
        return PollResult(more=True)  # which is looked for in another thread

    def _opened(self, job: StoredJob, cursor: str) -> "EngineOutput | WorkerOutput":
        other = _WORKER_CURSOR if self.far else _ENGINE_CURSOR
        if self._source is None and other.fullmatch(cursor):
            cursor = ""  # it was read elsewhere before
        if self.far:
            return EngineOutput(self._service, cursor)
        directory = directory_of(job, self._service.settings)
        return WorkerOutput(directory, cursor, rank=self._rank or 0, attempt=self._attempt)

    @property
    def _of_ranks(self) -> str | None:
        """The parameter that only what ranks printed has."""
        given = {"rank": self._rank, "attempt": self._attempt}
        return next((name for name, value in given.items() if value is not None), None)

    def _is_far(self, job: StoredJob) -> bool:
        """Return whether the output comes from the launcher."""
        if self._source == "launcher":
            return True
        if is_visible(job, self._service.settings):
            return False
        parameter = self._of_ranks or ("source" if self._source == "worker" else None)
        if parameter is not None:
            raise NotVisible(
                f"the run directory of {self._run_id!r} is not seen from the service, nor what its ranks printed in it",
                pointer=f"/query/{parameter}",
                hint="ask without source, rank and attempt for what its launcher has",
            )
        return True


class WorkerOutput:
    """Reads what a rank printed.

    :param cursor: Of the piece before; empty for the beginning.
    :param attempt: This one alone.
    :raises HostcoreError: When the run has no such attempt or rank, or the cursor is none.
    """

    def __init__(self, directory: RunDirectory, cursor: str, *, rank: int, attempt: int | None) -> None:
        self._attempt = attempt
        self._directory = directory
        require_attempt(self._directory, attempt)
        if newest_attempt(self._directory.attempts):
            require_rank(self._directory, attempt, rank)
        begin = _worker_place(cursor) if cursor else None
        self._output = RankOutput(self._directory, rank, only=attempt, begin=begin)

    def look(self, job: StoredJob) -> PollResult:
        """Return output added since the last poll.

        :param job: As it was before.
        """
        over = job.phase == "ended" or self._is_past()
        lines: list[bytes] = []
        size = 0
        for line in self._output.read(longest=_LONGEST):
            lines.append(line)
            size += len(line)
            if size >= _LOOK_BYTES:
                break
        more = size >= _LOOK_BYTES
        attempt, offset = self._output.place
        if over and not more and (rest := self._output.rest()):
            lines.append(rest)
            offset += len(rest)
        text = b"".join(lines).decode(errors="replace")
        pieces = [_piece(text, f"w.{attempt}.{offset}")] if text else []
        return PollResult(pieces=pieces, more=more, ended=job.status if over and not more else None)

    def _is_past(self) -> bool:
        """Return whether there is a later attempt than the requested one."""
        return self._attempt is not None and newest_attempt(self._directory.attempts) > self._attempt


class EngineOutput:
    """Reads what the job's launcher knows that was printed.

    :param cursor: Of the piece before; empty for the beginning.
    :raises HostcoreError: When the cursor is none.
    """

    def __init__(self, service: Service, cursor: str) -> None:
        self._service = service
        self._launcher: JobLauncher | None = None
        #: Which launch of the job, and how far its output was read.
        self._launches, self._since = _engine_place(cursor) if cursor else (0, "")

    def look(self, job: StoredJob) -> PollResult:
        """Return output added since the last poll.

        :param job: As it was before.
        :raises RequestError: 502: the launcher cannot return the output.
        """
        ended = job.status if job.phase == "ended" else None
        if job.handle is None:
            return PollResult(ended=ended)
        if job.launches != self._launches:
            self._launches, self._since = job.launches, ""
        try:
            chunk = self._asked(job).read_logs(job.handle, self._since)
        except HostcoreError as error:
            raise RequestError(
                f"the launcher {job.launcher} cannot return the output: {error.message}",
                code="service.launcher",
                hint=error.hint,
            ) from error
        self._since = chunk.next
        if not chunk.text:
            return PollResult(ended=ended)
        after = base64.urlsafe_b64encode(chunk.next.encode()).decode().rstrip("=")
        return PollResult(pieces=[_piece(chunk.text, f"l.{self._launches}.{after}")], more=True)

    def _asked(self, job: StoredJob) -> JobLauncher:
        if self._launcher is None:
            self._launcher = launcher_for(job, self._service.settings, self._service.discovered)
        return self._launcher


def _piece(text: str, cursor: str) -> StreamChunk:
    shown = scrub(text).encode(errors="replace")
    plain = shown.decode()
    return StreamChunk(
        id=cursor,
        event="text",
        data=orjson.dumps({"text": plain}),
        line=orjson.dumps({"text": plain, "next": cursor}, option=orjson.OPT_APPEND_NEWLINE),
        text=shown,
    )


def _worker_place(cursor: str) -> tuple[int, int]:
    found = _WORKER_CURSOR.fullmatch(cursor)
    if found is None:
        raise _no_cursor()
    return int(found[1]), int(found[2])


def _engine_place(cursor: str) -> tuple[int, str]:
    found = _ENGINE_CURSOR.fullmatch(cursor)
    try:
        if found is None:
            raise ValueError(cursor)
        after = base64.urlsafe_b64decode(found[2] + "=" * (-len(found[2]) % 4)).decode()
    except ValueError:
        raise _no_cursor() from None
    return int(found[1]), after


def _no_cursor() -> RequestError:
    return RequestError(
        "this is no cursor of these logs", pointer="/query/since", hint="pass `next`, or an `id`, of the piece before"
    )

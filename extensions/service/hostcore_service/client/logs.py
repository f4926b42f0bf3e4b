"""The events of a job of a service, and the output of its workers: present data, then later data."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import orjson

from hostcore.cli.event_lines import is_wanted
from hostcore.events.reader import seq_of
from hostcore_hookspecs.errors import HostcoreError
from hostcore_service.client.answers import Unavailable
from hostcore_service.client.client import Client
from hostcore_service.client.jobs import UNKNOWN_END, RemoteJob, RemoteJobs, path_of
from hostcore_service.client.subscription import END, lines_of, subscribe

_NDJSON: Final = "application/x-ndjson"
#: What there is already is asked for so often; what is yet to come, for as long as that takes.
_TRIES: Final = 5
_FIRST_WAIT_SECONDS: Final = 0.25
#: A service that asks for a longer wait is not asked again.
_LONGEST_WAIT_SECONDS: Final = 30.0


class _Log:
    """Base of both logs; see :class:`hostcore.cli.run_client.RunLog`."""

    file: str | None = None

    def __init__(self, jobs: RemoteJobs, job: RemoteJob, path: str, *, attempt: int | None) -> None:
        self._jobs = jobs
        self._job = job
        self._path = f"{path_of(job.run_id)}/{path}"
        self._attempt = attempt
        #: The status that the job has ended with, once that is known.
        self._ended: str | None = None

    def _added(self, *, query: Mapping[str, Any] | None = None, last_id: str) -> Iterator[str]:
        """Iterate over new data until the job is over; nothing for an attempt that is not the newest."""
        if self._attempt not in (None, self._job.attempt):
            return
        for message in subscribe(self._jobs.client, self._path, query=query, last_id=last_id):
            if message.event == END:
                self._ended = str(orjson.loads(message.data).get("status", ""))
                return
            yield message.data

    def _why_nothing(self, job: RemoteJob) -> str:
        return f"nothing of {job.run_id} to show; it is {job.status}{f': {job.detail}' if job.detail else ''}"

    def lost_because(self) -> str:
        """Return the service's reason for a followed job that is lost."""
        return self._jobs.get(self._job.run_id).detail or UNKNOWN_END if self._ended == "lost" else ""


class RemoteEventLog(_Log):
    """The lines of the event log.

    :raises HostcoreError: When the job has no such attempt.
    """

    def __init__(self, jobs: RemoteJobs, job: RemoteJob, *, attempt: int | None, since: int | None) -> None:
        super().__init__(jobs, job, "events", attempt=attempt)
        _require_attempt(job, attempt)
        self._seen = since or 0

    def history(self) -> Iterator[bytes]:
        """Iterate over the events up to now."""
        for text in _whole_lines(self._jobs.client, self._path, lambda: {"since": self._seen}):
            line = text.encode()
            self._seen = seq_of(line) or self._seen
            if is_wanted(line, attempt=self._attempt):
                yield line + b"\n"

    def follow(self) -> Iterator[bytes]:
        """Iterate over later events until the job is over."""
        for data in self._added(last_id=str(self._seen)):
            if self._attempt is not None and orjson.loads(data).get("attempt", 0) > self._attempt:
                return
            line = data.encode()
            if is_wanted(line, attempt=self._attempt):
                yield line + b"\n"

    def rest(self) -> bytes:
        """Nothing: half a line is no event."""
        return b""

    def empty_because(self) -> str:
        """Return the status of a job that has not begun."""
        if self._job.attempt:
            return ""
        job = self._jobs.get(self._job.run_id)
        return "" if job.attempt else self._why_nothing(job)  # it may have begun meanwhile


class OutputLog(_Log):
    """The output of a rank, or that of the engine where the service sees no more."""

    def __init__(self, jobs: RemoteJobs, job: RemoteJob, *, attempt: int | None, rank: int | None) -> None:
        super().__init__(jobs, job, "logs", attempt=attempt)
        self._query = {"rank": rank, "attempt": attempt}
        self._next = ""
        self._rest = ""

    def history(self) -> Iterator[bytes]:
        """Iterate over the lines up to now."""
        query = self._query
        for line in _whole_lines(self._jobs.client, self._path, lambda: {**query, "since": self._next or None}):
            found = orjson.loads(line)
            self._next = found["next"]
            *whole, self._rest = (self._rest + found["text"]).split("\n")
            yield from (f"{one}\n".encode() for one in whole)

    def follow(self) -> Iterator[bytes]:
        """Iterate over later output until the job is over."""
        if self._rest:
            yield self.rest()
            self._rest = ""
        for data in self._added(query=self._query, last_id=self._next):
            if text := orjson.loads(data)["text"]:
                yield text.encode()

    def rest(self) -> bytes:
        """The beginning of a line whose end was not printed yet."""
        return self._rest.encode()

    def empty_because(self) -> str:
        """Return the status of the job."""
        return self._why_nothing(self._jobs.get(self._job.run_id))


def _require_attempt(job: RemoteJob, attempt: int | None) -> None:
    if attempt is not None and attempt > job.attempt:
        raise HostcoreError(
            f"the run {job.run_id!r} has no attempt {attempt}",
            code="run.unknown_attempt",
            hint=f"its newest is attempt {job.attempt}" if job.attempt else "it has not begun yet",
        )


def _whole_lines(client: Client, path: str, query: Callable[[], Mapping[str, Any]]) -> Iterator[str]:
    """Iterate over the present lines, over several connections if they break: as many as bring something.

    :param query: Where to go on, asked for each connection.
    :raises HostcoreError: The refusal of the service, or its absence.
    """
    losses = 0
    while True:
        try:
            with client.stream(path, accept=_NDJSON, query={**query(), "follow": "false"}) as pieces:
                for line in lines_of(pieces):
                    losses = 0
                    if line:  # an empty one is a sign of life
                        yield line
            return
        except Unavailable as lost:
            losses += 1
            if losses == _TRIES or lost.after_seconds > _LONGEST_WAIT_SECONDS:
                raise
            client.sleep(max(lost.after_seconds, _FIRST_WAIT_SECONDS * 2.0**losses))

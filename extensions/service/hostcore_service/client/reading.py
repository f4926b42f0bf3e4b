"""``hostcore logs --server``."""

import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final, Protocol

import orjson

from hostcore.cli.event_lines import is_wanted, line_of
from hostcore.cli.output import OutputEcho, echo, echo_json, print_error, tell_aside
from hostcore.events.reader import seq_of
from hostcore.runs.result import FAILED
from hostcore_hookspecs.errors import HostcoreError
from hostcore_service.client.answers import NotNow
from hostcore_service.client.client import Client
from hostcore_service.client.jobs import RemoteJob, RemoteJobs, path_of
from hostcore_service.client.subscription import END, lines_of, subscribe

_NDJSON: Final = "application/x-ndjson"
#: What there is already is asked for so often; what is yet to come, for as long as that takes.
_TRIES: Final = 5
_FIRST_WAIT_SECONDS: Final = 0.25
#: A service that wants more patience is believed.
_LONGEST_WAIT_SECONDS: Final = 30.0


class _Source(Protocol):
    #: The status that the job has ended with, once that is known.
    ended: str | None

    def history(self) -> Iterator[str]: ...

    def follow(self) -> Iterator[str]: ...


def show_remote_logs(
    server: str,
    run: str,
    *,
    follows: bool,
    lines: int | None,
    attempt: int | None,
    since: int | None,
    output: bool,
    rank: int | None,
    as_json: bool,
) -> None:
    """Show what happened in a job of a service as it is shown of a run of this machine."""
    with Client.of(server) as client:
        job = RemoteJobs(client).find(run)
        source: _Source
        if output:
            source = _Output(client, job, attempt=attempt, rank=rank)
        else:
            _require_attempt(job, attempt)
            source = _Events(client, job, attempt=attempt, since=since, as_json=as_json)
        printed = _Printer(output=output, as_json=as_json)
        for text in source.history() if lines is None else deque(source.history(), maxlen=lines):
            printed.show(text)
        if follows and attempt in (None, job.attempt):
            for text in source.follow():
                printed.show(text)
        printed.end()
        if printed.nothing and lines != 0 and (output or not job.attempt):
            _say_why_nothing(RemoteJobs(client).look(job.run_id), output=output)
    if follows and source.ended == "lost":
        error = HostcoreError(f"{job.run_id} is lost: {RemoteJobs(client).look(job.run_id).detail}", code="run.lost")
        print_error(error)
        sys.exit(FAILED)


class _Printer:
    """Prints pieces of text, and notes whether there were any.

    :param output: Of what workers printed; else they are the lines of events.
    """

    def __init__(self, *, output: bool, as_json: bool) -> None:
        self._output = OutputEcho()
        self._print = self._output.show if output else echo_json if as_json else partial(echo, nl=False)
        self.nothing = True

    def show(self, text: str) -> None:
        if text:
            self._print(text)
            self.nothing = False

    def end(self) -> None:
        self._output.end()


def _say_why_nothing(job: RemoteJob, *, output: bool) -> None:
    if output or not job.attempt:  # it may have begun meanwhile
        tell_aside(f"nothing of {job.run_id} to show; it is {job.status}{f': {job.detail}' if job.detail else ''}")


def _require_attempt(job: RemoteJob, attempt: int | None) -> None:
    if attempt is not None and attempt > job.attempt:
        raise HostcoreError(
            f"the run {job.run_id!r} has no attempt {attempt}",
            code="run.unknown_attempt",
            hint=f"its newest is attempt {job.attempt}" if job.attempt else "it has not begun yet",
        )


class _Events:
    """The lines of the event log."""

    def __init__(
        self, client: Client, job: RemoteJob, *, attempt: int | None, since: int | None, as_json: bool
    ) -> None:
        self._client = client
        self._path = f"{path_of(job.run_id)}/events"
        self._attempt = attempt
        self._seen = since or 0
        self._as_json = as_json
        self.ended: str | None = None

    def history(self) -> Iterator[str]:
        """What has happened up to now."""
        for line in _whole_lines(self._client, self._path, lambda: {"since": self._seen}):
            self._seen = seq_of(line.encode()) or self._seen
            yield from self._shown(line)

    def follow(self) -> Iterator[str]:
        """What happens, until the job is over."""
        for message in subscribe(self._client, self._path, last_id=str(self._seen)):
            if message.event == END:
                self.ended = status_in(message.data)
                return
            if self._attempt is not None and orjson.loads(message.data).get("attempt", 0) > self._attempt:
                return
            yield from self._shown(message.data)

    def _shown(self, line: str) -> Iterator[str]:
        data = line.encode()
        if is_wanted(data, attempt=self._attempt):
            yield f"{line}\n" if self._as_json else f"{line_of(data)}\n"


class _Output:
    """What the workers of a rank printed, or what the engine has of it where the service sees no more."""

    def __init__(self, client: Client, job: RemoteJob, *, attempt: int | None, rank: int | None) -> None:
        self._client = client
        self._path = f"{path_of(job.run_id)}/logs"
        self._query = {"rank": rank, "attempt": attempt}
        self._next = ""
        self.ended: str | None = None

    def history(self) -> Iterator[str]:
        """What was printed up to now, in lines."""
        rest = ""
        for line in _whole_lines(self._client, self._path, lambda: {**self._query, "since": self._next or None}):
            found = orjson.loads(line)
            self._next = found["next"]
            *whole, rest = (rest + found["text"]).split("\n")
            yield from (f"{one}\n" for one in whole)
        yield rest

    def follow(self) -> Iterator[str]:
        """What is printed, until the job is over."""
        for message in subscribe(self._client, self._path, query=self._query, last_id=self._next):
            if message.event == END:
                self.ended = status_in(message.data)
                return
            yield orjson.loads(message.data)["text"]


def _whole_lines(client: Client, path: str, query: Callable[[], Mapping[str, Any]]) -> Iterator[str]:
    """The lines that there are now, over several connections if they break.

    :param query: Where to go on, asked for each connection.
    :raises HostcoreError: What the service says against it, or that it does not answer.
    """
    losses = 0
    while True:
        try:
            with client.stream(path, accept=_NDJSON, query={**query(), "follow": "false"}) as pieces:
                yield from filter(None, lines_of(pieces))  # an empty one says that the service is there
            return
        except NotNow as lost:
            losses += 1
            if losses == _TRIES or lost.after_seconds > _LONGEST_WAIT_SECONDS:
                raise
            client.sleep(max(lost.after_seconds, _FIRST_WAIT_SECONDS * 2.0**losses))


def status_in(data: str) -> str:
    """The status in the last event of a stream."""
    return str(orjson.loads(data).get("status", ""))

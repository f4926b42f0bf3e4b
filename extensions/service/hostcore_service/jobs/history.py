"""``/v1/jobs/{run_id}/events`` and ``/logs``: events and printed output, of running jobs too."""

import logging
from collections.abc import Callable
from functools import partial
from typing import Annotated, Final

from fastapi import APIRouter, Depends, Header, Query, Request
from fastapi.responses import StreamingResponse

from hostcore.events.reader import GrowingLog, name_of, seq_of
from hostcore.secrets.scrub import scrub_bytes
from hostcore_service.http.auth import authenticate
from hostcore_service.http.openapi import ALWAYS, Answers, problems
from hostcore_service.http.problems import RequestError
from hostcore_service.http.query import only_known_parameters
from hostcore_service.jobs.printing import JobOutput, Printer
from hostcore_service.jobs.streams import (
    NDJSON,
    SSE,
    TEXT,
    PollResult,
    StreamChunk,
    StreamSource,
    form_of,
    streamed,
    the_streams,
)
from hostcore_service.planning import directory_of
from hostcore_service.services import Service, the_service

ROUTER = APIRouter(
    prefix="/v1/jobs",
    tags=["history"],
    dependencies=[Depends(authenticate), Depends(only_known_parameters)],
    responses=ALWAYS,
)

The = Annotated[Service, Depends(the_service)]
_MOST: Final = 2**63 - 1

_EVENT = (
    '{"schema":"hostcore.event/1","seq":7,"time_ms":1795250000000,"run_id":"demo","attempt":1,"src":[0,1,310],'
    '"event":"metrics","step":10,"epoch":0,"metrics":{"train/loss":0.42}}'
)
_TEXT_SCHEMA: Final = {"schema": {"type": "string"}}
_EVENTS: Final[Answers] = {
    **problems(400, 404, 502),
    200: {
        "description": "The events, each a line of JSON; see `hostcore schema --events`.",
        "content": {
            SSE: {
                **_TEXT_SCHEMA,
                "example": f'id: 7\nevent: metrics\ndata: {_EVENT}\n\nevent: end\ndata: {{"status":"succeeded"}}\n\n',
            },
            NDJSON: {**_TEXT_SCHEMA, "example": f"{_EVENT}\n"},
        },
    },
}
_LOGS: Final[Answers] = {
    **problems(400, 404, 502),
    200: {
        "description": "The text, in pieces. What follows a piece is asked for with its `id` or `next`.",
        "content": {
            SSE: {
                **_TEXT_SCHEMA,
                "example": 'id: w.1.18\nevent: text\ndata: {"text":"epoch 1 of 3\\n"}\n\n'
                'event: end\ndata: {"status":"succeeded"}\n\n',
            },
            NDJSON: {**_TEXT_SCHEMA, "example": '{"text":"epoch 1 of 3\\n","next":"w.1.18"}\n'},
            TEXT: {**_TEXT_SCHEMA, "example": "epoch 1 of 3\n"},
        },
    },
}
_FOLLOW: Final = (
    "Go on until the job has ended. SSE follows unless it is `false`, the other forms only if it is `true`."
)

Follow = Annotated[bool | None, Query(description=_FOLLOW)]
LastEventId = Annotated[
    str | None,
    Header(
        alias="Last-Event-ID",
        max_length=4096,
        description="The `id` of the last event that has arrived: the stream continues behind it. It outdoes `since`.",
    ),
]
Attempt = Annotated[int | None, Query(ge=1, le=_MOST, description="This one alone.")]


@ROUTER.get("/{run_id}/events", summary="What happened in a job", response_class=StreamingResponse, responses=_EVENTS)
async def events(
    request: Request,
    run_id: str,
    service: The,
    *,
    since: Annotated[int, Query(ge=0, le=_MOST, description="Events after this `seq` alone.")] = 0,
    follow: Follow = None,
    last_event_id: LastEventId = None,
) -> StreamingResponse:
    """The events of a job's run, in their order, over all of its attempts.

    With `Accept: text/event-stream` as server-sent events: `id` is the event's `seq`, `event` its name. When the job
    has ended and everything was sent, `event: end` has its status, and the stream is closed; a stream without `end` was
    cut, and a client that comes again with `Last-Event-ID` gets every event exactly once. Otherwise as NDJSON: the
    lines of `events.jsonl`. A job that waits has no events yet.
    """
    if last_event_id:
        since = _seq(last_event_id)
    log = partial(EventStream, service, run_id, since=since)
    return await _answer(request, log, follow=follow, form=form_of(request.headers.get("accept", "")))


@ROUTER.get("/{run_id}/logs", summary="What a job printed", response_class=StreamingResponse, responses=_LOGS)
async def logs(
    request: Request,
    run_id: str,
    service: The,
    *,
    source: Annotated[
        Printer | None,
        Query(
            description="`worker`: what a rank printed. `launcher`: what the job's engine has, such as the logs of its "
            "pods; the default where the run directory is not seen from here."
        ),
    ] = None,
    rank: Annotated[
        int | None, Query(ge=0, le=1_000_000, description="Of `worker`: whose; rank 0, if not given.")
    ] = None,
    attempt: Attempt = None,
    since: Annotated[str | None, Query(max_length=4096, description="`next` of the piece before.")] = None,
    follow: Follow = None,
    last_event_id: LastEventId = None,
) -> StreamingResponse:
    """Printed output of a job: of the newest attempt, and of those that begin meanwhile.

    As server-sent events (`Accept: text/event-stream`), as NDJSON, or as plain text (`Accept: text/plain`). The ranks'
    output of a job whose run directory is not seen from here (`sees_run_dir`) cannot be had: 404.
    """
    cursor = last_event_id or since or ""
    output = partial(JobOutput, service, run_id, cursor, source=source, rank=rank, attempt=attempt)
    form = form_of(request.headers.get("accept", ""), has_text=True)
    return await _answer(request, output, follow=follow, form=form)


async def _answer(
    request: Request, opened: Callable[[], StreamSource], *, follow: bool | None, form: str
) -> StreamingResponse:
    """The stream, whose first look is made here: what cannot be read at all is a problem."""
    streams = the_streams(request)
    streams.require_room()
    source = await streams.run(opened, far=False)
    first = await streams.look(source)
    follow = form == SSE if follow is None else follow
    return streamed(streams.send(source, first, request=request, form=form, follow=follow), form)


def _seq(given: str) -> int:
    if not (given.isascii() and given.isdecimal() and len(given) < 19):
        raise RequestError(
            "Last-Event-ID is no number of an event", pointer="/header/Last-Event-ID", hint="it is an event's `id`"
        )
    return int(given)


LOG: Final = logging.getLogger("hostcore_service")

#: What one look brings, in bytes, or a line more.
_LOOK_BYTES: Final = 1 << 18
#: Of a line, in bytes: the texts of a longer one, which an older version may have written, are cut.
_LONGEST: Final = 16 << 20


class EventStream:
    """Reads the events of a job; see :class:`hostcore_service.jobs.streams.StreamSource`.

    :param since: Those after this number.
    :raises UnknownRun: When there is no such job.
    """

    far = False

    def __init__(self, service: Service, run_id: str, *, since: int) -> None:
        self._service = service
        self._run_id = run_id
        self._seen = since
        self._log = GrowingLog(directory_of(service.job(run_id), service.settings).events)
        if since:
            self._log.begin_behind(since)

    def look(self) -> PollResult:
        """The events that were added."""
        job = self._service.job(self._run_id)  # before the log: what was written before the end is read after it
        pieces: list[StreamChunk] = []
        size = 0
        for line in self._log.records(longest=_LONGEST):
            if not line:  # a piece of one that is too long
                return PollResult(pieces=pieces, more=True)
            seq = seq_of(line)
            if seq is None:
                LOG.warning("%s is damaged; see `hostcore verify %s`", self._log.path, self._run_id)
                continue
            if seq <= self._seen:
                continue
            self._seen = seq
            shown = scrub_bytes(line)
            pieces.append(StreamChunk(id=str(seq), event=name_of(line), data=shown.rstrip(b"\n"), line=shown))
            size += len(line)
            if size >= _LOOK_BYTES:
                return PollResult(pieces=pieces, more=True)
        return PollResult(pieces=pieces, ended=job.status if job.phase == "ended" else None)

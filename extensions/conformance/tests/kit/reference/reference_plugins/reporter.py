"""A reporter that posts every event to an HTTP server, one after the other, each under a key of its own."""

import json
from http.client import HTTPConnection, HTTPException
from typing import Annotated
from urllib.parse import urlsplit

import attrs
from annotated_types import Gt

from hostcore_hookspecs import Event, FatalError, ReporterContext, Secret, TransientError

#: Answers that another try may change.
PASSING = {408, 425, 429, 500, 502, 503, 504}


class ReferenceReporter:
    """Posts events as JSON. An event is told once the server has said that it has it."""

    @attrs.frozen(kw_only=True)
    class Settings:
        """Where to, and as whom."""

        #: `http://host:port/path`.
        url: str
        #: Sent as `Authorization: Bearer …`.
        token: Secret | None = None
        #: For each: connecting, and waiting for an answer.
        timeout_seconds: Annotated[float, Gt(0)] = 10.0

    def __init__(self, *, settings: Settings) -> None:
        self._settings = settings
        self._run_id = ""
        self._connection: HTTPConnection | None = None

    def open(self, ctx: ReporterContext) -> None:
        """Note which run this is; the first event connects."""
        self._run_id = ctx.run_id

    def report_event(self, event: Event) -> None:
        """Post an event. The server knows by the key whether it has it."""
        body = json.dumps(event.as_dict(), default=dict, allow_nan=False).encode()
        self.post(body, key=f"{event.run_id}:{event.seq}")

    def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def post(self, body: bytes, *, key: str) -> None:
        """Post a body, and see what the server says."""
        status = self.answer_to(body, key=key)
        if status in PASSING:
            raise TransientError(f"the server answers {status}")
        if not 200 <= status < 300:
            raise FatalError(f"the server answers {status}", hint="check url and token in the reporter's settings")

    def answer_to(self, body: bytes, *, key: str) -> int:
        """What the server answers."""
        token = self._settings.token
        headers = {"Idempotency-Key": key, "Content-Type": "application/json"}
        if token is not None:
            headers["Authorization"] = f"Bearer {token.value}"
        url = urlsplit(self._settings.url)
        if self._connection is None:
            self._connection = HTTPConnection(url.netloc, timeout=self._settings.timeout_seconds)
        try:
            self._connection.request("POST", url.path, body, headers)
            answer = self._connection.getresponse()
            answer.read()
        except (OSError, HTTPException) as error:
            self.close()  # it may be broken: the next try makes a new one
            raise TransientError(f"no answer from {url.netloc}: {error}") from error
        return answer.status

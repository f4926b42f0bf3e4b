"""The reporter ``webhook``: posts events as JSON to a URL, signed if it has a secret."""

import base64
import binascii
import difflib
import hashlib
import hmac
import os
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Final, Literal

import attrs
from annotated_types import Ge, Gt, Le

from hostcore_builtin_plugins.http_exchange import HttpExchange, check_url
from hostcore_hookspecs import Event, FatalError, InvalidSettings, ReporterContext, Secret, TransientError, Uri
from hostcore_hookspecs.events import ENDS, PAYLOADS
from hostcore_trackers.webhook_formats import EventFormat, Format, KubeflowFormat, OrchestratorFormat

#: Prefixes of Kubeflow Trainer's variables about its status server: the names of its releases, and older ones.
_KUBEFLOW: Final = ("KUBEFLOW_TRAINER_SERVER", "KUBEFLOW_TRAINER_STATUS")
#: Headers that the reporter sets itself.
_OWN_HEADERS: Final = frozenset({"idempotency-key", "content-type", "content-length", "transfer-encoding", "host"})
#: Answers of a server that has the event already.
_TAKEN_BEFORE: Final = frozenset({409})
#: Answers that another try may change, beside those of the HTTP standards.
_FAILURES: Final = frozenset({501, 505})
#: Of an answer, so much is read.
_ANSWER_BYTES: Final = 4096
#: A name, as RFC 9110 has it.
_HEADER: Final = re.compile(r"[-!#$%&'*+.^_`|~0-9A-Za-z]+")


class WebhookReporter:
    """Posts one request for each event; an event counts as reported once its request was answered with success.

    :param wall_clock: Seconds since 1970, for the time in signatures.
    """

    @attrs.frozen(kw_only=True)
    class Settings:
        """Address and format of the requests."""

        url: Uri | None = attrs.field(
            default=None, metadata={"help": "The address to post to. Format `kubeflow` finds its own."}
        )
        terminal_url: Uri | None = attrs.field(
            default=None,
            metadata={"help": "Format `orchestrator`: the address for `terminal` calls.", "default": "`url`"},
        )
        format: Literal["event", "kubeflow", "orchestrator"] = attrs.field(
            default="event", metadata={"help": "What the bodies are."}
        )
        events: tuple[str, ...] = attrs.field(
            default=(), metadata={"help": "The names of the events to post.", "default": "all"}
        )
        secret: Secret | None = attrs.field(
            default=None, metadata={"help": "The key that bodies are signed with; `whsec_…` is decoded from base64."}
        )
        token: Secret | None = attrs.field(default=None, metadata={"help": "Sent as `Authorization: Bearer …`."})
        headers: Mapping[str, Uri] = attrs.field(factory=dict, metadata={"help": "Headers to send as well."})
        ca_file: Path | None = attrs.field(
            default=None, metadata={"help": "Certificates to trust (PEM).", "default": "the system's"}
        )
        timeout_seconds: Annotated[float, Gt(0), Le(300)] = attrs.field(
            default=10.0, metadata={"help": "For each: connecting, sending, and waiting for the answer."}
        )
        every_seconds: Annotated[float, Ge(0)] = attrs.field(
            default=5.0,
            metadata={"help": "Format `kubeflow`: the least time between two updates with metrics or progress."},
        )

    def __init__(self, *, settings: Settings, wall_clock: Callable[[], float] = time.time) -> None:
        _check(settings)
        self._settings = settings
        self._wall_clock = wall_clock
        self._key = key_of(settings.secret.value) if settings.secret else None
        self._format: Format = EventFormat()
        self._exchange: HttpExchange | None = None
        self._url = ""
        self._token_file: Path | None = None

    def open(self, ctx: ReporterContext) -> None:
        """Find out where to post to; nothing is sent.

        :raises FatalError: Format ``kubeflow`` without a URL, outside of a TrainJob; or without its ``ca_file``.
        """
        del ctx
        settings = self._settings
        url, ca_file = settings.url, settings.ca_file
        transient = _FAILURES
        if settings.format == "kubeflow":
            if url is None:
                url, ca_file, self._token_file = _kubeflow_server()
                ca_file = settings.ca_file or ca_file
            # Until the controller knows of the pod, it answers 403; and a token may be read while it is renewed.
            transient |= {401, 403}
            self._format = KubeflowFormat(settings.every_seconds)
        elif settings.format == "orchestrator":
            self._format = OrchestratorFormat()
        else:
            self._format = EventFormat()
        assert url is not None  # checked by _check, or found
        if ca_file is not None and not ca_file.is_file():
            raise FatalError(f"there are no certificates in {ca_file}", file=str(ca_file))
        self._url = url
        # Redirects would take what is posted, and its token, elsewhere.
        self._exchange = HttpExchange(
            headers={"Content-Type": "application/json"},
            timeout_seconds=settings.timeout_seconds,
            ca_file=ca_file,
            redirects=0,
            transient=transient,
        )

    def report_event(self, event: Event) -> None:
        """Post what the format has for the event.

        :raises TransientError: It was not delivered, and may be if tried again.
        :raises FatalError: The other side will not take it.
        """
        body = self._format.body(event)
        if body is None or (self._settings.events and event.name not in self._settings.events):
            return
        url = (self._settings.terminal_url or self._url) if event.name in ENDS else self._url
        assert self._exchange is not None  # open comes first
        headers = self._headers(event, body)
        with self._exchange.send("POST", url, headers=headers, body=lambda: body, also=_TAKEN_BEFORE) as answer:
            answer.read(_ANSWER_BYTES)  # an answer that breaks off counts as none
            answer.close()  # the rest may have no end

    def close(self) -> None:
        """Close the connections."""
        if self._exchange is not None:
            self._exchange.close()
        self._exchange = None

    def _headers(self, event: Event, body: bytes) -> dict[str, str]:
        message_id = f"{event.run_id}:{event.seq}"
        headers = {**self._settings.headers, "Idempotency-Key": message_id, "webhook-id": message_id}
        if self._key is not None:
            now = int(self._wall_clock())
            headers.update(signed_headers(self._key, message_id=message_id, timestamp=now, body=body))
        if token := self._token():
            headers["Authorization"] = f"Bearer {token}"
        return headers

    def _token(self) -> str | None:
        if self._settings.token is not None:
            return self._settings.token.value
        if self._token_file is None:
            return None
        try:
            # Read each time: Kubernetes renews it.
            return self._token_file.read_text().strip()
        except OSError as error:
            raise TransientError(f"cannot read the token: {error}", file=str(self._token_file)) from error


def _kubeflow_server() -> tuple[str, Path | None, Path | None]:
    """Return Kubeflow Trainer's variables of the container: URL, certificates, file with the token.

    :raises FatalError: There are none.
    """
    for prefix in _KUBEFLOW:
        if url := os.environ.get(f"{prefix}_URL"):
            ca_file, token_file = (os.environ.get(f"{prefix}_{name}") for name in ("CA_CERT", "TOKEN"))
            return url, Path(ca_file) if ca_file else None, Path(token_file) if token_file else None
    raise FatalError(
        f"neither {_KUBEFLOW[1]}_URL nor {_KUBEFLOW[0]}_URL is set: this is no container of a TrainJob, or its cluster "
        "has the feature gate TrainJobStatus off",
        hint="set url in the reporter's settings to post elsewhere",
    )


def _check(settings: WebhookReporter.Settings) -> None:
    """Refuse settings that make no sense together.

    :raises InvalidSettings: The first that does not.
    """
    if settings.url is None and settings.format != "kubeflow":
        raise InvalidSettings("/url", "a webhook needs the URL to post to")
    urls = {"/url": settings.url, "/terminal_url": settings.terminal_url}
    for pointer, url in urls.items():
        if url is not None:
            check_url(url, pointer)
    if settings.terminal_url is not None and settings.format != "orchestrator":
        raise InvalidSettings("/terminal_url", 'only the format "orchestrator" has terminal calls')
    for index, event in enumerate(settings.events):
        if event not in PAYLOADS:
            near = difflib.get_close_matches(event, PAYLOADS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(PAYLOADS)}"
            raise InvalidSettings(f"/events/{index}", f"there is no event {event!r}", hint=hint)
    _check_headers(settings.headers)


def _check_headers(headers: Mapping[str, str]) -> None:
    for header, value in headers.items():
        pointer = f"/headers/{header}"
        if header.lower() == "authorization":
            raise InvalidSettings(pointer, "the header Authorization is set by the reporter", hint='use "token"')
        if header.lower() in _OWN_HEADERS or header.lower().startswith("webhook-"):
            raise InvalidSettings(pointer, f"the header {header} is set by the reporter")
        if not _HEADER.fullmatch(header) or not value.isprintable():
            raise InvalidSettings(pointer, "not a header of HTTP")


_PREFIX = "whsec_"


def key_of(secret: str) -> bytes:
    """The key that a secret stands for: what follows ``whsec_``, decoded from base64; else its UTF-8 bytes.

    :raises InvalidSettings: At ``/secret``.
    """
    if not secret.startswith(_PREFIX):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except binascii.Error:
        raise InvalidSettings(
            "/secret",
            f"what follows {_PREFIX} is not base64",
            hint=f"a secret without {_PREFIX} is used as it is",
        ) from None


def signed_headers(key: bytes, *, message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """The headers that prove where a body comes from, and when it was sent.

    :param timestamp: Seconds since 1970, of this try.
    :return: ``webhook-timestamp``, and ``webhook-signature``: ``v1,`` and the base64 of the HMAC-SHA256 of
        ``<message_id>.<timestamp>.<body>``.
    """
    signed = b".".join((message_id.encode(), str(timestamp).encode(), body))
    digest = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    return {"webhook-timestamp": str(timestamp), "webhook-signature": f"v1,{digest}"}

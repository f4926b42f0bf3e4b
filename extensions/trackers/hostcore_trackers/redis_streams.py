"""The reporter ``redis-streams``: appends events to a stream of a Redis server, each of them once."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import urlsplit

import attrs
from annotated_types import Ge, Gt, Le, MinLen

from hostcore_builtin_plugins.extras import require
from hostcore_hookspecs import Event, FatalError, InvalidSettings, ReporterContext, Secret, TransientError, Uri
from hostcore_trackers.event_json import event_json
from hostcore_trackers.submission import submitted_ms

if TYPE_CHECKING:
    from redis import Redis
    from redis.exceptions import RedisError

_RUN_ID: Final = "{run_id}"
#: Redis's error when an entry's id is not larger than that of the newest entry.
_NOT_LARGER: Final = "equal or smaller"
#: How answers begin that are about the request, and not about the state that the server is in.
_FINAL: Final = ("WRONGTYPE", "unknown command", "DB index is out of range")


class RedisStreamsReporter:
    """Appends each event under an id made of the run and its ``seq``, so that Redis itself refuses a repetition."""

    @attrs.frozen(kw_only=True)
    class Settings:
        """Server and stream."""

        url: Uri = attrs.field(metadata={"help": "The server: `redis://host:6379/0`, or `rediss://` for TLS."})
        key: Annotated[str, MinLen(1)] = attrs.field(
            default="hostcore:{run_id}", metadata={"help": "The stream; `{run_id}` stands for the run's id."}
        )
        maxlen: Annotated[int, Ge(0)] = attrs.field(
            default=100_000, metadata={"help": "About how many entries the stream keeps; 0: all."}
        )
        username: str | None = attrs.field(default=None, metadata={"help": "The user, if the server has users."})
        password: Secret | None = attrs.field(default=None, metadata={"help": "The user's password."})
        ca_file: Path | None = attrs.field(
            default=None, metadata={"help": "With `rediss://`: certificates to trust (PEM).", "default": "the system's"}
        )
        timeout_seconds: Annotated[float, Gt(0), Le(300)] = attrs.field(
            default=5.0, metadata={"help": "For each: connecting, and waiting for an answer."}
        )

    def __init__(self, *, settings: Settings) -> None:
        _check(settings)
        require("redis", extra="redis")
        self._settings = settings
        self._key = settings.key
        self._run_dir = ""
        self._client: Redis | None = None
        #: The first part of all ids of this run.
        self._submitted_ms: int | None = None

    def open(self, ctx: ReporterContext) -> None:
        """Prepare to connect; the first event does."""
        import redis
        from redis.backoff import NoBackoff
        from redis.retry import Retry

        settings = self._settings
        self._key, self._run_dir = settings.key.replace(_RUN_ID, ctx.run_id), ctx.run_dir
        tls: dict[str, Any] = {}
        if settings.ca_file is not None:
            tls["ssl_ca_certs"] = str(settings.ca_file)
        self._client = redis.Redis.from_url(
            settings.url,
            username=settings.username,
            password=settings.password.value if settings.password else None,
            socket_timeout=settings.timeout_seconds,
            socket_connect_timeout=settings.timeout_seconds,
            retry=Retry(NoBackoff(), 0),  # the host tries again, and knows when
            client_name="hostcore",
            **tls,
        )

    def report_event(self, event: Event) -> None:
        """Append the event, unless it is there.

        :raises TransientError: The server cannot be reached, or cannot take it now.
        :raises FatalError: The server refuses this user, or the stream is not this run's.
        """
        import redis

        assert self._client is not None  # open comes first
        if self._submitted_ms is None:
            self._submitted_ms = submitted_ms(self._run_dir, event)
        try:
            self._client.xadd(
                self._key,
                _fields(event),
                id=f"{self._submitted_ms}-{event.seq}",
                maxlen=self._settings.maxlen or None,
                approximate=True,
            )
        except redis.ResponseError as error:
            if _NOT_LARGER not in str(error):
                raise self._explained(error) from error
            self._check_newest(self._submitted_ms)
        except redis.RedisError as error:
            raise self._explained(error) from error

    def close(self) -> None:
        """Close the connection."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _check_newest(self, run: int) -> None:
        """Take a refused event as reported if the newest entry of the stream is of this run.

        :raises FatalError: Something else writes to the stream.
        """
        import redis

        assert self._client is not None
        try:
            newest: Any = self._client.xinfo_stream(self._key)["last-generated-id"]
        except redis.RedisError as error:
            raise self._explained(error) from error
        newest_id = newest.decode() if isinstance(newest, bytes) else str(newest)
        if int(newest_id.partition("-")[0]) != run:
            raise FatalError(
                f"the stream {self._key} goes on with entries that are not of this run: its newest is {newest_id}",
                hint=f"give each run a stream of its own: put {_RUN_ID} into the key",
            )

    def _explained(self, error: "RedisError") -> TransientError | FatalError:
        """Classify an error of the server or its client, with a hint."""
        from redis import exceptions

        said = f"redis stream {self._key}: {error}"
        refused = exceptions.AuthenticationError | exceptions.AuthorizationError | exceptions.NoPermissionError
        if isinstance(error, refused):
            return FatalError(
                said, hint="check username and password in the reporter's settings, and the user's rights"
            )
        if isinstance(error, exceptions.ResponseError) and str(error).startswith(_FINAL):
            return FatalError(said, hint="check url and key in the reporter's settings")
        return TransientError(said)


def _fields(event: Event) -> dict[Any, Any]:
    return {
        "event": event.name,
        "run_id": event.run_id,
        "seq": event.seq,
        "attempt": event.attempt,
        "json": event_json(event),
    }


def _check(settings: RedisStreamsReporter.Settings) -> None:
    try:
        parts = urlsplit(settings.url)
        _ = parts.port
    except ValueError as error:
        raise InvalidSettings("/url", f"not a URL: {error}") from error
    if parts.scheme not in ("redis", "rediss") or not parts.hostname:
        raise InvalidSettings("/url", "expected a redis or rediss URL with a host", hint="redis://localhost:6379/0")
    if parts.username is not None or parts.password is not None:
        raise InvalidSettings(
            "/url", "a user or password in a URL ends up in logs", hint="use the settings username and password"
        )
    if settings.ca_file is not None and parts.scheme != "rediss":
        raise InvalidSettings("/ca_file", "only rediss:// has certificates")

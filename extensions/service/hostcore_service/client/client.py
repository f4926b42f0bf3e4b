"""One service over HTTP: requests that are tried again, and streams."""

import os
import random
import shlex
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlencode, urlsplit
from urllib.request import getproxies, proxy_bypass

import orjson

from hostcore import __version__
from hostcore.cli.output import tell_aside
from hostcore.cli.server_option import VARIABLE
from hostcore.secrets.scrub import remember
from hostcore_hookspecs.errors import HostcoreError
from hostcore_service.client.answers import ServiceUnreachable, Unavailable, error_of, no_json
from hostcore_service.settings import TOKEN_VARIABLE

if TYPE_CHECKING:
    import urllib3

_HEADER: Final = "X-TRAINER-TOKEN"

_CONNECT_SECONDS: Final = 10.0
_READ_SECONDS: Final = 60.0
#: For a caller that tries again itself.
_SOON_SECONDS: Final = 10.0
#: A stream sends something every 15 s, if only a sign of life.
_SILENCE_SECONDS: Final = 50.0
#: An answer is tried for so often, with growing pauses between, about 3 s in all.
_TRIES: Final = 5
_FIRST_PAUSE_SECONDS: Final = 0.25
_LONGEST_PAUSE_SECONDS: Final = 5.0
#: A service that requests a longer wait gets no second request; its answer is the error.
_LONGEST_WAIT_SECONDS: Final = 30.0
_PIECE_BYTES: Final = 1 << 16


class InvalidAddress(HostcoreError):
    """No URL of a service."""

    code = "service.address"


class Client:
    """Client of one service. Threads may share it.

    Redirects are not followed: they would take the token, and the job, elsewhere.

    :param url: Of the service.
    :param token: Sent with every request; None: no token.
    :param tell: Called with a line for people.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        tell: Callable[[str], object] = tell_aside,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.url = _checked_url(url)
        self._headers = {"User-Agent": f"hostcore/{__version__}", **({_HEADER: token} if token else {})}
        self.tell = tell
        self.sleep = sleep
        self._pool = _pool(self.url)

    @classmethod
    def of(cls, server: str) -> "Client":
        """Make the client of ``--server``, with the token of the environment."""
        token = os.environ.get(TOKEN_VARIABLE, "").strip() or None
        if token is not None:
            _require_sendable(token)
            remember(token, f"the environment variable {TOKEN_VARIABLE}")
        return cls(server, token=token)

    def get(self, path: str, *, once: bool = False, **query: Any) -> Any:
        """Request a path; return plain JSON.

        :param once: Whether the caller itself tries again.
        :param query: What is None is left out; a list is repeated.
        :raises Unavailable: When it does not answer, or what another try may change.
        :raises HostcoreError: The refusal of the service.
        """
        if once:
            return self._once("GET", _with_query(path, query), b"", {}, _SOON_SECONDS)
        return self._retried("GET", _with_query(path, query), b"", {}, _READ_SECONDS)

    def post(
        self,
        path: str,
        document: Any = None,
        *,
        once: bool = False,
        headers: Mapping[str, str] | None = None,
        timeout_seconds: float = _READ_SECONDS,
    ) -> Any:
        """Send a document, more than once if no answer comes: the service must know a request that it had before.

        :param once: See :meth:`get`.
        :param timeout_seconds: How long the service may think before it answers.
        :return: The answer, as plain JSON.
        :raises HostcoreError: See :meth:`get`.
        """
        body = b"" if document is None else orjson.dumps(document)
        given = {"Content-Type": "application/json", **(headers or {})}
        if once:
            return self._once("POST", path, body, given, _SOON_SECONDS)
        return self._retried("POST", path, body, given, timeout_seconds)

    def _retried(self, *request: Any) -> Any:
        """See :meth:`_once`."""
        for failures in range(1, _TRIES):
            try:
                return self._once(*request)
            except Unavailable as error:
                if error.after_seconds > _LONGEST_WAIT_SECONDS:
                    raise
                if failures == 1:
                    self.tell(f"{error.message}; trying again")
                self.sleep(max(error.after_seconds, pause_after(failures)))
        return self._once(*request)

    def _once(self, method: str, path: str, body: bytes, headers: Mapping[str, str], timeout_seconds: float) -> Any:
        """The answer to one request, as plain JSON."""
        import urllib3

        try:
            answer = self._request(method, path, body, headers, silence_seconds=timeout_seconds)
            content = answer.data
        except urllib3.exceptions.HTTPError as error:
            raise self._no_answer(error) from error
        self._require_success(answer, content)
        try:
            return orjson.loads(content)
        except orjson.JSONDecodeError as error:
            raise no_json(self.url) from error

    @contextmanager
    def stream(
        self,
        path: str,
        *,
        accept: str,
        headers: Mapping[str, str] | None = None,
        query: Mapping[str, Any] | None = None,
    ) -> Iterator[Iterator[bytes]]:
        """Stream a path, in pieces.

        :raises Unavailable: When the connection is lost, or not made; as :meth:`get`.
        :raises HostcoreError: The refusal of the service.
        """
        import urllib3

        asked = {"Accept": accept, **(headers or {})}
        try:
            answer = self._request("GET", _with_query(path, query or {}), b"", asked, silence_seconds=_SILENCE_SECONDS)
            try:
                if answer.status != HTTPStatus.OK:
                    self._require_success(answer, answer.read())
                yield _pieces(answer)
            finally:
                answer.close()
        except urllib3.exceptions.HTTPError as error:
            raise self._no_answer(error) from error

    def _request(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str], *, silence_seconds: float
    ) -> "urllib3.BaseHTTPResponse":
        import urllib3

        return self._pool.request(
            method,
            f"{self.url}{path}",
            body=body or None,
            headers={**self._headers, **headers},
            timeout=urllib3.Timeout(connect=_CONNECT_SECONDS, read=silence_seconds),
            retries=False,
            redirect=False,
            preload_content=False,
        )

    def _require_success(self, answer: "urllib3.BaseHTTPResponse", content: bytes) -> None:
        if HTTPStatus.OK <= answer.status < HTTPStatus.MULTIPLE_CHOICES:
            return
        raise error_of(self.url, answer.status, answer.headers, content)

    def _no_answer(self, error: Exception) -> ServiceUnreachable:
        import urllib3

        if isinstance(error, urllib3.exceptions.SSLError) and not isinstance(_innermost(error), ssl.SSLEOFError):
            return _untrusted(self.url, _reason(error))
        hint = "is it running, and is this its URL? `hostcore serve` prints it"
        return Unavailable(f"{self.url} does not answer: {_reason(error)}", hint=hint)


def _pieces(answer: "urllib3.BaseHTTPResponse") -> Iterator[bytes]:
    while piece := answer.read1(_PIECE_BYTES):
        yield piece


def _pool(url: str) -> "urllib3.PoolManager":
    """Connections through the proxy that the environment names for a URL, if any; certificates are checked."""
    import urllib3

    parts = urlsplit(url)
    proxy = None if proxy_bypass(parts.netloc) else getproxies().get(parts.scheme)
    if not proxy:
        return urllib3.PoolManager(maxsize=4)
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    try:
        login = unquote(urllib3.util.parse_url(proxy).auth or "")
        headers = urllib3.make_headers(proxy_basic_auth=login) if login else None
        return urllib3.ProxyManager(proxy, maxsize=4, proxy_headers=headers)
    except (urllib3.exceptions.HTTPError, ValueError) as error:
        variable = f"{parts.scheme}_proxy".upper()
        raise InvalidAddress(f"{variable} names no proxy that can be used", hint="http://HOST:PORT") from error


def _with_query(path: str, query: Mapping[str, Any]) -> str:
    given = {key: value for key, value in query.items() if value is not None and value != []}
    return f"{path}?{urlencode(given, doseq=True)}" if given else path


def pause_after(failures: int) -> float:
    """Return the seconds to wait after so many failures in a row: twice as long each time, and never the same."""
    pause = min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2.0 ** min(failures - 1, 10))
    return pause * random.uniform(0.5, 1)  # noqa: S311 - no secret


def _reason(error: BaseException) -> str:
    """The innermost words of an error of urllib3, which come wrapped several times."""
    if inner := _innermost(error):
        return inner.strerror or str(inner)
    return str(error).partition(": ")[2] or str(error)


def _innermost(error: BaseException) -> OSError | None:
    """The error of the operating system, or of OpenSSL, that is the cause of one of urllib3."""
    inner: BaseException | None = error
    while inner is not None and not isinstance(inner, OSError):
        inner = inner.__cause__ or inner.__context__ or next((one for one in inner.args if _is_error(one)), None)
    return inner


def _untrusted(url: str, reason: str) -> ServiceUnreachable:
    if "CERTIFICATE" in reason:
        return ServiceUnreachable(
            f"{url} cannot be trusted: {reason}", hint="SSL_CERT_FILE names the certificates to trust"
        )
    return ServiceUnreachable(f"{url} does not speak TLS: {reason}", hint="is it an http:// service?")


def _is_error(value: object) -> bool:
    return isinstance(value, BaseException)


def _require_sendable(token: str) -> None:
    if not token.isascii() or not token.isprintable():
        raise HostcoreError(
            f"{TOKEN_VARIABLE} has characters that no header can have", code="service.token", hint="it may be torn"
        )


def _checked_url(text: str) -> str:
    """The address of a service, without a slash at its end.

    :raises InvalidAddress: When it is none.
    """
    hint = "such as --server https://hostcore.example.org"
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError as error:
        raise InvalidAddress(f"{text!r} is not a URL: {error}", hint=hint) from error
    if parts.username is not None or parts.password is not None:
        raise InvalidAddress(
            "a user or password in the URL of a service would end up in logs", hint="export TRAINER_API_TOKEN=…"
        )
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidAddress(f"{text!r} is not an http or https URL with a host", hint=hint)
    if parts.query or parts.fragment:
        raise InvalidAddress(f"{text!r} has a query or a fragment", hint=hint)
    return text.rstrip("/")


def words_for(url: str) -> list[str]:
    """Return the options of a command for the same service; none if the environment names it."""
    return [] if os.environ.get(VARIABLE, "").rstrip("/") == url else ["--server", url]


def shown(url: str, *words: str) -> str:
    """Format a command for the same service, as people type it: ``hostcore logs -f a --server …``."""
    return shlex.join(["hostcore", *words, *words_for(url)])

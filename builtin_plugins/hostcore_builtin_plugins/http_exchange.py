"""Requests to HTTP servers, with time limits, and with one meaning for each answer."""

import urllib.request
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urljoin, urlsplit

from hostcore_hookspecs import FatalError, HostcoreError, InvalidSettings, TransientError

if TYPE_CHECKING:
    import urllib3

#: Makes the body of a request; called again when the request is sent to another address.
Body = Callable[[], bytes | Iterable[bytes]]

#: Refusals that a later try may not meet: a timeout, a conflict with another request, too early, too many requests.
_TRANSIENT_REFUSALS: Final = frozenset({408, 409, 425, 429})
#: Server errors that say that the server will never do this.
_PERMANENT_FAILURES: Final = frozenset({501, 505})

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
#: Of those, the ones that say to send the same request again, whatever its method.
_SAME_METHOD: Final = frozenset({307, 308})
_MOST_REDIRECTS: Final = 5

#: As many as there are uploads at once.
_CONNECTIONS: Final = 8
_BLOCK_BYTES: Final = 1 << 20

#: Of the body of an answer that refuses, so much is read for the message.
_ANSWER_BYTES: Final = 4096


def check_url(url: str, pointer: str) -> None:
    """Check that a setting is the address of an HTTP server.

    :raises InvalidSettings: With the pointer.
    """
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise InvalidSettings(pointer, f"not a URL: {error}") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidSettings(pointer, "expected an http or https URL with a host", hint="https://example.org/hook")
    if parts.username is not None or parts.password is not None:
        raise InvalidSettings(
            pointer, "a user or password in a URL ends up in logs", hint="use a setting that takes a secret"
        )


class HttpExchange:
    """Sends requests, through the proxy that the environment names; safe to use from several threads.

    :param headers: Of every request: they may hold a token, and no other server than the one in the URL sees them.
    :param timeout_seconds: For each: connecting, and waiting for the next bytes.
    :param ca_file: Certificates to trust instead of the system's.
    :param redirects: The number of redirects that are followed, on the same server.
    :param transient: Statuses that another try may change, beside those of the HTTP standards.
    """

    def __init__(
        self,
        *,
        headers: Mapping[str, str],
        timeout_seconds: float,
        ca_file: Path | None = None,
        redirects: int = _MOST_REDIRECTS,
        transient: Collection[int] = (),
    ) -> None:
        import urllib3

        self._headers = {"User-Agent": "hostcore", "Accept-Encoding": "identity", **headers}
        self._timeout = urllib3.Timeout(connect=timeout_seconds, read=timeout_seconds)
        self._redirects = redirects
        self._transient = transient
        ca_certs = str(ca_file) if ca_file else None
        self._pool_options = {"maxsize": _CONNECTIONS, "blocksize": _BLOCK_BYTES, "ca_certs": ca_certs}
        #: By proxy; None: to the server itself.
        self._pools: dict[str | None, urllib3.PoolManager] = {}

    @contextmanager
    def send(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: Body | None = None,
        also: Collection[int] = (),
    ) -> "Iterator[urllib3.BaseHTTPResponse]":
        """Send a request, and have the answer; its body is not read yet.

        :param also: Statuses that are an answer, too, beside those of success.
        :raises TransientError: No answer, half of one, or one that another try may change.
        :raises FatalError: Any other answer.
        """
        import urllib3

        shown = without_query(url)
        try:
            answer = self._follow(method, url, {**self._headers, **(headers or {})}, body)
            try:
                if not (200 <= answer.status < 300 or answer.status in also):
                    raise self._refusal(answer, method, shown)
                yield answer
                answer.drain_conn()  # so that the connection can be used again
            finally:
                answer.close()
        except urllib3.exceptions.HTTPError as error:
            raise TransientError(f"{method} {shown}: {error}", file=shown) from error

    def _follow(
        self, method: str, url: str, headers: Mapping[str, str], body: Body | None
    ) -> "urllib3.BaseHTTPResponse":
        shown = without_query(url)
        for _ in range(max(1, self._redirects)):
            answer = self._pool(url).request(
                method,
                url,
                headers=headers,
                body=body() if body else None,
                timeout=self._timeout,
                retries=False,
                redirect=False,
                preload_content=False,
            )
            location = answer.headers.get("Location")
            if answer.status not in _REDIRECTS or location is None or not self._redirects:
                return answer
            answer.close()
            target = urljoin(url, location)
            if _origin(target) != _origin(url):
                hint = "name the address that it leads to; a token or a file is not taken to another server"
                raise FatalError(f"{shown} redirects to {_origin(target)}", file=shown, hint=hint)
            if answer.status not in _SAME_METHOD and method not in ("GET", "HEAD"):
                message = f"{shown} redirects with status {answer.status}, after which nothing can be sent again"
                raise FatalError(message, file=shown, hint=f"name the address itself: {without_query(target)}")
            url = target
        raise FatalError(f"{shown} redirects more than {self._redirects} times", file=shown)

    def _pool(self, url: str) -> "urllib3.PoolManager":
        """Return the connections to the server, or to the proxy that the environment names for it."""
        import urllib3

        proxy = proxy_for(url)
        if proxy not in self._pools:
            options = self._pool_options
            pool = urllib3.ProxyManager(proxy, **options) if proxy else urllib3.PoolManager(**options)  # type: ignore[arg-type]
            self._pools.setdefault(proxy, pool)
        return self._pools[proxy]

    def close(self) -> None:
        """Close the connections."""
        for pool in self._pools.values():
            pool.clear()

    def _refusal(self, answer: "urllib3.BaseHTTPResponse", method: str, shown: str) -> HostcoreError:
        status, text = answer.status, " ".join(answer.read(_ANSWER_BYTES).decode(errors="replace").split())
        message = f"{method} {shown}: the server answered {status} {answer.reason or ''}".rstrip()
        message = f"{message}: {text}" if text else message
        if is_transient_status(status) or status in self._transient:
            return TransientError(message, retry_after_seconds=retry_after_seconds(answer.headers.get("Retry-After")))
        hint = None
        if method == "GET":
            hint = 'set "verify" to false if the server does not give back what it has taken'
        elif status in (401, 403):
            hint = "check the token or the headers in the settings"
        elif status in _REDIRECTS:
            hint = "redirects are not followed: name the address that it leads to"
        return FatalError(message, file=shown, hint=hint)


def is_transient_status(status: int) -> bool:
    """Return True if an HTTP server may give another answer when it is asked again."""
    return status in _TRANSIENT_REFUSALS or (status >= 500 and status not in _PERMANENT_FAILURES)


def without_query(url: str) -> str:
    """Return a URL as it may be shown: in a query there may be a key."""
    return url.partition("?")[0]


def _origin(url: str) -> str:
    """Return scheme, host and port (RFC 6454)."""
    parts = urlsplit(url)
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    return f"{parts.scheme}://{parts.hostname}:{port}"


def proxy_for(url: str) -> str | None:
    """Return the proxy that ``HTTP_PROXY``, ``HTTPS_PROXY`` and ``NO_PROXY`` name."""
    parts = urlsplit(url)
    return None if urllib.request.proxy_bypass(parts.netloc) else urllib.request.getproxies().get(parts.scheme)


def retry_after_seconds(header: str | None) -> float | None:
    """Return the pause that a ``Retry-After`` header asks for, as seconds or as a date; None if it has neither."""
    import urllib3

    if header is None:
        return None
    try:
        return float(urllib3.Retry().parse_retry_after(header))
    except urllib3.exceptions.InvalidHeader:
        return None

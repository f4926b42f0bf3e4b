"""Requests to HTTP servers, with time limits, and with every answer told as what it means."""

import urllib.request
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final
from urllib.parse import urljoin, urlsplit

from hostcore_builtin_plugins.http_endpoint import retry_after_seconds
from hostcore_builtin_plugins.uploaders.failures import is_transient_status
from hostcore_hookspecs import FatalError, HostcoreError, TransientError

if TYPE_CHECKING:
    import urllib3

#: Makes the body of a request; called again when the request is sent to another address.
Body = Callable[[], bytes | Iterable[bytes]]

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
#: Of those, the ones that say to send the same request again, whatever its method.
_SAME_METHOD: Final = frozenset({307, 308})
_MOST_REDIRECTS: Final = 5

#: As many as there are uploads at once.
_CONNECTIONS: Final = 8
_BLOCK_BYTES: Final = 1 << 20

#: Of the body of an answer that refuses, so much is read for the message.
_ANSWER_BYTES: Final = 4096


class HttpExchange:
    """Sends requests; safe to use from several threads.

    :param headers: Of every request: they may hold a token, and no other server than the one in the URL sees them.
    :param timeout_seconds: For each: connecting, and waiting for the next bytes.
    """

    def __init__(self, *, headers: Mapping[str, str], timeout_seconds: float) -> None:
        import urllib3

        self._headers = {"User-Agent": "hostcore", "Accept-Encoding": "identity", **headers}
        self._timeout = urllib3.Timeout(connect=timeout_seconds, read=timeout_seconds)
        self._direct = urllib3.PoolManager(maxsize=_CONNECTIONS, blocksize=_BLOCK_BYTES)
        self._proxies: dict[str, urllib3.ProxyManager] = {}

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
        """Send a request, and have what was answered; its body is not read yet.

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
                    raise _refusal(answer, method, shown)
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
        for _ in range(_MOST_REDIRECTS):
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
            if answer.status not in _REDIRECTS or location is None:
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
        raise FatalError(f"{shown} redirects more than {_MOST_REDIRECTS} times", file=shown)

    def _pool(self, url: str) -> "urllib3.PoolManager":
        """Of connections, to the server or to the proxy that the environment names for it."""
        import urllib3

        parts = urlsplit(url)
        proxy = urllib.request.getproxies().get(parts.scheme)
        if proxy is None or urllib.request.proxy_bypass(parts.hostname or ""):
            return self._direct
        if proxy not in self._proxies:
            pool = urllib3.ProxyManager(proxy, maxsize=_CONNECTIONS, blocksize=_BLOCK_BYTES)
            self._proxies.setdefault(proxy, pool)
        return self._proxies[proxy]

    def close(self) -> None:
        """Close the connections."""
        for pool in (self._direct, *self._proxies.values()):
            pool.clear()


def without_query(url: str) -> str:
    """A URL as it may be shown: in a query there may be a key."""
    return url.partition("?")[0]


def _origin(url: str) -> str:
    """Scheme, host and port (RFC 6454)."""
    parts = urlsplit(url)
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    return f"{parts.scheme}://{parts.hostname}:{port}"


def _refusal(answer: "urllib3.BaseHTTPResponse", method: str, shown: str) -> HostcoreError:
    text = " ".join(answer.read(_ANSWER_BYTES).decode(errors="replace").split())
    said = f"{method} {shown}: the server answered {answer.status} {answer.reason or ''}".rstrip()
    said = f"{said}: {text}" if text else said
    if is_transient_status(answer.status):
        return TransientError(said, retry_after_seconds=retry_after_seconds(answer.headers.get("Retry-After")))
    hint = "check the token or the headers in the uploader's settings" if answer.status in (401, 403) else None
    if method == "GET":
        hint = 'set "verify" to false if the server does not give back what it has taken'
    return FatalError(said, file=shown, hint=hint)

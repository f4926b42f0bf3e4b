"""One HTTP endpoint that JSON is posted to, with time limits, and with every answer told as what it means."""

from collections.abc import Collection, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from hostcore_hookspecs import FatalError, InvalidSettings, TransientError

if TYPE_CHECKING:
    import urllib3

#: Of an answer, so much is read: for the message of an error.
_ANSWER_BYTES = 4096

#: Answers of the 400s that ask for another try, as RFC 9110, 8470 and 6585 have them.
_TRY_AGAIN = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS})


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


class Endpoint:
    """Posts to one URL, through the proxy that the environment names for it, if any.

    Redirects are not followed: they would take what is posted, and its token, elsewhere.

    :param timeout_seconds: For each: connecting, sending, and waiting for the answer.
    :param ca_file: Certificates to trust instead of the system's.
    :param transient: Statuses that another try may change, beside those of the HTTP standards.
    """

    def __init__(
        self, url: str, *, timeout_seconds: float, ca_file: Path | None = None, transient: Collection[int] = ()
    ) -> None:
        import urllib3

        self._url = url
        # What is in a query may be a key, and is not for logs.
        self._shown = url.partition("?")[0]
        self._transient = _TRY_AGAIN | frozenset(transient)
        self._timeout = urllib3.Timeout(connect=timeout_seconds, read=timeout_seconds)
        ca_certs = str(ca_file) if ca_file else None
        proxy = proxy_for(url)
        self._pool = (
            urllib3.ProxyManager(proxy, maxsize=1, ca_certs=ca_certs)
            if proxy
            else urllib3.PoolManager(maxsize=1, ca_certs=ca_certs)
        )

    def post(self, body: bytes, headers: Mapping[str, str]) -> None:
        """Post once, and return when it was accepted, or was accepted before (409).

        :raises TransientError: Another try may succeed.
        :raises FatalError: It will not.
        """
        import urllib3

        try:
            answer = self._pool.request(
                "POST",
                self._url,
                body=body,
                headers={"Content-Type": "application/json", "User-Agent": "hostcore", **headers},
                timeout=self._timeout,
                retries=False,
                redirect=False,
                preload_content=False,
            )
        except urllib3.exceptions.HTTPError as error:
            raise TransientError(f"cannot post to {self._shown}: {error}") from error
        try:
            text = answer.read(_ANSWER_BYTES).decode(errors="replace").strip()
        except urllib3.exceptions.HTTPError as error:
            raise TransientError(f"{self._shown} did not finish its answer: {error}") from error
        finally:
            answer.close()  # the connection stays open if the answer has been read to its end
        self._judge(answer, text)

    def close(self) -> None:
        """Close the connection."""
        self._pool.clear()

    def _judge(self, answer: "urllib3.BaseHTTPResponse", text: str) -> None:
        status = answer.status
        if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES or status == HTTPStatus.CONFLICT:
            return
        said = f"{self._shown} answered {status} {answer.reason or ''}".rstrip() + (f": {text}" if text else "")
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR or status in self._transient:
            raise TransientError(said, retry_after_seconds=retry_after_seconds(answer.headers.get("Retry-After")))
        if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
            raise FatalError(said, hint="redirects are not followed: name the address that it leads to")
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            raise FatalError(said, hint="check the token or secret in the reporter's settings")
        raise FatalError(said, hint="check the URL and the format in the reporter's settings")


def proxy_for(url: str) -> str | None:
    """What ``HTTP_PROXY``, ``HTTPS_PROXY`` and ``NO_PROXY`` say."""
    parts = urlsplit(url)
    return None if proxy_bypass(parts.netloc) else getproxies().get(parts.scheme)


def retry_after_seconds(header: str | None) -> float | None:
    """What a ``Retry-After`` header asks for, as seconds or as a date; None if it has neither, or is not there."""
    import urllib3

    if header is None:
        return None
    try:
        return float(urllib3.Retry().parse_retry_after(header))
    except urllib3.exceptions.InvalidHeader:
        return None

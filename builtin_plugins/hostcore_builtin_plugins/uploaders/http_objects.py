"""Files on an HTTP server that takes them with PUT, and gives them back."""

import base64
import re
from collections.abc import Iterator
from typing import Final

import attrs

from hostcore_builtin_plugins.http_exchange import HttpExchange, without_query
from hostcore_builtin_plugins.stores.copying import Content, digest_of

#: Of the pieces that are sent and read at once.
_PIECE_BYTES: Final = 1 << 20

_GONE: Final = frozenset({404, 410})
#: A server that takes files need not show them: with a URL that was signed for PUT, nothing else is allowed.
_NOT_SHOWN: Final = frozenset({403, 405, 501})

#: Headers with a checksum of the whole file: RFC 9530, and RFC 3230 before it.
_DIGEST_HEADERS: Final = ("Repr-Digest", "Content-Digest", "Digest")
_SHA256: Final = re.compile(r"(?:^|,)\s*sha-256=:?([A-Za-z0-9+/]{43}=):?", re.IGNORECASE)


@attrs.frozen(kw_only=True)
class Shown:
    """A server's description of a file."""

    #: In bytes; None if it does not say.
    size: int | None
    #: In lower-case hexadecimal; empty if it does not say.
    sha256: str


class HttpObjects:
    """Files by URL. Errors are those of :class:`HttpExchange`."""

    def __init__(self, exchange: HttpExchange) -> None:
        self._exchange = exchange

    def look(self, url: str) -> Shown | None:
        """Ask about a file; None if there is none, or if the server gives no answer to that."""
        with self._exchange.send("HEAD", url, also=_GONE | _NOT_SHOWN) as answer:
            if answer.status in _GONE | _NOT_SHOWN:
                return None
            length = answer.headers.get("Content-Length", "")
            found = (_SHA256.search(answer.headers.get(name, "")) for name in _DIGEST_HEADERS)
            digest = next((match[1] for match in found if match), "")
            return Shown(size=int(length) if length.isdigit() else None, sha256=base64.b64decode(digest).hex())

    def put(self, url: str, content: Content) -> None:
        """Send a file. The server knows its length and its checksum before, so that it can refuse half of it."""
        digest = base64.b64encode(bytes.fromhex(content.sha256)).decode()
        headers = {
            "Content-Type": content.media_type or "application/octet-stream",
            "Content-Length": str(content.size),
            "Content-Digest": f"sha-256=:{digest}:",
        }
        with self._exchange.send("PUT", url, headers=headers, body=lambda: content.pieces(_PIECE_BYTES)):
            pass

    def pieces(self, url: str, content: Content) -> Iterator[bytes]:
        """The bytes of a file, in order.

        :param content: The content to compare with; it ends the reading.
        :raises FileNotFoundError: There is none.
        """
        with self._exchange.send("GET", url, also=_GONE) as answer:
            if answer.status in _GONE:
                raise FileNotFoundError(without_query(url))
            for piece in answer.stream(_PIECE_BYTES, decode_content=False):
                content.go_on()
                yield piece

    def read_back(self, url: str, content: Content) -> tuple[int, str]:
        """Return the number of bytes of a file, and their SHA-256; nothing, if there is none."""
        try:
            return digest_of(self.pieces(url, content))
        except FileNotFoundError:
            return 0, ""

"""An uploader that puts every file on an HTTP server which shows a file when it has all of it."""

import base64
import hashlib
from collections.abc import Callable, Iterator
from http.client import HTTPConnection, HTTPException
from pathlib import Path, PurePosixPath
from typing import Annotated
from urllib.parse import quote, urlsplit

import attrs
from annotated_types import Gt

from hostcore_hookspecs import Artifact, FatalError, Secret, TransientError, UploadContext, UploadReceipt

PIECE_BYTES = 1 << 20
#: Answers that another try may change.
PASSING = {408, 425, 429, 500, 502, 503, 504}


class ReferenceUploader:
    """Looks, writes if need be, and reads back. Every upload has a connection of its own."""

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
        self._prefix = ""
        self._is_canceled: Callable[[], bool] = bool

    def open(self, ctx: UploadContext) -> None:
        """Note where the run belongs."""
        self._prefix, self._is_canceled = ctx.prefix, ctx.is_canceled

    def upload_artifact(self, artifact: Artifact) -> UploadReceipt:
        """Put a file, unless it is there, and read it back."""
        url = self.url_of(artifact)
        size, sha256 = self.look(url)
        existed = self.is_there(artifact, size, sha256)
        if not existed:
            self.put(url, artifact)
            size, sha256 = self.look(url)
        return UploadReceipt(uri=url, size=size or 0, sha256=sha256, existed=existed)

    def close(self) -> None:
        """Nothing is open."""

    def url_of(self, artifact: Artifact) -> str:
        """Where a file belongs."""
        path = PurePosixPath(artifact.relative_path)
        if path.is_absolute() or ".." in path.parts:
            raise FatalError(f"{artifact.relative_path} leads out of the run")
        return f"{self._settings.url}/{quote(f'{self._prefix}/{artifact.relative_path}')}"

    def is_there(self, artifact: Artifact, size: int | None, sha256: str) -> bool:
        """Whether what is there is the artifact."""
        return (size, sha256) == (artifact.size, artifact.sha256)

    def look(self, url: str) -> tuple[int | None, str]:
        """Size and SHA-256 of what is there; None if nothing is."""
        status, content = self.send("GET", url)
        if status == 404:
            return None, ""
        return len(content), hashlib.sha256(content).hexdigest()

    def put(self, url: str, artifact: Artifact) -> None:
        """Send a file. The server knows by its length when it has all of it."""
        digest = base64.b64encode(bytes.fromhex(artifact.sha256)).decode()
        size = Path(artifact.path).stat().st_size
        headers = {"Content-Length": str(size), "Content-Digest": f"sha-256=:{digest}:"}
        self.send("PUT", url, self.pieces(artifact), headers)

    def pieces(self, artifact: Artifact) -> Iterator[bytes]:
        """The content of a file, for as long as the upload is not to be given up."""
        with Path(artifact.path).open("rb") as file:
            while piece := file.read(PIECE_BYTES):
                if self._is_canceled():
                    raise TransientError("given up: the run is ending")
                yield piece

    def send(
        self, method: str, url: str, body: Iterator[bytes] | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, bytes]:
        """What the server answers: status and content."""
        token = self._settings.token
        known = {"Authorization": f"Bearer {token.value}"} if token else {}
        parts = urlsplit(url)
        connection = HTTPConnection(parts.netloc, timeout=self._settings.timeout_seconds)
        try:
            connection.request(method, parts.path, body, {**known, **(headers or {})})
            answer = connection.getresponse()
            status, content = answer.status, answer.read()
        except (HTTPException, ConnectionError, TimeoutError) as error:
            raise TransientError(f"no answer from {parts.netloc}: {error}") from error
        finally:
            connection.close()
        if status in PASSING:
            raise TransientError(f"the server answers {status}")
        if not (200 <= status < 300 or (status == 404 and method == "GET")):
            raise FatalError(f"the server answers {status}", hint="check url and token in the uploader's settings")
        return status, content

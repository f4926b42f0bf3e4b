"""A file as a response: whole or a part of it, and never as something that a browser would show."""

import mimetypes
import os
import re
from collections.abc import AsyncGenerator, Callable
from email.utils import formatdate
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

import attrs
from anyio import to_thread
from fastapi import Request, Response
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from hostcore_service.http.problems import RequestError
from hostcore_service.jobs.streams import Streams

#: Read at once, in bytes: from a disk, and from a store, where each reading is a request.
_NEAR_BYTES: Final = 1 << 18
_FAR_BYTES: Final = 1 << 22

#: One range. Of several, the whole file is sent, as RFC 9110 allows.
_RANGE: Final = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})", re.ASCII)


@attrs.frozen(kw_only=True, eq=False)
class FileContent:
    """A file that was found and may be sent. The caller that gets it closes it."""

    #: The last part of its path.
    name: str
    #: In bytes. One that grows meanwhile is sent as long as it was.
    size: int
    #: Changes with the content; empty if unknown.
    version: str
    #: Milliseconds since 1970; None if unknown.
    modified_ms: int | None
    #: Whether a store is asked for it.
    far: bool
    #: A part of it: from a byte, so many bytes.
    read: Callable[[int, int], bytes]
    close: Callable[[], object]


def download(content: FileContent, request: Request) -> Response:
    """The response that is a file: 200, 206 for a range, 304 if the client has it, 416 for no range of it.

    To ``HEAD``, for which there are no ranges, it is the whole one's head.
    """
    headers = _headers(content)
    etag = headers.get("ETag")
    if etag and etag in _tags(request.headers.get("if-none-match", "")):
        content.close()
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    media_type = mimetypes.guess_type(content.name)[0] or "application/octet-stream"
    if request.method == "HEAD":
        content.close()
        return Response(headers={**headers, "Content-Length": str(content.size)}, media_type=media_type)
    try:
        part = _part(request, content.size, etag)
    except RequestError:
        content.close()
        raise
    begin, end = part or (0, content.size)
    headers["Content-Length"] = str(end - begin)
    if part:
        headers["Content-Range"] = f"bytes {begin}-{end - 1}/{content.size}"
    streams: Streams = request.app.state.streams
    return _Download(
        _parts(content, begin, end, streams),
        close=content.close,
        status_code=HTTPStatus.PARTIAL_CONTENT if part else HTTPStatus.OK,
        headers=headers,
        media_type=media_type,
    )


class _Download(StreamingResponse):
    """Closes the file, whatever becomes of the response."""

    def __init__(self, content: AsyncGenerator[bytes], *, close: Callable[[], object], **more: Any) -> None:
        super().__init__(content, **more)
        self._close = close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._close()


async def _parts(content: FileContent, begin: int, end: int, streams: Streams) -> AsyncGenerator[bytes]:
    limiter, most = streams.limiter(far=content.far), _FAR_BYTES if content.far else _NEAR_BYTES
    while begin < end:
        piece = await to_thread.run_sync(content.read, begin, min(most, end - begin), limiter=limiter)
        if not piece:
            raise EOFError(f"{content.name} is shorter than it was")  # the client sees that something is missing
        yield piece
        begin += len(piece)


def _headers(content: FileContent) -> dict[str, str]:
    name = content.name if content.name.isascii() and content.name.isprintable() else ""
    plain = re.sub(r'["\\]', "_", name) or "file"
    headers = {
        "Accept-Ranges": "bytes",
        "Cache-Control": "private, no-cache",
        "Content-Disposition": f"attachment; filename=\"{plain}\"; filename*=utf-8''{quote(content.name, safe='')}",
        "Content-Security-Policy": "default-src 'none'; sandbox",
        "X-Content-Type-Options": "nosniff",
    }
    if content.version:
        headers["ETag"] = f'"{content.version}"'
    if content.modified_ms is not None:
        headers["Last-Modified"] = formatdate(content.modified_ms / 1000, usegmt=True)
    return headers


def _tags(given: str) -> set[str]:
    return {tag.strip().removeprefix("W/") for tag in given.split(",")}


def _part(request: Request, size: int, etag: str | None) -> tuple[int, int] | None:
    """The range that is asked for: its first byte, and the one behind its last; None for the whole file.

    :raises RequestError: 416.
    """
    found = _RANGE.fullmatch(request.headers.get("range", "").strip())
    condition = request.headers.get("if-range")
    if found is None or (condition is not None and condition != etag) or found[1] == found[2] == "":
        return None
    if found[1]:
        begin, end = int(found[1]), min(int(found[2]) + 1, size) if found[2] else size
    else:
        begin, end = max(0, size - int(found[2])), size
    if found[1] and found[2] and int(found[2]) < begin:
        return None  # not a range, and passed over
    if begin >= end:
        raise RequestError(
            f"the file has {size:,} bytes, and none of this range",
            code="request.range",
            headers={"Content-Range": f"bytes */{size}"},
        )
    return begin, end


def from_descriptor(descriptor: int, name: str) -> FileContent:
    """A file of this machine that was opened."""
    status = os.fstat(descriptor)
    return FileContent(
        name=name,
        size=status.st_size,
        version=f"{status.st_ino:x}-{status.st_size:x}-{status.st_mtime_ns:x}",
        modified_ms=status.st_mtime_ns // 1_000_000,
        far=False,
        read=lambda begin, size: os.pread(descriptor, size, begin),
        close=lambda: os.close(descriptor),
    )

"""``/`` and ``/assets``: the page. It needs no token; what it shows, it asks of ``/v1`` with the user's."""

import hashlib
from collections.abc import Mapping
from importlib.resources import files
from typing import Final

import attrs
from fastapi import APIRouter, HTTPException, Request, Response

_MEDIA_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

#: How curves are drawn: files of the report of a run.
_SHARED: Final = ("scales.js", "picture.js", "gallery.js", "plots.css")

#: Nothing comes from elsewhere, nothing inline is executed, and no text ever becomes markup.
_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
_HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Kept, and asked about each time: a page of one version never runs the scripts of another.
    "Cache-Control": "no-cache",
}


@attrs.frozen(kw_only=True)
class StaticFile:
    """A file of the page."""

    content: bytes
    media_type: str
    #: Changes with the content.
    etag: str


def read_page() -> Mapping[str, StaticFile]:
    """The files of the page by name: ``index.html``, all in ``assets/``, and those that it shares with the report."""
    folder, shared = files("hostcore_service.page"), files("hostcore.report") / "assets"
    found = [folder.joinpath("index.html"), *folder.joinpath("assets").iterdir(), *map(shared.joinpath, _SHARED)]
    page = {}
    for file in found:
        media_type = _MEDIA_TYPES.get(file.name[file.name.rfind(".") :])
        if media_type is not None:
            content = file.read_bytes()
            etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
            page[file.name] = StaticFile(content=content, media_type=media_type, etag=etag)
    return page


_PAGE: Final = read_page()
_INDEX: Final = "index.html"

ROUTER = APIRouter(include_in_schema=False)


@ROUTER.api_route("/", methods=["GET", "HEAD"])
def index(request: Request) -> Response:
    """The page."""
    return _answer(_PAGE[_INDEX], request)


@ROUTER.api_route("/assets/{name}", methods=["GET", "HEAD"])
def asset(name: str, request: Request) -> Response:
    """A style sheet or a script of the page."""
    found = _PAGE.get(name)
    if found is None or name == _INDEX:
        raise HTTPException(status_code=404, detail=f"the page has no file {name!r}")
    return _answer(found, request)


def _answer(file: StaticFile, request: Request) -> Response:
    headers = {**_HEADERS, "ETag": file.etag}
    known = [one.strip().removeprefix("W/") for one in request.headers.get("if-none-match", "").split(",")]
    if file.etag in known or known == ["*"]:
        return Response(status_code=304, headers=headers)
    return Response(file.content, media_type=file.media_type, headers=headers)

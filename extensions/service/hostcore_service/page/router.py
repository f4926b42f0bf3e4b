"""``/`` and ``/assets``: the page. It needs no token; what it shows, it asks of ``/v1`` with the user's."""

import hashlib
from collections.abc import Iterable, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final

import attrs
import orjson
from fastapi import APIRouter, HTTPException, Request, Response

from hostcore_service.sections import Sections

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
    folder, shared = files("hostcore_service.page"), files("hostcore_inspect.report") / "assets"
    found = [folder.joinpath("index.html"), *folder.joinpath("assets").iterdir(), *map(shared.joinpath, _SHARED)]
    return _read(found)


def _read(found: Iterable[Traversable]) -> dict[str, StaticFile]:
    page = {}
    for file in found:
        media_type = _MEDIA_TYPES.get(file.name[file.name.rfind(".") :])
        if media_type is not None:
            page[file.name] = _static(file.read_bytes(), media_type)
    return page


def _static(content: bytes, media_type: str) -> StaticFile:
    etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    return StaticFile(content=content, media_type=media_type, etag=etag)


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


def router_of_sections(sections: Sections) -> APIRouter:
    """``/assets/sections.json``: which sections there are; ``/assets/<section>/<file>``: the files of their pages."""
    listed = [{"name": name, "title": section.title} for name, section in sections.by_name.items()]
    index_of_sections = _static(orjson.dumps(listed), "application/json")
    pages = {name: _read(section.assets) for name, section in sections.by_name.items()}
    router = APIRouter(include_in_schema=False)

    @router.api_route("/assets/sections.json", methods=["GET", "HEAD"])
    def list_sections(request: Request) -> Response:
        return _answer(index_of_sections, request)

    @router.api_route("/assets/{section}/{name}", methods=["GET", "HEAD"])
    def asset_of_section(section: str, name: str, request: Request) -> Response:
        found = pages.get(section, {}).get(name)
        if found is None:
            raise HTTPException(status_code=404, detail=f"the page has no file {f'{section}/{name}'!r}")
        return _answer(found, request)

    return router


def _answer(file: StaticFile, request: Request) -> Response:
    headers = {**_HEADERS, "ETag": file.etag}
    known = [one.strip().removeprefix("W/") for one in request.headers.get("if-none-match", "").split(",")]
    if file.etag in known or known == ["*"]:
        return Response(status_code=304, headers=headers)
    return Response(file.content, media_type=file.media_type, headers=headers)

"""``/`` and ``/assets``: what they answer. What the page does is tested in a browser."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from hostcore_service.app import make_app
from hostcore_service.page.router import read_page
from hostcore_service.settings import Settings

NAMES = sorted(name for name in read_page() if name != "index.html")


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A service with a token, asked without one."""
    runs = tmp_path_factory.mktemp("page") / "runs"
    with TestClient(make_app(Settings(runs=runs, token="a-token-of-32-characters-0123456"))) as client:
        yield client


@pytest.mark.parametrize("path", ["/", *(f"/assets/{name}" for name in NAMES)])
def test_every_file_is_served_without_a_token_and_with_strict_headers(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 200
    kinds = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
    assert answer.headers["content-type"].startswith(kinds.get(Path(path).suffix, "text/html"))
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cache-control"] == "no-cache"
    policy = dict(one.split(" ", 1) for one in answer.headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    assert policy["require-trusted-types-for"] == "'script'"
    assert "unsafe" not in answer.headers["content-security-policy"]


def test_a_file_that_is_known_already_is_not_sent_again(client: TestClient) -> None:
    etag = client.get("/").headers["etag"]
    again = client.get("/", headers={"If-None-Match": f'"something-else", W/{etag}'})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag)
    assert "content-security-policy" in again.headers
    assert client.get("/", headers={"If-None-Match": '"something-else"'}).status_code == 200
    head, whole = client.head("/assets/main.js"), client.get("/assets/main.js")
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == whole.headers["content-length"]


NOT_THERE = [
    "",
    "none.js",
    "index.html",
    "router.py",
    "../router.py",
    "%2e%2e/router.py",
    "..%2frouter.py",
    "main.js%00",
]


def test_nothing_else_is_served_and_the_interface_does_not_describe_it(client: TestClient) -> None:
    for path in NOT_THERE:
        answer = client.get(f"/assets/{path}", follow_redirects=False)
        assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json"), path
    paths = client.get("/openapi.json").json()["paths"]
    assert [path for path in paths if path == "/" or path.startswith("/assets")] == []


def test_what_the_page_names_is_there_and_nothing_comes_from_elsewhere() -> None:
    page = read_page()
    for name, file in page.items():
        text = file.content.decode()
        outside = set(re.findall(r"https?://[^\s\"'`$)]+", text)) - {"http://www.w3.org/2000/svg"}
        assert outside == set(), name
        imported = re.findall(r'(?:from|import) "\./([^"]+)"', text) if name.endswith(".js") else []
        linked = re.findall(r'(?:src|href)="assets/([^"]+)"', text)
        assert [one for one in imported + linked if one not in page] == [], name


def test_no_script_turns_text_into_markup_or_code() -> None:
    for name, file in read_page().items():
        if name.endswith(".js"):
            forbidden = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc|DOMParser"
            assert re.findall(forbidden, file.content.decode()) == [], name

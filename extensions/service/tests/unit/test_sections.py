"""Sections that other distributions add to the service."""

from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from hostcore_service.app import make_app
from hostcore_service.settings import Settings

TOKEN = "a-token-of-32-characters-0123456"
SECTION = """
from pathlib import Path
from fastapi import APIRouter

class Section:
    title = "Greetings"
    assets = [Path(__file__).with_name("greeting_page") / "page.js"]
    def __init__(self, *, runs, without_places):
        self.router = APIRouter()
        self.router.add_api_route("/{name}", lambda name: without_places({"hello": name, "from": str(runs)}))
"""


def entry(value: str) -> dict[str, dict[str, str]]:
    return {"hostcore.service_sections": {"greetings": value}}


def service(tmp_path: Path) -> TestClient:
    return TestClient(make_app(Settings(runs=tmp_path / "below" / "runs", token=TOKEN)))


def test_a_section_has_routes_behind_the_token_and_a_page(site_here: Any, tmp_path: Path) -> None:
    page = {"greeting.py": SECTION, "greeting_page/page.js": "export const pageOf = () => null;"}
    (site_here.path / "greeting_page").mkdir(parents=True)
    site_here.install("greeting", modules=page, entry_points=entry("greeting:Section"))
    with service(tmp_path) as client:
        assert client.get("/v1/greetings/you").status_code == 401
        answer = client.get("/v1/greetings/you", headers={"X-TRAINER-TOKEN": TOKEN})
        assert answer.json() == {"hello": "you", "from": "(a folder of the service)"}
        unknown = client.get("/v1/greetings/you?loud=yes", headers={"X-TRAINER-TOKEN": TOKEN})
        assert unknown.status_code == 400
        assert {"name": "greetings", "title": "Greetings"} in client.get("/assets/sections.json").json()
        assert "pageOf" in client.get("/assets/greetings/page.js").text
        assert client.get("/assets/greetings/..%2fgreeting.py").status_code == 404


@pytest.mark.parametrize("value", ["greeting_broken:Section", "greeting_broken:Other", "no_such_module:Section"])
def test_a_broken_section_is_left_out_and_the_log_says_why(
    site_here: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, value: str
) -> None:
    source = "raise ImportError('a part is missing')" if value.endswith("Section") else "Other = 3"
    site_here.install("greeting-broken", modules={"greeting_broken.py": source}, entry_points=entry(value))
    with service(tmp_path) as client:
        assert client.get("/healthz").status_code == 200
        assert client.get("/v1/greetings/you", headers={"X-TRAINER-TOKEN": TOKEN}).status_code == 404
    assert "without the section greetings: 'greetings' of greeting-broken 1.0 is broken" in caplog.text


@pytest.mark.parametrize(
    "source",
    [
        "class Section:\n    def __init__(self, **around): raise OSError('its folder is gone')",
        "class Section:\n    title = 'Greetings'\n    def __init__(self, **around): pass",
    ],
)
def test_a_section_that_cannot_be_made_is_left_out(
    site_here: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, source: str
) -> None:
    modules = {"greeting_unmade.py": source}
    site_here.install("greeting-unmade", modules=modules, entry_points=entry("greeting_unmade:Section"))
    with service(tmp_path) as client:
        assert client.get("/healthz").status_code == 200
        assert client.get("/v1/greetings/you", headers={"X-TRAINER-TOKEN": TOKEN}).status_code == 404
    assert "without the section greetings: it cannot be made" in caplog.text

"""Sections that other distributions add to the service."""

from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from served import TOKEN

from hostcore_service.app import make_app
from hostcore_service.settings import Settings

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


MADE = "class Section:\n    title = 'Greetings'\n    def __init__(self, **around): "
IS_BROKEN = "'greetings' of greeting-broken 1.0 is broken"
#: A module, what of it the entry point names, and why the section is left out.
BROKEN = [
    (
        "raise ImportError('a part is missing')",
        "greeting_broken:Section",
        IS_BROKEN,
    ),
    ("Other = 3", "greeting_broken:Other", IS_BROKEN),
    ("", "no_such_module:Section", IS_BROKEN),
    (f"{MADE}raise OSError('its folder is gone')", "greeting_broken:Section", "it cannot be made"),
    (f"{MADE}pass", "greeting_broken:Section", "it cannot be made"),
]


@pytest.mark.parametrize(("source", "value", "why"), BROKEN)
def test_a_section_that_cannot_be_had_is_left_out_and_the_log_says_why(
    site_here: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, source: str, value: str, why: str
) -> None:
    site_here.install("greeting-broken", modules={"greeting_broken.py": source}, entry_points=entry(value))
    with service(tmp_path) as client:
        assert client.get("/healthz").status_code == 200
        assert client.get("/v1/greetings/you", headers={"X-TRAINER-TOKEN": TOKEN}).status_code == 404
    assert f"without the section greetings: {why}" in caplog.text

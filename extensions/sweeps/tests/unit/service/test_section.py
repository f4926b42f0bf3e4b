"""``/v1/sweeps`` of a service that finds the extension by its entry point."""

import html
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import recorded_sweep
from fastapi.testclient import TestClient

from hostcore_service.app import make_app
from hostcore_service.settings import Settings

TOKEN = "a-token-that-only-the-tests-know"
ROUTES = ("/v1/sweeps", "/v1/sweeps/recorded", "/v1/sweeps/recorded/figures", "/v1/sweeps/recorded/report")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, TestClient]]:
    """A service, and its folder: with runs, and beside them a sweep."""
    folder = tmp_path_factory.mktemp("service")
    recorded_sweep.record(folder / "sweeps", recorded_sweep.whole_sweep())
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("HOSTCORE_SWEEPS_DIR", raising=False)
        with TestClient(make_app(Settings(runs=folder / "runs", token=TOKEN))) as made:
            yield folder, made


@pytest.fixture
def place(service: tuple[Path, TestClient]) -> Iterator[Path]:
    """The folder of the service, in which a test may leave sweeps."""
    folder, _ = service
    yield folder
    for sweep in (folder / "sweeps").iterdir():
        if sweep.name != "recorded":
            shutil.rmtree(sweep)


@pytest.fixture
def client(service: tuple[Path, TestClient]) -> Callable[..., TestClient]:
    """``client(token=None)``: a client of the service, with the right token unless told otherwise."""
    _, made = service

    def of(token: str | None = TOKEN) -> TestClient:
        made.headers.pop("X-TRAINER-TOKEN", None)
        if token is not None:
            made.headers["X-TRAINER-TOKEN"] = token
        return made

    return of


def test_sweeps_are_listed_with_their_progress_and_their_best(client: Callable[..., TestClient]) -> None:
    (one,) = client().get("/v1/sweeps").json()["sweeps"]
    assert (one["sweep_id"], one["status"], one["max_trials"]) == ("recorded", "finished", 24)
    assert one["counts"] == {"running": 0, "paused": 0, "complete": 16, "pruned": 6, "failed": 2}
    assert one["best"][0]["number"] == 3


def test_a_sweep_has_its_trials_and_the_pictures_of_its_report(client: Callable[..., TestClient]) -> None:
    found = client().get("/v1/sweeps/recorded").json()
    assert [one["number"] for one in found["trials"]] == list(range(24))
    assert found["trials"][9]["reason"] == "failed: ValueError: the loss has exploded"
    figures = client().get("/v1/sweeps/recorded/figures").json()
    assert [len(figures[name]) for name in ("history", "parallel", "curves", "importances")] == [1, 1, 1, 1]
    trials = {mark["trial"] for mark in figures["history"][0]["marks"]} - {None}
    assert trials == set(range(24))


def test_what_was_recorded_since_is_seen(client: Callable[..., TestClient], place: Path) -> None:
    assert client().get("/v1/sweeps/recorded").json()["status"] == "finished"
    recorded_sweep.record(place / "sweeps", [], sweep_id="newer", ends=False)
    assert {one["sweep_id"] for one in client().get("/v1/sweeps").json()["sweeps"]} == {"recorded", "newer"}
    pasts = recorded_sweep.whole_sweep()[:3]
    recorded_sweep.record(place / "sweeps", pasts, sweep_id="newer")
    assert len(client().get("/v1/sweeps/newer").json()["trials"]) == 3


def test_its_report_is_the_page_of_the_command_without_places_and_in_a_sandbox(
    client: Callable[..., TestClient], place: Path
) -> None:
    answer = client().get("/v1/sweeps/recorded/report")
    assert answer.headers["content-type"].startswith("text/html")
    assert answer.headers["content-security-policy"].startswith("sandbox allow-scripts;")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.text.count('<tr id="trial-') == 24
    assert str(place) not in html.unescape(answer.text)
    assert str(place) not in client().get("/v1/sweeps/recorded").text


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("token", [None, "another-token-than-the-right-one!"])
def test_every_route_asks_for_the_token(client: Callable[..., TestClient], route: str, token: str | None) -> None:
    answer = client(token).get(route)
    assert answer.status_code == 401
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    "sweep_id",
    ["none", "..", "%2e%2e", "..%2fruns", "recorded%2f..%2f..", ".hidden", "recorded%00", "%2fetc", "a" * 200, "jobs"],
)
@pytest.mark.parametrize("what", ["", "/figures", "/report"])
def test_there_is_no_way_out_of_the_folder_of_sweeps(
    client: Callable[..., TestClient], place: Path, sweep_id: str, what: str
) -> None:
    (place / "sweep.json").write_text("{}")
    answer = client().get(f"/v1/sweeps/{sweep_id}{what}", follow_redirects=False)
    assert answer.status_code == 404
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_parameter_that_no_route_reads_is_a_mistake(client: Callable[..., TestClient]) -> None:
    assert client().get("/v1/sweeps?limit=3").status_code == 400


def test_a_sweep_that_cannot_be_read_hides_no_other(client: Callable[..., TestClient], place: Path) -> None:
    broken = recorded_sweep.record(place / "sweeps", [], sweep_id="broken")
    broken.records.write_text("this is no record\n")
    cut = recorded_sweep.record(place / "sweeps", recorded_sweep.whole_sweep()[:2], sweep_id="cut")
    cut.records.write_text("".join(line for line in cut.records.open() if "trial_sampled" not in line))
    (place / "sweeps" / "foreign").mkdir()
    (place / "sweeps" / "foreign" / "sweep.json").write_text('{"another": "program"}')
    found = client().get("/v1/sweeps").json()
    assert [one["sweep_id"] for one in found["sweeps"]] == ["recorded"]
    assert {one["sweep_id"] for one in found["unreadable"]} == {"broken", "cut", "foreign"}
    assert client().get("/v1/sweeps/foreign").status_code == 500


def test_the_routes_are_in_the_openapi_document_with_examples_that_are_right(
    client: Callable[..., TestClient],
) -> None:
    document = client().get("/openapi.json").json()
    paths = {path: found["get"] for path, found in document["paths"].items() if path.startswith("/v1/sweeps")}
    assert len(paths) == len(ROUTES)
    for path, operation in paths.items():
        assert {"200", "400", "401", "404"} <= set(operation["responses"]), path
        content: Any = operation["responses"]["200"]["content"].get("application/json")
        if content is not None:
            jsonschema.validate(content["example"], {**content["schema"], "components": document["components"]})


def test_the_page_of_the_service_has_the_section_and_its_files(client: Callable[..., TestClient]) -> None:
    assert {"name": "sweeps", "title": "Sweeps"} in client(None).get("/assets/sections.json").json()
    for name, kind in (("page.js", "text/javascript"), ("page.css", "text/css"), ("pictures.css", "text/css")):
        answer = client(None).get(f"/assets/sweeps/{name}")
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith(kind)
        assert "require-trusted-types-for 'script'" in answer.headers["content-security-policy"]
    assert client(None).get("/assets/sweeps/section.py").status_code == 404

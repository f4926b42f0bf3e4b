"""The OpenAPI document says what these routes answer."""

from typing import Any

from hostcore_service.jobs.streams import NDJSON, SSE, TEXT

PATHS = {
    "/v1/jobs:validate": "post",
    "/v1/jobs/{run_id}/events": "get",
    "/v1/jobs/{run_id}/logs": "get",
    "/v1/jobs/{run_id}/checkpoints": "get",
    "/v1/jobs/{run_id}/checkpoints/{step}": "get",
    "/v1/jobs/{run_id}/checkpoints/{step}/files/{path}": "get",
    "/v1/jobs/{run_id}/artifacts": "get",
    "/v1/jobs/{run_id}/artifacts/{path}": "get",
    "/v1/plugins": "get",
}


def test_every_route_is_described_with_its_problems(opened: Any) -> None:
    document = opened.get("/openapi.json").json()
    for path, method in PATHS.items():
        operation = document["paths"][path][method]
        assert operation["summary"], path
        assert operation["description"], path
        assert {"200", "400", "401", "500"} <= set(operation["responses"]), path
        assert "application/problem+json" in operation["responses"]["400"]["content"], path
        assert operation["security"], path


def test_streams_and_files_have_their_media_types(opened: Any) -> None:
    paths = opened.get("/openapi.json").json()["paths"]

    def media(path: str) -> set[str]:
        return set(paths[f"/v1/jobs/{{run_id}}/{path}"]["get"]["responses"]["200"]["content"])

    assert media("events") == {SSE, NDJSON}
    assert media("logs") == {SSE, NDJSON, TEXT}
    assert media("artifacts/{path}") == {"application/octet-stream"}
    for path in ("events", "logs"):
        for content in paths[f"/v1/jobs/{{run_id}}/{path}"]["get"]["responses"]["200"]["content"].values():
            assert content["example"]


def test_the_plugins_are_those_that_the_command_lists(opened: Any) -> None:
    found = opened.get("/v1/plugins").json()
    assert found["broken"] == []
    assert {"kind": "trainer", "name": "tiny", "value": "tiny:Trainer"}.items() <= next(
        one for one in found["plugins"] if one["name"] == "tiny"
    ).items()
    assert opened.get("/v1/plugins").json() == found

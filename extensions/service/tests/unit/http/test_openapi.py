"""The OpenAPI document: every route with what it answers, each request and answer with an example that is one."""

from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
from fastapi.testclient import TestClient

from hostcore_service.app import make_app
from hostcore_service.http.problems import Problem
from hostcore_service.jobs.streams import NDJSON, SSE, TEXT
from hostcore_service.settings import Settings

PROBLEM = "application/problem+json"
JSON = "application/json"
#: What every route may answer that asks for the token.
ALWAYS = {"401", "403", "429", "500", "503"}
#: Beyond that.
ANSWERS = {
    "get /healthz": {"200"},
    "get /readyz": {"200", "503"},
    "post /train": {"201", "400", "413", "415", "422"},
    "get /train/{job_name}": {"200", "404"},
    "post /v1/jobs": {"201", "400", "409", "413", "415", "422"},
    "get /v1/jobs": {"200", "400"},
    "get /v1/jobs/{run_id}": {"200", "400", "404"},
    "post /v1/jobs/{run_id}:cancel": {"200", "202", "400", "404", "413", "415"},
    "post /v1/jobs/{run_id}:resume": {"200", "202", "400", "404", "413", "415"},
    "post /v1/jobs:validate": {"200", "400", "404", "409", "413", "415", "502"},
    "get /v1/jobs/{run_id}/events": {"200", "400", "404", "502"},
    "get /v1/jobs/{run_id}/logs": {"200", "400", "404", "502"},
    "get /v1/jobs/{run_id}/checkpoints": {"200", "400", "404", "502"},
    "get /v1/jobs/{run_id}/checkpoints/{step}": {"200", "400", "404", "502"},
    "get /v1/jobs/{run_id}/checkpoints/{step}/files/{path}": {"200", "206", "304", "400", "404", "416", "502"},
    "get /v1/jobs/{run_id}/artifacts": {"200", "400", "404", "502"},
    "get /v1/jobs/{run_id}/artifacts/{path}": {"200", "206", "304", "400", "404", "416", "502"},
    "get /v1/plugins": {"200", "400"},
}


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    app = make_app(Settings(runs=tmp_path_factory.mktemp("openapi") / "runs", token="a-token-of-32-characters-0123456"))
    found: dict[str, Any] = TestClient(app).get("/openapi.json").json()
    return found


def operations(document: dict[str, Any]) -> dict[str, Any]:
    return {f"{method} {path}": one for path, found in document["paths"].items() for method, one in found.items()}


def bodies(document: dict[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Every request's and every answer's body: whose it is, its media type, and what is said of it."""
    for name, operation in operations(document).items():
        for media_type, content in operation.get("requestBody", {}).get("content", {}).items():
            yield name, media_type, content
        for status, answer in operation["responses"].items():
            for media_type, content in answer.get("content", {}).items():
                yield f"{name} {status}", media_type, content


def test_every_route_says_what_it_answers_and_nothing_else(document: dict[str, Any]) -> None:
    # Those of other distributions, which may be installed, are theirs to test.
    own = {name: one for name, one in operations(document).items() if "/v1/sweeps" not in name}
    found = {name: set(one["responses"]) for name, one in own.items()}
    probes = ("get /healthz", "get /readyz")
    assert found == {name: {*more, *(ALWAYS if name not in probes else ())} for name, more in ANSWERS.items()}
    for name, one in own.items():
        assert all((one["summary"], one["description"], name in probes or one["security"])), name


def test_streams_and_files_have_their_media_types_and_examples(document: dict[str, Any]) -> None:
    found = {
        path: document["paths"][f"/v1/jobs/{{run_id}}/{path}"]["get"]["responses"]["200"]["content"]
        for path in ("events", "logs", "artifacts/{path}")
    }
    assert {path: set(content) for path, content in found.items()} == {
        "events": {SSE, NDJSON},
        "logs": {SSE, NDJSON, TEXT},
        "artifacts/{path}": {"application/octet-stream"},
    }
    assert all(one["example"] for path in ("events", "logs") for one in found[path].values())


def test_every_request_and_answer_in_json_has_an_example_that_is_one(document: dict[str, Any]) -> None:
    seen = 0
    for name, media_type, content in bodies(document):
        status = name.rpartition(" ")[2]
        is_refusal = status.isdecimal() and int(status) >= 400
        assert (media_type == PROBLEM) is is_refusal, name
        if media_type not in (JSON, PROBLEM):
            continue
        examples = [one["value"] for one in content.get("examples", {}).values()]
        examples += [content["example"]] if "example" in content else []
        assert examples, name
        for example in examples:
            jsonschema.validate(example, {**content["schema"], "components": document["components"]})
            seen += 1
        if is_refusal:
            problem = Problem.model_validate(content["example"])
            assert (problem.status, problem.type.rpartition(":")[2]) == (int(status), problem.errors[0].code)
    assert seen > len(ANSWERS)


def test_the_example_of_a_job_is_one_that_the_host_takes(document: dict[str, Any]) -> None:
    from hostcore.job.load import load_job

    for name in ("post /v1/jobs", "post /v1/jobs:validate"):
        example = operations(document)[name]["requestBody"]["content"][JSON]["example"]
        assert load_job(example).run_id == example["run_id"]


HEADERS = [
    ("post /v1/jobs", "201", {"Location", "Idempotent-Replayed"}),
    ("post /train", "201", {"Location", "Idempotent-Replayed"}),
    ("get /v1/jobs", "401", {"WWW-Authenticate"}),
    ("get /v1/jobs", "429", {"Retry-After"}),
    ("get /v1/jobs", "503", {"Retry-After"}),
    ("get /v1/jobs/{run_id}/artifacts/{path}", "200", {"ETag", "Accept-Ranges"}),
    ("get /v1/jobs/{run_id}/artifacts/{path}", "206", {"ETag", "Accept-Ranges", "Content-Range"}),
    ("get /v1/jobs/{run_id}/artifacts/{path}", "416", {"Content-Range"}),
]


def test_headers_that_clients_need_are_told(document: dict[str, Any]) -> None:
    for operation, status, headers in HEADERS:
        assert set(operations(document)[operation]["responses"][status]["headers"]) == headers, operation

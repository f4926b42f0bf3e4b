"""``HEAD``, which balancers ask of probes and clients of files: what ``GET`` would answer, without its body."""

from collections.abc import Callable
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from hostcore.checkpoints.commit import commit
from hostcore.runs.directory import RunDirectory
from hostcore_service.store.job import StoredJob

Client = Callable[..., TestClient]
FILES = ("/v1/jobs/a/artifacts/result.json", "/v1/jobs/a/checkpoints/5/files/state.json")


@pytest.fixture
def service(client: Client, a_job: Callable[..., StoredJob], tmp_path: Path) -> TestClient:
    """A service with a job that has made two files."""
    opened = client()
    opened.app.state.service.jobs.add(a_job("a", phase="ended", status="succeeded"))  # type: ignore[attr-defined]
    directory = RunDirectory(tmp_path / "runs" / "a")
    directory.make()
    (directory.path / "result.json").write_text('{"status": "succeeded"}')
    commit(
        directory.checkpoints,
        step=5,
        epoch=0,
        final=False,
        attempt=1,
        fill=lambda folder: (folder / "state.json").write_text("0123456789") and None,
    )
    return opened


OTHERS = ("/healthz", "/readyz", "/openapi.json", "/v1/plugins", "/v1/jobs")


def test_the_head_is_that_of_the_whole_answer(service: TestClient) -> None:
    for path in (*OTHERS, *FILES):
        whole = service.get(path)
        head = service.head(path, headers={"Range": "bytes=1-2"})  # which is for GET alone
        assert (head.status_code, head.content) == (200, b""), path
        assert head.headers == whole.headers
        assert int(head.headers["content-length"]) == len(whole.content) > 0


def test_a_client_that_has_the_file_is_told_so(service: TestClient) -> None:
    for path in FILES:
        known = {"If-None-Match": service.head(path).headers["etag"]}
        assert service.head(path, headers=known).status_code == 304, path


def test_a_stream_has_a_head_which_is_its_end(service: TestClient) -> None:
    head = service.head("/v1/jobs/a/events", headers={"Accept": "text/event-stream"})
    assert (head.status_code, head.content) == (200, b"")


ALLOWED = [
    ("PUT", "/v1/jobs", "GET, HEAD, POST"),
    ("OPTIONS", "/v1/jobs/a", "GET, HEAD"),
    ("GET", "/v1/jobs:validate", "POST"),
    ("HEAD", "/v1/jobs:validate", "POST"),
    ("DELETE", "/train", "POST"),
    ("PATCH", "/train/a", "GET, HEAD"),
    ("POST", "/healthz", "GET, HEAD"),
]


def test_another_method_is_told_all_that_the_path_takes(service: TestClient) -> None:
    for method, path, allow in ALLOWED:
        answer = service.request(method, path)
        assert (answer.status_code, answer.headers.get("allow")) == (405, allow), (method, path)


def test_what_is_not_there_or_not_theirs_has_no_head(service: TestClient) -> None:
    assert service.head("/v1/jobs/a/artifacts/nothing").status_code == 404
    del service.headers["X-TRAINER-TOKEN"]
    assert [service.head(path).status_code for path in FILES] == [401, 401]
    assert service.head("/healthz").status_code == 200

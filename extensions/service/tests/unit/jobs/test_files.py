"""Checkpoints and artifacts over HTTP: what may be had, whole and in parts, and nothing else."""

import os
import random
from pathlib import Path
from typing import Any

import pytest

from hostcore.checkpoints.commit import commit
from hostcore.runs.directory import RunDirectory
from hostcore_service.jobs.run_files import is_artifact

PRIVATE = "for nobody else"
CLOSED = ["config/contract.attempt-2.rank-0.json", "config/started.a.1", "control/cancel.attempt-1.json", "lease.json"]
CLOSED += ["spool/x/file", "cursors/terminal.json", "uploads.jsonl", "plots/.hidden.png", ".hidden/file"]
CLOSED += ["samples/step-000005/.making/file", "samples/sample.png.tmp"]
ARTIFACTS = ["config/run.json", "csv-metrics/train.csv", "plots/loss.png", "result.json"]
ARTIFACTS += ["samples/step-000005/0/ü.html"]


@pytest.fixture
def directory(opened: Any) -> RunDirectory:
    """A run with a checkpoint, artifacts, and everything that is not for others."""
    made = opened.job()
    (made.attempts / "1.json").write_text("{}")

    def fill(folder: Path) -> None:
        (folder / "state.json").write_text("0123456789")

    commit(made.checkpoints, step=5, epoch=0, final=False, attempt=1, fill=fill)
    for name in (*CLOSED, *ARTIFACTS):
        (made.path / name).parent.mkdir(parents=True, exist_ok=True)
        (made.path / name).write_text(f"{{}} {name}" if name in ARTIFACTS else PRIVATE)
    outside = made.path.parent / "outside"
    outside.mkdir()
    (outside / "secret").write_text(PRIVATE)
    (made.samples / "file").symlink_to(outside / "secret")
    (made.samples / "folder").symlink_to(outside)
    os.mkfifo(made.samples / "pipe")
    return made


def test_artifacts_are_what_a_run_has_made(opened: Any, directory: RunDirectory) -> None:
    found = opened.get("/v1/jobs/a/artifacts").json()
    assert [one["path"] for one in found["artifacts"]] == ARTIFACTS
    assert found["truncated"] is False
    for one in found["artifacts"]:
        answer = opened.get(f"/v1/jobs/a/artifacts/{one['path']}")
        assert answer.text == f"{{}} {one['path']}"
        assert len(answer.content) == one["bytes"]
        assert answer.headers["content-disposition"].startswith("attachment; filename=")
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_no_other_file_can_be_had_whatever_the_path(opened: Any, directory: RunDirectory, seed: int) -> None:
    chance = random.Random(seed)
    folder = directory.path
    private = [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() or path.is_symlink()]
    private = [name for name in private if not is_artifact(name) or name in ("samples/file", "samples/pipe")]
    assert len(private) >= 14
    paths = [
        *private,
        "samples/folder/secret",
        "samples",
        "",
        "samples/pipe",
        "x" * 5000,
        "%00",
        "%ff",
        "samples/a%00b",
    ]
    paths += [str(folder / "lease.json"), f"//{folder}/lease.json", "config/run.json/..", "plots/../lease.json"]
    dots = ["..", "%2e%2e", "%252e%252e", ".%2e", ".", "", "plots", "samples", "\\..", "%5c..", "..%00", "%c0%ae%c0%ae"]
    slashes = ["/", "%2f", "%252f", "//", "%5c"]
    for _ in range(250):
        begin = "".join(chance.choice(dots) + chance.choice(slashes) for _ in range(chance.randrange(1, 6)))
        paths.append(begin + chance.choice([*private, "outside/secret", "etc/passwd", "a/lease.json"]))
    for path in paths:
        for route in ("artifacts", "checkpoints/5/files"):
            answer = opened.client.build_request("GET", f"/v1/jobs/a/{route}/{path}")
            found = opened.client.send(answer, follow_redirects=False)
            assert found.status_code in (200, 307, 400, 404, 405), (path, found.status_code)
            assert PRIVATE not in found.text, path
            assert "root:" not in found.text, path


def test_checkpoints_are_listed_and_their_files_are_those_of_the_record(opened: Any, directory: RunDirectory) -> None:
    (one,) = opened.get("/v1/jobs/a/checkpoints").json()["checkpoints"]
    assert (one["step"], one["epoch"], one["final"], one["attempt"], one["bytes"]) == (5, 0, False, 1, 10)
    assert one["saved_ms"] > 0
    record = opened.get("/v1/jobs/a/checkpoints/5").json()
    (file,) = record["files"]
    (directory.checkpoints / "step-000005" / "notes").write_text(PRIVATE)

    answer = opened.get("/v1/jobs/a/checkpoints/5/files/state.json")

    assert (answer.content, answer.headers["etag"]) == (b"0123456789", f'"{file["sha256"]}"')
    assert opened.get("/v1/jobs/a/checkpoints/5/files/notes").status_code == 404
    for missing in ("checkpoints/6", "checkpoints/6/files/state.json"):
        problem = opened.get(f"/v1/jobs/a/{missing}")
        assert problem.status_code == 404
        assert str(directory.path) not in problem.text
    assert opened.get("/v1/jobs/a/checkpoints/x").status_code == 400
    opened.service.jobs.add(opened.a_job("b", due_ms=2**50))  # it has not begun
    assert opened.get("/v1/jobs/b/artifacts").json() == {"artifacts": [], "truncated": False}
    assert opened.get("/v1/jobs/b/checkpoints").json() == {"checkpoints": []}
    assert opened.get("/v1/jobs/nobody/artifacts").status_code == 404


RANGES = [
    ("bytes=0-3", 206, b"0123", "bytes 0-3/10"),
    ("bytes=7-", 206, b"789", "bytes 7-9/10"),
    ("bytes=-2", 206, b"89", "bytes 8-9/10"),
    ("bytes=-200", 206, b"0123456789", "bytes 0-9/10"),
    ("bytes=8-99", 206, b"89", "bytes 8-9/10"),
    ("bytes=10-", 416, None, "bytes */10"),
    ("bytes=-0", 416, None, "bytes */10"),
    ("bytes=5-2", 200, b"0123456789", None),
    ("bytes=0-1,4-5", 200, b"0123456789", None),
    ("lines=1-2", 200, b"0123456789", None),
]


def test_a_part_of_a_file_can_be_had_and_what_a_client_has_is_not_sent_again(
    opened: Any, directory: RunDirectory
) -> None:
    for asked, status, content, told in RANGES:
        answer = opened.get("/v1/jobs/a/checkpoints/5/files/state.json", Range=asked)
        assert (answer.status_code, answer.headers.get("content-range")) == (status, told), asked
        assert content is None or answer.content == content
    path = "/v1/jobs/a/artifacts/result.json"
    etag = opened.get(path).headers["etag"]
    again = opened.get(path, If_None_Match=f'"other", {etag}')
    assert (again.status_code, again.content) == (304, b"")
    assert opened.get(path, Range="bytes=0-1", If_Range=etag).status_code == 206
    assert opened.get(path, Range="bytes=0-1", If_Range='"other"').status_code == 200
    directory.result.write_text("it has changed, and its length")
    assert opened.get(path, If_None_Match=etag).text == "it has changed, and its length"


ALLOWED = [
    ("PUT", "/v1/jobs", "GET, HEAD, POST"),
    ("OPTIONS", "/v1/jobs/a", "GET, HEAD"),
    ("GET", "/v1/jobs:validate", "POST"),
    ("HEAD", "/v1/jobs:validate", "POST"),
    ("DELETE", "/train", "POST"),
    ("PATCH", "/train/a", "GET, HEAD"),
    ("POST", "/healthz", "GET, HEAD"),
]
OTHERS = ("/healthz", "/readyz", "/openapi.json", "/v1/plugins", "/v1/jobs")
FILES = ("/v1/jobs/a/artifacts/result.json", "/v1/jobs/a/checkpoints/5/files/state.json")


@pytest.mark.usefixtures("directory")
def test_the_head_is_that_of_the_whole_answer_and_another_method_is_told_those_of_the_path(opened: Any) -> None:
    client = opened.client
    for path in (*OTHERS, *FILES):
        whole = client.get(path)
        head = client.head(path, headers={"Range": "bytes=1-2"})  # which is for GET alone
        assert (head.status_code, head.content, head.headers) == (200, b"", whole.headers), path
        assert int(head.headers["content-length"]) == len(whole.content) > 0
    for path in FILES:
        known = {"If-None-Match": client.head(path).headers["etag"]}
        assert client.head(path, headers=known).status_code == 304, path
    stream = client.head("/v1/jobs/a/events", headers={"Accept": "text/event-stream"})
    assert (stream.status_code, stream.content) == (200, b""), "a stream has a head, which is its end"
    assert client.head("/v1/jobs/a/artifacts/nothing").status_code == 404
    for method, path, allow in ALLOWED:
        answer = client.request(method, path)
        assert (answer.status_code, answer.headers.get("allow")) == (405, allow), (method, path)

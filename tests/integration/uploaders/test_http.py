"""The uploader ``http`` against a server that keeps what is put, and against one that breaks what goes through it."""

import base64
import hashlib
import json
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import attrs
import pytest
from loopback_server import serving

from hostcore_builtin_plugins.uploaders.http import HttpUploader
from hostcore_hookspecs import Artifact, FatalError, Secret, TransientError, UploadReceipt

Make = Callable[..., Artifact]


@attrs.define(eq=False)
class Server:
    """Keeps files by their path, and posted JSON."""

    address: str
    files: dict[str, bytes] = attrs.field(factory=dict)
    #: Path and body of each call.
    calls: list[tuple[str, Any]] = attrs.field(factory=list)
    #: Method, path and headers of each request.
    requests: list[tuple[str, str, Any]] = attrs.field(factory=list)
    #: Statuses, and headers, that a method is answered with, whatever is asked.
    answers: dict[str, tuple[int, dict[str, str]]] = attrs.field(factory=dict)
    #: What is said about a file in answers to HEAD.
    shows_digest: bool = False

    def methods(self) -> list[str]:
        return [method for method, _, _ in self.requests]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    here: Server

    def handle_method(self) -> None:
        here, path = self.here, unquote(urlsplit(self.path).path)
        here.requests.append((self.command, self.path, self.headers))
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(length)
        if len(body) < length:  # the client has gone away
            self.close_connection = True
        elif self.command in here.answers:
            self.answer(*here.answers[self.command])
        elif self.command == "PUT":
            here.files[path] = body
            self.answer(201)
        elif self.command == "POST":
            here.calls.append((self.path, json.loads(body)))
            self.answer(200, {}, b"{}")
        elif path not in here.files:
            self.answer(404)
        else:
            digest = base64.b64encode(hashlib.sha256(here.files[path]).digest()).decode()
            shown = {"Repr-Digest": f"sha-256=:{digest}:"} if here.shows_digest else {}
            self.answer(200, shown, here.files[path])

    do_GET = do_HEAD = do_PUT = do_POST = handle_method  # noqa: N815

    def answer(self, status: int, headers: dict[str, str] | None = None, content: bytes = b"") -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(Handler, Server) as running:
        yield running


@pytest.fixture
def opened(server: Server, context: Any) -> Iterator[Callable[..., HttpUploader]]:
    """``opened(verify=False)``: an uploader that puts files on the server below ``/<run id>/``."""
    uploaders = []

    def make(*, ctx: Any = None, **settings: Any) -> HttpUploader:
        keys = {"url": f"http://{server.address}/{{run_id}}/{{path}}", "timeout_seconds": 10.0, **settings}
        uploader = HttpUploader(settings=HttpUploader.Settings(**keys))
        uploader.open(ctx or context())
        uploaders.append(uploader)
        return uploader

    yield make
    for uploader in uploaders:
        uploader.close()


@pytest.fixture
def put(opened: Callable[..., HttpUploader], artifact: Make) -> Callable[..., UploadReceipt]:
    """``put("a.bin", b"content", verify=False)``: by an uploader of its own."""
    return lambda path="a.bin", content=b"content", **settings: opened(**settings).upload_artifact(
        artifact(path, content)
    )


def test_a_large_file_is_put_with_one_request_that_says_what_it_is(server: Server, opened: Any, artifact: Make) -> None:
    big = artifact("model.json", bytes(20_000_000))
    receipt = opened().upload_artifact(big)
    assert (receipt.size, receipt.sha256) == (big.size, big.sha256)
    assert server.methods() == ["HEAD", "PUT", "GET"]
    headers = server.requests[1][2]
    digest = base64.b64encode(bytes.fromhex(big.sha256)).decode()
    assert (headers["Content-Length"], headers["Content-Digest"]) == ("20000000", f"sha-256=:{digest}:")
    assert (headers["Content-Type"], headers["Transfer-Encoding"]) == ("application/json", None)


def test_without_verification_only_the_servers_own_digest_saves_a_second_put(
    server: Server, opened: Any, artifact: Make
) -> None:
    uploader, one = opened(verify=False), artifact("a.bin", b"content")
    assert [uploader.upload_artifact(one).existed for _ in range(2)] == [False, False]
    server.shows_digest = True
    assert uploader.upload_artifact(one).existed
    assert "GET" not in server.methods()


@pytest.mark.parametrize("status", [403, 405])
def test_a_server_that_only_takes_files_is_believed_if_nothing_is_to_be_verified(
    server: Server, put: Any, status: int
) -> None:
    server.answers = {"HEAD": (status, {}), "GET": (status, {})}
    receipt = put(verify=False)
    assert (receipt.size, receipt.sha256) == (7, "")
    with pytest.raises(FatalError, match=f"answered {status}") as raised:
        put()
    assert raised.value.hint == 'set "verify" to false if the server does not give back what it has taken'


@pytest.mark.parametrize(
    ("status", "headers", "error", "seconds"),
    [
        (429, {"Retry-After": "12"}, TransientError, 12),
        (503, {"Retry-After": "Thu, 01 Jan 1970 00:00:00 GMT"}, TransientError, 0),
        (500, {}, TransientError, None),
        (507, {}, TransientError, None),
        (400, {}, FatalError, None),
        (401, {}, FatalError, None),
        (413, {}, FatalError, None),
        (501, {}, FatalError, None),
    ],
)
def test_only_what_may_pass_is_to_be_tried_again(
    server: Server, put: Any, status: int, headers: dict[str, str], error: type[Exception], seconds: float | None
) -> None:
    server.answers = {"PUT": (status, headers)}
    with pytest.raises(error, match=f"PUT http://{server.address}/run-1/a.bin: the server answered {status}") as raised:
        put()
    assert getattr(raised.value, "retry_after_seconds", None) == seconds


def test_a_redirect_on_the_same_server_is_followed_with_the_file_unless_that_would_be_lost(
    server: Server, put: Any
) -> None:
    server.answers = {"PUT": (307, {"Location": "/elsewhere"})}
    with pytest.raises(FatalError, match="redirects more than 5 times"):
        put(content=bytes(3_000_000), verify=False)
    assert [path for method, path, _ in server.requests if method == "PUT"] == ["/run-1/a.bin", *["/elsewhere"] * 4]
    server.answers = {"PUT": (303, {"Location": "/elsewhere"})}
    with pytest.raises(FatalError, match="status 303, after which nothing can be sent again"):
        put()


def test_neither_file_nor_token_follow_a_redirect_to_another_server(
    server: Server, opened: Any, artifact: Make
) -> None:
    with serving(Handler, Server) as other:
        for method in ("HEAD", "PUT", "POST"):
            server.answers = {method: (307, {"Location": f"http://{other.address}/run-1/a.bin"})}
            uploader = opened(token=Secret("let me in"), checkpoint_url=f"http://{server.address}/call")
            with pytest.raises(FatalError, match=f"redirects to http://{other.address}"):
                uploader.upload_artifact(artifact("a.bin", b"content", kind="commit", step=1))
        assert other.requests == []


@pytest.mark.parametrize("method", ["PUT", "GET"])
def test_a_connection_that_is_lost_is_tried_again_later(
    server: Server, opened: Any, artifact: Make, proxy_to: Any, method: str
) -> None:
    with proxy_to(server.address) as proxy:
        proxy.fail(method, does="reset")
        uploader, one = opened(url=f"http://{proxy.address}/{{path}}"), artifact("a.bin", bytes(2_000_000))
        with pytest.raises(TransientError):
            uploader.upload_artifact(one)
        proxy.faults.clear()
        assert uploader.upload_artifact(one).existed is (method == "GET")


def test_a_server_that_never_answers_is_given_up_after_the_timeout(server: Server, put: Any, proxy_to: Any) -> None:
    with proxy_to(server.address) as proxy:
        proxy.fail("PUT", does="silence")
        with pytest.raises(TransientError, match="timed out"):
            put(url=f"http://{proxy.address}/{{path}}", timeout_seconds=0.2)


def test_token_and_headers_are_sent_and_a_query_is_shown_to_nobody(server: Server, opened: Any, artifact: Make) -> None:
    uploader = opened(
        url=f"http://{server.address}/{{run_id}}/{{step}}/{{path}}?signature=abc",
        token=Secret("let me in"),
        headers={"X-Team": "speech"},
    )
    receipts = [uploader.upload_artifact(artifact("a", b"a", step=step)) for step in (7, None)]
    assert [receipt.uri for receipt in receipts] == [f"http://{server.address}/run-1/{step}/a" for step in (7, "none")]
    assert {(headers["Authorization"], headers["X-Team"]) for _, _, headers in server.requests} == {
        ("Bearer let me in", "speech")
    }
    assert all(path.endswith("?signature=abc") for _, path, _ in server.requests)
    server.answers = {"PUT": (400, {})}
    with pytest.raises(FatalError) as raised:
        uploader.upload_artifact(artifact("b", b"b"))
    assert "abc" not in f"{raised.value.as_dict()}"


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    record = tmp_path / "run-1" / "checkpoints" / "step-000200.json"
    record.parent.mkdir(parents=True)
    record.write_bytes(b'{"step": 200, "files": []}')
    return tmp_path / "run-1"


def test_an_orchestrator_is_told_once_of_each_checkpoint_sample_and_end(
    server: Server, opened: Any, artifact: Make, context: Any, run_dir: Path
) -> None:
    calls = {f"{call}_url": f"http://{server.address}/calls/{call}" for call in ("checkpoint", "sample", "terminal")}
    uploader = opened(ctx=context(run_dir=str(run_dir)), **calls)
    record, sample = (run_dir / "checkpoints/step-000200.json").read_bytes(), b"a sample"
    result = {"status": "succeeded", "step": 200, "final_checkpoint": "checkpoints/step-000200"}
    for one in (
        artifact("checkpoints/step-000200/model.safetensors", bytes(100), step=200),
        artifact("checkpoints/step-000200.json", record, kind="commit", step=200, final=True),
        artifact("samples/step-000200/00.txt", sample, kind="sample", step=200),
        artifact("config/run.json", b"{}", kind="config"),
        artifact("result.json", json.dumps(result).encode(), kind="result"),
    ):
        uploader.upload_artifact(one)

    def told(kind: str, path: str, content: bytes) -> dict[str, Any]:
        file = {"local_path": str(run_dir / path), "file_ref": f"http://{server.address}/run-1/{path}"}
        size, sha256 = len(content), hashlib.sha256(content).hexdigest()
        of_file = {**file, "size_bytes": size, "uploaded_size_bytes": size, "sha256": sha256}
        return {"run_id": "run-1", "kind": kind, "step": 200, **of_file}

    checkpoint = {**told("checkpoint", "checkpoints/step-000200.json", record), "final": True}
    end = {f"final_checkpoint{name}": checkpoint[key] for name, key in (("", "local_path"), ("_ref", "file_ref"))}
    ended = {"run_id": "run-1", "kind": "terminal", "status": "completed", "step": 200, "error": None}
    assert server.calls == [
        ("/calls/checkpoint", checkpoint),
        ("/calls/sample", told("sample", "samples/step-000200/00.txt", sample)),
        ("/calls/terminal", {**ended, **end, "final_checkpoint_sha256": checkpoint["sha256"]}),
    ]


@pytest.mark.parametrize(
    ("result", "error"),
    [
        ({"status": "failed", "error": {"type": "ValueError", "message": "no data"}}, "no data"),
        ({"status": "cancelled", "reason": "stopped by hand"}, "stopped by hand"),
        ({"status": "preempted"}, "preempted"),
    ],
)
def test_an_end_without_success_is_told_as_failed_with_its_reason(
    server: Server, opened: Any, artifact: Make, result: dict[str, Any], error: str
) -> None:
    uploader = opened(url=None, terminal_url=f"http://{server.address}/end")
    uploader.upload_artifact(artifact("result.json", json.dumps({"step": 3, **result}).encode(), kind="result"))
    ((_, told),) = server.calls
    assert (told["status"], told["error"], told["final_checkpoint"]) == ("failed", error, None)


def test_the_environment_names_the_calls_that_the_job_does_not_and_its_token_goes_to_them_alone(
    server: Server, opened: Any, artifact: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    for call in ("CHECKPOINT", "SAMPLE"):
        monkeypatch.setenv(f"TRAINER_UPLOAD_{call}_URL", f"http://{server.address}/environment/{call}")
    monkeypatch.setenv("TRAINER_CAPABILITY_TOKEN", "of the orchestrator")
    uploader = opened(sample_url=f"http://{server.address}/job/sample")
    for kind in ("commit", "sample"):
        uploader.upload_artifact(artifact(f"{kind}.json", b"{}", kind=kind, step=1))
    assert [path for path, _ in server.calls] == ["/environment/CHECKPOINT", "/job/sample"]
    tokens = {(method, headers["Authorization"]) for method, _, headers in server.requests}
    assert tokens == {("HEAD", None), ("PUT", None), ("GET", None), ("POST", "Bearer of the orchestrator")}


def test_an_orchestrator_that_is_down_is_told_later_and_the_file_is_not_sent_twice(
    server: Server, opened: Any, artifact: Make
) -> None:
    server.answers = {"POST": (503, {})}
    uploader = opened(checkpoint_url=f"http://{server.address}/call")
    record = artifact("checkpoints/step-000001.json", b"{}", kind="commit", step=1)
    with pytest.raises(TransientError, match="POST"):
        uploader.upload_artifact(record)
    server.answers.clear()
    assert uploader.upload_artifact(record).existed
    assert server.methods().count("PUT") == 1
    assert len(server.calls) == 1

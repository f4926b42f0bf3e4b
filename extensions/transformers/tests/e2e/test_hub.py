"""A run that is uploaded to a repository of the Hugging Face Hub, by the uploader ``fsspec`` and a URI ``hf://``.

The hub cannot run on a developer's machine. Here is a stand-in that answers the requests that ``huggingface_hub``, as
installed, sends for that: what a repository is, what is in a folder, whether a file is small or goes to the store of
large files (LFS), commits, and reading. What it does not have: rights, Xet, limits on commits.
"""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

import attrs
import pytest
from transformers_workshop import LLAMA

REPOSITORY = "mill/oak"


class Hub(ThreadingHTTPServer):
    """One repository of models, with one branch."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answering)
        self.files: dict[str, bytes] = {}
        self.large: dict[str, bytes] = {}
        self.commits: list[list[str]] = []
        self.lock = threading.Lock()

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Answering(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub

    def log_message(self, *_: Any) -> None:
        pass

    def answer(self, body: bytes = b"", status: int = 200, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def tell(self, value: Any) -> None:
        self.answer(json.dumps(value).encode(), Content_Type="application/json")

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers["Content-Length"]))

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        if found := re.fullmatch(rf"/{REPOSITORY}/resolve/main/(.+)", path):
            self.send_file(found[1])
        elif found := re.fullmatch(rf"/api/models/{REPOSITORY}/tree/main/?(.*)", path):
            self.list_folder(found[1])
        elif re.fullmatch(rf"/api/models/{REPOSITORY}(/revision/main)?", path):
            self.tell({"id": REPOSITORY, "sha": "0" * 40, "private": False, "tags": [], "siblings": []})
        else:
            self.answer(status=404, X_Error_Code="RepoNotFound")

    def send_file(self, path: str) -> None:
        content = self.server.files.get(path)
        if content is None:
            self.answer(status=404, X_Error_Code="EntryNotFound")
            return
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if asked is None:
            self.answer(content, ETag=hashlib.sha1(content).hexdigest())
            return
        first, last = int(asked[1]), min(int(asked[2]), len(content) - 1)
        self.answer(content[first : last + 1], 206, Content_Range=f"bytes {first}-{last}/{len(content)}")

    def list_folder(self, folder: str) -> None:
        begin = f"{folder}/" if folder else ""
        below = {path[len(begin) :]: path for path in self.server.files if path.startswith(begin)}
        if folder and not below:
            self.answer(status=404, X_Error_Code="EntryNotFound")
            return
        deep = "recursive=true" in self.path.lower()
        folders = {rest.rpartition("/")[0] if deep else rest.partition("/")[0] for rest in below if "/" in rest}
        entries: list[Any] = [
            {"type": "directory", "path": begin + one, "oid": "0" * 40, "size": 0} for one in sorted(folders)
        ]
        for rest, path in below.items():
            if deep or "/" not in rest:
                content = self.server.files[path]
                oid = hashlib.sha1(content).hexdigest()
                entries.append({"type": "file", "path": path, "oid": oid, "size": len(content)})
        self.tell(entries)

    def do_POST(self) -> None:
        path = unquote(urlsplit(self.path).path)
        body = self.body()
        if path == f"/api/models/{REPOSITORY}/preupload/main":
            self.tell({"files": [self.way(one["path"]) for one in json.loads(body)["files"]]})
        elif path == f"/{REPOSITORY}.git/info/lfs/objects/batch":
            objects = [self.place(one) for one in json.loads(body)["objects"]]
            self.tell({"transfer": "basic", "objects": objects})
        elif path == f"/api/models/{REPOSITORY}/commit/main":
            self.commit([json.loads(line) for line in body.splitlines()])
        else:
            self.answer(status=404)

    @staticmethod
    def way(path: str) -> dict[str, Any]:
        return {
            "path": path, "uploadMode": "lfs" if path.endswith(".safetensors") else "regular", "shouldIgnore": False
        }  # fmt: skip

    def place(self, one: dict[str, Any]) -> dict[str, Any]:
        upload = {"href": f"{self.server.uri}/large/{one['oid']}"}
        return {**one, **({} if one["oid"] in self.server.large else {"actions": {"upload": upload}})}

    def do_PUT(self) -> None:
        content = self.body()
        self.server.large[hashlib.sha256(content).hexdigest()] = content
        self.answer()

    def commit(self, lines: list[dict[str, Any]]) -> None:
        changed = {}
        for line in lines:
            value = line["value"]
            if line["key"] == "file":
                changed[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                changed[value["path"]] = self.server.large[value["oid"]]
        with self.server.lock:
            self.server.files.update(changed)
            self.server.commits.append(list(changed))
        self.tell({"success": True, "commitOid": "0" * 40, "commitUrl": f"{self.server.uri}/{REPOSITORY}/commit/0"})


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub() as serving:
        thread = threading.Thread(target=serving.serve_forever, daemon=True)
        thread.start()
        yield serving
        serving.shutdown()
        thread.join()


def test_a_run_is_in_the_repository_a_commit_for_each_file(
    workshop: Any, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", hub.uri)
    monkeypatch.setenv("HF_TOKEN", "hf_of_the_stand_in")
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
    uploaders = [{"use": "fsspec", "uri": f"hf://{REPOSITORY}/runs"}]
    done = attrs.evolve(workshop, imported=()).done(
        "to-the-hub", {"config": LLAMA}, uploaders=uploaders, max_steps=4, checkpoint_every=4
    )
    place = "runs/to-the-hub/framework=transformers"
    checkpoint = done.path / "checkpoints/step-000004"
    written = {str(path.relative_to(done.path)): path for path in checkpoint.rglob("*") if path.is_file()}
    assert "checkpoints/step-000004/trainer/model.safetensors" in written
    for name, path in written.items():
        assert hub.files[f"{place}/{name}"] == path.read_bytes(), name
    assert f"{place}/checkpoints/step-000004.json" in hub.files
    assert f"{place}/result.json" in hub.files
    assert all(len(changed) == 1 for changed in hub.commits)
    assert not any(".hostcore-upload" in path for changed in hub.commits for path in changed)

"""A bucket of a real S3 server of this machine, looked at from behind: not through what its clients go through."""

import hashlib
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import orjson
from moto.server import ThreadedMotoServer

NAME = "runs"
#: What a run directory holds for this machine only.
LOCAL = {"lease.json", "uploads.jsonl", "cursors", "spool", "control", "chaos"}
#: What may be uploaded again under its name, with other content.
GROWING = "/logs/"


class Bucket:
    """The bucket, while a server has it."""

    def __init__(self, port: int) -> None:
        self.port = port
        options = {"region_name": "us-east-1", "aws_access_key_id": "k", "aws_secret_access_key": "s"}
        self.client: Any = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{port}", **options)
        self.client.create_bucket(Bucket=NAME)

    def listing(self, prefix: str = "") -> Mapping[str, tuple[int, str]]:
        """Size and tag of every object whose key begins so."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=NAME, Prefix=prefix)
        found = (entry for page in pages for entry in page.get("Contents", ()))
        return {entry["Key"]: (entry["Size"], entry["ETag"]) for entry in found}

    def read(self, key: str) -> bytes:
        return bytes(self.client.get_object(Bucket=NAME, Key=key)["Body"].read())

    def clear(self, prefix: str) -> None:
        for key in self.listing(prefix):
            self.client.delete_object(Bucket=NAME, Key=key)

    def unfinished(self) -> list[str]:
        """Keys of uploads in parts that were neither completed nor given up."""
        return [upload["Key"] for upload in self.client.list_multipart_uploads(Bucket=NAME).get("Uploads", ())]


@contextmanager
def bucket() -> Iterator[Bucket]:
    """A server with an empty bucket."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        yield Bucket(server.get_host_and_port()[1])
    finally:
        server.stop()


def check_copy(bucket: Bucket, prefix: str, run: Path) -> None:
    """See that a run directory is in the bucket, each file with its checksum, and nothing besides."""
    files = {path.relative_to(run).as_posix(): path for path in run.rglob("*") if path.is_file()}
    expected = {f"{prefix}/{name}": path for name, path in files.items() if name.split("/")[0] not in LOCAL}
    found = set(bucket.listing(f"{prefix}/"))
    assert found == set(expected)
    for key, path in expected.items():
        assert hashlib.sha256(bucket.read(key)).digest() == hashlib.sha256(path.read_bytes()).digest(), key
    assert any("/checkpoints/" in key for key in found)
    assert bucket.unfinished() == []


class Watcher:
    """Looks at a folder of a bucket all the time, as somebody who loads whatever has a commit record."""

    def __init__(self, bucket: Bucket, folder: str = "") -> None:
        self._bucket = bucket
        self._folder = folder
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="bucket watcher", daemon=True)
        #: Content by key and tag: what anybody could have read at some time.
        self._seen: dict[tuple[str, str], bytes] = {}
        self._wrong: list[str] = []
        self.looks = 0

    def __enter__(self) -> "Watcher":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(0.1):
            try:
                self.look()
            except Exception as error:  # noqa: BLE001 - of a thread, where nobody would see it
                self._wrong.append(repr(error))

    def look(self) -> None:
        listing = self._bucket.listing(self._folder)
        for key, (size, tag) in listing.items():
            if (key, tag) not in self._seen:
                content = self._bucket.read(key)
                self._seen[key, tag] = content
                if len(content) != size and GROWING not in key:
                    self._wrong.append(f"{key} had {size} bytes and then {len(content)}")
            if key.rpartition("/")[0].endswith("/checkpoints") and key.endswith(".json"):
                self._check_commit(key, listing, self._seen[key, tag])
        self.looks += 1

    def _check_commit(self, key: str, listing: Mapping[str, tuple[int, str]], record: bytes) -> None:
        folder = key.removesuffix(".json")
        for file in orjson.loads(record)["files"]:
            name = f"{folder}/{file['path']}"
            if listing.get(name, (None, ""))[0] != file["size"]:
                self._wrong.append(f"{key} was there before {name} was")

    def check(self, prefix: str, run: Path) -> None:
        """See that nothing was ever visible but whole files of the run; of a log, its beginning."""
        assert self.looks > 0
        assert self._wrong == []
        for (key, _), content in self._seen.items():
            if not key.startswith(f"{prefix}/"):
                continue
            whole = (run / key.removeprefix(f"{prefix}/")).read_bytes()
            assert content == (whole[: len(content)] if GROWING in key else whole), f"{key} was visible in another form"

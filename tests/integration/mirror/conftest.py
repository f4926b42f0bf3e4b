"""A real S3 server, and machines that have nothing in common but it."""

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import orjson
import pytest
from command_line import Said
from fork_server import ran

HERE = Path(__file__).parent
TRAINERS = HERE.parent / "runs"


@attrs.frozen
class S3:
    """The server, with one bucket."""

    endpoint: str
    client: Any
    bucket: str

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to find it."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def uri(self, key: str) -> str:
        return f"s3://{self.bucket}/{key}"

    def put(self, key: str, content: bytes) -> None:
        self.client.put_object(Bucket=self.bucket, Key=key, Body=content)

    def get(self, key: str) -> bytes:
        return bytes(self.client.get_object(Bucket=self.bucket, Key=key)["Body"].read())

    def remove(self, prefix: str) -> None:
        for key in self.keys(prefix):
            self.client.delete_object(Bucket=self.bucket, Key=key)

    def keys(self, prefix: str = "") -> list[str]:
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=prefix)
        return [item["Key"] for page in pages for item in page.get("Contents", [])]


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    from moto.server import ThreadedMotoServer

    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    host, port = moto.get_host_and_port()
    yield f"http://{host}:{port}"
    moto.stop()


@pytest.fixture
def s3(server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3]:
    """A bucket of the test's own; this process finds the server, too."""
    import boto3
    import s3fs

    bucket = "b-" + os.urandom(6).hex()
    made = S3(server, None, bucket)
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    client = boto3.client("s3", endpoint_url=server, region_name="us-east-1")
    client.create_bucket(Bucket=bucket)
    s3fs.S3FileSystem.clear_instance_cache()
    yield S3(server, client, bucket)
    s3fs.S3FileSystem.clear_instance_cache()


@attrs.frozen
class Machine:
    """A machine: runs, cache and files of its own."""

    path: Path
    environment: Mapping[str, str]

    def job(self, **keys: Any) -> Path:
        path = self.path / "job.json"
        path.write_text(json.dumps({"device": "cpu", "terminal": False, **keys}))
        return path

    def hostcore(self, *arguments: str | Path, **environment: str) -> Said:
        done = ran(arguments, cwd=self.path, env={**self.environment, **environment}, text=True)
        return Said(code=done.returncode, out=done.stdout, err=done.stderr)

    def run(self, run_id: str) -> Path:
        return self.path / "runs" / run_id

    def events(self, run_id: str) -> list[dict[str, Any]]:
        return [orjson.loads(line) for line in (self.run(run_id) / "logs" / "events.jsonl").read_bytes().splitlines()]

    def metric(self, run_id: str, name: str = "error") -> dict[int, float]:
        return {e["step"]: e["metrics"][name] for e in self.events(run_id) if e["event"] == "metrics"}


@pytest.fixture(scope="module")
def make_machine(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Machine]:
    """``make_machine("there")``: a machine of that name, without any server."""
    return lambda name: _machine(tmp_path_factory.mktemp(name), {})


@pytest.fixture
def machine(tmp_path: Path, s3: S3) -> Callable[[str], Machine]:
    """``machine("there")``: a machine of that name; its commands find the server."""
    return lambda name: _machine(tmp_path / name, s3.environment)


def _machine(path: Path, environment: Mapping[str, str]) -> Machine:
    path.mkdir(exist_ok=True)
    for source in (*TRAINERS.glob("exact_trainer.py"), *HERE.glob("*_trainer.py")):
        shutil.copy(source, path)
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("HOSTCORE_", "AWS_"))}
    return Machine(path, {**clean, **environment, "HOSTCORE_CACHE_DIR": str(path / "cache")})

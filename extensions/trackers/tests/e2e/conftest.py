"""The real servers that reporters write to."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import attrs
import pytest
import urllib3
from artifacts import artifact
from ports import free_ports

__all__ = ["artifact"]


def program(command: str | None, missing: str) -> str:
    """A program that CI has, and that a developer may be without."""
    found = shutil.which(command) if command else None
    if found:
        return found
    if os.environ.get("CI") == "true":
        pytest.fail(missing)
    pytest.skip(missing)


@contextmanager
def serving(command: Sequence[str], is_up: Callable[[], bool], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A server, from when it answers; ended with all of its processes."""
    with log.open("ab") as output:
        server = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        deadline = time.monotonic() + 300
        while not is_up():
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        yield server
    finally:
        with suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def answers(url: str) -> bool:
    """Whether an HTTP server is there."""
    try:
        return urllib3.request("GET", url, timeout=30, retries=False).status < 500
    except urllib3.exceptions.HTTPError:
        return False


@attrs.define
class RedisServer:
    """A Redis server that can be stopped and started."""

    command: str
    folder: Path
    port: int
    extra: Sequence[str] = ()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @contextmanager
    def running(self) -> Iterator[None]:
        options = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder), "--appendonly", "yes"]
        log = self.folder / "redis.log"
        with serving([self.command, *options, "--appendfsync", "always", *self.extra], self._is_up, log):
            yield

    def _is_up(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=30) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(64).startswith((b"+PONG", b"-NOAUTH"))
        except OSError:
            return False


@pytest.fixture
def redis_server(tmp_path: Path) -> RedisServer:
    command = program("redis-server", "redis-server is not installed: apt-get install redis-server")
    folder = tmp_path / "redis"
    folder.mkdir()
    return RedisServer(command, folder, free_ports(1))


@pytest.fixture(scope="session")
def start_mlflow(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Any]:
    """``with start_mlflow("--serve-artifacts") as url``: MLflow's own server, with a database and a folder."""
    command = program(
        os.environ.get("HOSTCORE_TEST_MLFLOW"),
        "HOSTCORE_TEST_MLFLOW is not the mlflow command of an environment with the whole of MLflow (not mlflow-skinny)",
    )

    @contextmanager
    def start(*options: str, artifacts: str = "--artifacts-destination") -> Iterator[str]:
        folder, port = tmp_path_factory.mktemp("mlflow"), free_ports(1)
        where = ["--host", "127.0.0.1", "--port", str(port), "--workers", "1", artifacts, str(folder / "artifacts")]
        # Without seven more processes of MLflow, for jobs of its own, that start with each server.
        bare = ["env", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false", command]
        server = [*bare, "server", *where, "--backend-store-uri", f"sqlite:///{folder}/mlflow.db", *options]
        url = f"http://127.0.0.1:{port}"
        with serving(server, lambda: answers(f"{url}/health"), folder / "mlflow.log"):
            yield url

    return start


@pytest.fixture(scope="session")
def mlflow_server(start_mlflow: Callable[..., Any]) -> Iterator[str]:
    """The address of one that keeps the artifacts itself."""
    with start_mlflow() as url:
        yield url


@pytest.fixture
def tensorboard(tmp_path: Path) -> Callable[..., Any]:
    """Starts TensorBoard: ``with tensorboard(folder, fast=True) as url``."""

    @contextmanager
    def start(folder: Path, *, fast: bool) -> Iterator[str]:
        url = f"http://127.0.0.1:{(port := free_ports(1))}"
        options = ["--logdir", str(folder), "--host", "127.0.0.1", "--port", str(port)]
        command = [sys.executable, "-m", "tensorboard.main", *options, f"--load_fast={'true' if fast else 'false'}"]
        with serving(command, lambda: answers(f"{url}/data/environment"), tmp_path / "tensorboard.log"):
            yield url

    return start

"""A run's events made by hand, and the real servers that reporters write to."""

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
import orjson
import pytest
import urllib3
from artifacts import artifact
from ports import free_ports

from hostcore_hookspecs import Event, Job, ReporterContext
from hostcore_hookspecs.events import Payload

__all__ = ["artifact"]


@attrs.define
class Course:
    """The events of a run, numbered, a second apart, and written to its log."""

    run_dir: Path
    run_id: str = "flights-1"
    job: Job = attrs.field(factory=lambda: Job(trainer="flights", hyperparams={"lr": 0.1, "sizes": [64, 8]}))
    submitted_ms: int = 1_700_000_000_000
    events: list[Event] = attrs.field(factory=list)
    attempt: int = 1

    def tell(self, payload: Payload, *, step: int | None = None) -> Event:
        """One more event."""
        seq = len(self.events) + 1
        event = Event(
            seq=seq,
            time_ms=self.submitted_ms + (seq - 1) * 1000,
            run_id=self.run_id,
            attempt=self.attempt,
            step=step,
            epoch=0,
            payload=payload,
        )
        self.events.append(event)
        log = self.run_dir / "logs" / "events.jsonl"
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as opened:
            opened.write(orjson.dumps(event.as_dict(), option=orjson.OPT_APPEND_NEWLINE))
        return event

    def ctx(self, *, last_seq: int = 0) -> ReporterContext:
        return ReporterContext(
            run_id=self.run_id, attempt=self.attempt, job=self.job, run_dir=str(self.run_dir), last_seq=last_seq
        )

    def report(self, reporter: Any, told: Sequence[Event]) -> None:
        """What one process does with a reporter."""
        before = [event.seq for event in self.events if event.attempt < self.attempt]
        reporter.open(self.ctx(last_seq=max(before, default=0)))
        for event in told:
            reporter.report_event(event)
        reporter.close()


@pytest.fixture
def course(tmp_path: Path) -> Callable[..., Course]:
    """``course(run_id="flights-1")``: a run without events."""

    def make(name: str = "run", **fields: Any) -> Course:
        return Course(tmp_path / "runs" / name, **fields)

    return make


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


@pytest.fixture(scope="module")
def mlflow_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of MLflow's own server, with a database."""
    command = program(
        os.environ.get("HOSTCORE_TEST_MLFLOW"),
        "HOSTCORE_TEST_MLFLOW is not the mlflow command of an environment with the whole of MLflow (not mlflow-skinny)",
    )
    folder = tmp_path_factory.mktemp("mlflow")
    port = free_ports(1)
    options = ["--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--artifacts-destination", str(folder)]
    url = f"http://127.0.0.1:{port}"
    where = ["--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    with serving([command, "server", *options, *where], lambda: answers(f"{url}/health"), folder / "mlflow.log"):
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

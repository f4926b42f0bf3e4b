"""Servers that reporters and uploaders talk to, real ones; those of reporters as harnesses of the kit."""

import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from checkout import TESTS
from ports import free_ports

from hostcore_conformance.example import load_symbol

HERE = Path(__file__).resolve().parent
PASSWORD = "conformance-password-1618033988"
VARIABLE = "HOSTCORE_CONFORMANCE_PASSWORD"
SECRET = {"$secret": f"env:{VARIABLE}"}

Settings = dict[str, Any]
Events = Sequence[Mapping[str, Any]]


def program(command: str | None, missing: str) -> str:
    """A program that CI has, and that a developer may be without."""
    found = shutil.which(command) if command else None
    if found:
        return found
    if os.environ.get("CI") == "true":
        pytest.fail(missing)
    pytest.skip(missing)


def redis_command() -> str:
    return program("redis-server", "redis-server is not installed: apt-get install redis-server")


def mlflow_command() -> str:
    missing = "is not the mlflow command of an environment with the whole of MLflow (not mlflow-skinny)"
    return program(os.environ.get("HOSTCORE_TEST_MLFLOW"), f"HOSTCORE_TEST_MLFLOW {missing}")


@contextmanager
def environment(**variables: str) -> Iterator[None]:
    """With some variables, and no proxy before this machine."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"no_proxy": "127.0.0.1,localhost", VARIABLE: PASSWORD, **variables}.items():
            patch.setenv(name, value)
        yield


@contextmanager
def serving(command: Sequence[str], port: int, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A server, from when it listens; ended with all of its processes."""
    with log.open("ab") as output:
        server = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        deadline = time.monotonic() + 300
        while not _listens(port):
            assert server.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        yield server
    finally:
        with suppress(ProcessLookupError):
            os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=30).close()
    except OSError:
        return False
    return True


@contextmanager
def webhook() -> Iterator[Any]:
    """A server that takes events."""
    with environment(), load_symbol("harness_reporter.py:Sink", HERE / "reference")() as sink:
        yield sink


class RedisServer:
    """A Redis server of its own, which can be full, and stand still."""

    settle_seconds = 0.5
    #: With some seconds of patience of its own, in a slow machine.
    patience_seconds = 20.0

    def __init__(self, port: int, process: "subprocess.Popen[bytes]") -> None:
        import redis

        self._process = process
        self._client = redis.Redis(port=port, password=PASSWORD)
        self.settings: Settings = {"url": f"redis://127.0.0.1:{port}/0", "password": SECRET, "timeout_seconds": 3.0}

    def received(self) -> Events:
        keys: Any = self._client.keys("hostcore:*")
        entries: Any = [entry for key in keys for entry in self._client.xrange(key)]
        return [json.loads(fields[b"json"]) for _, fields in entries]

    def refuse(self) -> None:
        self._client.config_set("maxmemory", 1)

    def hang(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def heal(self) -> None:
        self._process.send_signal(signal.SIGCONT)
        self._client.config_set("maxmemory", 0)


@contextmanager
def redis_server(folder: Path) -> Iterator[RedisServer]:
    port = free_ports(1)
    options = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--requirepass", PASSWORD]
    with environment(), serving([redis_command(), *options, "--save", ""], port, folder / "redis.log") as process:
        yield RedisServer(port, process)


def proxy_before(port: int) -> Any:
    """A proxy that fails as it is told to: ``refuse``, ``hang``, ``heal``, and ``fail_next`` for the next PUT alone."""
    proxies = sys.modules[load_symbol("proxy.py:Proxy", TESTS / "faults").__module__]

    class Failing(proxies.Proxy):  # type: ignore[misc, name-defined]
        to_fail = 0

        def _fate(self, head: Any) -> Any:
            if self.to_fail and head.method == "PUT":
                self.to_fail -= 1
                return proxies.Fault.RESET
            return super()._fate(head)

        def fail_next(self) -> None:
            self.to_fail = 1

        def refuse(self) -> None:
            self.fault = proxies.Fault.UNAVAILABLE

        def hang(self) -> None:
            self.fault = proxies.Fault.BLACK_HOLE

        def heal(self) -> None:
            self.fault = proxies.Fault.NONE

    return Failing(port)


class MlflowServer:
    """An MLflow server, looked at through its database, and reached through a proxy that can fail."""

    settle_seconds = 1.0
    keeps = ("metrics", "validation", "test")

    def __init__(self, database: Path, proxy: Any) -> None:
        self._database = database
        self.refuse, self.hang, self.heal = proxy.refuse, proxy.hang, proxy.heal
        self.settings: Settings = {"tracking_uri": proxy.url, "token": SECRET, "timeout_seconds": 15.0}

    def received(self) -> Events:
        query = """
            SELECT tags.value, metrics.timestamp, metrics.step, metrics.key, metrics.value, metrics.is_nan
            FROM metrics JOIN tags USING (run_uuid) WHERE tags.key = 'hostcore.run_id' ORDER BY metrics.rowid
        """
        with closing(sqlite3.connect(self._database, timeout=30)) as database:
            rows = database.execute(query).fetchall()
        found: dict[tuple[str, int, int], dict[str, float | None]] = {}
        for run_id, time_ms, step, key, value, is_nan in rows:
            if not key.startswith("host/"):
                found.setdefault((run_id, time_ms, step), {})[key] = None if is_nan else value
        return [
            {"run_id": run_id, "time_ms": time_ms, "step": step, "metrics": metrics}
            for (run_id, time_ms, step), metrics in found.items()
        ]


@contextmanager
def mlflow_behind_proxy(folder: Path) -> Iterator[tuple[Any, Path, Path]]:
    """An MLflow server: the proxy before it, its database, and the folder of its artifacts."""
    port, artifacts, database = free_ports(1), folder / "artifacts", folder / "mlflow.db"
    artifacts.mkdir()
    options = ["--backend-store-uri", f"sqlite:///{database}", "--artifacts-destination", str(artifacts)]
    where = ["--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    server = serving([mlflow_command(), "server", *options, *where], port, folder / "mlflow.log")
    # Seven more processes of MLflow, for jobs of its own, would take more time than the server itself.
    with environment(MLFLOW_SERVER_ENABLE_JOB_EXECUTION="false"), server, proxy_before(port) as proxy:
        _warm_up(port)
        yield proxy, database, artifacts


def _warm_up(port: int) -> None:
    """Have MLflow's server make all that it makes when it is first asked, which may take many seconds."""
    import urllib3

    url = f"http://127.0.0.1:{port}/api/2.0/mlflow/runs/search"
    answer = urllib3.request("POST", url, json={"experiment_ids": ["0"]}, timeout=300)
    assert answer.status == 200, answer.data


@contextmanager
def mlflow_server(folder: Path) -> Iterator[MlflowServer]:
    with mlflow_behind_proxy(folder) as (proxy, database, _):
        yield MlflowServer(database, proxy)

"""A real Ray cluster on this machine, with token authentication and a job API.

``with cluster() as ray: ray.address, ray.token``. It has a session, a port and a folder of its own, so a cluster that
somebody else runs on this machine stays as it is.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import attrs
from ports import free_ports

from hostcore_builtin_plugins.processes import descendants

RAY = Path(sys.executable).with_name("ray")
#: Why there is none here; None if there can be one.
MISSING = (
    None
    if importlib.util.find_spec("ray") and RAY.exists()
    else "there is no Ray here: pip install 'ray[default]==2.60.*', in an environment of this Python"
)
TOKEN = "a-token-of-the-tests-that-nobody-else-has-0123456789"
_START_SECONDS = 300.0
_TICK_SECONDS = 0.1
_STATUS_OK = 200


@attrs.frozen(kw_only=True)
class Cluster:
    """A cluster that runs."""

    #: Of its dashboard.
    address: str
    token: str
    folder: Path
    environment: dict[str, str]
    gcs: str

    def join(self, *, cpus: int = 2) -> None:
        """Let one more node join, on this machine as well."""
        port = f"--dashboard-agent-listen-port={free_ports(1)}"
        _ray("start", f"--address={self.gcs}", f"--num-cpus={cpus}", port, environment=self.environment)


@contextmanager
def cluster(*, cpus: int = 2, gpus: int = 0) -> Iterator[Cluster]:
    """A cluster of one node, that is gone afterwards, with all that it has started.

    :param gpus: What it is told to have, whether it has any or not.
    """
    # Short: sockets lie below, whose paths have 107 characters at most.
    folder = Path(tempfile.mkdtemp(prefix="ray", dir="/tmp"))
    dashboard = free_ports(3)
    gcs, agent = dashboard + 1, dashboard + 2
    secret = folder / "token"
    secret.write_text(TOKEN)
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("RAY_")},
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(secret),
        "RAY_USAGE_STATS_ENABLED": "0",
        # On a machine that is busy: for a checkpoint, and to start.
        "RAY_JOB_STOP_WAIT_TIME_S": "300",
        "RAY_DASHBOARD_STARTUP_TIMEOUT_S": "300",
        "RAY_gcs_server_port_wait_time_s": "300",
        # What it leaves is found by this, whatever it calls itself.
        "HOSTCORE_TEST_RAY": str(folder),
    }
    found = Cluster(
        address=f"http://127.0.0.1:{dashboard}",
        token=TOKEN,
        folder=folder,
        environment=environment,
        gcs=f"127.0.0.1:{gcs}",
    )
    try:
        _ray(
            "start",
            "--head",
            "--node-ip-address=127.0.0.1",
            f"--port={gcs}",
            "--include-dashboard=true",
            "--dashboard-host=127.0.0.1",
            f"--dashboard-port={dashboard}",
            f"--dashboard-agent-listen-port={agent}",
            f"--num-cpus={cpus}",
            f"--num-gpus={gpus}",
            f"--temp-dir={folder}",
            "--object-store-memory=80000000",
            "--disable-usage-stats",
            environment=environment,
        )
        _wait_for_jobs(found)
        yield found
    finally:
        _end_all(folder)
        shutil.rmtree(folder, ignore_errors=True)


def _ray(*arguments: str, environment: dict[str, str]) -> None:
    done = subprocess.run(
        [str(RAY), *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_START_SECONDS,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"ray {arguments[0]} ended with {done.returncode}:\n{done.stdout}")


def _wait_for_jobs(found: Cluster) -> None:
    """Wait until the dashboard answers, and its jobs can be asked for."""
    request = urllib.request.Request(f"{found.address}/api/jobs/", headers={"Authorization": f"Bearer {found.token}"})
    due = time.monotonic() + _START_SECONDS
    while True:
        with suppress(urllib.error.URLError, OSError), urllib.request.urlopen(request, timeout=10) as answer:
            if answer.status == _STATUS_OK:
                return
        if time.monotonic() > due:
            raise RuntimeError(f"the dashboard at {found.address} does not answer")
        time.sleep(_TICK_SECONDS)


def _end_all(folder: Path) -> None:
    """Kill every process that was started for the cluster: ``ray stop`` would stop those of others, too."""
    mark = f"HOSTCORE_TEST_RAY={folder}".encode()
    due = time.monotonic() + 20.0
    while time.monotonic() < due:
        marked = [pid for pid in _processes() if mark in _environment(pid)]
        if not marked:
            return
        # Ray's own overwrite their environment with a title; they descend from some that do not.
        for pid in {*marked, *(below for one in marked for below in descendants(one))}:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_TICK_SECONDS)


def _processes() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdecimal()]


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []

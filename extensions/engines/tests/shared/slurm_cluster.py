"""A Slurm of two nodes on this machine: its own munged, slurmctld and two slurmd, in a temporary folder.

Nothing is read from or written to ``/etc`` and ``/var``. Both nodes are this machine, under different names and ports,
and their jobs are this user's processes. There is no accounting (no slurmdbd), as on many clusters.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
from ports import free_ports

#: Where daemons are that are not on the PATH of users.
_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun")

#: Why there can be no cluster here; empty if there can.
MISSING = (
    ""
    if all(shutil.which(program, path=_PATH) for program in _PROGRAMS)
    else "there is no Slurm here: apt-get install slurm-wlm munge"
)

NODES = ("node1", "node2")
_SECONDS = 300.0


@attrs.frozen(kw_only=True)
class Cluster:
    """A cluster that runs."""

    folder: Path
    #: For whoever asks it.
    environment: Mapping[str, str]

    def ask(self, *command: str) -> str:
        """Run one of Slurm's commands; what it has printed."""
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env={**self.environment}, timeout=300
        )
        assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
        return done.stdout

    def state(self, job: str) -> str:
        """The state of a job."""
        return self.ask("squeue", "--noheader", "--states=all", f"--jobs={job}", "--format=%T").strip()

    @contextlib.contextmanager
    def forgetting(self) -> Iterator[None]:
        """The controller forgets jobs soon after their end, meanwhile."""
        file = self.folder / "slurm.conf"
        before = file.read_text()
        for text in (before + "MinJobAge=2\n", before):
            file.write_text(text)
            self.ask("scontrol", "reconfigure")
            if text != before:
                yield

    def logs(self) -> str:
        """What the daemons have to say, for the message of a test that failed."""
        return "\n".join(f"== {log.name}\n{log.read_text()[-2000:]}" for log in sorted(self.folder.glob("*.log")))


@contextlib.contextmanager
def cluster(**more: Any) -> Iterator[Cluster]:
    """Start one, and stop everything afterwards.

    :param more: Of ``slurm.conf``: ``MinJobAge=10``.
    """
    folder = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))  # a socket's path is short
    folder.chmod(0o755)
    daemons: list[subprocess.Popen[bytes]] = []
    try:
        configuration = _configure(folder, more)
        environment = {**_plain_environment(), "PATH": _PATH, "SLURM_CONF": str(configuration)}
        one = Cluster(folder=folder, environment=environment)
        for name, command in _daemons(folder):
            with (folder / f"{name}.log").open("wb") as log:
                daemons.append(
                    subprocess.Popen(
                        command,
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        env=environment,
                        start_new_session=True,
                    )
                )
            if name == "munged":
                _until((folder / "munge" / "socket").exists, one)
        _until(lambda: _idle_nodes(environment) == len(NODES), one)
        yield one
        _end_jobs(one)
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
        for daemon in reversed(daemons):
            with contextlib.suppress(subprocess.TimeoutExpired):
                daemon.wait(timeout=10)
            daemon.kill()
            daemon.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _plain_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "SBATCH_"))}


def _configure(folder: Path, more: Mapping[str, Any]) -> Path:
    (folder / "munge").mkdir(mode=0o755)
    key = folder / "munge" / "key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o600)
    (folder / "state").mkdir()
    for node in NODES:
        (folder / f"spool.{node}").mkdir(mode=0o755)
    host, user = socket.gethostname(), getpass.getuser()
    controller = free_ports(1 + len(NODES))
    settings = {
        "ClusterName": "tests",
        "SlurmctldHost": f"{host}(127.0.0.1)",
        "SlurmctldPort": controller,
        "SlurmUser": user,
        "SlurmdUser": user,
        "AuthType": "auth/munge",
        "AuthInfo": f"socket={folder}/munge/socket",
        "CredType": "cred/munge",
        "ProctrackType": "proctrack/linuxproc",
        "TaskPlugin": "task/none",
        "MpiDefault": "none",
        "SelectType": "select/cons_tres",
        "SelectTypeParameters": "CR_Core",
        "SchedulerType": "sched/builtin",
        "SchedulerParameters": "batch_sched_delay=0,sched_interval=1,sched_min_interval=1",
        "JobAcctGatherType": "jobacct_gather/none",
        "AccountingStorageType": "accounting_storage/none",
        "JobCompType": "jobcomp/none",
        "ReturnToService": 2,
        "StateSaveLocation": f"{folder}/state",
        "SlurmdSpoolDir": f"{folder}/spool.%n",
        "SlurmdPidFile": f"{folder}/slurmd.%n.pid",
        "SlurmctldPidFile": f"{folder}/slurmctld.pid",
        "KillWait": 2,
        **more,
    }
    lines = [f"{name}={value}" for name, value in settings.items()]
    # More processors than there may be: two jobs shall run at a time.
    lines += [
        f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=4 RealMemory=1000 State=UNKNOWN"
        for port, node in enumerate(NODES, controller + 1)
    ]
    lines.append("PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP")
    lines.append("SlurmdParameters=config_overrides")
    file = folder / "slurm.conf"
    file.write_text("\n".join(lines) + "\n")
    return file


def _daemons(folder: Path) -> Iterator[tuple[str, list[str]]]:
    munge = folder / "munge"
    files = [f"--{name}-file={munge / name}" for name in ("key", "pid", "log", "seed")]
    # --force: /tmp may be written by anybody, which munged does not like.
    yield "munged", [_program("munged"), "--foreground", "--force", f"--socket={munge / 'socket'}", *files]
    yield "slurmctld", [_program("slurmctld"), "-D"]
    for node in NODES:
        yield f"slurmd.{node}", [_program("slurmd"), "-D", "-N", node]


def _program(name: str) -> str:
    found = shutil.which(name, path=_PATH)
    assert found is not None, MISSING
    return found


def _idle_nodes(environment: Mapping[str, str]) -> int:
    command = ["sinfo", "--noheader", "--Node", "--format=%T"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**environment}, timeout=300)
    return done.stdout.split().count("idle")


def _until(condition: Any, one: Cluster) -> None:
    due = time.monotonic() + _SECONDS
    while not condition():
        if time.monotonic() > due:
            raise AssertionError(f"the cluster does not start within {_SECONDS:g} s\n{one.logs()}")
        time.sleep(0.05)


def _end_jobs(one: Cluster) -> None:
    """Their processes are not the daemons': they would stay."""
    with contextlib.suppress(AssertionError, subprocess.TimeoutExpired):
        one.ask("scancel", f"--user={getpass.getuser()}")
        due = time.monotonic() + _SECONDS
        while one.ask("squeue", "--noheader") and time.monotonic() < due:
            time.sleep(0.1)

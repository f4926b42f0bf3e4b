"""What ``deploy/compose`` describes, started without containers: its commands, with its environment.

PostgreSQL and MLflow are real servers. Names of services become places on the loopback device, and folders of the
containers become folders of the test.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import attrs
import orjson
import pytest
import urllib3
import yaml
from checkout import ROOT
from ports import free_ports
from waiting import wait_until

FOLDER = ROOT / "deploy/compose"
PAGE = ROOT / "docs/how-to/run-with-compose.md"
#: In the order of their ports here.
SERVICES = ("postgres", "mlflow", "hostcore")


def program(command: str | None, missing: str) -> str:
    """A program that CI has, and that a developer may be without."""
    if command and (found := shutil.which(command)):
        return found
    if os.environ.get("CI") == "true":
        pytest.fail(missing)
    pytest.skip(missing)


@attrs.define(kw_only=True)
class Machine:
    """The services of the file, as they are on this machine."""

    #: A copy of ``deploy/compose``, with ``.env``.
    folder: Path
    #: Of PostgreSQL.
    programs: Path
    mlflow: str
    #: The first of three: PostgreSQL, MLflow, the service.
    port: int = attrs.field(factory=lambda: free_ports(3))
    services: Mapping[str, Any] = attrs.field(init=False)
    variables: Mapping[str, str] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        lines = (self.folder / ".env").read_text().splitlines()
        self.variables = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
        text = (self.folder / "compose.yaml").read_text()
        filled = re.sub(r"\$\{(\w+):[-?]([^}]*)\}", lambda found: self.variables.get(found[1], found[2]), text)
        self.services = yaml.safe_load(filled)["services"]

    def here(self, text: str) -> str:
        """A text of the file, with this machine's places."""
        places = {
            r"\bpostgres:5432\b": f"127.0.0.1:{self.port}",
            r"\bmlflow:5000\b": f"127.0.0.1:{self.port + 1}",
            r"\b127\.0\.0\.1:5000\b": f"127.0.0.1:{self.port + 1}",
            r"\b127\.0\.0\.1:8321\b": f"127.0.0.1:{self.port + 2}",
            r"^5000$": str(self.port + 1),
            r"^8321$": str(self.port + 2),
            r"^0\.0\.0\.0$": "127.0.0.1",
            r"^/(?=runs$|artifacts$)": f"{self.folder}/",
            r"^/etc/hostcore/": f"{self.folder}/",
        }
        for pattern, place in places.items():
            text = re.sub(pattern, place, text)
        return text

    def environment(self, service: str) -> dict[str, str]:
        clean = ("HOSTCORE_", "TRAINER_", "MLFLOW_", "POSTGRES_", "PG")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(clean)}
        given = self.services[service]["environment"]
        # What is compared with the name that clients use stays as it is.
        own = {name: value if name.endswith("_HOSTS") else self.here(value) for name, value in given.items()}
        # Seven more processes of MLflow, for jobs of its own: half of the test's processor time.
        return {
            **inherited,
            "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
            **own,
            "PATH": f"{self.programs}{os.pathsep}{os.environ['PATH']}",
        }

    def listens(self, service: str) -> bool:
        """Try the service's port; to ask as the file says takes a process each time."""
        with socket.socket() as tried:
            return tried.connect_ex(("127.0.0.1", self.port + SERVICES.index(service))) == 0

    def is_healthy(self, service: str) -> bool:
        """Ask as the file says it is asked."""
        _, command, *arguments = self.services[service]["healthcheck"]["test"]
        if command == "pg_isready":
            arguments += ["--port", str(self.port)]
        command = {"python": sys.executable}.get(command, str(self.programs / command))
        asked = [command, *map(self.here, arguments)]
        return subprocess.run(asked, capture_output=True, check=False, env=self.environment(service)).returncode == 0

    @contextmanager
    def running(self, service: str, command: Sequence[str], *, before: Sequence[str] = ()) -> Iterator[None]:
        """Start a command in the environment of a service, and wait until it is healthy."""
        log = self.folder / f"{service}.log"
        with log.open("ab") as output:
            process = subprocess.Popen(
                ["setpriv", "--pdeathsig=KILL", *before, *command],
                cwd="/" if before else self.folder,
                env=self.environment(service),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        try:
            wait_until(lambda: process.poll() is not None or self.listens(service), service, found=log.read_text)
            wait_until(lambda: process.poll() is not None or self.is_healthy(service), service, found=log.read_text)
            assert process.poll() is None, log.read_text()
            yield
        finally:
            with suppress(ProcessLookupError):  # it has failed
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """A copy of the folder, with the ``.env`` that the commands of the documentation make."""
    folder = tmp_path_factory.mktemp("compose") / "compose"
    shutil.copytree(FOLDER, folder)
    shown = re.findall(r"^\$ (cp \.env.*|for name .*)$", PAGE.read_text(), re.MULTILINE)
    assert len(shown) == 2
    subprocess.run(["sh", "-euc", "\n".join(shown)], cwd=folder, check=True)
    initdb = shutil.which("initdb") or next(map(str, sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))), None)
    missing = "HOSTCORE_TEST_MLFLOW is not the mlflow command of an environment with the whole of MLflow, and psycopg2"
    return Machine(
        folder=folder,
        programs=Path(program(initdb, "PostgreSQL is not installed: apt-get install postgresql")).resolve().parent,
        mlflow=program(os.environ.get("HOSTCORE_TEST_MLFLOW"), missing),
    )


@contextmanager
def postgres(machine: Machine, data: Path) -> Iterator[None]:
    """What the image of PostgreSQL does at its first start, and the server."""
    as_postgres = ["--reuid=postgres", "--regid=postgres", "--clear-groups"] if os.geteuid() == 0 else []
    if as_postgres:  # it refuses to run as root
        shutil.chown(data, "postgres", "postgres")
    become = ["setpriv", *as_postgres] if as_postgres else []
    made = data / "data"
    auth = ["--auth-local=trust", "--auth-host=scram-sha-256"]
    command = [*become, str(machine.programs / "initdb"), "--username=postgres", *auth, "--no-sync", str(made)]
    subprocess.run(command, cwd="/", check=True, capture_output=True)
    options = ["listen_addresses=127.0.0.1", f"port={machine.port}", f"unix_socket_directories={data}", "fsync=off"]
    server = [str(machine.programs / "postgres"), "-D", str(made), *(part for one in options for part in ("-c", one))]
    with ExitStack() as stack:
        stack.enter_context(machine.running("postgres", server, before=as_postgres))
        local = {**machine.environment("postgres"), "PGHOST": str(data), "PGPORT": str(machine.port)}
        done = subprocess.run([machine.folder / "databases.sh"], env=local, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        yield


@pytest.fixture
def data() -> Iterator[Path]:
    """Not below the folders of pytest, which are closed to others; sockets want short names."""
    folder = Path(tempfile.mkdtemp(prefix="hostcore-compose-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def connects(machine: Machine, role: str, database: str, password: str) -> bool:
    address = f"postgresql://{role}:{password}@127.0.0.1:{machine.port}/{database}"
    asked = [machine.programs / "psql", address, "--quiet", "--command=select 1"]
    return subprocess.run(asked, capture_output=True, check=False).returncode == 0


def test_a_job_of_the_service_is_in_postgresql_and_its_metrics_are_in_mlflow(
    machine: Machine, data: Path, service_site: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = machine.folder / "hostcore.toml"
    operator.write_text(machine.here(operator.read_text()))
    token = machine.variables["TRAINER_API_TOKEN"]
    http = urllib3.PoolManager(retries=False, headers={"X-TRAINER-TOKEN": token, "Content-Type": "application/json"})
    [entry] = re.findall(r"^ENTRYPOINT (.*)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    _, *entry_point = json.loads(entry)
    serve = [sys.executable, *entry_point, *map(machine.here, machine.services["hostcore"]["command"])]
    monkeypatch.setenv("PYTHONPATH", service_site.environment["PYTHONPATH"])
    with ExitStack() as stack:
        stack.enter_context(postgres(machine, data))
        own = {name: machine.variables[f"{name.upper()}_DATABASE_PASSWORD"] for name in ("hostcore", "mlflow")}
        assert all(connects(machine, role, role, password) for role, password in own.items())
        assert not connects(machine, "hostcore", "mlflow", own["hostcore"])
        assert not connects(machine, "mlflow", "hostcore", own["mlflow"])
        assert not connects(machine, "hostcore", "hostcore", own["mlflow"])

        name, *arguments = machine.services["mlflow"]["command"]
        assert name == "mlflow"
        stack.enter_context(machine.running("mlflow", [machine.mlflow, *arguments]))
        stack.enter_context(machine.running("hostcore", serve))

        service = f"http://127.0.0.1:{machine.port + 2}"
        tracker = f"http://127.0.0.1:{machine.port + 1}"
        job = {"trainer": "tiny", "device": "cpu", "max_steps": 3, "metric_every": 1, "terminal": False}
        patient = {"required": True, "timeout_seconds": 60}  # an MLflow that begins on a busy machine takes its time
        job |= {
            "run_id": "composed",
            "reporters": [{"use": "mlflow", "tracking_uri": tracker, "experiment": "tried", **patient}],
        }
        taken = http.request("POST", f"{service}/v1/jobs", body=orjson.dumps(job))
        assert taken.status == 201, taken.data

        def ended() -> Any:
            found = orjson.loads(http.request("GET", f"{service}/v1/jobs/composed").data)
            return found if found["status"] in ("succeeded", "failed", "lost") else None

        assert wait_until(ended, "the job's end")["status"] == "succeeded"
        counted = [
            machine.programs / "psql",
            f"postgresql://hostcore:{own['hostcore']}@127.0.0.1:{machine.port}/hostcore",
        ]
        rows = subprocess.run([*counted, "-tAc", "select run_id from jobs"], capture_output=True, text=True, check=True)
        assert rows.stdout.split() == ["composed"]

        def asked(path: str, host: str = "mlflow:5000", **body: Any) -> Any:
            headers = {"Host": host, "Content-Type": "application/json"}
            answer = http.request("POST", f"{tracker}/api/2.0/mlflow/{path}", headers=headers, body=orjson.dumps(body))
            return orjson.loads(answer.data) if answer.status == 200 else answer.status

        [experiment] = asked("experiments/search", max_results=10, filter="name = 'tried'")["experiments"]
        [run] = asked("runs/search", experiment_ids=[experiment["experiment_id"]])["runs"]
        assert run["info"]["status"] == "FINISHED"
        assert {one["key"] for one in run["data"]["metrics"]} >= {"train/loss"}
        history = http.request(
            "GET", f"{tracker}/api/2.0/mlflow/metrics/get-history?run_id={run['info']['run_id']}&metric_key=train/loss"
        )
        assert [one["step"] for one in orjson.loads(history.data)["metrics"]] == [1, 2, 3]
        assert asked("experiments/search", host="evil.example", max_results=1) == 403

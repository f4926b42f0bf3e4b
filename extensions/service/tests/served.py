"""``hostcore serve`` in a process of its own, as its users start it: what tests start, ask, kill and start again."""

import json
import os
import select
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs
import orjson
import urllib3
from command_line import COMMAND
from fork_server import popen
from waiting import wait_until

HERE = Path(__file__).parent
#: The trainer and the launchers of the tests.
MODULES = (HERE / "tiny_trainer.py", HERE / "told_launchers.py")
TOKEN = "a-token-that-only-the-tests-know"
ENDED = ("succeeded", "failed", "cancelled", "preempted", "lost")
#: Of ``told_launchers``.
LAUNCHERS = ("instant", "slow", "flaky", "broken", "refusing", "stuck", "far", "deaf")
TINY = {
    "hostcore.trainers": {"tiny": "tiny_trainer:Trainer"},
    "hostcore.launchers": {name: f"told_launchers:{name.capitalize()}" for name in LAUNCHERS},
}


@attrs.frozen(kw_only=True)
class Answer:
    """A response."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return orjson.loads(self.body)

    @property
    def codes(self) -> list[str]:
        """The codes of everything that is wrong with the request."""
        assert self.headers["content-type"] == "application/problem+json", self.body
        return [error["code"] for error in self.json["errors"]]


@attrs.define(kw_only=True, eq=False)
class Server:
    """A service, which can be killed and started again at the same port."""

    folder: Path
    environment: Mapping[str, str]
    #: None: it is started with --insecure-no-auth.
    token: str | None
    #: How many files it may have open; None: as many as this process.
    open_files: int | None = None
    url: str = ""
    port: int = 0
    process: "subprocess.Popen[bytes] | None" = None
    #: Every process that was started.
    processes: list["subprocess.Popen[bytes]"] = attrs.field(factory=list)
    pool: urllib3.PoolManager = attrs.field(factory=lambda: urllib3.PoolManager(maxsize=64, retries=False))

    @property
    def runs(self) -> Path:
        return self.folder / "runs"

    @property
    def ledger(self) -> Path:
        """Where the launchers of the tests write down what they were asked; see ``told_launchers``."""
        return self.folder / "ledger"

    @property
    def log(self) -> str:
        """What all processes of the service have said on standard error."""
        return (self.folder / "serve.log").read_text(errors="replace")

    def noted(self, file: str) -> list[str]:
        """What the launchers of the tests have noted in a file: ``calls``, ``started``, ``cancelled``."""
        path = self.ledger / file
        return path.read_text().split() if path.exists() else []

    @property
    def launched(self) -> list[str]:
        """The launches that the engine of the tests has begun, each once, also where its launcher was killed then."""
        return [path.name.removesuffix(".name") for path in self.ledger.glob("*.name")]

    def start(self, *, wait: bool = True) -> "Server":
        """Start it and wait until it answers."""
        arguments = [] if self.token else ["--insecure-no-auth"]
        limited = ["sh", "-c", f'ulimit -n {self.open_files} && exec "$@"', "sh"] if self.open_files else []
        with (self.folder / "serve.log").open("ab") as log:
            self.process = popen(
                [*limited, COMMAND, "serve", "--port", str(self.port), *arguments],
                cwd=self.folder,
                env=dict(self.environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        self.processes.append(self.process)
        if wait:
            self.wait_started()
        return self

    def wait_started(self) -> None:
        """Wait for the URL, which it prints, and until it answers there."""
        assert self.process is not None
        assert self.process.stdout is not None
        end, text = time.monotonic() + 300, b""
        while b"\n" not in text:
            readable, _, _ = select.select([self.process.stdout], [], [], max(0.0, end - time.monotonic()))
            assert readable, f"the service has printed no URL: {self.log}"
            piece = os.read(self.process.stdout.fileno(), 4096)
            assert piece, f"the service has ended: {self.log}"
            text += piece
        first, _, self.url = text.decode().splitlines()[0].rpartition(" ")
        assert first == "hostcore serves", text
        self.port = int(self.url.rpartition(":")[2])
        wait_until(self._answers, "an answer of /healthz")

    def _answers(self) -> bool:
        try:
            return self.request("GET", "/healthz").status == 200
        except urllib3.exceptions.HTTPError:
            return False

    def request(
        self,
        method: str,
        path: str,
        *,
        json: Any = None,
        body: bytes | Iterator[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
        token: str | None = "",
        timeout: float = 300,
    ) -> Answer:
        """Ask it something.

        :param token: Another token than the right one; None: none.
        :raises urllib3.exceptions.HTTPError: When it does not answer.
        """
        sent = dict(headers or {})
        if (given := self.token if token == "" else token) is not None:
            sent.setdefault("X-TRAINER-TOKEN", given)
        if json is not None:
            body = orjson.dumps(json)
            sent.setdefault("Content-Type", "application/json")
        answer = self.pool.request(method, self.url + path, body=body, headers=sent, timeout=timeout, redirect=False)
        return Answer(status=answer.status, headers=answer.headers, body=answer.data)

    def submit(self, *, headers: Mapping[str, str] | None = None, **keys: Any) -> dict[str, Any]:
        """Submit a job of the trainer ``tiny``, which has to be taken; the job."""
        answer = self.request("POST", "/v1/jobs", json=tiny_job(**keys), headers=headers)
        assert answer.status == 201, answer.body
        return answer.json

    def job(self, run_id: str) -> dict[str, Any]:
        answer = self.request("GET", f"/v1/jobs/{run_id}")
        assert answer.status == 200, answer.body
        return answer.json

    def wait_for(self, run_id: str, *statuses: str, step: int = 0, seconds: float = 300) -> dict[str, Any]:
        """Wait until a job has one of some statuses, and has come to a step; the job."""

        def reached() -> Any:
            job = self.job(run_id)
            has_come = step == 0 or ((job["run"] or {}).get("step") or 0) >= step
            return job if job["status"] in statuses and has_come else None

        return wait_until(reached, f"{run_id} to be {' or '.join(statuses)} at step {step}", seconds=seconds)

    def wait_ended(self, run_id: str, *, seconds: float = 300) -> dict[str, Any]:
        return self.wait_for(run_id, *ENDED, seconds=seconds)

    def kill(self) -> None:
        """Kill it (SIGKILL); the jobs that it has launched go on."""
        self._end(signal.SIGKILL)

    def stop(self, *, seconds: float = 300) -> int:
        """Ask it to end (SIGTERM); the exit code."""
        return self._end(signal.SIGTERM, seconds)

    def restart(self) -> "Server":
        """Start it again, at the same port, once it was ended."""
        if self.process is not None and self.process.poll() is None:
            self.stop()
        return self.start()

    def _end(self, number: signal.Signals, seconds: float = 300) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        code = self.process.wait(timeout=seconds)
        if self.process.stdout is not None:
            self.process.stdout.close()
        self.pool.clear()
        return code

    def clean_up(self) -> None:
        """End it, and the runs that a test has left."""
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.wait()
            if process.stdout is not None:
                process.stdout.close()
        self.pool.clear()
        for launch in self.runs.glob("*/config/launch.json"):
            _kill_launched(json.loads(launch.read_bytes()).get("handle") or {})


def _kill_launched(handle: Mapping[str, Any]) -> None:
    """The supervisor that ``local`` has started; its workers end when they find its pipe closed."""
    pid = handle.get("details", {}).get("pid")
    if pid and _is_a_run(pid):
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)


def _is_a_run(pid: int) -> bool:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        return b"hostcore" in command or b"fork_server" in command
    except OSError:
        return False


def codes(answer: Any) -> list[tuple[str, str | None]]:
    """The code and the place of everything that is wrong, of a response of the application in this process."""
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    problem = answer.json()
    assert problem["status"] == answer.status_code
    return [(error["code"], error["pointer"]) for error in problem["errors"]]


def at_once(count: int, call: Callable[[int], Any]) -> list[Any]:
    """Call something in many threads that begin together; what came back or was raised, in order."""
    barrier = threading.Barrier(count)

    def one(number: int) -> Any:
        barrier.wait()
        return call(number)

    with ThreadPoolExecutor(count) as threads:
        results = [threads.submit(one, number) for number in range(count)]
    return [result.exception() or result.result() for result in results]


def tiny_job(**keys: Any) -> dict[str, Any]:
    """A job that the service of the tests takes."""
    return {"trainer": "tiny", "device": "cpu", "max_steps": 3, "terminal": False, **keys}


def install(site: Path, distribution: str, modules: Iterable[Path], entry_points: Mapping[str, Any] = TINY) -> None:
    """Install a distribution into a folder of ``PYTHONPATH``, as pip would leave it."""
    info = site / f"{distribution.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    requires = "Requires-Dist: hostcore-hookspecs>=1,<2"
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n{requires}\n")
    groups = (
        f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in names.items()) for group, names in entry_points.items()
    )
    (info / "entry_points.txt").write_text("".join(groups))
    for module in modules:
        shutil.copy(module, site)


def server_in(
    folder: Path,
    site: Path,
    operator: str,
    *,
    token: str | None = TOKEN,
    kind: type[Server] = Server,
    open_files: int | None = None,
    **environment: str,
) -> Any:
    """Return a service that has not started, with its runs, ledger and operator's file in a folder.

    :param site: Where the plugins of the tests are installed.
    :param environment: More variables of its processes.
    """
    (folder / "ledger").mkdir(parents=True, exist_ok=True)
    (folder / "operator.toml").write_text(operator)
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("HOSTCORE_", "TRAINER_"))}
    own = {
        "PYTHONPATH": os.pathsep.join([str(site), *filter(None, [clean.get("PYTHONPATH")])]),
        "HOSTCORE_RUNS_DIR": str(folder / "runs"),
        "HOSTCORE_CONFIG": str(folder / "operator.toml"),
        "HOSTCORE_TEST_LEDGER": str(folder / "ledger"),
        **({"TRAINER_API_TOKEN": token} if token else {}),
    }
    return kind(folder=folder, environment={**clean, **own, **environment}, token=token, open_files=open_files)

"""The launcher ``ray`` against a server that answers as Ray's dashboard does."""

from __future__ import annotations

import json
import shlex
import socket
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import attrs
import pytest
from engine_runs import launch_context
from http_serving import serving

from hostcore_engines.keeper.folder import LaunchFolder
from hostcore_engines.ray.launcher import RayLauncher, token_for
from hostcore_engines.ray.settings import RaySettings, address_of
from hostcore_hookspecs import (
    FatalError,
    HostcoreError,
    LaunchContext,
    LaunchHandle,
    Resources,
    Secret,
    TransientError,
)

TOKEN = "the-token-of-the-cluster"
#: As Ray 2.60 answers.
JOB = {
    "type": "SUBMISSION",
    "job_id": None,
    "driver_info": None,
    "status": "PENDING",
    "entrypoint": "…",
    "message": "Job has not started yet.",
    "error_type": None,
    "start_time": 1795279486835,
    "end_time": None,
    "metadata": None,
    "runtime_env": None,
    "driver_agent_http_address": "http://192.0.2.2:52365",
    "driver_node_id": "0f",
    "driver_exit_code": None,
}
TWICE = (
    'Traceback (most recent call last):\n  File "job_head.py", line 1\nRuntimeError: Request failed with status code '
    "400: Traceback (most recent call last):\n  …\nValueError: Job with submission_id {} already exists. Please use a "
    "different submission_id.\n.\n"
)


class Dashboard(ThreadingHTTPServer):
    """Knows jobs, and what was asked of it."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.jobs: dict[str, dict[str, Any]] = {}
        self.logs: dict[str, str] = {}
        self.asked: list[tuple[str, str, Any]] = []
        #: Answered to everything, if it is there.
        self.always: tuple[int, str] | None = None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Answer(BaseHTTPRequestHandler):
    """One answer of the dashboard's."""

    server: Dashboard

    def do_GET(self) -> None:
        self._answer("GET", None)

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        self._answer("POST", json.loads(self.rfile.read(length)) if length else None)

    def _answer(self, method: str, body: Any) -> None:
        self.server.asked.append((method, self.path, body))
        status, text = self.server.always or self._of(method, body)
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _of(self, method: str, body: Any) -> tuple[int, str]:
        given = self.headers.get("Authorization")
        if given != f"Bearer {TOKEN}":
            said = "Forbidden: Invalid authentication token" if given else "Unauthorized: Missing authentication token"
            return (403 if given else 401), said
        _, _, _, name, *rest = [*self.path.split("/"), ""]
        if method == "POST" and not name:
            if body["submission_id"] in self.server.jobs:
                return 500, TWICE.format(body["submission_id"])
            self.server.jobs[body["submission_id"]] = {**JOB, "submission_id": body["submission_id"]}
            return 200, json.dumps({"job_id": body["submission_id"], "submission_id": body["submission_id"]})
        if name not in self.server.jobs:
            return 404, f"Job {name} does not exist"
        if rest[:1] == ["logs"]:
            return 200, json.dumps({"logs": self.server.logs.get(name, "")})
        if rest[:1] == ["stop"]:
            self.server.jobs[name]["status"] = "STOPPED"
            return 200, json.dumps({"stopped": True})
        return 200, json.dumps(self.server.jobs[name])

    def log_message(self, *_: Any) -> None:
        """Not to standard error."""


@pytest.fixture
def dashboard(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Dashboard]:
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_API_SERVER_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    server = Dashboard()
    with serving(server):
        yield server


@attrs.frozen
class Place:
    """A dashboard, a launcher of the tests' token, and a launch."""

    dashboard: Dashboard
    launcher: RayLauncher
    ctx: LaunchContext

    def asking(self, **resources: Any) -> LaunchContext:
        return attrs.evolve(self.ctx, job=attrs.evolve(self.ctx.job, resources=Resources(**resources)))

    @property
    def logs(self) -> Path:
        return Path(self.ctx.run_dir, "logs")

    def says(self, result: dict[str, Any]) -> None:
        """What the run leaves as its result."""
        Path(self.ctx.run_dir, "result.json").write_text(json.dumps(result))


def folder_of(handle: LaunchHandle) -> LaunchFolder:
    return LaunchFolder(Path(handle.details["folder"]))


@pytest.fixture
def place(dashboard: Dashboard, tmp_path: Path) -> Place:
    run_dir = tmp_path / "it's $HOME" / "run"
    run_dir.mkdir(parents=True)
    command = [sys.executable, "-P", "-m", "hostcore", "resume", str(run_dir), "--launched"]
    document = {"max_restarts": 2, "grace_seconds": 60}
    env = {"API_KEY": "a secret; $(exit 3)"}
    ctx = launch_context(run_dir, command, document=document, launch_id="run/1", env=env)
    launcher = RayLauncher(settings=RaySettings(address=f"{dashboard.address}/", token=Secret(TOKEN)))
    return Place(dashboard, launcher, ctx)


class TestWhatIsSubmitted:
    def test_is_one_line_that_a_shell_takes_apart_into_the_keeper(self, place: Place) -> None:
        handle = place.launcher.launch(
            place.asking(cpus_per_node=2, gpus_per_node=1, memory_per_node_gb=15 * 2**30 / 10**9)
        )
        (_, path, body) = place.dashboard.asked[-1]
        assert (path, body["submission_id"]) == ("/api/jobs/", "hostcore-run-1")
        assert body["metadata"] == {"run_id": "run", "launch_id": "run/1"}
        asked = [body[f"entrypoint_{name}"] for name in ("num_cpus", "num_gpus", "memory")]
        assert asked == [2, 1, 15 * 2**30]
        word, python, *rest = shlex.split(body["entrypoint"])
        assert (word, python, rest[:3]) == ("exec", sys.executable, ["-P", "-m", _KEEPER])
        assert rest[3:] == [handle.details["folder"], "0", "--tee", f"{place.ctx.run_dir}/logs/ray.0.log"]
        launch_spec = folder_of(handle).launch_spec()
        assert (launch_spec.command, launch_spec.agent) == (list(place.ctx.command), None)

    def test_shows_no_variable_of_the_job(self, place: Place) -> None:
        handle = place.launcher.launch(place.ctx)
        assert "a secret" not in json.dumps(place.dashboard.asked) + place.launcher.plan(place.ctx).document
        assert folder_of(handle).launch_spec().env == dict(place.ctx.env)

    def test_has_torchrun_for_several_ranks(self, place: Place) -> None:
        handle = place.launcher.launch(place.asking(gpus_per_node=4))
        agent = folder_of(handle).launch_spec().agent
        assert agent is not None
        assert (agent.ranks_per_node, agent.nodes, agent.max_restarts) == (4, 1, 2)
        assert list(agent.torchrun) == [sys.executable, "-P", "-m", "torch.distributed.run"]
        assert handle.details["agents"]

    def test_takes_nothing_itself_where_its_driver_places_several_nodes(self, place: Place) -> None:
        place.launcher.launch(place.asking(num_nodes=3, cpus_per_node=2, gpus_per_node=8))
        body = place.dashboard.asked[-1][2]
        assert not [key for key in body if key.startswith("entrypoint_")]
        words = shlex.split(body["entrypoint"])
        assert words[3:5] == ["-m", "hostcore_engines.ray.driver"]
        assert (words[6], json.loads(words[7])) == ("3", {"num_cpus": 2, "num_gpus": 8})

    def test_has_the_interpreter_and_the_runtime_env_of_the_settings(self, place: Place) -> None:
        settings = RaySettings(
            address=place.dashboard.address,
            token=Secret(TOKEN),
            python="/opt/py",
            runtime_env={"image_uri": "trainer:1"},
        )
        handle = RayLauncher(settings=settings).launch(place.ctx)
        body = place.dashboard.asked[-1][2]
        assert shlex.split(body["entrypoint"])[1] == "/opt/py"
        assert body["runtime_env"] == {"image_uri": "trainer:1"}
        assert folder_of(handle).launch_spec().command[0] == "/opt/py"

    def test_is_submitted_once_however_often_it_is_tried(self, place: Place) -> None:
        first = place.launcher.launch(place.ctx)
        place.says({"status": "succeeded", "exit_code": 0})
        assert place.launcher.launch(place.ctx) == first, "with what was there before the first try"
        assert [method for method, path, _ in place.dashboard.asked if path == "/api/jobs/"] == ["POST"]

    def test_is_found_when_ray_took_it_just_now(self, place: Place) -> None:
        api = place.launcher._api(place.dashboard.address)
        assert [api.submit({"entrypoint": "true", "submission_id": "x"}) for _ in range(2)] == [True, False]

    def test_is_said_before_and_nothing_is_asked_of_ray(self, place: Place) -> None:
        summaries = [
            place.launcher.plan(place.asking(**resources)).summary
            for resources in ({}, {"gpus_per_node": 8}, {"num_nodes": 2}, {"num_nodes": 2, "gpus_per_node": 8})
        ]
        cluster = f"a job of the Ray cluster at {place.dashboard.address}"
        assert summaries == [
            f"{cluster}, one node with one rank",
            f"{cluster}, one node with 8 ranks",
            f"{cluster}, 2 nodes with one rank each",
            f"{cluster}, 2 nodes with 8 ranks each",
        ]
        assert place.dashboard.asked == []


_KEEPER = "hostcore_engines.keeper"
EXPLODED = {"status": "failed", "exit_code": 1, "error": {"type": "ValueError", "message": "the loss has exploded"}}
RESULT = {"status": "preempted", "exit_code": 75, "reason": "received SIGTERM", "error": None}


class TestWhatItSays:
    @pytest.mark.parametrize(
        ("job", "result", "status", "code"),
        [
            ({"status": "PENDING"}, None, "submitted", None),
            ({"status": "RUNNING"}, None, "running", None),
            ({"status": "RUNNING"}, RESULT, "running", None),
            ({"status": "SUCCEEDED"}, {"status": "succeeded", "exit_code": 0}, "succeeded", 0),
            ({"status": "SUCCEEDED"}, None, "lost", None),
            ({"status": "STOPPED"}, None, "cancelled", None),
            ({"status": "STOPPED"}, RESULT, "preempted", 75),
            ({"status": "FAILED", "driver_exit_code": 3}, None, "failed", 3),
            ({"status": "FAILED", "driver_exit_code": 1}, EXPLODED, "failed", 1),
            ({"status": "FAILED", "driver_exit_code": 75}, RESULT, "preempted", 75),
            (None, None, "lost", None),
            (None, RESULT, "preempted", 75),
        ],
    )
    def test_is_told_as_what_it_means(
        self,
        place: Place,
        job: dict[str, Any] | None,
        result: dict[str, Any] | None,
        status: str,
        code: int | None,
    ) -> None:
        handle = place.launcher.launch(place.ctx)
        if result:
            place.says(result)
        if job is None:
            place.dashboard.jobs.clear()
        else:
            place.dashboard.jobs[handle.id].update(job)
        told = place.launcher.poll(LaunchHandle(**json.loads(json.dumps(attrs.asdict(handle)))))
        assert (told.status, told.exit_code) == (status, code)
        assert result is not EXPLODED or told.message == "the loss has exploded"

    def test_is_no_exit_code_of_the_run_where_torchrun_is_between(self, place: Place) -> None:
        handle = place.launcher.launch(place.asking(gpus_per_node=2))
        place.dashboard.jobs[handle.id].update(status="FAILED", driver_exit_code=1, message="entrypoint failed")
        told = place.launcher.poll(handle)
        assert (told.status, told.exit_code, told.message) == ("failed", None, "entrypoint failed")

    def test_is_read_on_where_it_was_left_without_a_file(self, place: Place) -> None:
        handle = place.launcher.launch(place.ctx)
        assert place.launcher.read_logs(handle, "").text == ""
        place.dashboard.logs[handle.id] = "Running entrypoint\nüber"
        first = place.launcher.read_logs(handle, "")
        place.dashboard.logs[handle.id] += "größe\n"
        place.logs.mkdir()
        (place.logs / "ray.0.log").write_text("übergröße\n")
        second = place.launcher.read_logs(handle, first.next)
        assert first.text + second.text == "Running entrypoint\nübergröße\n"
        assert place.launcher.read_logs(handle, second.next) == attrs.evolve(second, text="")
        assert place.launcher.read_logs(handle, "").text == "übergröße\n", "from the beginning, in the run directory"
        with pytest.raises(FatalError, match="no place in the log"):
            place.launcher.read_logs(handle, "ray:x")

    def test_of_several_nodes_is_that_of_all(self, place: Place) -> None:
        """Rank 0, which says what the run does, may be on any of them."""
        handle = place.launcher.launch(place.asking(num_nodes=2))
        place.logs.mkdir()
        (place.logs / "ray.1.log").write_text("of rank 0\n")
        first = place.launcher.read_logs(handle, "")
        (place.logs / "ray.0.log").write_text("of rank 1\n")
        assert first.text == "of rank 0\n"
        assert place.launcher.read_logs(handle, first.next).text == "of rank 1\n"


class TestCancelling:
    def test_stops_a_job_that_has_not_begun(self, place: Place) -> None:
        handle = place.launcher.launch(place.ctx)
        place.launcher.cancel(handle, 0.1)
        assert place.dashboard.asked[-2][1] == f"/api/jobs/{handle.id}/stop"
        assert place.launcher.poll(handle).status == "cancelled"
        assert folder_of(handle).cancelled() is not None, "should it begin all the same"

    @pytest.mark.parametrize("status", ["SUCCEEDED", "FAILED", "STOPPED", None])
    def test_leaves_what_has_ended_as_it_is(self, place: Place, status: str | None) -> None:
        handle = place.launcher.launch(place.ctx)
        if status:
            place.dashboard.jobs[handle.id]["status"] = status
        else:
            place.dashboard.jobs.clear()
        place.launcher.cancel(handle, 0.1)
        assert not [path for _, path, _ in place.dashboard.asked if path.endswith("/stop")]
        assert folder_of(handle).cancelled() is None


class TestADashboard:
    @pytest.mark.parametrize(
        ("answer", "kind", "pointer", "says"),
        [
            ((401, "Unauthorized: Missing authentication token"), FatalError, "/launcher/token", "401: Unauthorized"),
            ((403, "Forbidden: Invalid authentication token"), FatalError, "/launcher/token", "403: Forbidden"),
            ((404, "<h1>Not Found</h1>"), FatalError, "/launcher/address", "not Ray's job API"),
            ((200, "<html>welcome"), FatalError, "/launcher/address", "not Ray's job API"),
            ((302, ""), FatalError, "/launcher/address", "not Ray's job API"),
            ((500, "No available agent to submit job, please try again later."), TransientError, None, "No available"),
            ((503, ""), TransientError, None, "answered 503"),
            ((500, TWICE.replace("already exists", "is bad")), FatalError, None, "ValueError: Job with"),
        ],
    )
    def test_that_does_not_take_it_is_told_of_with_what_to_do(
        self,
        place: Place,
        answer: tuple[int, str],
        kind: type[HostcoreError],
        pointer: str | None,
        says: str,
    ) -> None:
        place.dashboard.always = answer
        with pytest.raises(kind, match=says) as caught:
            place.launcher.launch(place.ctx)
        assert caught.value.pointer == pointer

    def test_that_does_not_answer_may_later(self, place: Place) -> None:
        with socket.socket() as bound:  # nobody else gets its port, and it does not listen
            bound.bind(("127.0.0.1", 0))
            address = f"http://127.0.0.1:{bound.getsockname()[1]}"
            with pytest.raises(TransientError, match="does not answer") as caught:
                RayLauncher(settings=RaySettings(address=address, token=Secret("x"))).launch(place.ctx)
        assert caught.value.pointer == "/launcher/address"


class TestTheSettings:
    def test_find_the_token_where_ray_does(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HOME", str(tmp_path))
        assert token_for(None) is None
        (tmp_path / ".ray").mkdir()
        (tmp_path / ".ray" / "auth_token").write_text("of the home\n")
        assert token_for(None) == "of the home"
        (tmp_path / "elsewhere").write_text("of a file\n")
        monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "elsewhere"))
        assert token_for(None) == "of a file"
        monkeypatch.setenv("RAY_AUTH_TOKEN", "of a variable")
        assert token_for(None) == "of a variable"
        assert token_for(Secret("of the job")) == "of the job"
        monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
        assert token_for(None) is None

    def test_say_when_the_token_is_not_there(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
        monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
        monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "none"))
        with pytest.raises(FatalError, match="RAY_AUTH_TOKEN_PATH names a file that does not exist"):
            token_for(None)
        with pytest.raises(FatalError, match="no token of Ray's has"):
            token_for(Secret("two\nlines"))

    def test_find_the_address_where_ray_does(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("RAY_API_SERVER_ADDRESS", raising=False)
        assert address_of(RaySettings()) == "http://127.0.0.1:8265"
        monkeypatch.setenv("RAY_API_SERVER_ADDRESS", "https://ray.example/")
        assert address_of(RaySettings()) == "https://ray.example"
        assert address_of(RaySettings(address="http://head:1")) == "http://head:1"

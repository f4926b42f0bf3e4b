"""An engine, a store or a trainer that does not answer keeps nobody waiting but those that ask it."""

import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from fastapi.testclient import TestClient
from waiting import wait_until

from hostcore.plugins.describe import Description
from hostcore.runs.launch import Launch
from hostcore_hookspecs.launcher import LaunchHandle, LogChunk
from hostcore_hookspecs.plan import PluginRef
from hostcore_service.jobs import files, printing

#: More than there are threads for requests.
MANY = 50


class Hanging:
    """The launcher of all jobs, and their mirror: who asks either waits until the test lets go."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.asked: list[str] = []

    def read_logs(self, handle: LaunchHandle, since: str) -> LogChunk:
        self.go_on.wait()
        return LogChunk(text="", next=since)

    def artifacts(self) -> Iterator[Any]:
        self.go_on.wait()
        return iter(())

    def checkpoints(self) -> list[Any]:
        self.go_on.wait()
        return []

    def describe(self, kind: str, name: str, _: Any) -> Description:
        self.asked.append(name)
        self.go_on.wait()
        ref = PluginRef(kind=kind, name=name, value="tiny:Trainer")
        return Description(ref=ref, settings_schema={"properties": {"data": {"type": "string", "format": "place"}}})


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Hanging:
    made = Hanging()
    monkeypatch.setattr(printing, "launcher_for", lambda *_: made)
    monkeypatch.setattr(files, "_mirrored", lambda _: made)
    return made


def test_other_requests_are_answered_while_an_engine_or_a_store_is_silent(opened: Any, hanging: Hanging) -> None:
    directory = opened.job(handle=LaunchHandle(launcher="told", id="a.1"))
    Launch(attempt=1, submitted_ms=1, sees_run_dir=False).write(directory.launch)
    threads_of_calls = opened.app.state.streams.limiter(far=True)
    waiting = MANY - int(threads_of_calls.total_tokens)
    paths = list(itertools.islice(itertools.cycle(("logs", "artifacts", "checkpoints")), MANY))
    with ThreadPoolExecutor(MANY) as threads:
        asked = [threads.submit(opened.get, f"/v1/jobs/a/{path}") for path in paths]
        try:
            wait_until(lambda: threads_of_calls.statistics().tasks_waiting == waiting, "all of them to wait")
            assert [job["run_id"] for job in opened.get("/v1/jobs").json()["jobs"]] == ["a"]
        finally:
            hanging.go_on.set()
        assert [one.result().status_code for one in asked] == [200] * MANY


def train(client: TestClient, number: int, framework: str = "tiny") -> int:
    """Submit a job by the specification's words; the status."""
    places = {"checkpoint_base_uri": "s3://bucket/runs/", "dataset_uri": "s3://bucket/data/v1/"}
    request = {"framework": framework, "model_id": "tiny-1b", "run_id": f"run-{number}", **places}
    return int(client.post("/train", json=request).status_code)


def submit(client: TestClient, number: int, trainer: str = "tiny") -> int:
    """Submit a job whose trainer has to declare a setting as a place; the status."""
    job = {"trainer": trainer, "run_id": f"run-{number}", "max_steps": 1, "hyperparams": {"data": "s3://bucket/x"}}
    return int(client.post("/v1/jobs", json=job).status_code)


def test_other_requests_are_answered_while_a_trainer_is_asked_what_it_takes(
    client: Callable[..., TestClient], hanging: Hanging
) -> None:
    made = client(token=None, launcher="stuck", describe=hanging.describe)
    turns = made.app.state.service.admission.descriptions.turns.statistics  # type: ignore[attr-defined]
    routes = (train, submit)
    with ThreadPoolExecutor(MANY) as threads:
        submitted = [threads.submit(routes[number % 2], made, number) for number in range(MANY)]
        try:
            wait_until(lambda: turns().tasks_waiting == MANY - 1, "all of them to wait but the first")
            assert made.get("/v1/jobs").json()["jobs"] == []
        finally:
            hanging.go_on.set()
        assert [one.result() for one in submitted] == [201] * MANY
    spellings = ("tiny-trainer/tiny", "Tiny_Trainer/tiny", "tiny.-_trainer/tiny")
    for number, (send, framework) in enumerate(itertools.product(routes, spellings), MANY):
        assert send(made, number, framework) == 201
    assert hanging.asked == ["tiny", "tiny-trainer/tiny"], "each is asked once, however it is spelled"

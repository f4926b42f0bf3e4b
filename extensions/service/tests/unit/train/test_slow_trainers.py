"""A trainer that takes long to be imported keeps nobody waiting but those that name it."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fastapi.testclient import TestClient
from waiting import wait_until

from hostcore.plugins.describe import Description
from hostcore_hookspecs.plan import PluginRef
from hostcore_service.app import make_app
from hostcore_service.train.trainers import Trainers

#: More than there are threads for requests.
MANY = 50


def test_other_requests_are_answered_while_a_trainer_is_asked(service_here: Callable[..., Any]) -> None:
    app = make_app(service_here(launcher="stuck"))
    asked: list[str] = []
    done = threading.Event()

    def ask(name: str, _: Any) -> Description:
        asked.append(name)
        done.wait()
        return Description(ref=PluginRef(kind="trainer", name=name, value="tiny:Trainer"))

    app.state.trainers = Trainers(ask)
    turns = app.state.trainers.turns.statistics
    with TestClient(app, base_url="http://127.0.0.1") as client, ThreadPoolExecutor(MANY) as threads:

        def train(number: int) -> int:
            return client.post("/train", json=request(number)).status_code

        submitted = [threads.submit(train, number) for number in range(MANY)]
        try:
            wait_until(lambda: turns().tasks_waiting == MANY - 1, "all of them to wait but the first")
            assert client.get("/v1/jobs").json()["jobs"] == []
        finally:
            done.set()
        assert [one.result() for one in submitted] == [201] * MANY
    assert asked == ["tiny"]


def request(number: int) -> dict[str, Any]:
    return {
        "framework": "tiny",
        "model_id": "tiny-1b",
        "run_id": f"run-{number}",
        "checkpoint_base_uri": "s3://bucket/runs/",
        "dataset_uri": "s3://bucket/data/v1/",
    }


def test_a_trainer_is_asked_once_however_its_distribution_is_spelled(service_here: Callable[..., Any]) -> None:
    app = make_app(service_here(launcher="stuck"))
    asked: list[str] = []

    def ask(name: str, _: Any) -> Description:
        asked.append(name)
        return Description(ref=PluginRef(kind="trainer", name=name, value="tiny:Trainer"))

    app.state.trainers = Trainers(ask)
    with TestClient(app, base_url="http://127.0.0.1") as client:
        for number, trainer in enumerate(("tiny-trainer/tiny", "Tiny_Trainer/tiny", "tiny.-_trainer/tiny")):
            answer = client.post("/train", json={**request(number), "framework": trainer})
            assert answer.status_code == 201, answer.text
    assert asked == ["tiny-trainer/tiny"]

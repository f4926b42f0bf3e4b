"""A service that is killed at random moments: whatever it has acknowledged is launched once, and ends."""

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import urllib3
from served import at_once
from thoroughness import points

#: At most: on a machine on which the service takes long to start, it would hardly ever be there.
MOST_KILLS = points(12, long=40)
JOB = {"trainer": "tiny", "device": "cpu", "max_steps": 3, "terminal": False}


@contextmanager
def killed_at_random(server: Any, rng: random.Random, *, seconds: float) -> Iterator[None]:
    """Kill a service and start it again, many times or until the block is left."""
    over = threading.Event()
    kills = []

    def kill() -> None:
        while not over.wait(rng.uniform(0, seconds)) and len(kills) < MOST_KILLS:
            server.kill()
            kills.append(1)
            server.start(wait=rng.random() < 0.7)
            # Killed before it has printed its URL now and then, but not always.

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        server.kill()
        server.start()
        print("killed", len(kills) + 1, "times")


def persistently(send: Callable[[], Any]) -> Any:
    """The answer of a service that is not always there."""
    end = time.monotonic() + 600
    while time.monotonic() < end:
        try:
            return send()
        except urllib3.exceptions.HTTPError:
            time.sleep(0.05)
    raise AssertionError("no answer")


def test_one_key_from_fifty_clients_makes_one_job_and_one_launch(make_server: Any, seed: int) -> None:
    server = make_server(launcher="instant")
    answers: list[Any] = []

    def client(_number: int) -> None:
        headers = {"Idempotency-Key": "the-only-one"}
        for _ in range(20):
            answers.append(persistently(lambda: server.request("POST", "/v1/jobs", json=JOB, headers=headers)))

    with killed_at_random(server, random.Random(seed), seconds=0.6):
        assert at_once(50, client) == [None] * 50

    assert {answer.status for answer in answers} == {201}
    assert len(answers) == 1000
    (run_id,) = {answer.json["run_id"] for answer in answers}
    assert server.wait_ended(run_id)["status"] == "succeeded"
    assert [job["run_id"] for job in server.request("GET", "/v1/jobs").json["jobs"]] == [run_id]
    assert len(server.launched) == 1
    assert len(set(server.noted("calls"))) == 1
    assert [path.name for path in server.runs.iterdir() if path.name != ".service"] == [run_id]


def test_every_acknowledged_job_is_launched_once_and_ends(make_server: Any, until: Any, seed: int) -> None:
    server = make_server(launcher="instant")
    acknowledged: dict[str, None] = {}

    def client(number: int) -> None:
        for turn in range(25):
            run_id = f"job-{number}-{turn}"
            answer = persistently(lambda: server.request("POST", "/v1/jobs", json={**JOB, "run_id": run_id}))  # noqa: B023
            # 409: it was recorded, and the answer got lost.
            assert answer.status in (201, 409), answer.body
            acknowledged[run_id] = None

    with killed_at_random(server, random.Random(seed), seconds=0.6):
        assert at_once(8, client) == [None] * 8

    assert len(acknowledged) == 200

    def ended() -> bool:
        jobs = server.request("GET", "/v1/jobs?limit=500").json["jobs"]
        assert {job["run_id"] for job in jobs} == set(acknowledged)
        assert {job["status"] for job in jobs} <= {"submitted", "running", "succeeded"}, jobs
        return all(job["status"] == "succeeded" for job in jobs)

    until(ended, "all jobs to end")
    launched = [launch_id.rpartition(".")[0] for launch_id in server.launched]
    assert sorted(launched) == sorted(acknowledged)
    assert len(set(server.noted("calls"))) == 200


def test_a_real_run_goes_on_in_one_attempt_however_often_its_service_is_killed(make_server: Any, seed: int) -> None:
    server = make_server()
    rng = random.Random(seed)
    job = {**JOB, "run_id": "a", "max_steps": 40, "hyperparams": {"until": "go-on"}}
    server.request("POST", "/v1/jobs", json=job)
    for _ in range(10):
        time.sleep(rng.uniform(0, 0.6))
        server.kill()
        server.start(wait=rng.random() < 0.5)
    server.kill()
    (server.ledger / "go-on").touch()  # so it was not over before
    server.start()
    ended = server.wait_ended("a")

    assert (ended["status"], ended["attempt"], ended["step"], ended["launches"]) == ("succeeded", 1, 40, 1)
    assert [path.name for path in (server.runs / "a" / "attempts").iterdir()] == ["1.json"]
    assert len(list((server.runs / "a" / "config").glob("started.*"))) == 1

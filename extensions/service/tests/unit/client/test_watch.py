"""Watching a job of a service outlives what another try would change."""

import itertools
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

from hostcore.job.spec import JobSpec
from hostcore.runs.result import RunResult
from hostcore.supervisor.interrupts import Asked, Interrupts
from hostcore_service.client.jobs import RemoteJob, RemoteJobs
from hostcore_service.client.watch import SubmittedJob

PROBLEM = {"Content-Type": "application/problem+json", "Retry-After": "5"}
AWAY = json.dumps({"errors": [{"code": "service.database", "detail": "the database is away"}]}).encode()
SSE = {"Content-Type": "text/event-stream"}
NO_RESULT = b'{"errors": [{"code": "file.unknown", "detail": "no result"}]}'
END = b'event: end\ndata: {"status":"succeeded"}\n\n'


class Impatient(SubmittedJob):
    retry_seconds = 0.0


def follow(server: Any, interrupts: Interrupts | None = None, **more: Any) -> RunResult:
    """Follow a job that was submitted before, by the client of a service."""
    submitted = RemoteJob(run_id="a", status="submitted", trainer="tiny", submitted_ms=1)
    spec = JobSpec(trainer="tiny", max_steps=1, terminal=False)
    run = Impatient(RemoteJobs(server.client()), submitted, spec, after_attempt=0, **more)
    return run.follow(interrupts or Interrupts())


def job(status: str, **more: Any) -> bytes:
    return json.dumps({"run_id": "a", "status": status, "trainer": "tiny", "submitted_ms": 1, **more}).encode()


def test_the_end_of_a_job_is_learned_although_the_database_was_away(script: Callable, answer: Any) -> None:
    server = script(
        answer(body=END, headers=SSE),
        answer(status=503, headers=PROBLEM, body=AWAY),
        answer(status=429, headers=PROBLEM, body=AWAY),
        answer(cut=True),
        answer(body=job("succeeded")),
        answer(status=404, headers=PROBLEM, body=NO_RESULT),
    )
    ended = follow(server)
    assert ended.status == "succeeded"
    assert [line.partition(";")[0] for line in server.told] == ["the database is away", f"{server.url} answers again"]
    assert server.slept[:2] == [5, 5], "as the service has asked"


def test_a_job_that_waits_is_followed_although_the_question_why_has_no_answer(
    script: Callable, answer: Any, capsys: pytest.CaptureFixture
) -> None:
    told, looks = threading.Event(), itertools.count()

    def answer_to(asked: Any) -> Any:
        if asked.path.endswith("/events"):
            return answer(body=END, headers=SSE, after=told)
        if asked.path.endswith("/result.json"):
            return answer(status=404, headers=PROBLEM, body=NO_RESULT)
        if (look := next(looks)) < 2:
            return answer(status=503 if look else 429, headers=PROBLEM, body=AWAY)
        if look == 2:
            return answer(body=job("submitted", detail="the queue is long"))
        told.set()
        return answer(body=job("succeeded"))

    server, minutes = script(answer_to), itertools.count(step=60)
    assert follow(server, clock=lambda: float(next(minutes))).status == "succeeded"
    assert capsys.readouterr().err == "a  submitted: the queue is long\n"
    assert server.told == []


def test_ctrl_c_reaches_a_service_that_was_away(script: Callable, answer: Any, capsys: pytest.CaptureFixture) -> None:
    stopped, cancels = threading.Event(), itertools.count()

    def answer_to(asked: Any) -> Any:
        if asked.path.endswith("/events"):
            return answer(body=END, headers=SSE, after=stopped)
        if asked.path.endswith("/result.json"):
            return answer(status=404, headers=PROBLEM, body=NO_RESULT)
        if asked.path.endswith(":cancel"):
            if next(cancels) < 2:
                return answer(status=503, headers=PROBLEM, body=AWAY)
            stopped.set()
        return answer(body=job("cancelled"))

    server, interrupts = script(answer_to), Interrupts()
    wish = Asked(status="cancelled", reason="interrupted by the user", requested_by="user")
    interrupts.hear(wish, hurried=False, forced=False)
    ended = follow(server, interrupts)
    assert ended.status == "cancelled"
    reasons = [json.loads(one.body) for one in server.asked if one.path.endswith(":cancel")]
    assert reasons == [{"reason": "interrupted by the user"}] * 3
    assert capsys.readouterr().err.splitlines() == [
        "a  cannot be asked to stop yet: the database is away; trying again",
        "a  is asked to stop; Ctrl-C once more ends the waiting, not the request",
    ]


@pytest.mark.parametrize("command", [["status", "-f"], ["cancel"]], ids=["status", "cancel"])
def test_waiting_for_the_end_outlives_a_service_that_is_away_for_longer_than_a_request_is_tried(
    script: Callable, answer: Any, ask: Callable, command: list[str]
) -> None:
    alive = [answer(body=job("running"))] * (1 if command[0] == "status" else 2)
    result = answer(status=404, headers=PROBLEM, body=NO_RESULT)
    server = script(*alive, *[answer(status=503)] * 20, answer(body=job("succeeded")), result)
    assert ask(server, *command, "a", "--json").json["status"] == "succeeded"
    assert len(server.told) == 2, "that it is away, and that it is back"

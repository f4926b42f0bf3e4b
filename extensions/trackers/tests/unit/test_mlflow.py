"""What needs no server of MLflow's: which calls are made, and what answers mean.

``extensions/trackers/tests/e2e`` has the real one.
"""

from collections.abc import Callable
from typing import Any

import attrs
import pytest
from waiting import wait_until

from hostcore_hookspecs import Job, Secret, TransientError
from hostcore_hookspecs.events import Metrics
from hostcore_trackers.mlflow import MlflowReporter

Course = Any
MakeCourse = Callable[..., Course]
Receiver = Any
Answer = Callable[..., Any]

EXPERIMENT = b'{"experiment": {"experiment_id": "7", "lifecycle_stage": "active"}}'
RUN = b'{"runs": [{"info": {"run_id": "abc"}}]}'
KNOWN = b'{"run": {"data": {"params": []}}}'


def opened(run: Course, receiver: Receiver, **settings: Any) -> MlflowReporter:
    uri = receiver.url.removesuffix("/hook")
    reporter = MlflowReporter(settings=MlflowReporter.Settings(tracking_uri=uri, **settings))
    reporter.open(run.ctx())
    return reporter


def paths(receiver: Receiver) -> list[str]:
    return [request.path.partition("?")[0].removeprefix("/api/2.0/mlflow/") for request in receiver.requests]


def test_a_run_is_looked_for_once_and_each_event_is_sent_by_itself(
    course: MakeCourse, receiver: Receiver, answer: Answer
) -> None:
    run = course(job=Job(trainer="flights"))
    receiver.answers += [answer(body=body) for body in (EXPERIMENT, RUN, KNOWN, b"{}", b"{}", b"{}")]
    reporter = opened(run, receiver, token=Secret("t0ken"))
    for step in (1, 2):
        reporter.report_event(run.tell(Metrics(metrics={"train/loss": 0.5, "bad": None}), step=step))
    assert paths(receiver) == [
        "experiments/get-by-name", "runs/search", "runs/get", "runs/log-batch", "runs/log-batch", "runs/log-batch",
    ]  # fmt: skip
    assert "experiment_name=flights" in receiver.requests[0].path
    assert receiver.requests[-1].json == {
        "run_id": "abc",
        "metrics": [
            {"key": "train/loss", "value": 0.5, "timestamp": 1_700_000_001_000, "step": 2},
            {"key": "bad", "value": "NaN", "timestamp": 1_700_000_001_000, "step": 2},
        ],
    }
    assert {request.headers["authorization"] for request in receiver.requests} == {"Bearer t0ken"}


def test_more_metrics_than_a_request_takes_are_several_requests(
    course: MakeCourse, receiver: Receiver, answer: Answer
) -> None:
    run = course()
    receiver.answers += [answer(body=body) for body in (EXPERIMENT, RUN, KNOWN)] + [answer(body=b"{}")] * 9
    metrics: dict[str, float | None] = {f"m{index}": 1.0 for index in range(2500)}
    opened(run, receiver).report_event(run.tell(Metrics(metrics=metrics), step=1))
    batches = [request.json["metrics"] for request in receiver.requests if b'"metrics"' in request.body]
    assert [len(batch) for batch in batches] == [1000, 1000, 500]


@pytest.mark.parametrize("status", [429, 500, 503])
def test_what_may_pass_is_transient(status: int, course: MakeCourse, receiver: Receiver, answer: Answer) -> None:
    run = course()
    receiver.answers.append(
        answer(status=status, headers={"Retry-After": "17"}, body=b'{"error_code": "BUSY", "message": "busy"}')
    )
    with pytest.raises(TransientError, match=f"answered {status} to experiments/get-by-name: busy") as caught:
        opened(run, receiver).report_event(run.tell(Metrics(metrics={"train/loss": 1.0}), step=1))
    assert caught.value.retry_after_seconds == 17
    assert len(receiver.requests) == 1  # trying again is the host's business


def test_no_answer_is_transient_after_the_timeout(course: MakeCourse, receiver: Receiver) -> None:
    run = course()
    receiver.may_answer.clear()
    with pytest.raises(TransientError, match="cannot reach the MLflow server"):
        opened(run, receiver, timeout_seconds=0.2).report_event(run.tell(Metrics(metrics={"a": 1.0}), step=1))
    wait_until(lambda: receiver.requests, "the server to have read it")
    assert len(receiver.requests) == 1


@pytest.mark.parametrize("body", [b"<html>", b"[1]"])
def test_an_answer_that_is_not_mlflows_is_an_error(
    body: bytes, course: MakeCourse, receiver: Receiver, answer: Answer
) -> None:
    run = course()
    receiver.answers.append(answer(body=body))
    with pytest.raises(TransientError, match="is not from MLflow"):
        opened(run, receiver).report_event(run.tell(Metrics(metrics={"a": 1.0}), step=1))


def test_a_value_that_mlflow_refuses_costs_that_value_and_a_warning(
    course: MakeCourse, receiver: Receiver, answer: Answer
) -> None:
    run, warnings = course(), []
    refused = answer(status=400, body=b'{"error_code": "INVALID_PARAMETER_VALUE", "message": "no such number"}')
    taken = answer(body=b"{}")
    receiver.answers += [answer(body=body) for body in (EXPERIMENT, RUN, KNOWN, b"{}")]
    reporter = opened(run, receiver)
    reporter.open(attrs.evolve(run.ctx(), warn=warnings.append))
    receiver.answers += [refused, taken, refused, taken, taken]  # after each, whether the run itself is refused
    reporter.report_event(run.tell(Metrics(metrics={"a": 1.0, "b": 2.0, "c": 3.0}), step=1))
    sent = [[one["key"] for one in request.json.get("metrics", ())] for request in receiver.requests[4:]]
    assert sent == [["a", "b", "c"], [], ["a"], [], ["b", "c"]]
    assert len(warnings) == 1
    assert "is not in MLflow" in warnings[0]
    assert "no such number" in warnings[0]

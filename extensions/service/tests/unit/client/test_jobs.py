"""Requests whose answer is lost: they are sent again, and the service knows them by what they say."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hostcore_service.client.jobs import RemoteJob, RemoteJobs

JOB = {"run_id": "a", "status": "failed", "trainer": "tiny", "submitted_ms": 1, "launches": 3}


def test_a_job_is_resumed_once_however_often_that_is_sent(script: Callable, answer: Any) -> None:
    again = json.dumps({**JOB, "status": "submitted", "launches": 4}).encode()
    server = script(answer(cut=True), answer(body=again))
    assert RemoteJobs(server.client()).resume(RemoteJob(**JOB)).launches == 4
    assert [one.path for one in server.asked] == ["/v1/jobs/a:resume"] * 2
    assert [json.loads(one.body) for one in server.asked] == [{"launches": 3}] * 2, "the service knows it by that"


def test_a_job_is_submitted_with_one_key_however_often_that_is_sent(
    script: Callable, answer: Any, ask: Callable, tmp_path: Path
) -> None:
    """Its run id is made by the service, so that nothing but the key tells two requests from one."""
    (tmp_path / "job.json").write_text('{"trainer": "tiny", "max_steps": 1}')
    recorded = json.dumps({**JOB, "status": "submitted"}).encode()
    server = script(answer(cut=True), answer(cut=True), answer(status=201, body=recorded))
    said = ask(server, "run", str(tmp_path / "job.json"), "--detach", "--json")
    assert (said.code, said.json["run_id"]) == (0, "a"), said.err
    assert [one.path for one in server.asked] == ["/v1/jobs"] * 3
    assert len({one.headers["Idempotency-Key"] for one in server.asked}) == 1
    assert len(server.told) == 1, "people are told once"

"""Jobs of a service as commands ask for them."""

import json
from collections.abc import Callable
from typing import Any

from hostcore_service.client.jobs import RemoteJob, RemoteJobs


def test_a_job_is_resumed_once_however_often_that_is_sent(script: Callable, answer: Any) -> None:
    job = {"run_id": "a", "status": "failed", "trainer": "tiny", "submitted_ms": 1, "launches": 3}
    again = json.dumps({**job, "status": "submitted", "launches": 4}).encode()
    server = script(answer(cut=True), answer(body=again))
    assert RemoteJobs(server.client()).resume(RemoteJob(**job)).launches == 4
    assert [one.path for one in server.asked] == ["/v1/jobs/a:resume"] * 2
    assert [json.loads(one.body) for one in server.asked] == [{"launches": 3}] * 2, "the service knows it by that"

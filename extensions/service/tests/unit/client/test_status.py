"""``hostcore status`` and ``hostcore plugins`` of a service: what it answers, as tables."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from hostcore.cli.status_lines import page_of
from hostcore_service.client.jobs import RemoteJob
from hostcore_service.client.status import status_of

JOB = {"run_id": "a", "status": "running", "trainer": "tiny", "submitted_ms": 1}


@pytest.mark.parametrize("engine", ["4711", None])
def test_the_name_that_the_engine_has_for_a_job_is_shown_where_it_is_known(engine: str | None) -> None:
    page = page_of(
        status_of(RemoteJob(**JOB, launcher="slurm", engine_id=engine), "http://service.example"), verbose=False
    )
    lines = [line.split() for line in page.splitlines()]
    assert [line for line in lines if line[:1] == ["engine"]] == ([["engine", "slurm:", "4711"]] if engine else [])


@pytest.mark.parametrize("status", ["failed", "running"])
@pytest.mark.parametrize("checkpoints", [0, 1])
def test_what_can_go_on_comes_with_the_command(status: str, checkpoints: int) -> None:
    saved = {"step": 2, "epoch": 0, "bytes": 1, "attempt": 1, "saved_ms": 2, "final": False}
    job = RemoteJob(**{**JOB, "status": status}, run={"checkpoints": [saved] * checkpoints})
    page = page_of(status_of(job, "http://service.example"), verbose=False)
    goes_on = "  to go on    hostcore resume a --server http://service.example" in page.splitlines()
    assert goes_on is (status == "failed" and bool(checkpoints))


@pytest.mark.parametrize(
    ("certified", "failed", "version", "cell"),
    [
        (True, 0, "1.0", "certified"),
        (False, 2, "1.0", "2 failed"),
        (False, 0, "0.9", "3 passed (of 0.9)"),
        (None, 0, None, "-"),
    ],
)
def test_a_conformance_report_of_a_service_reads_as_one_of_this_machine(
    script: Callable,
    answer: Any,
    ask: Callable,
    certified: bool | None,
    failed: int,
    version: str,
    cell: str,
) -> None:
    made = {"hostcore": "0.1.0", "api_version": "1.0.0", "python": "3.11", "created_ms": 1}
    report = {"certified": certified, "summary": {"passed": 3, "failed": failed}, "version": version, **made}
    plugin = {"kind": "trainer", "name": "mine", "value": "mine:T", "distribution": "mine", "version": "1.0"}
    conformance = None if certified is None else {**report, "failures": [{"id": "x"}], "is_of_installed_version": True}
    server = script(
        answer(body=json.dumps({"plugins": [{**plugin, "conformance": conformance}], "broken": []}).encode())
    )
    assert re.split(r"  +", ask(server, "plugins").out.splitlines()[1])[3] == cell


def test_a_report_that_is_none_is_no_answer_of_a_service(script: Callable, answer: Any, ask: Callable) -> None:
    plugin = {
        "kind": "trainer",
        "name": "mine",
        "value": "m:T",
        "distribution": "mine",
        "version": "1",
        "conformance": {},
    }
    server = script(answer(body=json.dumps({"plugins": [plugin], "broken": []}).encode()))
    assert ask(server, "plugins", "--json").json["errors"][0]["code"] == "service.foreign"

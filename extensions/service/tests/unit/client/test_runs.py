"""What commands make of the answers of a service about its runs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

JOB = {"run_id": "a", "status": "running", "trainer": "tiny", "submitted_ms": 1, "attempt": 1}
NDJSON = {"Content-Type": "application/x-ndjson"}
SSE = {"Content-Type": "text/event-stream"}


@pytest.fixture
def job(tmp_path: Path) -> str:
    """A job file."""
    path = tmp_path / "job.json"
    path.write_text('{"trainer": "tiny", "max_steps": 1}')
    return str(path)


def test_what_a_service_cannot_have_found_is_no_answer_of_one(
    script: Callable, answer: Any, ask: Callable, job: str
) -> None:
    launch = {"summary": "", "document": ""}
    foreign: list[tuple[dict[str, Any], list[str]]] = [
        ({"jobs": [{**JOB, "used": [{"attempt": "two"}]}], "next": None}, ["list", "--plugin", "tiny"])
    ]
    for checked in ({}, {"devices": ["cpu"]}):  # without what is printed
        plan = {"plugins": [], "checked": checked, "unchecked": [], "launch": launch}
        foreign.append(({"job": {"trainer": "tiny", "max_steps": 1}, "plan": plan}, ["validate", job]))
    for body, command in foreign:
        said = ask(script(answer(body=json.dumps(body).encode())), *command, "--json")
        assert (said.code, said.json["errors"][0]["code"]) == (2, "service.foreign")


def test_a_job_that_could_not_be_checked_is_valid_as_far_as_that_goes(
    script: Callable, answer: Any, ask: Callable, job: str
) -> None:
    plugins = [{"kind": "trainer", "name": "tiny", "distribution": "told", "version": "1.0"}]
    launch = {"summary": "", "document": ""}
    plan = {"plugins": plugins, "checked": None, "unchecked": ["the trainer is not installed here"], "launch": launch}
    found = {"job": {"trainer": "tiny", "max_steps": 1, "run_id": "a"}, "plan": plan}
    server = script(answer(body=json.dumps(found).encode()))
    said = ask(server, "validate", job)
    lines = [" ".join(line.split()) for line in said.out.splitlines()]
    assert lines == ["valid a", f"run new, at {server.url}", "trainer tiny (told 1.0)"]
    assert said.err == "warning: unchecked: the trainer is not installed here\n"


def test_a_line_without_an_end_is_shown_below_the_last_lines(script: Callable, answer: Any, ask: Callable) -> None:
    server = script(
        answer(body=json.dumps(JOB).encode()),
        answer(body=b'{"text":"one\\ntwo\\nno e","next":"1"}\n{"text":"nd","next":"2"}\n', headers=NDJSON),
    )
    assert ask(server, "logs", "a", "--output", "-n", "1").out == "two\nno end\n"


def test_what_is_printed_meanwhile_goes_on_with_the_line_that_had_no_end(
    script: Callable, answer: Any, ask: Callable
) -> None:
    server = script(
        answer(body=json.dumps(JOB).encode()),
        answer(body=b'{"text":"one\\nno e","next":"1"}\n', headers=NDJSON),
        answer(body=b'data: {"text":"nd\\n","next":"2"}\n\nevent: end\ndata: {"status":"failed"}\n\n', headers=SSE),
    )
    said = ask(server, "logs", "a", "--output", "-f")
    assert (said.code, said.out, said.err) == (0, "one\nno end\n", "")


@pytest.mark.parametrize("detail", ["its node is gone", ""])
def test_a_run_that_was_followed_and_is_lost_is_a_failure(
    script: Callable, answer: Any, ask: Callable, detail: str
) -> None:
    server = script(
        answer(body=json.dumps(JOB).encode()),
        answer(body=b"", headers=NDJSON),
        answer(body=b'event: end\ndata: {"status":"lost"}\n\n', headers=SSE),
        answer(body=json.dumps({**JOB, "status": "lost", "detail": detail}).encode()),
    )
    said = ask(server, "logs", "a", "-f")
    assert (said.code, said.out) == (1, "")
    assert said.err == f"error: a is lost: {detail or 'what has become of it is unknown'}\n"


USED = {
    "attempt": 2,
    "plugins": [{"kind": "trainer", "name": "tiny", "distribution": "told", "version": "1.0", "sha256": None}],
    "data": None,
}


def test_what_runs_used_is_asked_of_the_service_and_shown_as_of_runs_here(
    script: Callable, answer: Any, ask: Callable
) -> None:
    page = {"jobs": [{**JOB, "used": [USED]}], "next": "more", "unknown": 3}
    rest = {"jobs": [{**JOB, "run_id": "b", "used": [USED]}], "next": None, "unknown": None}
    server = script(*[answer(body=json.dumps(one).encode()) for one in (page, rest)])
    said = ask(server, "list", "--plugin", "tiny<2", "--distribution", "told", "--data", "ABABABAB", "--json")
    assert [one["run_id"] for one in said.json["runs"]] == ["a", "b"]
    assert (said.json["runs"][0]["used"], said.json["unknown"]) == ([USED], 3)
    assert "3 runs do not say" in said.err
    for asked in ("plugin=tiny%3C2", "distribution=told", "data=abababab"):
        assert asked in server.asked[0].path

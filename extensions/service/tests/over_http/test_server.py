"""A real service, from its start to its end."""

import os
import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import urllib3
from fork_server import ran


def test_the_token_is_in_no_launched_process_no_log_and_no_answer(make_server: Any, until: Any) -> None:
    server = make_server(PYTHONHASHSEED="0")  # interpreters of their own: a fork shows another's environment
    server.request("GET", f"/v1/jobs/{server.token}")
    server.submit(run_id="a", max_steps=10**6, hyperparams={"seconds": 0.02})
    job = server.wait_for("a", "running")
    until(lambda: list(server.runs.glob("a/logs/rank-*.jsonl")), "a worker that trains")
    supervisor = int(next(server.runs.glob("a/config/started.*")).read_text())
    processes = [supervisor, *_children(supervisor)]
    assert len(processes) > 1
    for pid in processes:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
        assert b"HOSTCORE_RUNS_DIR" in environment
        assert b"TRAINER_API_TOKEN" not in environment
        assert server.token.encode() not in environment
    server.request("POST", "/v1/jobs/a:cancel")
    server.wait_ended("a")
    server.stop()

    assert server.token not in str(job)
    assert "/v1/jobs/********" in server.log
    for path in server.runs.rglob("*"):
        assert path.is_dir() or server.token.encode() not in path.read_bytes(), path
    assert server.token not in server.log


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_no_answer_names_a_place_of_the_service(make_server: Any, until: Any) -> None:
    server = make_server()
    asked = [
        server.request("POST", "/v1/jobs", json={"trainer": "tiny", "dataset": {"parquet_paths": "/none/x"}}),
        server.request("POST", "/v1/jobs", json={"trainer": "none", "max_steps": 3}),
    ]
    for name in ("refusing", "broken"):
        server.submit(run_id=name, launcher=name)
        server.wait_ended(name)
    server.submit(run_id="killed", max_steps=10**6, hyperparams={"seconds": 0.02})
    started = until(lambda: list(server.runs.glob("killed/config/started.*")), "the supervisor to begin")[0]
    os.kill(int(until(started.read_text, "its number")), signal.SIGKILL)
    killed = server.wait_ended("killed")
    server.submit(run_id="failing", hyperparams={"no_such": 1})
    server.wait_ended("failing")
    for run_id in ("refusing", "broken", "killed", "failing"):
        asked += [server.request("GET", f"/v1/jobs/{run_id}"), server.request("GET", f"/train/{run_id}")]
    asked.append(server.request("GET", "/v1/jobs"))

    assert "killed/logs/supervisor.log" in killed["detail"]
    for place in (str(server.folder), sys.prefix):
        assert [one.body for one in asked if place in one.body.decode()] == []


def test_a_service_ends_with_streams_open_and_launches_under_way_and_loses_nothing(
    make_server: Any, until: Any
) -> None:
    server = make_server(launcher="slow", launchers="slow = { until_go = true }")
    for number in range(12):  # more than are launched at once
        server.submit(run_id=f"job-{number}")
    until(lambda: len(server.noted("calls")) == 8, "eight launches to begin")
    told: list[bytes] = []
    streams = [
        threading.Thread(target=_follow, args=(server, f"job-0/{what}", told)) for what in ("events", "logs", "events")
    ]
    for stream in streams:
        stream.start()
    assert server.stop() == 0
    for stream in streams:
        stream.join()

    assert not [text for text in told if b"event: end" in text], "the job goes on"
    assert "Traceback" not in server.log
    (server.ledger / "go").touch()
    server.restart()
    for number in range(12):
        assert server.wait_ended(f"job-{number}")["status"] == "succeeded"
    assert sorted(set(server.noted("calls"))) == sorted(server.launched)
    assert len(server.launched) == 12


def _follow(server: Any, what: str, told: list[bytes]) -> None:
    with suppress(urllib3.exceptions.HTTPError):  # the service ends
        told.append(server.request("GET", f"/v1/jobs/{what}?follow=true", headers={"Accept": "text/event-stream"}).body)


def test_what_is_wrong_with_the_start_is_told_without_a_traceback(make_server: Any, tmp_path: Path) -> None:
    server = make_server(start=False)
    (tmp_path / "file").touch()
    database = 'database = "{}"'
    cases = [
        ({}, {"TRAINER_API_TOKEN": ""}, "TRAINER_API_TOKEN is not set"),
        ({"service": "poll_seconds = 1"}, {}, "the operator's file cannot be read"),  # twice
        ({}, {"HOSTCORE_RUNS_DIR": str(tmp_path / "file" / "runs")}, "cannot"),
        ({"service": database.format(f"sqlite:///{tmp_path}")}, {}, "unable to open database file"),
        ({"service": database.format("mysql://x")}, {}, "hostcore keeps no jobs in"),
        ({"top": 'policies = ["no-such-policy"]'}, {}, "no-such-policy"),
        ({"launcher": "slrum"}, {}, "slrum"),
        ({"launchers": 'slurm = { partion = "gpu" }'}, {}, "/launchers/slurm/partion"),
    ]
    for number, (operator, environment, says) in enumerate(cases):
        server = make_server(start=False, folder=tmp_path / str(number), **operator, **environment)
        done = ran(["serve", "--port", "0"], cwd=server.folder, env=dict(server.environment), text=True, timeout=300)
        assert says in done.stderr, done.stderr
        assert "Traceback" not in done.stderr
        assert done.returncode not in (0, -signal.SIGTERM)
        assert done.stdout == ""


def test_who_asks_is_who_connects_whatever_the_headers_say(make_server: Any) -> None:
    server = make_server(start=False)
    operator = server.folder / "operator.toml"
    operator.write_text(operator.read_text().replace("requests_per_minute = 0", "requests_per_minute = 1"))
    server.start()
    forwarded = [{"X-Forwarded-For": f"203.0.113.{number}"} for number in range(2)]
    answers = [server.request("GET", "/v1/jobs", headers=headers).status for headers in forwarded]
    assert answers == [200, 429]
    assert "203.0.113." not in server.log


def test_a_port_that_is_taken_is_told(shared_server: Any) -> None:
    taken, environment = str(shared_server.port), dict(shared_server.environment)
    second = ran(["serve", "--port", taken], env=environment, text=True, timeout=300)
    assert second.returncode != 0
    assert "choose another with --port" in second.stderr
    assert "Traceback" not in second.stderr


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_without_end_is_refused_before_it_fills_the_memory(shared_server: Any, chunked: bool) -> None:
    server = shared_server
    size = 64 << 20
    # Its peak is from now on; its libraries alone are 400 MB.
    Path(f"/proc/{server.process.pid}/clear_refs").write_text("5")
    before = peak_memory(server.process.pid)
    pieces = (b" " * (1 << 16) for _ in range(size >> 16))
    length = {} if chunked else {"Content-Length": str(size)}
    try:
        answer = server.request("POST", "/v1/jobs", body=pieces, headers={"Content-Type": "application/json", **length})
        assert answer.status == 413
    except urllib3.exceptions.HTTPError:
        pass  # it has closed the connection while the rest was still being sent

    assert server.request("GET", "/healthz").status == 200
    assert peak_memory(server.process.pid) - before < size >> 1


def peak_memory(pid: int) -> int:
    """Return the peak resident memory of a process since its start or the last ``clear_refs``, in bytes."""
    return int(Path(f"/proc/{pid}/status").read_text().partition("VmHWM:")[2].split()[0]) << 10

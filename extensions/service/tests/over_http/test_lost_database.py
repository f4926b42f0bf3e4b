"""A real service whose database is deleted while jobs run."""

from __future__ import annotations

import json
import shutil
from typing import Any


def lose_database(server: Any, until: Any) -> None:
    (server.runs / ".service" / "jobs.sqlite").unlink()  # first: beside it SQLite may make files anew
    shutil.rmtree(server.runs / ".service")
    until(lambda: server.request("GET", "/readyz").status == 503, "the service to notice")


def test_a_deleted_database_is_told_and_what_runs_is_found_again(make_server: Any, until: Any) -> None:
    server = make_server(
        launcher="slow", launchers="slow = { until_go = true }, local = {}", service="launches_at_once = 3"
    )
    here = "hostcore-builtin-plugins/local"
    server.submit(run_id="ended", launcher=here, headers={"Idempotency-Key": "k"}, labels={"team": "maps"})
    server.wait_ended("ended")
    server.submit(run_id="running", launcher=here, max_steps=10**6, hyperparams={"seconds": 0.02})
    until(lambda: server.job("running")["step"], "the run to train")
    server.submit(run_id="launching")
    until(lambda: server.noted("calls"), "the launch to begin")
    before = {run_id: server.job(run_id) for run_id in ("ended", "running", "launching")}
    assert server.request("GET", "/readyz", token=None).json == {"status": "ready"}

    lose_database(server, until)
    told = server.request("GET", "/readyz", token=None)
    assert told.codes == ["service.database"]
    assert told.json["detail"] == "the file of the service's database is gone"
    refused = server.request("POST", "/v1/jobs", json={"trainer": "tiny", "run_id": "new"})
    assert (refused.status, refused.codes, refused.headers.get("retry-after")) == (503, ["service.database"], "5"), (
        refused
    )
    assert server.request("GET", "/healthz").status == 200
    assert str(server.folder) not in told.body.decode() + refused.body.decode()

    server.kill()
    server.start()
    assert server.request("GET", "/readyz").status == 200
    assert {job["run_id"] for job in server.request("GET", "/v1/jobs").json["jobs"]} == set(before)
    for run_id, job in before.items():
        same = ("job", "name", "launcher", "trainer", "labels", "launches", "submitted_ms", "submitted_by", "max_steps")
        assert {key: server.job(run_id)[key] for key in same} == {key: job[key] for key in same}
    assert server.job("ended")["status"] == "succeeded"
    (server.ledger / "go").touch()
    assert server.wait_ended("launching")["status"] == "succeeded"
    assert len(server.launched) == 1
    assert server.wait_for("running", "running")["attempt"] == 1
    assert server.request("POST", "/v1/jobs/running:cancel").status == 202
    assert server.wait_ended("running")["status"] == "cancelled"
    replayed = server.submit(run_id="ended", launcher=here, headers={"Idempotency-Key": "k"}, labels={"team": "maps"})
    assert replayed["submitted_ms"] == before["ended"]["submitted_ms"]
    log = server.log
    assert "3 runs are recorded again that the database did not know: ended, launching, running" in log
    assert "Traceback" not in log
    assert log.count("the database does not answer, and is asked again") <= 3


def test_what_was_not_submitted_here_and_what_is_not_allowed_is_not_launched(make_server: Any, until: Any) -> None:
    server = make_server(launcher="slow", launchers="slow = { until_go = true }")
    server.submit(run_id="launching")
    until(lambda: server.noted("calls"), "the launch to begin")
    server.kill()
    lost = server.runs / ".service"
    shutil.rmtree(lost)
    launch = json.loads((server.runs / "launching" / "config" / "launch.json").read_bytes())
    for name, change in (("forbidden", {"trainer": "os:system"}), ("other", {"run_id": "launching"}), ("plain", None)):
        config = server.runs / name / "config"
        config.mkdir(parents=True)
        job = {**launch["recorded"]["job"], "run_id": name, **(change or {})}
        recorded = {"recorded": {**launch["recorded"], "name": name, "job": job}} if change else {"recorded": None}
        (config / "launch.json").write_text(json.dumps({**launch, "launch_id": f"{name}.1", **recorded}))
    (server.runs / "broken" / "config").mkdir(parents=True)
    (server.runs / "broken" / "config" / "launch.json").write_text('{"attempt": "first"}')
    server.start()

    assert {job["run_id"] for job in server.request("GET", "/v1/jobs").json["jobs"]} == {"launching", "forbidden"}
    forbidden = server.job("forbidden")
    assert forbidden["status"] == "lost"
    assert "not allowed to be launched" in forbidden["detail"]
    (server.ledger / "go").touch()
    server.wait_ended("launching")
    assert len(server.launched) == 1
    for name in ("broken", "other"):
        assert f"the run {name} cannot be recorded again" in server.log

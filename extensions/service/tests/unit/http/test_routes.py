"""``/v1/jobs``: submitting once, listing, cancelling, resuming."""

import base64
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import attrs
import orjson
import pytest
from fastapi.testclient import TestClient
from waiting import wait_until

from hostcore.runs.directory import RunDirectory
from hostcore.runs.record import RunRecord

Client = Callable[..., TestClient]


def wait(service: TestClient, run_id: str, status: str) -> Any:
    def reached() -> Any:
        job = service.get(f"/v1/jobs/{run_id}").json()
        return job if job["status"] == status else None

    return wait_until(reached, f"{run_id} to be {status}")


def codes(answer: Any) -> list[tuple[str, str | None]]:
    assert answer.headers["content-type"] == "application/problem+json"
    return [(error["code"], error["pointer"]) for error in answer.json()["errors"]]


def cursor(value: Any) -> str:
    return base64.urlsafe_b64encode(orjson.dumps(value)).decode()


def test_a_job_is_submitted_and_found_where_the_answer_says(client: Client, tiny: Any) -> None:
    service = client()
    answer = service.post("/v1/jobs", json=tiny(labels={"team": "maps"}, owner="ann"))
    job = answer.json()

    assert answer.status_code == 201
    assert answer.headers["location"] == f"/v1/jobs/{job['run_id']}"
    assert (job["status"], job["trainer"], job["owner"], job["labels"]) == (
        "submitted",
        "tiny",
        "ann",
        {"team": "maps"},
    )
    assert service.get(answer.headers["location"]).json()["job"]["max_steps"] == 3
    ended = wait(service, job["run_id"], "succeeded")
    assert (job["engine_id"], ended["launches"]) == (None, 1)
    assert ended["engine_id"].startswith(job["run_id"])


def test_the_same_request_with_the_same_key_makes_one_job(client: Client, tiny: Any, noted: Any) -> None:
    service = client()
    key = {"Idempotency-Key": "once"}
    first = service.post("/v1/jobs", json=tiny(), headers=key)
    again = service.post("/v1/jobs", json=tiny(), headers=key)

    assert (first.status_code, again.status_code) == (201, 201)
    assert "idempotent-replayed" not in first.headers
    assert again.headers["idempotent-replayed"] == "true"
    assert again.json()["run_id"] == first.json()["run_id"]
    assert again.headers["location"] == first.headers["location"]
    wait(service, first.json()["run_id"], "succeeded")
    assert len(noted("calls")) == 1


def test_a_key_is_not_used_for_another_request(client: Client, tiny: Any) -> None:
    service = client()
    key = {"Idempotency-Key": "once"}
    service.post("/v1/jobs", json=tiny(), headers=key)
    other = service.post("/v1/jobs", json=tiny(max_steps=4), headers=key)

    assert (other.status_code, codes(other)) == (422, [("request.key_reused", None)])
    assert len(service.get("/v1/jobs").json()["jobs"]) == 1


def test_what_is_no_key_is_refused(client: Client, tiny: Any) -> None:
    service = client()
    for key in (b"", b" ", b"a b", b"x" * 256, b"\xe4", b"a\x7f"):
        answer = service.post("/v1/jobs", json=tiny(), headers={"Idempotency-Key": key})
        assert answer.status_code == 400, key
    assert service.get("/v1/jobs").json()["jobs"] == []


def test_a_request_that_was_refused_does_not_use_up_its_key(client: Client, tiny: Any) -> None:
    service = client()
    key = {"Idempotency-Key": "once"}

    assert service.post("/v1/jobs", json=tiny(max_steps=-1), headers=key).status_code == 400
    assert service.post("/v1/jobs", json=tiny(), headers=key).status_code == 201


def test_a_run_id_is_given_once(client: Client, tiny: Any) -> None:
    service = client()
    service.post("/v1/jobs", json=tiny(run_id="a"))
    again = service.post("/v1/jobs", json=tiny(run_id="a"))

    assert (again.status_code, codes(again)) == (409, [("job.exists", "/run_id")])
    assert "to go on with it, resume it" in again.json()["errors"][0]["hint"]


def test_run_ids_that_engines_would_call_the_same_get_different_names(client: Client, tiny: Any) -> None:
    service = client()
    names = [service.post("/v1/jobs", json=tiny(run_id=run_id)).json()["name"] for run_id in ("a_b", "a-b", "A.B")]

    assert names[0] == "a-b"
    assert len(set(names)) == 3


def test_no_more_jobs_are_open_than_the_operator_allows(client: Client, tiny: Any) -> None:
    service = client(launcher="stuck", http={"max_submitted": 2})
    for run_id in ("a", "b"):
        assert service.post("/v1/jobs", json=tiny(run_id=run_id)).status_code == 201
    third = service.post("/v1/jobs", json=tiny(run_id="c"))

    assert (third.status_code, codes(third)) == (429, [("service.full", None)])
    assert int(third.headers["retry-after"]) > 0
    service.post("/v1/jobs/a:cancel")
    wait(service, "a", "cancelled")
    assert service.post("/v1/jobs", json=tiny(run_id="c")).status_code == 201
    assert service.post("/v1/jobs/a:resume").status_code == 429


def test_pages_show_every_job_once_newest_first(client: Client, tiny: Any) -> None:
    service = client()
    for number in range(7):
        service.post("/v1/jobs", json=tiny(run_id=f"job-{number}"))
    seen: list[str] = []
    query: dict[str, Any] = {"limit": 2}
    while True:
        page = service.get("/v1/jobs", params=query).json()
        seen += [job["run_id"] for job in page["jobs"]]
        service.post("/v1/jobs", json=tiny(run_id=f"late-{len(seen)}"))
        if page["next"] is None:
            break
        query["cursor"] = page["next"]

    assert seen[:1] == ["job-6"]
    assert sorted(seen) == [f"job-{number}" for number in range(7)]


FORGED = [
    "!!!!",
    "a",
    "ÿ",
    cursor([]),
    cursor({"a": 1, "b": 2}),
    cursor("ab"),
    cursor(1),
    cursor(None),
    cursor([1, 2]),
    cursor(["1", "a"]),
    cursor([1.5, "a"]),
    cursor([1, "a", 2]),
    cursor([2**63, "a"]),
    cursor([1, "a\0"]),
    cursor([1, ["a"]]),
    base64.urlsafe_b64encode(b"[1, '\xff']").decode(),
    base64.urlsafe_b64encode(b"[" * 200).decode(),
    "x" * 513,
]


def test_what_is_no_cursor_is_refused(client: Client) -> None:
    service = client()
    for forged in FORGED:
        answer = service.get("/v1/jobs", params={"cursor": forged})
        assert answer.status_code == 400, forged
        assert codes(answer)[0][1] == "/query/cursor", forged


def test_a_cursor_of_nowhere_is_the_end(client: Client, tiny: Any) -> None:
    service = client()
    service.post("/v1/jobs", json=tiny())

    assert service.get("/v1/jobs", params={"cursor": cursor([-(2**62), "'; DROP TABLE jobs"])}).json()["jobs"] == []
    assert len(service.get("/v1/jobs").json()["jobs"]) == 1


def test_jobs_are_found_by_what_they_have(client: Client, tiny: Any) -> None:
    service = client(launcher="stuck")
    service.post("/v1/jobs", json=tiny(run_id="a", owner="Ann", labels={"k": "a=b", "x": "1"}))
    service.post("/v1/jobs", json=tiny(run_id="b", owner="ann", labels={"k": "A=B", "": "e"}, launcher="instant"))
    wait(service, "b", "succeeded")
    wait(service, "a", "running")

    def found(*query: tuple[str, str]) -> Sequence[str]:
        answer = service.get("/v1/jobs", params=list(query))
        assert answer.status_code == 200, answer.text
        return sorted(job["run_id"] for job in answer.json()["jobs"])

    assert found(("owner", "Ann")) == ["a"]
    assert found(("trainer", "tiny")) == ["a", "b"]
    assert found(("trainer", "Tiny")) == []
    assert found(("status", "running")) == ["a"]
    assert found(("status", "running"), ("status", "succeeded")) == ["a", "b"]
    assert found(("label", "k=a=b")) == ["a"]
    assert found(("label", "k=a=b"), ("label", "x=1")) == ["a"]
    assert found(("label", "k=a=b"), ("label", "x=2")) == []
    assert found(("label", "k=a=b"), ("label", "k=A=B")) == []
    assert found(("label", "=e")) == ["b"]
    assert found(("label", "k=' OR 1=1 --")) == []


def test_a_job_over_http_includes_no_files(client: Client, tiny: Any) -> None:
    answer = client().post("/v1/jobs", json=tiny(include="base.json"))
    assert (answer.status_code, codes(answer)) == (400, [("job.include", "/include")])
    assert "job files alone include others" in answer.json()["errors"][0]["detail"]


def test_jobs_are_found_by_what_their_runs_used(client: Client, tiny: Any, tmp_path: Path) -> None:
    service = client(launcher="stuck")
    data = "ab" * 32
    for run_id, version in (("a", "1.0"), ("b", "1.1rc1"), ("c", "of today")):
        service.post("/v1/jobs", json=tiny(run_id=run_id))
        wait(service, run_id, "running")
        plugins = [{"kind": "trainer", "name": "tiny", "distribution": "Tiny.Trainer", "version": version}]
        used = [{"attempt": 1, "plugins": plugins, "data": data}]
        record = RunDirectory(tmp_path / "runs" / run_id).record
        attrs.evolve(RunRecord.read(record), used=used, plugins=[]).write(record)

    def found(**query: Any) -> dict[str, Any]:
        answer = service.get("/v1/jobs", params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def ids(**query: Any) -> list[str]:
        return sorted(job["run_id"] for job in found(**query)["jobs"])

    wait_until(lambda: ids(data=data) == ["a", "b", "c"], "the records to be read")
    assert ids(plugin="tiny>1") == ["b"]
    assert ids(plugin=["tiny", "tiny<1.1rc1"]) == ["a"]
    assert ids(plugin=["tiny==1.0", "tiny==1.1rc1"]) == []
    assert ids(distribution="tiny_trainer==1.0") == ["a"]
    assert ids(data=data[:8], plugin="tiny-trainer/tiny") == ["a", "b", "c"]
    assert ids(data="0" * 8) == []
    page = found(plugin="tiny==1.0", limit=1)
    assert page["jobs"][0]["used"] == [
        {
            "attempt": 1,
            "plugins": [{"kind": "trainer", "name": "tiny", "distribution": "Tiny.Trainer", "version": "1.0"}],
            "data": data,
        }
    ]
    assert page["unknown"] == 1
    assert found()["unknown"] is None
    assert found()["jobs"][0]["used"] is None
    wrong = service.get("/v1/jobs", params={"plugin": "tiny>=new", "data": "ab"})
    assert (wrong.status_code, codes(wrong)) == (400, [("run.query", "/query/plugin"), ("run.query", "/query/data")])


IMPOSSIBLE = [
    "status=nonsense",
    "status=",
    "label=noequals",
    "label=a%00=b",
    "label=a=b%00",
    "owner=%00",
    "trainer=a%00b",
    f"owner={'x' * 257}",
    "limit=0",
    "limit=501",
    "limit=ten",
    "limit=" + "9" * 400,
    "&".join(["label=a=b"] * 17),
]


def test_what_cannot_be_looked_for_is_refused(client: Client) -> None:
    service = client()
    for query in IMPOSSIBLE:
        answer = service.get(f"/v1/jobs?{query}")
        assert answer.status_code == 400, query
        assert all((pointer or "").startswith("/query/") for _, pointer in codes(answer)), query


def said(answer: Any) -> tuple[str, str, str | None]:
    (error,) = answer.json()["errors"]
    return error["pointer"], error["detail"], error["hint"]


def test_what_is_wrong_with_a_query_is_told_in_words(client: Client) -> None:
    service = client()

    assert said(service.get("/v1/jobs?limit=0")) == ("/query/limit", 'expected at least 1, found "0"', None)
    assert said(service.get("/v1/jobs?limit=ten")) == ("/query/limit", 'expected an integer, found "ten"', None)
    assert said(service.get("/v1/jobs?label=team")) == ("/query/label/0", 'expected KEY=VALUE, found "team"', None)
    assert said(service.get("/v1/jobs?owner=%00")) == ("/query/owner", "the character U+0000 is not allowed", None)
    assert said(service.get("/v1/jobs?status=done"))[:2] == (
        "/query/status/0",
        "expected 'submitted', 'running', 'succeeded', 'failed', 'cancelled', 'preempted' or 'lost', found \"done\"",
    )
    assert said(service.get("/v1/jobs/a/events?follow=maybe"))[:2] == (
        "/query/follow",
        'expected true or false, found "maybe"',
    )


def test_a_parameter_that_nobody_reads_is_a_mistake(client: Client) -> None:
    service = client()

    assert said(service.get("/v1/jobs?owners=ann")) == (
        "/query/owners",
        'there is no query parameter "owners"',
        'did you mean "owner"?',
    )
    answer = service.get("/v1/jobs?a=1&a=2&~=3")
    assert (answer.status_code, codes(answer)) == (
        400,
        [("request.invalid", "/query/a"), ("request.invalid", "/query/~0")],
    )
    for path in (
        "/v1/plugins",
        "/v1/jobs/a",
        "/v1/jobs/a/checkpoints",
        "/v1/jobs/a/artifacts/x.png",
        "/v1/jobs/a/logs",
    ):
        assert service.get(f"{path}?nothing").json()["errors"][0]["pointer"] == "/query/nothing", path
    for path in ("/v1/jobs", "/v1/jobs:validate", "/v1/jobs/a:cancel", "/v1/jobs/a:resume"):
        assert service.post(f"{path}?dry_run=true", json={}).status_code == 400, path


def test_a_body_that_has_more_than_is_known_is_told_in_words(client: Client, tiny: Any) -> None:
    service = client()
    job = service.post("/v1/jobs", json=tiny()).json()

    cancel = f"/v1/jobs/{job['run_id']}:cancel"
    assert said(service.post(cancel, json={"reasons": "x"})) == ("/reasons", 'there is no key "reasons"', None)
    assert said(service.post(cancel, json={"reason": 3})) == ("/reason", "expected a string, found 3", None)
    assert said(service.post(cancel, json={"reason": "x" * 1001}))[1].startswith("expected at most 1000 characters")


def test_a_job_that_there_is_not_is_404(client: Client) -> None:
    service = client()
    run_ids = ("nothing", "%00", "%ff", "..%2F..", "a" * 5000, "%F0%9F%92%A9")
    calls = (("GET", ""), ("POST", ":cancel"), ("POST", ":resume"))
    for (method, verb), run_id in itertools.product(calls, run_ids):
        path = f"{run_id}{verb}"
        answer = service.request(method, f"/v1/jobs/{path}")
        assert answer.status_code == 404, (method, path, answer.text)
        assert answer.headers["content-type"] == "application/problem+json"


def test_cancelling_is_legal_in_every_state_and_as_often_as_one_likes(
    client: Client, tiny: Any, tmp_path: Any, noted: Any
) -> None:
    slow = {"slow": {"until_go": True}}
    service = client(launchers={"instant": {}, "stuck": {}, "refusing": {}, **slow})
    for launcher in ("instant", "stuck", "refusing", "slow"):
        service.post("/v1/jobs", json=tiny(run_id=launcher, launcher=launcher))
    wait(service, "instant", "succeeded")
    wait(service, "refusing", "failed")
    wait(service, "stuck", "running")
    wait_until(lambda: any("slow" in call for call in noted("calls")), "the slow launch to begin")

    for run_id, ended in (("instant", "succeeded"), ("refusing", "failed")):
        for _ in range(2):
            answer = service.post(f"/v1/jobs/{run_id}:cancel")
            assert (answer.status_code, answer.json()["status"]) == (200, ended)
            assert not answer.json()["cancelling"]
    for run_id in ("stuck", "slow"):
        for reason in ("enough", "another reason"):
            answer = service.post(f"/v1/jobs/{run_id}:cancel", json={"reason": reason})
            assert answer.status_code in (200, 202)
    assert service.get("/v1/jobs/slow").json()["cancelling"]
    (tmp_path / "ledger" / "go").touch()
    wait(service, "stuck", "cancelled")
    wait_until(lambda: service.get("/v1/jobs/slow").json()["status"] in ("cancelled", "succeeded"), "slow to end")


def test_resuming_launches_what_has_ended_once_more_and_leaves_the_rest(client: Client, tiny: Any, noted: Any) -> None:
    service = client()
    service.post("/v1/jobs", json=tiny(run_id="a", launcher="stuck"))
    wait(service, "a", "running")
    running = service.post("/v1/jobs/a:resume")
    service.post("/v1/jobs/a:cancel")
    wait(service, "a", "cancelled")
    again = service.post("/v1/jobs/a:resume")
    service.post("/v1/jobs", json=tiny(run_id="b"))
    wait(service, "b", "succeeded")
    done = service.post("/v1/jobs/b:resume")

    assert (running.status_code, running.json()["status"], running.json()["launches"]) == (200, "running", 1)
    assert (again.status_code, again.json()["launches"]) == (202, 2)
    assert again.json()["status"] in ("submitted", "running"), "the dispatcher does not wait for the answer"
    assert (done.status_code, done.json()["status"], done.json()["launches"]) == (200, "succeeded", 1)
    wait(service, "a", "running")
    first, second = (one for one in noted("started") if one.startswith("a."))
    assert first != second


def test_what_its_launcher_refuses_is_told_before_the_run_id_is_spent(client: Client, tiny: Any) -> None:
    service = client(launchers={"local": {}})
    refused = service.post("/v1/jobs", json=tiny(run_id="a", launcher="local", resources={"num_nodes": 4}))
    assert (refused.status_code, codes(refused)[0][1]) == (400, "/resources/num_nodes")
    assert service.get("/v1/jobs/a").status_code == 404


def test_a_run_of_somebody_elses_is_not_taken_for_the_jobs(client: Client, tiny: Any, tmp_path: Path) -> None:
    service = client()
    (service.app.state.settings.runs / "a").mkdir(parents=True)  # type: ignore[attr-defined]
    refused = service.post("/v1/jobs", json=tiny(run_id="a"))
    assert (refused.status_code, codes(refused)) == (409, [("job.exists", "/run_id")])


def test_another_method_or_path_is_a_problem_too(client: Client) -> None:
    service = client()

    for method, path, status in (("DELETE", "/v1/jobs", 405), ("GET", "/v1/nothing", 404), ("GET", "/v1/jobs/", 404)):
        answer = service.request(method, path, follow_redirects=False)
        assert answer.status_code == status, (method, path, answer.headers)
        assert answer.headers["content-type"] == "application/problem+json"


def test_a_defect_of_the_service_is_told_without_what_it_was(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    service = client()
    monkeypatch.setattr("hostcore_service.jobs.router.JobPage", None)
    answer = service.get("/v1/jobs")

    assert (answer.status_code, codes(answer)) == (500, [("service.defect", None)])
    assert "NoneType" not in answer.text


def test_a_database_that_does_not_answer_is_503(client: Client) -> None:
    service = client()
    from sqlalchemy import text

    with service.app.state.service.engine.begin() as connection:  # type: ignore[attr-defined]
        connection.execute(text("ALTER TABLE jobs RENAME TO elsewhere"))
    answer = service.get("/v1/jobs")

    assert (answer.status_code, codes(answer)) == (503, [("service.database", None)])
    assert answer.headers["retry-after"]
    assert "elsewhere" not in answer.text

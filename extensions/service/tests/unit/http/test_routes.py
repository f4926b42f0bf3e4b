"""``/v1/jobs``: submitting once, cancelling, resuming, and what becomes of a job."""

import itertools
from collections.abc import Callable
from typing import Any

from fastapi.testclient import TestClient
from served import at_once, codes
from sqlalchemy import text
from waiting import wait_until

Client = Callable[..., TestClient]


def wait(service: TestClient, run_id: str, status: str) -> Any:
    def reached() -> Any:
        job = service.get(f"/v1/jobs/{run_id}").json()
        return job if job["status"] == status else None

    return wait_until(reached, f"{run_id} to be {status}")


def test_a_job_is_submitted_and_found_where_the_answer_says(client: Client, tiny: Any) -> None:
    service = client()
    answer = service.post("/v1/jobs", json=tiny(labels={"team": "maps"}, owner="ann"))
    job = answer.json()

    assert (answer.status_code, answer.headers["location"]) == (201, f"/v1/jobs/{job['run_id']}")
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
    names = [service.post("/v1/jobs", json=tiny(run_id=run_id)).json()["name"] for run_id in ("a_b", "a-b", "A.B")]
    assert (names[0], len(set(names))) == ("a-b", 3), "engines would call them the same"


def test_requests_with_one_key_make_one_job(client: Client, tiny: Any, noted: Any) -> None:
    service = client()
    key = {"Idempotency-Key": "once"}
    for no_key in (b"", b" ", b"a b", b"x" * 256, b"\xe4", b"a\x7f"):
        assert service.post("/v1/jobs", json=tiny(), headers={"Idempotency-Key": no_key}).status_code == 400, no_key
    assert service.post("/v1/jobs", json=tiny(max_steps=-1), headers=key).status_code == 400  # it is not used up
    first = service.post("/v1/jobs", json=tiny(), headers=key)
    again = service.post("/v1/jobs", json=tiny(), headers=key)
    other = service.post("/v1/jobs", json=tiny(max_steps=4), headers=key)

    assert (first.status_code, again.status_code) == (201, 201)
    assert ("idempotent-replayed" in first.headers, again.headers["idempotent-replayed"]) == (False, "true")
    assert (again.json()["run_id"], again.headers["location"]) == (first.json()["run_id"], first.headers["location"])
    assert (other.status_code, codes(other)) == (422, [("request.key_reused", None)])
    wait(service, first.json()["run_id"], "succeeded")
    assert (len(noted("calls")), len(service.get("/v1/jobs").json()["jobs"])) == (1, 1)


def test_of_many_that_come_at_once_no_more_are_taken_than_may_be(
    client: Client, tiny: Any, database: dict[str, Any]
) -> None:
    service = client(launcher="stuck", http={"max_submitted": 5}, **database)
    key = {"Idempotency-Key": "once"}
    same = at_once(8, lambda _: service.post("/v1/jobs", json=tiny(labels={"a": "b"}), headers=key))
    assert {answer.status_code for answer in same} == {201}
    (run_id,) = {answer.json()["run_id"] for answer in same}
    others = at_once(8, lambda n: service.post("/v1/jobs", json=tiny(run_id=f"job-{n}")))
    assert sorted(one.status_code for one in others) == [201] * 4 + [429] * 4
    full = next(one for one in others if one.status_code == 429)
    assert (codes(full), int(full.headers["retry-after"]) > 0) == ([("service.full", None)], True)
    assert len(service.get("/v1/jobs").json()["jobs"]) == 5
    again = service.post("/v1/jobs", json=tiny(labels={"a": "b"}), headers=key)
    assert (again.status_code, again.json()["run_id"]) == (201, run_id), "it is not one more"
    wait(service, run_id, "running")
    service.post(f"/v1/jobs/{run_id}:cancel")
    wait(service, run_id, "cancelled")
    assert service.post("/v1/jobs", json=tiny(run_id="more")).status_code == 201, "there is room again"
    assert service.post(f"/v1/jobs/{run_id}:resume").status_code == 429
    service.post("/v1/jobs/more:cancel")
    wait(service, "more", "cancelled")
    resumed = at_once(6, lambda _: service.post(f"/v1/jobs/{run_id}:resume", json={"launches": 1}).status_code)
    assert (resumed.count(202), set(resumed) <= {200, 202, 429}) == (1, True), "there is room for one"
    assert service.get(f"/v1/jobs/{run_id}").json()["launches"] == 2


#: What is submitted while there is a job ``a``, a run ``b`` of somebody else, and a launcher of one machine.
REFUSED: list[tuple[dict[str, Any], int, tuple[str, str], str]] = [
    ({"run_id": "a"}, 409, ("job.exists", "/run_id"), "to go on with it, resume it"),
    ({"run_id": "b"}, 409, ("job.exists", "/run_id"), ""),
    ({"include": "base.json"}, 400, ("job.include", "/include"), "job files alone include others"),
    ({"launcher": "local", "resources": {"num_nodes": 4}}, 400, ("plugin.fatal", "/resources/num_nodes"), ""),
]


def test_what_cannot_be_a_job_is_refused_before_its_run_id_is_spent(client: Client, tiny: Any) -> None:
    service = client(launchers={"stuck": {}, "local": {}}, launcher="stuck")
    service.post("/v1/jobs", json=tiny(run_id="a"))
    (service.app.state.settings.runs / "b").mkdir(parents=True)  # type: ignore[attr-defined]
    for keys, status, error, says in REFUSED:
        answer = service.post("/v1/jobs", json=tiny(**{"run_id": "c", **keys}))
        assert (answer.status_code, codes(answer)) == (status, [error]), answer.text
        assert says in str(answer.json()["errors"])
    assert service.post("/v1/jobs", json=tiny(run_id="c")).status_code == 201


def test_what_there_is_not_is_a_problem_too(client: Client) -> None:
    service = client()
    run_ids = ("nothing", "%00", "%ff", "..%2F..", "a" * 5000, "%F0%9F%92%A9")
    calls = itertools.product((("GET", ""), ("POST", ":cancel"), ("POST", ":resume")), run_ids)
    missing = [(method, f"/v1/jobs/{run_id}{verb}", 404) for (method, verb), run_id in calls]
    others = [("DELETE", "/v1/jobs", 405), ("GET", "/v1/nothing", 404), ("GET", "/v1/jobs/", 404)]
    for method, path, status in [*missing, *others]:
        answer = service.request(method, path, follow_redirects=False)
        assert (answer.status_code, len(codes(answer))) == (status, 1), (method, path, answer.text)


#: A launcher; how its job ends, what is said of it, and how often it was asked.
ENDS = [
    ("instant", "succeeded", "", 1),
    ("flaky", "succeeded", "", 3),
    ("broken", "failed", "ZeroDivisionError", 1),
    ("refusing", "failed", "no such queue (ask its operator)", 1),
]


def test_a_job_ends_as_its_launcher_has_it(client: Client, tiny: Any, noted: Any) -> None:
    service = client(launchers={"instant": {}, "broken": {}, "refusing": {}, "flaky": {"times": 2}})
    for launcher, *_ in ENDS:
        service.post("/v1/jobs", json=tiny(run_id=launcher, launcher=launcher))
    for launcher, status, detail, calls in ENDS:
        assert detail in wait(service, launcher, status)["detail"], launcher
        assert len([one for one in noted("calls") if one.startswith(launcher)]) == calls
        assert len([one for one in noted("started") if one.startswith(launcher)]) == (status == "succeeded")


def test_cancelling_is_legal_in_every_state_and_as_often_as_one_likes(
    client: Client, tiny: Any, tmp_path: Any, noted: Any
) -> None:
    slow = {"slow": {"until_go": True}}
    room = {"launches_at_once": 1}
    service = client(launchers={"instant": {}, "stuck": {}, "refusing": {}, **slow}, service=room)
    for launcher in ("instant", "stuck", "refusing"):
        service.post("/v1/jobs", json=tiny(run_id=launcher, launcher=launcher))
    wait(service, "instant", "succeeded")
    wait(service, "refusing", "failed")
    wait(service, "stuck", "running")
    service.post("/v1/jobs", json=tiny(run_id="slow", launcher="slow"))
    wait_until(lambda: any("slow" in call for call in noted("calls")), "the slow launch to begin")
    service.post("/v1/jobs", json=tiny(run_id="waiting"))
    service.post("/v1/jobs/waiting:cancel", json={"reason": "changed my mind"})

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
    assert wait(service, "waiting", "cancelled")["detail"] == "changed my mind"
    assert not [call for call in noted("calls") if call.startswith("waiting")]
    assert [call for call in noted("cancelled") if call.startswith("stuck")]


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

    service.post("/v1/jobs", json=tiny(run_id="c", launcher="refusing"))
    for answered in ((202, 2), (200, 2)):  # what was launched since is left as it is, also when that has ended
        wait(service, "c", "failed")
        resumed = service.post("/v1/jobs/c:resume", json={"launches": 1})
        assert (resumed.status_code, resumed.json()["launches"]) == answered


def test_a_defect_of_the_service_is_told_without_what_it_was(client: Client) -> None:
    service = client()
    service.app.state.service = None  # type: ignore[attr-defined]
    answer = service.get("/v1/jobs")

    assert (answer.status_code, codes(answer)) == (500, [("service.defect", None)])
    assert "NoneType" not in answer.text


def test_a_database_that_does_not_answer_is_503(client: Client) -> None:
    service = client()
    with service.app.state.service.engine.begin() as connection:  # type: ignore[attr-defined]
        connection.execute(text("ALTER TABLE jobs RENAME TO elsewhere"))
    answer = service.get("/v1/jobs")

    assert (answer.status_code, codes(answer)) == (503, [("service.database", None)])
    assert answer.headers["retry-after"]
    assert "elsewhere" not in answer.text

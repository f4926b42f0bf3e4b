"""``GET /v1/jobs``, in SQLite and in PostgreSQL: pages, and jobs that are found by what they have and used."""

import base64
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import orjson
import pytest
from fastapi.testclient import TestClient
from served import codes
from waiting import wait_until

from hostcore.runs.directory import RunDirectory
from hostcore.runs.record import RunRecord
from hostcore.runs.used import Used, UsedPlugin

Client = Callable[..., TestClient]
Record = Callable[..., None]
DATA, OTHER = "ab" * 32, "cd" * 32
HOSTILE = "x' OR '1'='1"


@pytest.fixture
def service(client: Client, database: dict[str, Any]) -> TestClient:
    return client(launcher="stuck", **database)


@pytest.fixture
def record(service: TestClient, a_job: Callable[..., Any]) -> Record:
    """``record("a", owner="ada")``: a job that has ended."""

    def add(run_id: str, **fields: Any) -> None:
        ended = {"phase": "ended", "status": "succeeded", **fields}
        service.app.state.service.jobs.add(a_job(run_id, **ended))  # type: ignore[attr-defined]

    return add


def used(*versions: str | None, attempt: int = 1, data: str | None = DATA) -> Used:
    plugins = [UsedPlugin(kind="trainer", name="tiny", distribution="Told.By", version=one) for one in versions]
    return Used(attempt=attempt, plugins=tuple(plugins), data=data)


def test_pages_show_every_job_once_newest_first_while_others_are_added(
    service: TestClient, record: Record, seed: int
) -> None:
    rng = random.Random(seed)
    there = {f"job-{n}": rng.randrange(4) for n in rng.sample(range(1000), 40)}
    for run_id, moment in there.items():  # many in the same millisecond: the run id decides there
        record(run_id, submitted_ms=moment)
    seen: list[str] = []
    query: dict[str, Any] = {"limit": 7}
    while True:
        page = service.get("/v1/jobs", params=query).json()
        seen += [job["run_id"] for job in page["jobs"]]
        record(f"late-{len(seen)}", submitted_ms=5)
        if page["next"] is None:
            break
        query["cursor"] = page["next"]

    assert seen == sorted(there, key=lambda run_id: (there[run_id], run_id), reverse=True)


#: What is asked, and the jobs that are found, as letters.
FOUND: list[tuple[dict[str, Any], str]] = [
    ({"owner": "Ann"}, "a"),
    ({"owner": "ann"}, "b"),
    ({"owner": HOSTILE}, ""),
    ({"owner": ""}, ""),
    ({"trainer": "other"}, "b"),
    ({"trainer": "Tiny"}, ""),
    ({"status": "running"}, "a"),
    ({"status": ["running", "failed", "lost"]}, "ac"),
    ({"label": "k=a=b"}, "a"),
    ({"label": ["k=a=b", f"{HOSTILE.replace('=', '')}=%_\\"]}, "a"),
    ({"label": ["k=a=b", "x=2"]}, ""),
    ({"label": ["k=a=b", "k=A=B"]}, ""),
    ({"label": "=e"}, "b"),
    ({"label": "k=a%"}, ""),
    ({"label": "k=' OR 1=1 --"}, ""),
]
#: What is asked of one attempt, the jobs that are found, and how many may be meant that do not say.
USED: list[tuple[dict[str, Any], str, int]] = [
    ({"plugin": "tiny"}, "abce", 1),
    ({"plugin": "tiny<1.1"}, "ab", 3),
    ({"plugin": "tiny>1.0"}, "b", 3),
    ({"plugin": ["tiny", "tiny<1.1rc1"]}, "ab", 3),
    ({"plugin": ["tiny==1.0", "tiny==1.1"]}, "", 3),
    ({"plugin": "told-by/tiny==1.0"}, "ab", 3),
    ({"plugin": "told/tiny"}, "", 2),
    ({"distribution": "told_by==1.1"}, "b", 3),
    ({"data": DATA[:8]}, "abc", 2),
    ({"data": DATA, "plugin": "tiny==1.0"}, "a", 3),
    ({"data": DATA, "plugin": "tiny==1.1"}, "b", 3),
    ({"data": "0" * 8}, "", 2),
    ({"plugin": "'OR'%"}, "", 2),
    ({"plugin": "tiny", "status": "failed"}, "c", 0),
]


def test_jobs_are_found_by_what_they_have_and_by_what_one_of_their_attempts_used(
    service: TestClient, record: Record
) -> None:
    labels = {"k": "a=b", HOSTILE.replace("=", ""): "%_\\"}
    record("a", status="running", owner="Ann", labels=labels, used=(used("1.0"),))
    two = (used("1.0", data=OTHER), used("1.1", attempt=2))
    record("b", owner="ann", trainer="other", labels={"k": "A=B", "": "e"}, used=two)
    record("c", status="failed", used=(used("of today"),))
    record("d")
    record("e", used=(used(None, attempt=3, data=None),))

    def found(query: dict[str, Any]) -> tuple[str, int | None]:
        answer = service.get("/v1/jobs", params=query)
        assert answer.status_code == 200, answer.text
        return "".join(sorted(job["run_id"] for job in answer.json()["jobs"])), answer.json()["unknown"]

    for query, run_ids in FOUND:
        assert found(query) == (run_ids, None), query
    for query, run_ids, unknown in USED:
        assert found(query) == (run_ids, unknown), query
    plain, asked = (
        service.get("/v1/jobs", params=one).json()["jobs"] for one in ({"owner": "Ann"}, {"plugin": "tiny"})
    )
    assert (plain[0]["used"], plain[0]["labels"]) == (None, labels)
    assert {one["run_id"]: one["used"] for one in asked}["b"][1] == {
        "attempt": 2,
        "data": DATA,
        "plugins": [{"kind": "trainer", "name": "tiny", "distribution": "Told.By", "version": "1.1"}],
    }
    record("f", used=(used("1.0", data="ab" * 31 + "00"),))
    assert codes(service.get("/v1/jobs", params={"data": "ab" * 8})) == [("run.query", "/query/data")]
    assert found({"data": DATA})[0] == "abc", "data that begin alike are not mixed"
    wrong = service.get("/v1/jobs", params={"plugin": "tiny>=new", "data": "ab"})
    assert codes(wrong) == [("run.query", "/query/plugin"), ("run.query", "/query/data")]


def test_what_a_job_used_is_found_as_its_record_has_it_last(
    service: TestClient, tiny: Callable[..., Any], tmp_path: Path
) -> None:
    service.post("/v1/jobs", json=tiny(run_id="a"))
    wait_until(lambda: service.get("/v1/jobs/a").json()["status"] == "running", "it to run")
    file = RunDirectory(tmp_path / "runs" / "a").record

    def run_ids(**query: str) -> list[str]:
        return [job["run_id"] for job in service.get("/v1/jobs", params=query).json()["jobs"]]

    for version, found in (("1.0", ["a"]), ("1.1\0", [])):
        plugins = [{"kind": "trainer", "name": "tiny", "distribution": "Tiny.Trainer", "version": version}]
        document = [{"attempt": 1, "plugins": plugins, "data": DATA}]
        attrs.evolve(RunRecord.read(file), used=document, plugins=[]).write(file)
        wait_until(lambda found=found: run_ids(plugin="tiny==1.0", data=DATA) == found, f"{version} to be read")
    assert run_ids(plugin="tiny") == ["a"]


def cursor(value: Any) -> str:
    return base64.urlsafe_b64encode(orjson.dumps(value)).decode()


FORGED = ["!!!!", "a", "ÿ", "x" * 513, base64.urlsafe_b64encode(b"[" * 200).decode()]
FORGED += [base64.urlsafe_b64encode(b"[1, '\xff']").decode()]
FORGED += map(cursor, ([], {"a": 1, "b": 2}, "ab", 1, None, [1, 2], ["1", "a"], [1.5, "a"], [1, "a", 2], [2**63, "a"]))
FORGED += map(cursor, ([1, "a\0"], [1, ["a"]]))


IMPOSSIBLE = ["status=nonsense", "status=", "label=noequals", "label=a%00=b", "label=a=b%00", "owner=%00"]
IMPOSSIBLE += ["trainer=a%00b", f"owner={'x' * 257}", "limit=0", "limit=501", "limit=ten", "limit=" + "9" * 400]
IMPOSSIBLE += ["&".join(["label=a=b"] * 17)]
STATUSES = "'submitted', 'running', 'succeeded', 'failed', 'cancelled', 'preempted' or 'lost'"
#: What is asked; the place, what is said, and the hint.
WORDS: list[tuple[str, str, str, str | None]] = [
    ("?limit=0", "limit", 'expected at least 1, found "0"', None),
    ("?limit=ten", "limit", 'expected an integer, found "ten"', None),
    ("?label=team", "label/0", 'expected KEY=VALUE, found "team"', None),
    ("?owner=%00", "owner", "the character U+0000 is not allowed", None),
    ("?status=done", "status/0", f'expected {STATUSES}, found "done"', None),
    ("/a/events?follow=maybe", "follow", 'expected true or false, found "maybe"', None),
    ("?owners=ann", "owners", 'there is no query parameter "owners"', 'did you mean "owner"?'),
]
UNREAD = [("GET", one) for one in ("/v1/plugins", "/v1/jobs/a", "/v1/jobs/a/checkpoints", "/v1/jobs/a/artifacts/x.png")]
UNREAD += [("POST", one) for one in ("/v1/jobs", "/v1/jobs:validate", "/v1/jobs/a:cancel", "/v1/jobs/a:resume")]


def test_what_cannot_be_asked_is_told_in_words(client: Client, tiny: Callable[..., Any]) -> None:
    service = client()
    service.post("/v1/jobs", json=tiny())
    for forged in FORGED:
        assert codes(service.get("/v1/jobs", params={"cursor": forged}))[0][1] == "/query/cursor", forged
    assert service.get("/v1/jobs", params={"cursor": cursor([-(2**62), "'; DROP TABLE jobs"])}).json()["jobs"] == []
    assert len(service.get("/v1/jobs").json()["jobs"]) == 1
    for query in IMPOSSIBLE:
        assert all(str(pointer).startswith("/query/") for _, pointer in codes(service.get(f"/v1/jobs?{query}"))), query
    for query, place, detail, hint in WORDS:
        (error,) = service.get(f"/v1/jobs{query}").json()["errors"]
        assert (error["pointer"], error["detail"]) == (f"/query/{place}", detail), query
        assert hint is None or error["hint"] == hint
    unread = service.get("/v1/jobs?a=1&a=2&~=3")
    assert codes(unread) == [("request.invalid", "/query/a"), ("request.invalid", "/query/~0")]
    for method, path in [*UNREAD, ("GET", "/v1/jobs/a/logs")]:
        answer = service.request(method, f"{path}?nothing", json={} if method == "POST" else None)
        assert "/query/nothing" in [pointer for _, pointer in codes(answer)], path

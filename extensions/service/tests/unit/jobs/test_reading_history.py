"""What a request for events or logs is answered, whatever lies in the run directory."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import orjson
import pytest
import urllib3
import uvicorn
from waiting import wait_until

from hostcore.runs.directory import RunDirectory
from hostcore.runs.launch import Launch
from hostcore.secrets.scrub import forget_all, remember
from hostcore_hookspecs.launcher import LaunchHandle
from hostcore_service.app import make_app
from hostcore_service.jobs import history, streams
from hostcore_service.jobs.streams import NDJSON, SSE, TEXT

#: What a stream sends while there is nothing to send.
SIGNS = {SSE: b": still here\n\n", NDJSON: b"\n"}
SECRET = "correct horse battery staple"


def line(seq: int, **fields: Any) -> bytes:
    return orjson.dumps({"schema": "hostcore.event/1", "seq": seq, "event": "warning", **fields}) + b"\n"


def attempt(directory: RunDirectory, number: int, text: bytes) -> None:
    (directory.attempts / f"{number}.json").write_text("{}")
    directory.rank_output(number, 0).write_bytes(text)


def launch(directory: RunDirectory, *, sees_run_dir: bool) -> None:
    Launch(attempt=1, submitted_ms=1, sees_run_dir=sees_run_dir).write(directory.launch)


@pytest.fixture
def secret() -> Iterator[str]:
    remember(SECRET)
    yield SECRET
    forget_all()


def test_events_are_the_whole_lines_of_the_log(opened: Any) -> None:
    opened.job().events.write_bytes(
        line(1) + line(2) + b"damaged\n" + line(3) + b'{"schema":"hostcore.event/1","seq":4'
    )
    answer = opened.get("/v1/jobs/a/events")
    assert (answer.content, answer.headers["content-type"]) == (line(1) + line(2) + line(3), NDJSON)
    assert opened.get("/v1/jobs/a/events?since=2").content == line(3)
    for accept, form in (
        ("", NDJSON),
        ("*/*", NDJSON),
        (TEXT, TEXT),
        (SSE, SSE),
        ("application/json;q=0.5, Text/Event-Stream; q=1", SSE),
    ):
        kind = opened.get("/v1/jobs/a/logs", Accept=accept).headers["content-type"]
        assert kind.partition(";")[0] == form, accept


def test_a_stream_goes_on_behind_the_last_event_that_arrived(opened: Any) -> None:
    opened.job().events.write_bytes(line(1) + line(2))
    answer = opened.get("/v1/jobs/a/events?since=0", Accept=SSE, Last_Event_ID="1")
    assert answer.content == b'id: 2\nevent: warning\ndata: %sevent: end\ndata: {"status":"succeeded"}\n\n' % (
        line(2) + b"\n"
    )


def test_a_job_that_ended_without_a_directory_has_an_empty_history(opened: Any) -> None:
    opened.job("b", status="failed")
    (opened.service.settings.runs / "b").rename(opened.service.settings.runs / "moved")
    assert opened.get("/v1/jobs/b/events", Accept=SSE).content == b'event: end\ndata: {"status":"failed"}\n\n'
    for what in ("events", "logs"):
        answer = opened.get(f"/v1/jobs/b/{what}?follow=true")
        assert (answer.status_code, answer.content) == (200, b"")


UNREADABLE: list[tuple[str, dict[str, str], int]] = [
    ("nobody/events", {}, 404),
    ("nobody/logs", {}, 404),
    ("a/events", {"Last_Event_ID": "x"}, 400),
    ("a/events", {"Last_Event_ID": "9" * 30}, 400),
    ("a/events?since=-1", {}, 400),
    ("a/logs?attempt=2", {}, 404),
    ("a/logs?rank=1", {}, 404),
    ("a/logs?since=nonsense", {}, 400),
    ("a/logs?since=l.1.%21", {}, 400),
    ("a/logs?source=nobody", {}, 400),
    ("a/logs?source=launcher&since=l.1.A", {}, 400),
    ("a/logs?source=worker&since=l.1.", {}, 400),
    ("a/logs?source=launcher&since=w.1.5", {}, 400),
    ("a/logs?source=launcher&rank=0", {}, 400),
    ("a/logs?source=launcher&attempt=1", {}, 400),
]


def test_what_cannot_be_read_is_a_problem(opened: Any) -> None:
    attempt(opened.job(), 1, b"said\n")
    for path, headers, status in UNREADABLE:
        answer = opened.get(f"/v1/jobs/{path}", **headers)
        assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json"), path


def test_logs_are_read_on_from_any_piece(opened: Any) -> None:
    directory, long = opened.job(), "ü" * 100_000 + "\nend"
    attempt(directory, 1, b"the first attempt\n")
    attempt(directory, 2, long.encode())
    pieces = [orjson.loads(one) for one in opened.get("/v1/jobs/a/logs").content.splitlines()]
    assert "".join(one["text"] for one in pieces) == long
    assert len(pieces) > 1
    for number, one in enumerate(pieces):
        rest = opened.get(f"/v1/jobs/a/logs?since={one['next']}").content.splitlines()
        assert "".join(orjson.loads(each)["text"] for each in rest) == "".join(p["text"] for p in pieces[number + 1 :])
    assert opened.get("/v1/jobs/a/logs?attempt=1", Accept=TEXT).text == "the first attempt\n"
    assert opened.get("/v1/jobs/a/logs?attempt=1&since=w.1.4", Accept=TEXT).text == "first attempt\n"


def test_secrets_that_the_service_knows_are_never_sent(opened: Any, secret: str) -> None:
    directory = opened.job()
    attempt(directory, 1, f"the password is {secret}\n".encode())
    directory.events.write_bytes(line(1, message=secret))
    for path in ("events", "logs"):
        for accept in (SSE, NDJSON, TEXT):
            answer = opened.get(f"/v1/jobs/a/{path}", Accept=accept).text
            assert secret not in answer
            assert "********" in answer


def test_what_a_run_directory_far_away_has_is_refused_and_what_the_launcher_has_is_told(opened: Any) -> None:
    directory = opened.job(launcher="far", handle=LaunchHandle(launcher="far", id="a.1"))
    (directory.attempts / "1.json").write_text("{}")  # a mirror has told of it
    launch(directory, sees_run_dir=False)
    for query in ("source=worker", "source=worker&attempt=1", "rank=0", "rank=3&attempt=1", "attempt=1"):
        answer = opened.get(f"/v1/jobs/a/logs?{query}")
        (error,) = answer.json()["errors"]
        assert (answer.status_code, error["code"]) == (404, "run.unseen"), query
        assert "what its launcher has" in error["hint"]
    for query in ("", "source=launcher", "since=w.1.5"):  # the last: it was seen when that was read
        assert opened.get(f"/v1/jobs/a/logs?{query}", Accept=TEXT).text == "a pod has started\n", query
    assert opened.get("/v1/jobs/a").json()["sees_run_dir"] is False
    launch(directory, sees_run_dir=True)
    attempt(directory, 1, b"said\n")
    assert opened.get("/v1/jobs/a/logs?source=worker&attempt=1", Accept=TEXT).text == "said\n"
    assert opened.get("/v1/jobs/a").json()["sees_run_dir"] is True


def test_a_long_history_is_sent_whole(opened: Any) -> None:
    lines = [line(seq, message="x" * 1000) for seq in range(1, 1000)]  # four times what is read at once
    opened.job().events.write_bytes(b"".join(lines))
    assert opened.get("/v1/jobs/a/events").content == b"".join(lines)


def test_an_event_that_an_older_version_has_written_too_long_is_sent_with_its_texts_cut(
    opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "_LONGEST", 20_000)
    lines = [line(1), line(2, message="x" * 100_000), line(3)]
    opened.job().events.write_bytes(b"".join(lines))
    answer = opened.get("/v1/jobs/a/events?follow=false", Accept=SSE).text
    sent = [orjson.loads(one.partition(": ")[2]) for one in answer.splitlines() if one.startswith("data: {")]
    assert [one["seq"] for one in sent if "seq" in one] == [1, 2, 3]
    assert sent[1]["message"].endswith("bytes left out …]")


def test_a_stream_shows_that_it_lives_and_ends_when_its_job_is_seen_no_more_or_its_client_goes_away(
    service_here: Callable[..., Any], a_job: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "_HEARTBEAT_SECONDS", 0.0)
    app = make_app(service_here())
    with closing(socket.create_server(("127.0.0.1", 0))) as listening:
        server = uvicorn.Server(uvicorn.Config(app, log_config=None))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            wait_until(lambda: server.started, "the server to start")
            handle = LaunchHandle(launcher="far", id="1")
            app.state.service.jobs.add(a_job("a", phase="launched", due_ms=2**50, launcher="far", handle=handle))
            directory = RunDirectory(app.state.settings.runs / "a")
            directory.make()
            url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1/jobs/a"
            pool = urllib3.PoolManager(maxsize=20, timeout=120)  # a stream that shows nothing fails the test

            def opened(what: str, form: str) -> Any:
                return pool.request("GET", f"{url}/{what}", headers={"Accept": form}, preload_content=False)

            kinds = [
                (f"{what}follow=true", form) for what in ("events?", "logs?", "logs?source=worker&") for form in SIGNS
            ]
            found = {kind: opened(*kind) for kind in kinds}
            wait_until(lambda: app.state.streams.open == len(found), "open streams")
            for (what, form), stream in found.items():
                assert stream.read(len(SIGNS[form])) == SIGNS[form], (what, form)
            launch(directory, sees_run_dir=False)
            for (what, form), stream in found.items():
                if "worker" in what:  # it is closed without an end
                    assert stream.read().replace(SIGNS[form], b"") == b""
                elif "logs" in what:
                    wait_until(
                        lambda stream=stream: b"a pod has started" in stream.read1(1 << 16), "the launcher's output"
                    )
            for stream in found.values():
                stream.close()
            wait_until(lambda: app.state.streams.open == 0, "their end")
        finally:
            server.should_exit = True
            thread.join(120)
    assert not thread.is_alive()

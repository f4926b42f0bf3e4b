"""Events and logs of jobs, read over HTTP while they go on: every event exactly once, whatever happens to the line."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import orjson
import urllib3
from served import at_once

SSE = {"Accept": "text/event-stream"}


@attrs.frozen(kw_only=True)
class Sent:
    """An event of a stream."""

    id: str | None
    event: str
    data: Any


class Stream:
    """An open stream, which can be cut."""

    def __init__(self, server: Any, path: str, **headers: str) -> None:
        sent = {**SSE, **headers, "X-TRAINER-TOKEN": server.token}
        self._answer = server.pool.request("GET", server.url + path, headers=sent, preload_content=False, timeout=300)
        assert self._answer.status == 200, self._answer.data
        assert self._answer.headers["content-type"].startswith("text/event-stream")

    def __iter__(self) -> Iterator[Sent]:
        text = b""
        try:
            for chunk in self._answer.stream(4096):
                text += chunk
                *blocks, text = text.split(b"\n\n")
                for block in blocks:
                    if not block.startswith(b":"):
                        fields = dict(line.split(": ", 1) for line in block.decode().split("\n"))
                        yield Sent(id=fields.get("id"), event=fields["event"], data=orjson.loads(fields["data"]))
        except urllib3.exceptions.HTTPError:
            return  # it was cut

    def cut(self) -> None:
        self._answer.close()


def recorded(server: Any, run_id: str) -> list[dict[str, Any]]:
    """The events of a run as its log has them."""
    lines = (server.runs / run_id / "logs" / "events.jsonl").read_bytes().splitlines()
    return [orjson.loads(line) for line in lines]


def test_a_client_that_is_cut_at_random_points_gets_every_event_exactly_once(shared_server: Any, seed: int) -> None:
    server = shared_server
    chance = random.Random(seed)
    server.submit(run_id="cut", max_steps=400, metric_every=1, hyperparams={"seconds": 0.002})
    got: list[Sent] = []
    cuts = 0
    while not got or got[-1].event != "end":
        headers = {"Last-Event-ID": got[-1].id} if got else {}
        stream = Stream(server, "/v1/jobs/cut/events", **headers)
        left = chance.randrange(60)
        for one in stream:
            got.append(one)
            left -= 1
            if left < 0:
                stream.cut()
                cuts += 1
                break
    assert cuts > 3
    assert [one.data for one in got[:-1]] == recorded(server, "cut")
    assert [(one.id, one.event) for one in got[:-1]] == [(str(one.data["seq"]), one.data["event"]) for one in got[:-1]]
    assert (got[-1].id, got[-1].data) == (None, {"status": "succeeded"})


def test_two_hundred_open_streams_keep_no_request_waiting(make_server: Any, until: Any) -> None:
    server = make_server(launcher="stuck")
    server.submit(run_id="open")
    server.pool = urllib3.PoolManager(maxsize=300, retries=False)
    streams = [Stream(server, f"/v1/jobs/open/{what}") for what in ("events", "logs") for _ in range(100)]

    def submit(number: int) -> int:
        job = {"trainer": "tiny", "device": "cpu", "max_steps": 3, "run_id": f"beside-{number}", "launcher": "instant"}
        status: int = server.request("POST", "/v1/jobs", json=job).status
        return status

    assert at_once(20, submit) == [201] * 20
    for number in range(20):
        assert server.wait_ended(f"beside-{number}")["status"] == "succeeded"
    # No thread waits for a stream: there are those that answer requests (40), look and call for streams (12), attend to
    # jobs (8), and a few more.
    assert len(list(Path(f"/proc/{server.process.pid}/task").iterdir())) < 80
    for stream in streams:
        stream.cut()

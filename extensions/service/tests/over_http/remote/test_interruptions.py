"""A job of a service is followed through what happens to the service, to the connection, and to whoever watches."""

import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs
import orjson
import pytest

LONG = {"max_steps": 10**6, "hyperparams": {"seconds": 0.05}}


def events_of(service: Any, run_id: str) -> list[dict[str, Any]]:
    log = service.runs / run_id / "logs" / "events.jsonl"
    lines = log.read_bytes().splitlines(keepends=True) if log.exists() else []
    return [orjson.loads(line) for line in lines if line.endswith(b"\n")]


def steps(service: Any, run_id: str, attempt: int) -> int:
    return sum(event["event"] == "metrics" and event["attempt"] == attempt for event in events_of(service, run_id))


def test_a_run_is_cancelled_resumed_and_followed_while_the_service_dies(
    service: Any, there: Callable[..., Any], until: Callable[..., Any]
) -> None:
    first = service.command("run", service.job_file("long", **LONG), "--json")
    until(lambda: steps(service, "long", 1) >= 2, "two steps")
    first.send_signal(signal.SIGINT)
    out, err = first.communicate(timeout=600)
    result = orjson.loads((service.runs / "long" / "result.json").read_bytes())
    assert (first.returncode, orjson.loads(out)) == (130, result)
    assert (result["status"], result["reason"]) == ("cancelled", "interrupted by the user")
    assert result["final_checkpoint"]
    assert "long  is asked to stop; Ctrl-C once more ends the waiting, not the request" in err

    second = service.command("resume", "long")
    until(lambda: steps(service, "long", 2) >= 2, "two steps of the second attempt")
    assert there("resume", "long", "--json").json["errors"][0]["code"] == "run.conflict"
    log = service.command("logs", "-f", "--json", "long")
    assert log.stdout is not None
    seen = log.stdout.readline()
    service.kill()
    before = steps(service, "long", 2)
    until(lambda: steps(service, "long", 2) >= before + 2, "steps without a service")
    assert second.stderr is not None
    assert second.stdout is not None
    told = []
    while not told or "trying again" not in told[-1]:
        told.append(second.stderr.readline())
        assert told[-1], told
    service.start()
    said = there("cancel", "long", "--reason", "enough", "--json")
    assert (said.code, said.json["status"], said.json["result"]["reason"]) == (0, "cancelled", "enough")
    assert (said.json["requested"], said.json["attempt"]) == (True, 2)

    err = "".join(told) + second.stderr.read()
    out = second.stdout.read()
    assert (second.wait(timeout=300), out.splitlines()[0]) == (130, "cancelled  long")
    assert "  to go on    hostcore resume long" in out.splitlines(), "the environment names the service"
    told = [line for line in err.splitlines() if line.startswith("long ")]
    assert told[-1].startswith("long cancelled at step")
    assert not any("interrupted by the user" in line for line in told), "the first attempt is over"
    assert f"{service.url} answers again" in err.splitlines()

    seen += log.stdout.read()
    assert log.wait(timeout=300) == 0, seen[-2000:]
    followed = [orjson.loads(line)["seq"] for line in seen.splitlines()]
    assert followed == [event["seq"] for event in events_of(service, "long")], "each event exactly once"


def test_ctrl_c_cancels_once_and_a_second_ends_the_waiting(
    service: Any, there: Callable[..., Any], until: Callable[..., Any]
) -> None:
    process = service.command("run", service.job_file("waits", launcher="deaf"))
    assert process.stderr is not None
    assert process.stdout is not None
    assert process.stderr.readline() == f"waits  submitted to {service.url}\n"
    # Cancelled before it is launched, it would be over.
    until(lambda: there("status", "waits", "--json").json["status"] == "running", "it to run")
    process.send_signal(signal.SIGINT)
    while not (line := process.stderr.readline()).startswith("waits  is asked to stop"):
        assert line
    process.send_signal(signal.SIGINT)
    err = process.stderr.read()
    assert (process.wait(timeout=300), process.stdout.read()) == (130, "")
    assert "waits  is still asked to stop; `hostcore logs -f waits` shows how it goes" in err
    assert there("status", "waits", "--json").json["status"] == "running"


def test_a_signal_that_ends_the_watching_leaves_the_run_alone(service: Any, there: Callable[..., Any]) -> None:
    process = service.command("run", service.job_file("alone", launcher="deaf"))
    assert process.stderr is not None
    assert process.stdout is not None
    assert process.stderr.readline() == f"alone  submitted to {service.url}\n"
    process.send_signal(signal.SIGTERM)
    err = process.stderr.read()
    assert (process.wait(timeout=300), process.stdout.read()) == (128 + signal.SIGTERM, "")
    assert "alone  goes on without being watched; `hostcore logs -f alone` shows how it goes" in err
    assert there("cancel", "alone", "--no-wait", "--json").json["requested"] is True, "nobody had"


@attrs.define(eq=False)
class Forgetful:
    """A proxy that swallows the answers to the first requests: the service has them, and nobody hears of it."""

    port_behind: int
    swallowed: int = 2
    requests: list[bytes] = attrs.field(factory=list)
    listening: socket.socket = attrs.field(factory=lambda: socket.create_server(("127.0.0.1", 0)))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.listening.getsockname()[1]}"

    def run(self) -> None:
        with suppress(OSError):  # it was closed
            while True:
                client, _ = self.listening.accept()
                with client, suppress(OSError), socket.create_connection(("127.0.0.1", self.port_behind)) as behind:
                    self._pass_on(client, behind)

    def _pass_on(self, client: socket.socket, behind: socket.socket) -> None:
        request = _message(client)
        self.requests.append(request)
        behind.sendall(request)
        answer = _message(behind)
        if len(self.requests) > self.swallowed:
            client.sendall(answer)


def _message(source: socket.socket) -> bytes:
    """One message of HTTP/1.1 whose length is in its head."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += _received(source)
    head, _, body = data.partition(b"\r\n\r\n")
    lengths = [line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    while len(body) < int(lengths[0] if lengths else 0):
        body += _received(source)
    return head + b"\r\n\r\n" + body


def _received(source: socket.socket) -> bytes:
    if not (piece := source.recv(65536)):
        raise ConnectionResetError("it was left in the middle of a message")
    return piece


@pytest.fixture
def forgetful(service: Any) -> Iterator[Forgetful]:
    proxy = Forgetful(service.port)
    thread = threading.Thread(target=proxy.run, daemon=True)
    thread.start()
    yield proxy
    proxy.listening.shutdown(socket.SHUT_RDWR)
    proxy.listening.close()
    thread.join(10)


def test_a_job_whose_answer_was_lost_is_submitted_once(
    service: Any, there: Callable[..., Any], forgetful: Forgetful
) -> None:
    """Its run id is made by the service, so that nothing but the key of the request tells the two apart."""
    file = service.job_file("unnamed", launcher="instant", labels={"lost": "yes"})
    file.write_bytes(orjson.dumps({k: v for k, v in orjson.loads(file.read_bytes()).items() if k != "run_id"}))
    said = there("run", str(file), "--detach", "--json", url=forgetful.url)
    assert said.code == 0, said.err
    assert f"{forgetful.url} does not answer" in said.err
    assert len(forgetful.requests) == 3
    assert len({_key(request) for request in forgetful.requests}) == 1
    names = [run["run_id"] for run in there("list", "--json").json["runs"] if run["run_id"].startswith("tiny-")]
    assert names == [said.json["run_id"]]
    started = (Path(service.folder) / "ledger").glob(f"{names[0]}.*.name")
    assert len(list(started)) <= 1


def _key(request: bytes) -> bytes:
    (line,) = [line for line in request.split(b"\r\n") if line.lower().startswith(b"idempotency-key:")]
    return line

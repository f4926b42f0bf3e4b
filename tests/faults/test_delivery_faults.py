"""A webhook whose server, or the way to it, fails: no run ends by it, and in the end everything was told, in order."""

import http.server
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from outages import HALF, STEPS, Command, Outage
from proxy import Fault, Proxy
from waiting import wait_until

FAULTS = [fault for fault in Fault if fault not in (Fault.NONE, Fault.SLOW)]

ANSWER = b'{"taken": true}'


class Receiver(http.server.ThreadingHTTPServer):
    """Takes events, and remembers them."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def seqs(self) -> list[int]:
        return [event["seq"] for event in self.events]

    def assert_has_heard(self, log: list[dict[str, Any]], fault: Fault = Fault.NONE) -> None:
        """Every event of the log, unchanged, once or more, in order: only what was told before may come again."""
        seen = 0
        for seq in self.seqs:
            assert seq <= seen + 1, f"{fault}: {seq} came after {seen}: {self.seqs}"
            seen = max(seen, seq)
        by_seq = {event["seq"]: event for event in self.events}
        assert [by_seq.get(event["seq"]) for event in log] == log, fault
        assert len(by_seq) == len(log), fault


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        size = int(self.headers["Content-Length"])
        body = self.rfile.read(size)
        if len(body) == size:
            self.server.events.append(json.loads(body))
            self.send_response(200)
            self.send_header("Content-Length", str(len(ANSWER)))
            self.end_headers()
            self.wfile.write(ANSWER)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def receiving() -> Iterator[Receiver]:
    with Receiver() as receiver:
        thread = threading.Thread(target=receiver.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield receiver
        receiver.shutdown()
        thread.join()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


@pytest.fixture
def proxy(receiver: Receiver) -> Iterator[Proxy]:
    with Proxy(receiver.server_port, bytes_per_second=2000) as proxy:
        yield proxy


Ways = Mapping[Fault, tuple[Receiver, Proxy]]


@pytest.fixture
def ways() -> Iterator[Ways]:
    """A receiver for each fault, and a way to it that has none yet."""
    with ExitStack() as stack:
        receivers = {fault: stack.enter_context(receiving()) for fault in FAULTS}
        yield {fault: (one, stack.enter_context(Proxy(one.server_port))) for fault, one in receivers.items()}


@pytest.fixture
def outage(tmp_path: Path) -> Outage:
    return Outage.prepare(tmp_path)


def webhook(proxy: Proxy, **settings: Any) -> Mapping[str, Any]:
    return {"use": "webhook", "url": f"{proxy.url}/events", "timeout_seconds": 60, **settings}


def webhooks(ways: Ways) -> list[Mapping[str, Any]]:
    """One for each way. Only where nothing is answered, the timeout is waited for."""
    patience = {Fault.BLACK_HOLE: {"timeout_seconds": 1}}
    return [webhook(proxy, **patience.get(fault, {})) for fault, (_, proxy) in ways.items()]


def failures(command: Command) -> list[str]:
    return [event["message"] for event in command.named("reporter_failed")]


def check_all_have_heard(ways: Ways, command: Command) -> None:
    command.assert_all_steps_done()
    for fault, (receiver, proxy) in ways.items():
        assert proxy.met(fault) > 0 or fault is Fault.ABSENT
        receiver.assert_has_heard(command.ledger.events, fault)
    assert len(failures(command)) == len(ways), "an outage is told once, and not at every try"


def recoveries(command: Command) -> int:
    return sum(event["code"] == "reporter.recovered" for event in command.named("warning"))


def test_everything_is_told_after_outages_that_were_there_from_the_start(outage: Outage, ways: Ways) -> None:
    """One run with a reporter for each fault: none disturbs another."""
    for fault, (_, proxy) in ways.items():
        proxy.fault = fault
    command = outage.start(outage.job(reporters=webhooks(ways)))
    command.wait_for_step(HALF)
    wait_until(lambda: len(failures(command)) == len(ways), "the failures to be told")
    for fault, (receiver, proxy) in ways.items():
        assert bool(receiver.events) == (fault in (Fault.LOST_RESPONSE, Fault.TRUNCATED_RESPONSE)), fault
        proxy.fault = Fault.NONE
    wait_until(lambda: recoveries(command) == len(ways), "the recoveries to be told")
    outage.gate.touch()
    assert command.wait() == 0, command.printed
    check_all_have_heard(ways, command)


def test_everything_is_told_after_outages_in_the_middle(outage: Outage, ways: Ways) -> None:
    job = outage.job(reporters=webhooks(ways))
    job["hyperparams"]["gates"]["5"] = str(outage.folder / "first-gate")
    command = outage.start(job)
    command.wait_for_step(5)
    for fault, (receiver, proxy) in ways.items():
        wait_until(lambda: receiver.seqs[-1:] == [command.ledger.events[-1]["seq"]], "the first half to be heard")  # noqa: B023
        proxy.fault = fault
    (outage.folder / "first-gate").touch()
    command.wait_for_step(HALF)
    wait_until(lambda: len(failures(command)) == len(ways), "the failures to be told")
    for _, proxy in ways.values():
        proxy.fault = Fault.NONE
    outage.gate.touch()
    assert command.wait() == 0, command.printed
    check_all_have_heard(ways, command)


def test_a_slow_receiver_hears_everything_and_no_step_waits_for_it(
    outage: Outage, proxy: Proxy, receiver: Receiver
) -> None:
    proxy.fault = Fault.SLOW
    command = outage.start(outage.job(reporters=[webhook(proxy)]))
    command.wait_for_step(HALF)
    wait_until(lambda: receiver.events, "an event to be heard")
    proxy.is_held = True  # so slow that it hears the rest when all steps are made
    outage.gate.touch()
    command.wait_for_step(STEPS)
    assert max(event["step"] or 0 for event in receiver.events) < STEPS, "the steps have waited for the receiver"
    proxy.is_held = False
    assert command.wait() == 0, command.printed
    command.assert_all_steps_done()
    receiver.assert_has_heard(command.ledger.events)
    assert failures(command) == []


def test_a_receiver_that_is_lost_for_good_costs_nothing_but_its_events_which_can_be_told_later(
    outage: Outage, proxy: Proxy, receiver: Receiver
) -> None:
    job = outage.job(reporters=[webhook(proxy)])
    command = outage.start(job)
    command.wait_for_step(HALF)
    wait_until(lambda: len(receiver.events) > HALF, "the first half to be heard")
    proxy.fault = Fault.ABSENT
    outage.gate.touch()
    command.hurry()
    assert command.wait() == 0, command.printed
    command.assert_all_steps_done()
    log = command.ledger.events
    missing = len(log) - len(set(receiver.seqs))
    assert missing > 0
    # When the receiver went away, the answer to one event may have been on its way.
    (untaken,) = [count for count in (missing, missing + 1) if f"has not taken {count} events" in command.printed]
    assert "hostcore replay run --reporter webhook --pending" in command.printed

    proxy.fault = Fault.NONE
    replay = outage.command("replay", "run", "--reporter", "webhook", "--pending")
    assert replay.wait() == 0, replay.printed
    receiver.assert_has_heard(log)
    assert len(receiver.events) == len(log) - missing + untaken, "more was told again than was missing"


def test_a_required_receiver_that_is_lost_for_good_fails_the_run_and_leaves_its_training_intact(
    outage: Outage, proxy: Proxy, receiver: Receiver
) -> None:
    outage.gate.touch()
    proxy.fault = Fault.ABSENT
    command = outage.start(outage.job(reporters=[webhook(proxy, required=True)]))
    command.hurry()
    assert command.wait() == 1
    assert "Traceback" not in command.printed
    result = command.ledger.result
    assert result is not None
    assert (result["status"], result["step"], result["exit_code"]) == ("failed", 20, 1)
    assert "webhook" in result["error"]["message"]
    assert result["error"]["message"] in command.printed
    assert result["final_checkpoint"] == "checkpoints/step-000020"
    command.ledger.check_checkpoints(keep=3)

    proxy.fault = Fault.NONE
    replay = outage.command("replay", "run", "--reporter", "webhook", "--pending")
    assert replay.wait() == 0, replay.printed
    receiver.assert_has_heard(command.ledger.events)


def test_one_reporter_in_trouble_does_not_keep_another_waiting(outage: Outage, proxy: Proxy, tmp_path: Path) -> None:
    proxy.fault = Fault.BLACK_HOLE
    other = tmp_path / "events.jsonl"
    reporters = [webhook(proxy, timeout_seconds=60), {"use": "jsonl", "path": str(other)}]
    command = outage.start(outage.job(reporters=reporters))

    def told() -> bool:
        return other.exists() and f'"step":{HALF}'.encode() in other.read_bytes()

    command.wait_for_step(HALF)
    wait_until(told, "the other reporter to hear of it")
    outage.gate.touch()
    wait_until(lambda: b'"run_succeeded"' in other.read_bytes(), "the other reporter to hear of the end")
    command.hurry()
    assert command.wait() == 0, command.printed
    assert [json.loads(line) for line in other.read_text().splitlines()] == command.ledger.events

"""A job of a service is followed through what happens to the service, to the connection, and to whoever watches."""

import signal
from collections.abc import Callable
from typing import Any

import orjson

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
    assert followed == list(range(1, len(followed) + 1)), "those of the second attempt have higher numbers"


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

"""Twenty planted secrets, plugins that let them out on purpose, and every way to fail: none is found anywhere."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from waiting import wait_until

from hostcore.secrets.scrub import HIDDEN


def test_of_a_run_that_succeeds_and_of_what_looks_at_it(leaks: Any) -> None:
    job = leaks.job("good")
    done = [leaks.command("run", job, "--trace-hooks", "-v")]
    assert done[0].code == 0, done[0].err
    for looking in (
        ["status", "good", "--json"],
        ["logs", "good"],
        ["logs", "good", "--output"],
        ["validate", job, "--json"],
        ["plugins", "show", "leaky"],
    ):
        done.append(leaks.command(*looking))
        assert done[-1].code == 0, (looking, done[-1].err)
    leaks.require_none(*done)

    run = leaks.run_dir("good")
    output = (run / "logs" / "rank-0.attempt-1.log").read_text()
    assert "from a thread: ********\n" in output
    assert f"trainer.setup ['{HIDDEN}'" in output  # before the thread that reads ahead prints among its lines
    assert {*_metrics(run)} >= {"train/loss", f"of {HIDDEN}"}
    assert json.loads((run / "config" / "run.json").read_text())["job"]["hyperparams"] == leaks.settings("trainer")


def _metrics(run: Path) -> Iterator[str]:
    for line in (run / "logs" / "events.jsonl").read_text().splitlines():
        yield from json.loads(line).get("metrics", {})


@pytest.mark.parametrize(
    ("places", "code"),
    [
        ("reporter.construct,uploader.construct,resolver.construct", 2),
        ("trainer.construct,data.construct,callback.construct", 2),
        ("resolver.resolve", 2),
        ("data.open", 2),
        ("data.read", 1),
        ("trainer.setup", 1),
        ("callback.step,trainer.teardown", 1),
        ("trainer.sample", 1),
        ("trainer.save_checkpoint", 1),
    ],
)
def test_when_plugins_raise_with_them_and_the_run_ends(leaks: Any, places: str, code: int) -> None:
    done = leaks.command("run", leaks.job("bad"), "-v", "--trace-hooks", LEAKY_FAIL=places)
    leaks.require_none(done)
    assert done.code == code, done.err
    for place in places.split(","):
        if place != "trainer.teardown":  # told in the log alone
            assert f"{place} was given ['{HIDDEN}'" in done.err
            assert f"KeyError: '{HIDDEN}'" in done.err or f"KeyError: {HIDDEN}" in done.err


def test_when_a_checkpoint_cannot_hold_what_is_called_like_one(leaks: Any) -> None:
    done = leaks.command("run", leaks.job("bad"), LEAKY_FAIL="trainer.state")
    leaks.require_none(done)
    assert done.code == 1
    assert f"/values/{HIDDEN}" in done.err


def test_when_the_run_is_started_again_after_a_failure(leaks: Any) -> None:
    done = leaks.command("run", leaks.job("again", max_restarts=1), "--json", LEAKY_FAIL="trainer.step")
    leaks.require_none(done)
    assert done.code == 1
    assert f"trainer.step was given ['{HIDDEN}'" in json.loads(done.out)["error"]["message"]
    assert (leaks.run_dir("again") / "logs" / "rank-0.attempt-2.log").exists()


def test_when_a_callback_stops_the_run_because_of_them(leaks: Any) -> None:
    done = leaks.command("run", leaks.job("stopped"), LEAKY_FAIL="stop")
    leaks.require_none(done)
    assert done.code == 0
    assert json.loads((leaks.run_dir("stopped") / "result.json").read_text())["reason"] == f"because of {HIDDEN}"


class TestInTheMiddle:
    @pytest.fixture
    def start(self, leaks: Any) -> Any:
        """Start a run that goes on until somebody ends it."""

        def start(*, fail: str = "", **environment: str) -> tuple[Any, int]:
            job = leaks.job("slow", max_steps=100_000, metric_every=50, grace_seconds=1)
            process = leaks.start("run", job, "-v", LEAKY_SLOW="1", LEAKY_FAIL=fail, **environment)
            pid = leaks.path / "slow.pid"
            # It is written in each step, and empty for a moment then.
            return process, int(wait_until(lambda: pid.exists() and pid.read_text(), "the third step"))

        return start

    def test_plugins_raise_with_them_and_the_run_goes_on_until_it_is_cancelled(self, leaks: Any, start: Any) -> None:
        # With a variable that an interpreter reads, no process is a fork, which would have its server's command line.
        process, worker = start(fail="reporter.event,uploader.upload", PYTHONHASHSEED="0")
        log = leaks.run_dir("slow") / "logs" / "events.jsonl"
        for told in ("reporter.event was given", "uploader.upload was given"):
            wait_until(lambda told=told: told in log.read_text(), told)
        lines = b"".join(_command_line(path) for path in Path("/proc").glob("[0-9]*/cmdline"))
        assert b"hostcore.worker" in _command_line(Path(f"/proc/{worker}/cmdline"))
        assert leaks.shown_in(lines) == []
        process.send_signal(signal.SIGINT)
        leaks.require_none(done := leaks.end(process))
        assert done.code == 130

    def test_plugins_cannot_be_opened_and_the_run_goes_on(self, leaks: Any, start: Any) -> None:
        process, _ = start(fail="reporter.open,uploader.open")
        log = leaks.run_dir("slow") / "logs" / "events.jsonl"
        for told in ("reporter.open was given", "uploader.open was given"):
            wait_until(lambda told=told: told in log.read_text(), told)
        process.send_signal(signal.SIGTERM)
        leaks.require_none(done := leaks.end(process))
        assert done.code == 75

    def test_the_worker_is_killed(self, leaks: Any, start: Any) -> None:
        process, pid = start()
        os.kill(pid, signal.SIGKILL)
        leaks.require_none(done := leaks.end(process))
        assert done.code == 1
        assert "was killed by SIGKILL" in done.err
        assert "from a thread: ********" in done.err  # the last lines of its output

    def test_the_supervisor_is_killed(self, leaks: Any, start: Any) -> None:
        process, pid = start()
        process.kill()
        done = leaks.end(process)
        wait_until(lambda: not Path(f"/proc/{pid}").exists(), "the end of the worker")
        leaks.require_none(done)
        output = leaks.run_dir("slow") / "logs" / "rank-0.attempt-1.log"
        # What it printed after the supervisor's death has arrived.
        wait_until(lambda: "trainer.teardown" in output.read_text(), "its last words")
        leaks.require_none(leaks.command("resume", "slow", "--set", "max_steps=6", "-v"))


def test_of_a_detached_run(leaks: Any) -> None:
    done = leaks.command("run", leaks.job("apart"), "--detach", "-v")
    assert done.code == 0, done.err
    wait_until((leaks.run_dir("apart") / "result.json").exists, "the end of the run")
    assert leaks.command("status", "apart", "--json").out
    # Before that it still writes, and removes, what is searched.
    wait_until(lambda: not (leaks.run_dir("apart") / "lease.json").exists(), "the supervisor to give the run up")
    leaks.require_none(done)
    log = next((leaks.run_dir("apart") / "logs").glob("supervisor*"))
    assert f"reporter.open ['{HIDDEN}'" in log.read_text()


def _command_line(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # it has ended
        return b""

"""``hostcore verify`` of runs that go on while they are looked at. Real and damaged runs are in tests/integration."""

from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import Said

from hostcore.events.writer import now_ms
from hostcore.runs.attempts import claim_attempt
from hostcore.runs.lease import ProcessIdentity
from hostcore.runs.result import RunResult
from hostcore.verification.log_record import LogRecord
from hostcore_hookspecs.events import RunStarted, RunSucceeded


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """``meanwhile(act)``: what happens to the run when its log has just been read, once."""

    def hook(act: Callable[[], object]) -> None:
        read, acts = LogRecord.read, [act]

        def read_then_act(path: Path) -> LogRecord:
            log = read(path)
            if acts:
                acts.pop()()
            return log

        monkeypatch.setattr(LogRecord, "read", read_then_act)

    return hook


def ends(said: Said) -> str:
    (check,) = [one for one in said.json["checks"] if one["id"] == "log.ends"]
    return check["message"]


def test_an_attempt_that_begins_meanwhile_is_not_called_lost(
    hostcore: Callable[..., Said], run: Callable, tell: Callable, meanwhile: Callable
) -> None:
    directory = run("a", status="succeeded")
    tell(directory, (0, RunStarted(device="cpu")), (1500, RunSucceeded()))
    me = ProcessIdentity.current()
    meanwhile(lambda: claim_attempt(directory.attempts, 2, process=me, started_ms=now_ms()))
    said = hostcore("verify", "a", "--json")
    assert (said.code, ends(said)) == (0, "attempt 1 succeeded, attempt 2 is starting")


def test_a_run_that_ends_meanwhile_is_not_told_to_have_ended_without_saying_so(
    hostcore: Callable[..., Said], run: Callable, tell: Callable, meanwhile: Callable
) -> None:
    directory = run("a")
    tell(directory, (0, RunStarted(device="cpu")))

    def end() -> None:
        tell(directory, (7, RunSucceeded()))
        RunResult(
            run_id="a", status="succeeded", exit_code=0, attempt=1, step=7, epoch=0, started_ms=1, ended_ms=2
        ).write(directory.result)

    meanwhile(end)
    said = hostcore("verify", "a", "--json")
    assert (said.code, ends(said)) == (0, "attempt 1 runs")


def test_an_attempt_that_has_said_nothing_yet_has_lost_nothing(hostcore: Callable[..., Said], run: Callable) -> None:
    run("a")
    said = hostcore("verify", "a")
    assert said.code == 0
    assert said.out.splitlines()[-1] == "nothing lost, skipped or repeated so far; it runs  a"

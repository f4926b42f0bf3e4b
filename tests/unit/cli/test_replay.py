"""``hostcore replay``: a reporter is told what is in the log of a run."""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import attrs
import orjson
import pytest
from click.testing import CliRunner
from command_line import Said

from hostcore.cli.commands.replay import replay_command
from hostcore.events.merger import Entry, EventLog
from hostcore.runs.directory import RunDirectory
from hostcore.supervisor.delivery import redelivery
from hostcore.supervisor.delivery.calls import QuickRetries
from hostcore.supervisor.delivery.events_source import EventLimits
from hostcore_hookspecs.events import EpochStarted, RunSucceeded

SOURCE = """
import attrs
from hostcore_hookspecs import FatalError

HEARD = []
DOWN = []

class Reporter:
    @attrs.frozen(kw_only=True)
    class Settings:
        url: str = "http://default"
    def __init__(self, settings):
        self.url = settings.url
    def open(self, ctx):
        HEARD.append(("open", self.url, ctx.run_id, ctx.attempt, ctx.job.max_steps))
    def report_event(self, event):
        print("reporters print")
        if event.seq in DOWN:
            raise FatalError(f"event {event.seq} is refused") if self.url == "http://fatal" else OSError("no route")
        HEARD.append(event.seq)
    def close(self):
        HEARD.append("close")
        if self.url == "http://unflushable":
            raise OSError("cannot flush")
"""


@pytest.fixture
def plugin(site_here: Any) -> ModuleType:
    """Two reporters of one distribution, which remember what they are told."""
    site_here.install(
        "loud",
        version="2.1",
        modules={"loud_reporter.py": SOURCE},
        entry_points={"hostcore.reporters": {"loud": "loud_reporter:Reporter", "quiet": "loud_reporter:Reporter"}},
    )
    import loud_reporter  # type: ignore[import-not-found]

    return loud_reporter


@pytest.fixture
def ended(run: Callable[..., RunDirectory], plugin: ModuleType) -> RunDirectory:
    """A run of six events that has two uses of a reporter."""
    return _with_events(run("a", status="succeeded", record=_record()))


def _record() -> dict[str, Any]:
    uses = [{"use": "loud", "url": "http://first"}, {"use": "loud/loud", "url": "http://second"}]
    return {"job": {"trainer": "not-installed-here", "run_id": "a", "max_steps": 9, "reporters": uses}}


def _with_events(directory: RunDirectory) -> RunDirectory:
    log = EventLog(directory.events, run_id="a", attempt=1)
    for payload in [EpochStarted()] * 5 + [RunSucceeded()]:
        log.append(Entry(payload=payload, step=0, epoch=0))
    log.close()
    return directory


@pytest.fixture
def replay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Said]:
    """``replay("a", "--reporter", "loud")``."""
    monkeypatch.delenv("HOSTCORE_RUNS_DIR", raising=False)
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> Said:
        result = CliRunner().invoke(replay_command, arguments, catch_exceptions=False)
        return Said(code=result.exit_code, out=result.stdout, err=result.stderr)

    return call


def cursor(directory: RunDirectory, name: str = "loud") -> int:
    return int(orjson.loads((directory.cursors / f"{name}.json").read_bytes())["seq"])


def test_one_of_the_runs_own_is_told_everything_with_its_settings(
    replay: Callable[..., Said], ended: RunDirectory, plugin: ModuleType
) -> None:
    said = replay("a", "--reporter", "loud")
    assert plugin.HEARD == [("open", "http://first", "a", 1, 9), 1, 2, 3, 4, 5, 6, "close"]
    assert (said.code, said.err) == (0, "")
    assert said.out.splitlines()[-1] == "replayed  a  (loud (loud 2.1) was told 6 events)"
    assert cursor(ended) == 6


def test_the_second_use_of_a_reporter_has_a_name_of_its_own(
    replay: Callable[..., Said], ended: RunDirectory, plugin: ModuleType
) -> None:
    assert replay("a", "--reporter", "loud.2").code == 0
    assert plugin.HEARD[0][1] == "http://second"
    assert cursor(ended, "loud.2") == 6


def test_other_settings_or_another_reporter_are_told_everything_and_leave_no_cursor(
    replay: Callable[..., Said], ended: RunDirectory, plugin: ModuleType
) -> None:
    assert replay("a", "--reporter", "loud", "--set", "url=http://other").code == 0
    assert plugin.HEARD[0][1] == "http://other"
    plugin.HEARD.clear()
    assert replay("a", "--reporter", "quiet").code == 0
    assert plugin.HEARD[0][1] == "http://default"
    assert plugin.HEARD[1:-1] == [1, 2, 3, 4, 5, 6]
    assert not ended.cursors.exists()


def test_what_is_pending_is_what_is_behind_the_cursor(
    replay: Callable[..., Said], ended: RunDirectory, plugin: ModuleType
) -> None:
    replay("a", "--reporter", "loud")
    lines = ended.events.read_bytes().splitlines(keepends=True)
    document = {"seq": 4, "offset": sum(map(len, lines[:4])), "reporter": "loud/loud", "time_ms": 0}
    (ended.cursors / "loud.json").write_bytes(orjson.dumps(document))
    plugin.HEARD.clear()
    assert replay("a", "--reporter", "loud", "--pending").code == 0
    assert plugin.HEARD[1:-1] == [5, 6]
    assert cursor(ended) == 6
    plugin.HEARD.clear()
    said = replay("a", "--reporter", "loud", "--pending")
    assert (said.code, plugin.HEARD[1:-1]) == (0, [])
    assert "there was nothing to tell" in said.out


def test_json_is_one_document_though_reporters_print(replay: Callable[..., Said], ended: RunDirectory) -> None:
    said = replay("a", "--reporter", "loud", "--json")
    assert json.loads(said.out) == {
        "run_id": "a",
        "reporter": "loud (loud 2.1)",
        "events": 6,
        "told": 6,
        "ok": True,
        "error": None,
    }
    assert "reporters print" in said.err


def test_a_reporter_that_refuses_an_event_for_good_fails_the_command_and_the_rest_stays_pending(
    replay: Callable[..., Said], ended: RunDirectory, plugin: ModuleType
) -> None:
    plugin.DOWN.append(4)
    use = ("a", "--reporter", "loud", "--pending", "--set", "url=http://fatal")
    said = replay(*use)
    assert said.code == 1
    assert "loud (loud 2.1) failed after 3 of 6 events of a: FatalError: event 4 is refused" in said.err
    assert "Traceback" not in said.err
    assert cursor(ended) == 3
    assert json.loads(replay(*use, "--json").out)["ok"] is False
    shown = replay(*use, "-v").err
    assert "loud_reporter.py" in shown
    assert "delivery" not in shown, "the traceback begins with the reporter's own frame"
    plugin.DOWN.clear()
    plugin.HEARD.clear()
    assert replay("a", "--reporter", "loud", "--pending").code == 0
    assert plugin.HEARD[1:-1] == [4, 5, 6]


@pytest.mark.parametrize("reached", [1, 6], ids=["new", "told before"])
def test_a_reporter_that_fails_for_too_long_fails_the_command_and_takes_no_cursor_back(
    replay: Callable[..., Said], ended: RunDirectory, plugin: ModuleType, reached: int
) -> None:
    if reached == 6:
        assert replay("a", "--reporter", "loud/loud").code == 0
        assert plugin.HEARD[0][1] == "http://first"
    plugin.DOWN.append(2)
    told: list[str] = []
    chosen = redelivery.choose_reporter(ended, "loud")
    limits = EventLimits(quick=QuickRetries(retries=0))
    again = redelivery.Replay(ended, chosen, pending=False, show=told.append, limits=limits, give_up_seconds=0.0)
    again.run(lambda _: None)
    assert (again.count, again.events, again.problem) == (1, 6, "OSError: no route")
    assert told == ["loud (loud 2.1): OSError: no route; it is tried again"]
    assert plugin.HEARD[-1] == "close"
    assert cursor(ended) == reached


def test_a_reporter_that_cannot_flush_fails_the_command(replay: Callable[..., Said], ended: RunDirectory) -> None:
    said = replay("a", "--reporter", "quiet", "--set", "url=http://unflushable")
    assert said.code == 1
    assert "failed after 6 of 6 events of a: OSError: cannot flush" in said.err


def test_a_reporter_that_hangs_in_its_close_fails_the_command(ended: RunDirectory) -> None:
    chosen = redelivery.choose_reporter(ended, "loud")
    opened = threading.Event()
    chosen = attrs.evolve(chosen, subscription=attrs.evolve(chosen.subscription, close=opened.wait))
    limits = EventLimits(hang_seconds=0.5)
    replay = redelivery.Replay(ended, chosen, pending=False, show=print, limits=limits, give_up_seconds=3600.0)
    replay.run(lambda _: None)
    opened.set()
    assert (replay.count, replay.problem) == (6, "has not returned from close for 0 s")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--reporter", "lowd"], 2, "no reporter is called 'lowd'; did you mean 'loud'"),
        (["--reporter", "loud", "--set", "urrl=x"], 2, 'unknown key "urrl"'),
        (["--reporter", "loud", "--set", "url"], 2, "--set takes key=value"),
        (["--reporter", "quiet", "--pending"], 2, "quiet (loud 2.1) is not a reporter of a"),
        ([], 2, "--reporter"),
    ],
)
def test_a_mistake_is_one_error(
    replay: Callable[..., Said],
    ended: RunDirectory,
    arguments: list[str],
    code: int,
    message: str,
) -> None:
    said = replay("a", *arguments)
    assert (said.code, message in said.err, "Traceback" in said.err) == (code, True, False), said.err


def test_a_running_run_tells_its_own_by_itself_and_others_may_be_told(
    replay: Callable[..., Said], run: Callable[..., RunDirectory], plugin: ModuleType
) -> None:
    _with_events(run("a", record=_record()))
    said = replay("a", "--reporter", "loud")
    assert (said.code, plugin.HEARD) == (2, [])
    assert "a is running, and tells loud (loud 2.1) by itself" in said.err
    assert replay("a", "--reporter", "quiet").code == 0
    assert plugin.HEARD[1:-1] == [1, 2, 3, 4, 5, 6]


def test_a_run_that_has_not_begun_has_nothing_to_tell(
    replay: Callable[..., Said], run: Callable[..., RunDirectory], plugin: ModuleType
) -> None:
    run("a", status="failed", record=_record())
    said = replay("a", "--reporter", "loud")
    assert (said.code, plugin.HEARD) == (2, [])
    assert "a has no events yet" in said.err

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from hostcore_builtin_plugins.jsonl import JsonlReporter
from hostcore_hookspecs import Event, FatalError, Job, ReporterContext
from hostcore_hookspecs.events import EpochStarted, Metrics, RunError, RunFailed, RunSucceeded

MakeEvent = Callable[..., Event]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "somewhere" / "new" / "events.jsonl"


def report(path: Path, events: Iterable[Event], *, last_seq: int = 0, run_id: str = "flights-1") -> None:
    reporter = JsonlReporter(settings=JsonlReporter.Settings(path=path))
    reporter.open(ReporterContext(run_id=run_id, attempt=1, job=Job(), run_dir="/runs", last_seq=last_seq))
    for event in events:
        reporter.report_event(event)
    reporter.close()


def lines(path: Path) -> list[dict[str, Any]]:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return [json.loads(line, parse_constant=refuse) for line in path.read_text().splitlines()]


def test_every_event_is_a_line(path: Path, event: MakeEvent) -> None:
    events = [event(EpochStarted(), step=0), event(Metrics(metrics={"train/loss": 0.5}), step=1)]
    report(path, events)
    assert lines(path) == [json.loads(json.dumps(event.as_dict())) for event in events]


def test_lines_are_compact(path: Path, event: MakeEvent) -> None:
    report(path, [event(EpochStarted())])
    assert path.read_text().startswith('{"schema":"hostcore.event/1","seq":1,"time_ms":1700000000000,')


def test_lines_are_strict_json_whatever_is_in_the_event(path: Path, event: MakeEvent) -> None:
    metrics = MappingProxyType({"train/loss": float("nan"), "möß": float("inf")})
    error = RunError(type="ValueError", message='a "quote"\nand a line')
    report(path, [event(Metrics(metrics=metrics)), event(RunFailed(error=error))])
    first, second = lines(path)
    assert first["metrics"] == {"train/loss": None, "möß": None}
    assert second["error"]["message"] == 'a "quote"\nand a line'


def test_a_resumed_run_goes_on_where_its_file_ends(path: Path, event: MakeEvent) -> None:
    events = [event(EpochStarted()) for _ in range(5)]
    report(path, events[:3])
    report(path, events, last_seq=3)
    assert [line["seq"] for line in lines(path)] == [1, 2, 3, 4, 5]


def test_events_that_the_file_missed_are_made_up_for(path: Path, event: MakeEvent) -> None:
    events = [event(EpochStarted()) for _ in range(5)]
    report(path, events[:1])
    report(path, events[1:], last_seq=3)
    assert [line["seq"] for line in lines(path)] == [1, 2, 3, 4, 5]


def test_a_torn_last_line_is_left_and_written_again(path: Path, event: MakeEvent) -> None:
    events = [event(EpochStarted()) for _ in range(3)]
    report(path, events[:2])
    os.truncate(path, path.stat().st_size - 7)
    report(path, events, last_seq=2)
    written = path.read_text().splitlines()
    assert [json.loads(written[i])["seq"] for i in (0, 2, 3)] == [1, 2, 3]
    assert not written[1].endswith("}")


def test_a_last_line_that_lacks_only_its_end_is_kept(path: Path, event: MakeEvent) -> None:
    events = [event(EpochStarted()) for _ in range(3)]
    report(path, events[:2])
    os.truncate(path, path.stat().st_size - 1)
    report(path, events, last_seq=2)
    assert [line["seq"] for line in lines(path)] == [1, 2, 3]


def test_an_event_that_was_written_in_part_comes_again_on_a_line_of_its_own(
    path: Path, event: MakeEvent, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = event(EpochStarted()), event(EpochStarted())
    reporter = JsonlReporter(settings=JsonlReporter.Settings(path=path))
    reporter.open(ReporterContext(run_id="flights-1", attempt=1, job=Job(), run_dir="/runs"))
    reporter.report_event(first)
    write = os.write
    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space left"):
        patch.setattr(os, "write", lambda fd, line: write(fd, line[:20]))
        reporter.report_event(second)
    reporter.report_event(second)
    reporter.close()
    begun, torn, again = path.read_bytes().splitlines()
    assert [json.loads(line)["seq"] for line in (begun, again)] == [1, 2]
    assert torn == again[:20]


def test_what_comes_again_after_a_crash_is_written_once(path: Path, event: MakeEvent) -> None:
    events = [event(EpochStarted()) for _ in range(4)]
    report(path, events[:3])
    report(path, events[1:], last_seq=3)
    assert [line["seq"] for line in lines(path)] == [1, 2, 3, 4]


def test_it_can_be_opened_again(path: Path, event: MakeEvent) -> None:
    reporter = JsonlReporter(settings=JsonlReporter.Settings(path=path))
    for _ in range(2):
        reporter.open(ReporterContext(run_id="flights-1", attempt=1, job=Job(), run_dir="/runs"))
    reporter.report_event(event(EpochStarted()))
    reporter.close()
    assert len(lines(path)) == 1


def test_the_events_of_another_run_in_the_file_do_not_count(path: Path, event: MakeEvent) -> None:
    first = [event(EpochStarted(), run_id="other") for _ in range(9)]
    ours = [Event(seq=seq, time_ms=0, run_id="flights-1", attempt=1, payload=EpochStarted()) for seq in (1, 2, 3)]
    report(path, ours[:2])
    report(path, first, run_id="other")
    report(path, ours, last_seq=2)
    assert [(line["run_id"], line["seq"]) for line in lines(path)][-2:] == [("other", 9), ("flights-1", 3)]


def test_a_new_run_under_the_name_of_a_deleted_one_is_written_whole(path: Path, event: MakeEvent) -> None:
    events = [event(EpochStarted()) for _ in range(3)]
    report(path, events)
    report(path, events, last_seq=0)
    assert [line["seq"] for line in lines(path)] == [1, 2, 3, 1, 2, 3]


def test_lines_that_are_not_events_are_passed_over(path: Path, event: MakeEvent) -> None:
    events = [event(EpochStarted()) for _ in range(2)]
    report(path, events[:1])
    with path.open("a") as file:
        file.write("\n[1]\nnot json\n\n")
    report(path, events, last_seq=1)
    assert json.loads(path.read_text().splitlines()[-1])["seq"] == 2
    assert path.read_text().count('"seq":1,') == 1


def test_every_line_is_one_write_and_the_end_is_synced(tmp_path: Path) -> None:
    # Under strace one would see it; here the system calls are counted in a process of their own.
    program = """
import os, sys
calls = []
write, fsync = os.write, os.fsync
os.write = lambda fd, data: calls.append("write") or write(fd, data)
os.fsync = lambda fd: calls.append("fsync") or fsync(fd)
from pathlib import Path
from hostcore_builtin_plugins.jsonl import JsonlReporter
from hostcore_hookspecs import Event, Job, ReporterContext
from hostcore_hookspecs.events import EpochStarted, RunSucceeded
reporter = JsonlReporter(settings=JsonlReporter.Settings(path=Path(sys.argv[1])))
reporter.open(ReporterContext(run_id="r", attempt=1, job=Job(), run_dir="/runs"))
for seq, payload in enumerate([EpochStarted(), EpochStarted(), RunSucceeded()], start=1):
    reporter.report_event(Event(seq=seq, time_ms=0, run_id="r", attempt=1, payload=payload))
reporter.close()
assert calls == ["write", "write", "write", "fsync"], calls
"""
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "events.jsonl")], check=True)


def test_a_pipe_can_be_written_to(tmp_path: Path, event: MakeEvent) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with os.fdopen(os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)) as reader:
        report(fifo, [event(EpochStarted()), event(RunSucceeded())])
        assert [json.loads(line)["event"] for line in reader] == ["epoch_started", "run_succeeded"]


def test_a_path_that_cannot_be_written_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "file" / "events.jsonl"):
        with pytest.raises(FatalError, match="cannot write events to") as raised:
            report(path, [])
        assert raised.value.hint


def test_a_full_disk_is_an_error(event: MakeEvent) -> None:
    with pytest.raises(OSError, match="No space left on device"):
        report(Path("/dev/full"), [event(EpochStarted())])

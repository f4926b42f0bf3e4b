"""Reporters that append lines to a file: ``jsonl``, also with the format ``trn``, and ``job-index``."""

import json
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from hostcore_builtin_plugins.job_index import JobIndexReporter
from hostcore_builtin_plugins.jsonl import JsonlReporter
from hostcore_hookspecs import Event, FatalError, Job, ReporterContext
from hostcore_hookspecs.events import (
    PAYLOADS,
    CheckpointSaved,
    EpochStarted,
    Metrics,
    RunCancelled,
    RunError,
    RunFailed,
    RunPreempted,
    RunStarted,
    RunSubmitted,
    RunSucceeded,
    Warning,
)

MakeEvent = Callable[..., Event]

SUBMITTED = RunSubmitted(trainer="mine", max_steps=5, devices=["cuda:0", "cuda:1"])
KINDS: dict[str, Callable[[Path], Any]] = {
    "jsonl": lambda path: JsonlReporter(settings=JsonlReporter.Settings(path=path)),
    "trn": lambda path: JsonlReporter(settings=JsonlReporter.Settings(path=path, format="trn")),
    "job-index": lambda path: JobIndexReporter(settings=JobIndexReporter.Settings(path=path)),
}


@pytest.fixture(params=KINDS)
def make(request: pytest.FixtureRequest) -> Callable[[Path], Any]:
    """Each reporter in turn."""
    return KINDS[request.param]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "somewhere" / "new" / "events.jsonl"


def opened(reporter: Any, *, run_id: str = "flights-1", last_seq: int = 0) -> Any:
    job = Job(run_id=run_id, weights="/data/w.pt")
    run_dir = f"/runs/{run_id}"
    reporter.open(ReporterContext(run_id=run_id, attempt=1, job=job, run_dir=run_dir, last_seq=last_seq))
    return reporter


def report(reporter: Any, events: Iterable[Event], **context: Any) -> None:
    opened(reporter, **context)
    for event in events:
        reporter.report_event(event)
    reporter.close()


def lines(path: Path) -> list[dict[str, Any]]:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    return [json.loads(line, parse_constant=refuse) for line in path.read_text().splitlines()]


def numbers(path: Path) -> list[int]:
    return [line["seq"] for line in lines(path)]


def of_a_run(event: MakeEvent) -> list[Event]:
    """Events of which each reporter writes a line."""
    return [event(payload) for payload in (SUBMITTED, RunPreempted(), SUBMITTED, RunSucceeded())]


@pytest.mark.parametrize(
    ("first", "second"),
    [(slice(3), slice(None)), (slice(1), slice(1, None)), (slice(3), slice(1, None)), (slice(4), slice(0))],
    ids=["all again", "what the file missed", "some again", "nothing"],
)
def test_a_resumed_run_goes_on_where_its_file_ends(
    make: Any, path: Path, event: MakeEvent, first: slice, second: slice
) -> None:
    events = of_a_run(event)
    report(make(path), events[first])
    report(make(path), events[second], last_seq=3)
    assert numbers(path) == [1, 2, 3, 4]


@pytest.mark.parametrize("cut", [1, 7])
def test_a_torn_last_line_is_left_and_written_again_unless_it_lacks_only_its_end(
    make: Any, path: Path, event: MakeEvent, cut: int
) -> None:
    events = of_a_run(event)
    report(make(path), events[:2])
    os.truncate(path, path.stat().st_size - cut)
    report(make(path), events, last_seq=2)
    written = path.read_text().splitlines()
    torn = [written.pop(1)] if cut > 1 else []
    assert [json.loads(line)["seq"] for line in written] == [1, 2, 3, 4]
    assert not any(line.endswith("}") for line in torn)


def test_lines_of_others_do_not_count_and_a_new_run_under_an_old_name_is_written_whole(
    make: Any, path: Path, event: MakeEvent
) -> None:
    events = of_a_run(event)
    path.parent.mkdir(parents=True)
    path.write_text("not json\n")
    report(make(path), events[:2])
    with path.open("a") as file:
        file.write('\n[1]\nnot json\n\n{"run_id": "other", "job_id": "other", "seq": 9}\n')
    report(make(path), events, last_seq=2)
    report(make(path), events)
    written = [line for line in path.read_text().splitlines() if line.startswith("{") and '"other"' not in line]
    assert [json.loads(line)["seq"] for line in written] == [1, 2, 3, 4, 1, 2, 3, 4]


def test_a_full_disk_is_an_error_and_the_event_comes_again_on_a_line_of_its_own(
    make: Any, path: Path, event: MakeEvent, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, *_ = of_a_run(event)
    reporter = opened(make(path))
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
    with pytest.raises(OSError, match="No space left on device"):
        report(make(Path("/dev/full")), [first])


def test_a_path_that_cannot_be_written_is_one_error(make: Any, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "file" / "events.jsonl"):
        with pytest.raises(FatalError, match="cannot write") as raised:
            report(make(path), [])
        assert raised.value.hint


def _report_many(path: Path, name: str) -> None:
    about = {"time_ms": 0, "run_id": "r", "attempt": 1}
    events = [Event(seq=1, payload=SUBMITTED, **about), Event(seq=2, payload=RunSucceeded(reason=name * 500), **about)]
    for number in range(50):
        report(KINDS["job-index"](path), events, run_id=f"{name}-{number}")


def test_runs_that_write_an_index_at_once_tear_no_line(path: Path) -> None:
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_report_many, args=(path, name)) for name in ("a", "b", "c")]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert sorted(numbers(path)) == [1] * 150 + [2] * 150


class TestJsonl:
    def test_every_event_is_a_compact_line_of_strict_json(self, path: Path, event: MakeEvent) -> None:
        metrics = MappingProxyType({"train/loss": float("nan"), "möß": float("inf")})
        error = RunError(type="ValueError", message='a "quote"\nand a line')
        payloads = (
            EpochStarted(),
            Metrics(metrics={"train/loss": 0.5}),
            Metrics(metrics=metrics),
            RunFailed(error=error),
        )
        events = [event(payload, step=1) for payload in payloads]
        report(KINDS["jsonl"](path), events)
        assert path.read_text().startswith('{"schema":"hostcore.event/1","seq":1,"time_ms":1700000000000,')
        *plain, odd, failed = lines(path)
        assert plain == [json.loads(json.dumps(one.as_dict())) for one in events[:2]]
        assert odd["metrics"] == {"train/loss": None, "möß": None}
        assert failed["error"]["message"] == 'a "quote"\nand a line'

    def test_it_can_be_opened_again(self, path: Path, event: MakeEvent) -> None:
        reporter = opened(opened(KINDS["jsonl"](path)))
        reporter.report_event(event(EpochStarted()))
        reporter.close()
        assert len(lines(path)) == 1

    def test_every_line_is_one_write_and_the_end_is_synced(self, tmp_path: Path) -> None:
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

    def test_a_pipe_can_be_written_to(self, tmp_path: Path, event: MakeEvent) -> None:
        os.mkfifo(fifo := tmp_path / "fifo")
        with os.fdopen(os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)) as reader:
            report(KINDS["jsonl"](fifo), [event(EpochStarted()), event(RunSucceeded())])
            assert [json.loads(line)["event"] for line in reader] == ["epoch_started", "run_succeeded"]


def trn(path: Path, events: Sequence[Event], **settings: Any) -> dict[str, Any]:
    report(JsonlReporter(settings=JsonlReporter.Settings(path=path, format="trn", **settings)), events)
    (line,) = lines(path)
    return line


class TestTrn:
    def test_the_first_event_is_job_submitted_with_the_job_file_and_the_devices(
        self, path: Path, event: MakeEvent
    ) -> None:
        assert trn(path, [event(SUBMITTED)], config_path=Path("/jobs/job.json"), profile="prod") == {
            "event": "job_submitted",
            "timestamp": "2023-11-14T22:13:20.000Z",
            "job_id": "flights-1",
            "config_path": "/jobs/job.json",
            "devices": ["cuda:0", "cuda:1"],
            "weights": "/data/w.pt",
            "profile": "prod",
            "log_path": "/runs/flights-1/logs/events.jsonl",
            "submitted_at": "2023-11-14T22:13:20.000Z",
            "attempt": 1,
            "seq": 1,
            "epoch": 0,
        }

    @pytest.mark.parametrize(
        ("payload", "expected"),
        [
            (SUBMITTED, {"config_path": "/runs/flights-1/config/run.json", "profile": None}),
            (RunStarted(device="cpu"), {"event": "session_start", "device": "cpu"}),
            (Metrics(metrics={"train/loss": 0.5, "train/lr": 0.1}), {"event": "step", "step": 7, "loss": 0.5}),
            (Metrics(metrics={"train/loss": float("nan")}), {"event": "step", "loss": None}),
            (Metrics(metrics={"score": 1.0}), {"event": "step", "metrics": {"score": 1.0}}),
            (
                CheckpointSaved(path="checkpoints/step-000007", bytes=1, final=False),
                {"event": "checkpoint", "meta": "/runs/flights-1/checkpoints/step-000007.json", "bytes": 1},
            ),
            (RunSucceeded(reason="enough"), {"event": "job_completed", "reason": "enough"}),
            (
                RunFailed(error=RunError(type="ValueError", message="no data")),
                {"event": "job_failed", "error": "ValueError: no data"},
            ),
            (RunCancelled(reason="stop"), {"event": "job_cancelled", "reason": "stop"}),
            (RunPreempted(), {"event": "job_preempted"}),
            (EpochStarted(), {"event": "epoch_started"}),
            (Warning(code="x", message="y"), {"event": "warning", "code": "x", "message": "y"}),
        ],
        ids=lambda value: type(value).__name__ if type(value) in PAYLOADS.values() else "",
    )
    def test_every_event_is_told(self, path: Path, event: MakeEvent, payload: Any, expected: dict[str, Any]) -> None:
        line = trn(path, [event(payload, step=7)])
        assert line["job_id"] == "flights-1"
        assert line.items() >= expected.items()
        assert ("loss" in line) == ("loss" in expected)


class TestJobIndex:
    def test_a_run_has_a_line_when_it_is_submitted_and_one_when_it_ends(self, tmp_path: Path, event: MakeEvent) -> None:
        settings = JobIndexReporter.Settings(config_path=Path("/jobs/job.json"), profile="prod")
        events = [event(SUBMITTED), event(Metrics(metrics={}), step=1), event(RunSucceeded(), step=5)]
        reporter, run_dir = JobIndexReporter(settings=settings), tmp_path / "flights-1"
        job = Job(run_id="flights-1", weights="/data/w.pt")
        reporter.open(ReporterContext(run_id="flights-1", attempt=1, job=job, run_dir=str(run_dir)))
        for one in events:
            reporter.report_event(one)
        reporter.close()
        first, last = lines(tmp_path / "index.jsonl")
        assert first == {
            "job_id": "flights-1",
            "submitted_at": "2023-11-14T22:13:20.000Z",
            "config_path": "/jobs/job.json",
            "weights": "/data/w.pt",
            "profile": "prod",
            "devices": ["cuda:0", "cuda:1"],
            "log_path": str(run_dir / "logs" / "events.jsonl"),
            "status": "submitted",
            "exit_code": None,
            "ended_at": None,
            "attempt": 1,
            "seq": 1,
        }
        ended = {"status": "succeeded", "exit_code": 0, "ended_at": "2023-11-14T22:13:20.000Z", "seq": 3}
        assert last == {**first, **ended}

    @pytest.mark.parametrize(
        ("end", "status", "code"),
        [
            (RunFailed(error=RunError(type="ValueError", message="no")), "failed", 1),
            (RunPreempted(), "preempted", 75),
            (RunCancelled(), "cancelled", 130),
        ],
        ids=["failed", "preempted", "cancelled"],
    )
    def test_the_end_has_the_status_and_the_exit_code_of_the_run(
        self, path: Path, event: MakeEvent, end: Any, status: str, code: int
    ) -> None:
        report(KINDS["job-index"](path), [event(SUBMITTED), event(end)])
        first, last = lines(path)
        assert first["config_path"] == "/runs/flights-1/config/run.json", "for lack of a job file"
        assert (last["status"], last["exit_code"]) == (status, code)

    def test_an_end_that_comes_late_knows_the_rest(self, path: Path, event: MakeEvent) -> None:
        submitted, ended = event(SUBMITTED), event(RunPreempted())
        again, done = event(SUBMITTED, attempt=2), event(RunSucceeded(), attempt=2)
        report(KINDS["job-index"](path), [submitted])
        report(KINDS["job-index"](path), [submitted, ended, again, done], last_seq=2)
        found = lines(path)
        assert [line["status"] for line in found] == ["submitted", "preempted", "submitted", "succeeded"]
        assert [line["attempt"] for line in found] == [1, 1, 2, 2]
        assert {tuple(line["devices"]) for line in found} == {("cuda:0", "cuda:1")}

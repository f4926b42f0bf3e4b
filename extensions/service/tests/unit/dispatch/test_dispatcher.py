"""Launching and watching jobs, with launchers that do what the tests told them."""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import fork_server
import pytest
from sqlalchemy import Engine, event
from sqlalchemy.exc import OperationalError
from waiting import wait_until

from hostcore.events.writer import now_ms
from hostcore.plugins.installed import Discovered
from hostcore.runs.attempts import claim_attempt
from hostcore.runs.directory import RunDirectory
from hostcore.runs.launch import Launch
from hostcore.runs.lease import ProcessIdentity
from hostcore.runs.record import RunRecord
from hostcore.runs.result import RunResult
from hostcore_hookspecs.launcher import LaunchHandle
from hostcore_service.dispatch.dispatcher import Dispatcher, dead
from hostcore_service.dispatch.watching import look
from hostcore_service.settings import Settings
from hostcore_service.store.job import StoredJob
from hostcore_service.store.jobs import Jobs

Make = Callable[..., StoredJob]
Noted = Callable[[str], Sequence[str]]
Start = Callable[..., Dispatcher]

#: Short, for a lease that is to run out.
LEASE_MS = 2_000
#: Of the operator's file: the launcher ``slow`` waits for a file.
UNTIL_GO: Mapping[str, Any] = {"launchers": {"slow": {"until_go": True}}}


@pytest.fixture
def jobs(sqlite_engine: Engine) -> Jobs:
    """The table in SQLite: how leases and claims go in PostgreSQL is tested in ``unit/store``."""
    return Jobs(sqlite_engine)


@pytest.fixture
def start(service_here: Callable[..., Settings], installed: Discovered) -> Iterator[Start]:
    """``start(jobs)``: a dispatcher that works."""
    started: list[Dispatcher] = []

    def begin(jobs: Jobs, *, longest_seconds: float = 60, **sections: Any) -> Dispatcher:
        started.append(Dispatcher(jobs, service_here(**sections), installed, longest_seconds=longest_seconds))
        started[-1].start()
        return started[-1]

    yield begin
    for one in started:
        one.stop()


def wait(jobs: Jobs, run_id: str, **fields: Any) -> StoredJob:
    """Wait until a job has some values; the job."""

    def reached() -> StoredJob | None:
        job = jobs.get(run_id)
        return job if job and all(getattr(job, name) == value for name, value in fields.items()) else None

    try:
        found: StoredJob = wait_until(reached, f"{run_id} to have {fields}")
    except AssertionError:
        raise AssertionError(f"{jobs.get(run_id)} has not {fields}") from None
    return found


def go(tmp_path: Path) -> None:
    (tmp_path / "ledger" / "go").touch()


def run_directory(settings: Settings, **launch: Any) -> RunDirectory:
    """The directory of the run ``a``, as a launch has left it."""
    folder = RunDirectory(settings.runs / "a")
    folder.make()
    RunRecord(job={"trainer": "tiny", "run_id": "a", "max_steps": 3}, job_dir="/").write(folder.record)
    Launch(**{"attempt": 1, "submitted_ms": 1, "launch_id": "a.1", **launch}).write(folder.launch)
    return folder


def test_dispatchers_that_share_a_database_launch_each_job_once(
    engine: Engine, start: Start, a_job: Make, noted: Noted
) -> None:
    jobs = Jobs(engine)
    for number in range(12):  # more than are launched at once
        jobs.add(a_job(f"job-{number}"))
    jobs.add(a_job(launcher="gone"))
    start(jobs)
    start(jobs)
    for number in range(12):
        wait(jobs, f"job-{number}", phase="ended", status="succeeded")

    assert sorted(noted("calls")) == sorted(f"job-{number}.1" for number in range(12))
    assert "'gone'" in wait(jobs, "a", phase="ended", status="failed").detail, "its plugin is not there any more"


class Ahead:
    """The time of a machine whose clocks can be put forward."""

    def __init__(self) -> None:
        self.ms = 0

    def now_ms(self) -> int:
        return now_ms() + self.ms

    def monotonic(self) -> float:
        return time.monotonic() + self.ms / 1000


def test_a_launch_that_takes_long_stays_whose_it_is(
    jobs: Jobs, start: Start, a_job: Make, noted: Noted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = Ahead()
    monkeypatch.setattr("hostcore_service.dispatch.dispatcher.now_ms", ahead.now_ms)
    monkeypatch.setattr("hostcore_service.dispatch.dispatcher.time", ahead)
    jobs.add(a_job(launcher="slow"))
    start(jobs, **UNTIL_GO)
    start(jobs, **UNTIL_GO)
    wait_until(lambda: noted("calls"), "the launch to begin")
    until_ms = wait(jobs, "a", phase="launching").held_until_ms
    for _ in range(3):  # half a lease each time
        ahead.ms += jobs.leases.lease_ms // 2
        wait_until(lambda: jobs.get("a").held_until_ms > until_ms, "the lease to be renewed")  # type: ignore[union-attr]  # noqa: B023
        until_ms = wait(jobs, "a").held_until_ms
    go(tmp_path)

    assert wait(jobs, "a", phase="ended").status == "succeeded"
    assert noted("calls") == ["a.1"]


def test_a_launcher_that_does_not_come_back_is_called_again_and_what_it_says_late_is_dropped(
    sqlite_engine: Engine,
    start: Start,
    a_job: Make,
    noted: Noted,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    jobs = Jobs(sqlite_engine, lease_ms=LEASE_MS)
    jobs.add(a_job(launcher="slow"))
    start(jobs, longest_seconds=0.1, service={"launches_at_once": 1}, **UNTIL_GO)
    wait_until(lambda: len(noted("calls")) >= 2, "a second call")
    # Its room is free again meanwhile.
    jobs.add(a_job("b"))
    wait(jobs, "b", phase="ended", status="succeeded")
    go(tmp_path)

    assert wait(jobs, "a", phase="ended").status == "succeeded"
    wait_until(lambda: "what was found is dropped" in caplog.text, "the late call to be dropped")
    assert set(noted("calls")) == {"a.1"} | {"b.1"}
    assert noted("started").count("a.1") == 1


def test_a_service_in_another_container_with_the_name_of_this_machine_is_not_taken_for_dead() -> None:
    """No process has its number here."""
    process = ProcessIdentity.current()
    place = f"{process.host}/{process.boot_id}"
    assert dead([f"{place}/{process.pid_namespace}/4194304/1/7"]) == [f"{place}/{process.pid_namespace}/4194304/1/7"]
    assert dead([f"{place}/pid:[1]/4194304/1/7", f"{place}/4194304/1/7"]) == []


def test_a_job_that_was_being_launched_when_its_service_died_is_launched_under_the_same_id(
    jobs: Jobs, start: Start, a_job: Make, noted: Noted
) -> None:
    program = "from hostcore_service.dispatch.dispatcher import holder_name; print(holder_name(7))"
    gone = fork_server.run([sys.executable, "-c", program], text=True)
    # The lease is not over for long: that its holder has died is enough.
    far = int(time.time() * 1000) + 10**8
    jobs.add(a_job(phase="launching", holder=gone.stdout.strip(), held_until_ms=far))
    start(jobs)

    wait(jobs, "a", phase="ended", status="succeeded")
    assert noted("calls") == ["a.1"]


def test_a_job_that_may_have_been_launched_before_is_not_said_to_have_failed(
    jobs: Jobs, start: Start, a_job: Make
) -> None:
    """Its launcher may have taken it, and now may not even ask: to resume what has failed would run it twice."""
    jobs.add(a_job(launcher="refusing", phase="launching"))
    dispatcher = start(jobs, service={"cancel_grace_seconds": 0.1})
    wait_until(lambda: (jobs.get("a") or a_job()).failures > 1, "it to be asked again")
    job = jobs.get("a")
    assert job is not None
    assert (job.phase, job.status) == ("launching", "submitted")
    assert job.detail.startswith("it may run already, and its launcher is asked again: the engine knows no such queue")

    jobs.request_cancel("a", "enough", now=int(time.time() * 1000))
    dispatcher.wake()
    assert wait(jobs, "a", phase="ended").status == "lost"


def test_a_dispatcher_ends_although_a_launcher_does_not_come_back_and_leaves_the_job_to_the_next(
    jobs: Jobs, start: Start, a_job: Make, noted: Noted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hostcore_service.dispatch.dispatcher.STOP_SECONDS", 0.1)
    jobs.add(a_job(launcher="slow"))
    first = start(jobs, **UNTIL_GO)
    wait_until(lambda: noted("calls"), "the launch to begin")
    first.stop()
    assert (left := jobs.get("a")) is not None
    assert (left.phase, left.holder) == ("launching", None)
    go(tmp_path)
    start(jobs)

    wait(jobs, "a", phase="ended", status="succeeded")
    assert noted("started") == ["a.1"]


def test_what_is_claimed_while_a_dispatcher_ends_is_left_to_the_next(
    jobs: Jobs, start: Start, a_job: Make, noted: Noted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hostcore_service.dispatch.dispatcher.STOP_SECONDS", 0.1)
    asked, answer = threading.Event(), threading.Event()
    claim = jobs.leases.claim

    def late(*arguments: Any, **more: Any) -> Any:
        asked.set()
        answer.wait(60)
        return claim(*arguments, **more)

    with monkeypatch.context() as slow:
        slow.setattr(jobs.leases, "claim", late)
        first = start(jobs)
        jobs.add(a_job())
        assert asked.wait(60)
        first.stop()
    answer.set()
    wait_until(lambda: "dispatcher" not in [one.name for one in threading.enumerate()], "the first dispatcher to end")
    assert (left := jobs.get("a")) is not None
    assert (left.phase, left.holder, noted("calls")) == ("queued", None, [])
    start(jobs)

    wait(jobs, "a", phase="ended", status="succeeded")


def test_the_name_of_a_second_launch_is_not_that_of_another_job(
    jobs: Jobs, start: Start, a_job: Make, tmp_path: Path
) -> None:
    jobs.add(a_job("a", launches=2, launch_id="a.0123456789abcdef"))
    jobs.add(a_job("a-2"))
    jobs.add(a_job("x" * 63, launches=1000, launch_id="x.0123456789abcdef"))
    start(jobs)
    for run_id in ("a", "a-2", "x" * 63):
        wait(jobs, run_id, phase="ended")

    names = [path.read_text() for path in (tmp_path / "ledger").glob("*.name")]
    assert sorted(names) == ["a-2", "a-89abcdef", f"{'x' * 54}-89abcdef"]


def test_no_failure_ends_the_dispatching_or_loses_a_job(
    engine: Engine, start: Start, a_job: Make, noted: Noted
) -> None:
    jobs = Jobs(engine)
    away = OperationalError("SELECT", {}, Exception("it is away"))
    failures = iter([away, away, ProcessLookupError("gone"), RuntimeError("can't start new thread")])
    over = threading.Event()

    @event.listens_for(engine, "before_cursor_execute")
    def fail(*_: Any) -> None:
        if threading.current_thread().name == "dispatcher":
            for error in failures:
                raise error
            over.set()

    jobs.add(a_job())
    start(jobs)
    assert over.wait(60)

    wait(jobs, "a", phase="ended", status="succeeded")
    assert noted("calls") == ["a.1"]


def test_a_local_job_of_a_machine_that_is_gone_is_what_its_run_directory_says(
    service_here: Callable[..., Settings], installed: Discovered, a_job: Make
) -> None:
    settings = service_here(launchers={"local": {}})
    run_dir = str(settings.runs / "a")
    details = {"host": "a-pod-that-was-replaced", "pid": 1, "started": "", "run_dir": run_dir, "log": ""}
    handle = LaunchHandle(launcher="local", id="1", details={**details, "earlier_result": None})
    os.utime(run_directory(settings, handle=handle).launch, (0, 0))
    job = a_job("a", phase="launched", launcher="local", handle=handle, job={**a_job("a").job, "launcher": "local"})

    seen = look(job, settings, installed)
    assert (seen.phase, seen.status) == ("ended", "lost")
    assert "another" in seen.detail or "this is" in seen.detail


def test_the_end_of_an_earlier_launch_is_not_that_of_this_one(
    service_here: Callable[..., Settings], installed: Discovered, a_job: Make, tmp_path: Path
) -> None:
    settings = service_here()
    handle = LaunchHandle(launcher="stuck", id="a.2")
    folder = run_directory(settings, attempt=2, submitted_ms=2, launch_id="a.2", handle=handle)
    claim_attempt(folder.attempts, 1, process=ProcessIdentity.current(), started_ms=1)
    RunResult(run_id="a", status="failed", exit_code=1, attempt=1, step=7, epoch=0, started_ms=1, ended_ms=1000).write(
        folder.result
    )
    (tmp_path / "ledger" / "a.2.failed").write_text("ImagePullBackOff")

    seen = look(a_job("a", phase="launched", launcher="stuck", handle=handle), settings, installed)
    assert (seen.status, seen.detail, seen.exit_code) == ("failed", "ImagePullBackOff", None)
    assert (seen.ended_ms or 0) > 1000


@pytest.mark.parametrize(("pieces", "looks"), [(1, 1), (0, 6), (20, 20)])
def test_a_far_job_has_ended_when_its_mirror_was_brought_or_could_not_be_for_long(
    service_here: Callable[..., Settings],
    installed: Discovered,
    a_job: Make,
    monkeypatch: pytest.MonkeyPatch,
    pieces: int,
    looks: int,
) -> None:
    def bring_a_piece(_: Any, directory: RunDirectory, **__: Any) -> bool:
        directory.events.parent.mkdir(parents=True, exist_ok=True)
        with directory.events.open("a") as log:
            return bool(pieces) and log.write("piece\n") * pieces == log.tell()

    monkeypatch.setattr(
        "hostcore_service.dispatch.watching.refresh", bring_a_piece if pieces else lambda *_, **__: False
    )
    job = a_job("a", phase="launched", launcher="far", handle=LaunchHandle(launcher="far", id="a.1"))
    settings, seen = service_here(), 0
    while job.phase != "ended":
        job = look(job, settings, installed)
        seen += 1
        assert pieces or job.status == "succeeded", "its engine knows, whether or not the mirror can be read"
    assert (seen, job.status) == (looks, "succeeded")


def test_what_a_job_writes_into_its_run_directory_keeps_nobody_from_cancelling_it(
    service_here: Callable[..., Settings], installed: Discovered, a_job: Make, noted: Noted
) -> None:
    """It names another launcher, says that its directory is not seen, and that it was launched as another handle."""
    settings = service_here()
    folder = run_directory(settings, handle=LaunchHandle(launcher="refusing", id="another"), sees_run_dir=False)
    RunRecord(job={"trainer": "tiny", "run_id": "a", "launcher": "refusing"}, job_dir="/").write(folder.record)
    job = a_job("a", phase="launched", launcher="stuck", handle=LaunchHandle(launcher="stuck", id="a.1"), cancel_ms=1)

    folder.result.write_bytes(b"{")
    look(job, settings, installed)
    assert noted("cancelled") == ["a.1"]

"""``hostcore.run(job)``: a whole run in the calling process."""

import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from waiting import wait_until

import hostcore
from hostcore.errors import Errors
from hostcore.supervisor.opening import open_run
from hostcore_hookspecs import Event, HostcoreError

JOB = {"trainer": "small_trainer:Trainer", "device": "cpu", "terminal": False, "metric_every": 2, "max_steps": 6}


@pytest.fixture
def job(here: Path, request: pytest.FixtureRequest) -> Callable[..., dict]:
    """``job(max_steps=3)``: a job with a run id of the test's own."""
    run_id = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    return lambda **keys: {**JOB, "run_id": run_id, **keys}


def test_returns_what_result_json_holds(here: Path, job: Callable, tmp_path: Path) -> None:
    (tmp_path / "job.json").write_bytes(orjson.dumps(job()))
    result = hostcore.run(tmp_path / "job.json")
    assert hostcore.run(str(tmp_path / "job.json")) == result
    written = orjson.loads((here / result.run_id / "result.json").read_bytes())
    assert result.as_dict() == written
    assert (result.status, result.exit_code, result.step, result.attempt) == ("succeeded", 0, 6, 1)
    assert isinstance(result, hostcore.RunResult)


def test_a_finished_run_returns_its_result_again_and_tells_no_events(job: Callable) -> None:
    first = hostcore.run(job())
    events: list[Event] = []
    assert hostcore.run(job(), on_event=events.append) == first
    assert events == []


def test_an_invalid_job_is_an_exception_and_starts_nothing(here: Path, job: Callable) -> None:
    with pytest.raises(Errors) as caught:
        hostcore.run(job(trainer="small_trainer:Nobody"))
    assert [error.pointer for error in caught.value.errors] == ["/trainer"]
    with pytest.raises(HostcoreError):
        hostcore.run(job(max_steps=-1))
    with pytest.raises(Errors, match="the labels are all the same"):
        hostcore.run(job(hyperparams={"how": "invalid", "at": 1}))
    assert not (here / job()["run_id"]).exists()


def test_every_event_is_told_in_the_order_of_the_log(here: Path, job: Callable) -> None:
    events: list[Event] = []
    result = hostcore.run(job(checkpoint_every=3), on_event=events.append)
    lines = (here / result.run_id / "logs" / "events.jsonl").read_bytes().splitlines()
    assert [orjson.loads(orjson.dumps(event.as_dict())) for event in events] == [orjson.loads(line) for line in lines]
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    names = [event.name for event in events if event.name != "progress"]  # every few seconds
    saved = names.index("checkpoint_saved")
    assert saved > names.index("metrics"), "it comes when the disk is done, while the training goes on"
    assert [*names[:saved], *names[saved + 1 :]] == [
        *("run_submitted", "run_started", "epoch_started", "metrics", "metrics", "metrics"),
        *("checkpoint_saved", "run_succeeded"),
    ]


def test_an_exception_in_on_event_does_not_hurt_the_run(here: Path, job: Callable) -> None:
    told: list[str] = []

    def broken(event: Event) -> None:
        told.append(event.name)
        raise RuntimeError("the notebook is broken")

    result = hostcore.run(job(), on_event=broken)
    assert (result.status, told) == ("succeeded", ["run_submitted"])
    lines = (here / result.run_id / "logs" / "events.jsonl").read_bytes().splitlines()
    (failure,) = [event for event in map(orjson.loads, lines) if event["event"] == "reporter_failed"]
    assert (failure["reporter"], failure["message"]) == ("on_event", "RuntimeError: the notebook is broken")


def test_works_in_another_thread(job: Callable) -> None:
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(hostcore.run(job())))
    thread.start()
    thread.join()
    assert results[0].status == "succeeded"


def test_ctrl_c_cancels_the_run_with_a_checkpoint(job: Callable) -> None:
    pressed: list[Event] = []

    def interrupt(event: Event) -> None:
        if event.name == "metrics" and not pressed:  # once: a second Ctrl-C would not wait for the checkpoint
            pressed.append(event)
            os.kill(os.getpid(), signal.SIGINT)

    result = hostcore.run(job(max_steps=10**6, metric_every=3, trainer="small_trainer:Slow"), on_event=interrupt)
    assert (result.status, result.exit_code, result.requested_by) == ("cancelled", 130, "user")
    assert result.final_checkpoint == f"checkpoints/step-{result.step:06d}"


def test_a_second_ctrl_c_ends_the_run_as_cancelled(job: Callable) -> None:
    hanging = job(max_steps=3, hyperparams={"how": "hang", "at": 3})

    def press() -> None:
        for what in ("pid", "canceled"):  # it hangs; it has heard of the first, and hangs all the same
            wait_until(Path(f"{hanging['run_id']}.{what}").exists, what)
            os.kill(os.getpid(), signal.SIGINT)

    presser = threading.Thread(target=press)
    presser.start()
    result = hostcore.run(hanging)
    presser.join()
    assert (result.status, result.exit_code, result.requested_by) == ("cancelled", 130, "user")
    assert (result.reason, result.error) == ("interrupted by the user, twice", None)


def test_a_keyboard_interrupt_of_a_plugin_is_its_failure_and_the_run_is_started_again(job: Callable) -> None:
    events: list[Event] = []
    again = {"max_restarts": 1, "callbacks": ["small_trainer:InterruptOnce"]}
    result = hostcore.run(job(max_steps=3, checkpoint_every=1, **again), on_event=events.append)
    assert (result.status, result.attempt) == ("succeeded", 2)
    (failed,) = [event.payload.error for event in events if event.name == "run_failed"]
    assert failed.type == "KeyboardInterrupt"
    assert "small_trainer:InterruptOnce" in failed.plugin


def test_ctrl_c_right_after_the_run_was_opened_is_a_cancelled_run(
    here: Path, job: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(plan: Any) -> Any:
        opened = open_run(plan)
        os.kill(os.getpid(), signal.SIGINT)
        return opened

    slow = job(trainer="small_trainer:Slow", max_steps=10**6)
    with monkeypatch.context() as patch:
        patch.setattr("hostcore.in_process.open_run", interrupted)
        result = hostcore.run(slow)
    assert (result.status, result.exit_code, result.requested_by) == ("cancelled", 130, "user")
    again = hostcore.run({**slow, "max_steps": result.step + 2})
    assert (again.status, again.step, again.attempt) == ("succeeded", result.step + 2, 2)


def test_a_worker_that_cannot_be_imported_is_an_exception_and_nothing_hangs(
    here: Path, job: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with an installation of torch that is broken."""
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "hostcore.worker.attempt", None)
        with pytest.raises(ImportError):
            hostcore.run(job())
    result = orjson.loads((here / job()["run_id"] / "result.json").read_bytes())
    assert (result["status"], result["error"]["type"]) == ("failed", "WorkerDied")
    assert hostcore.run(job()).status == "succeeded"


def test_leaves_no_thread_no_open_file_and_no_handler(job: Callable, until: Callable) -> None:
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)]

    def count() -> tuple[int, int]:
        return threading.active_count(), len(list(Path("/proc/self/fd").iterdir()))

    def own() -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread.name.startswith("hostcore")]

    hostcore.run(job(run_id="leak-0"))
    assert "supervisor line" not in [thread.name for thread in threading.enumerate()]
    until(lambda: not own(), f"threads of the run before to end: {own()}")
    before = count()
    for number in range(1, 4):
        hostcore.run(job(run_id=f"leak-{number}"))
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)] == handlers
    # Fewer is fine: what earlier tests of this process have left may go meanwhile.
    until(
        lambda: all(now <= then for now, then in zip(count(), before, strict=True)),
        f"no more threads and files than before: {before}",
    )


def test_a_run_directory_that_breaks_away_is_a_failed_result(here: Path, job: Callable) -> None:
    """The supervisor cannot write any more; the worker stops, and nothing hangs."""
    log = here / job()["run_id"] / "lease.json"

    def sabotage(event: Event) -> None:
        if event.name == "metrics":
            (log.parent / "result.json").mkdir()

    result = hostcore.run(job(), on_event=sabotage)
    assert (result.status, result.error.type) == ("failed", "RunUnwritable")


def test_a_log_that_cannot_be_gone_on_with_is_an_exception_and_the_run_can_be_mended(here: Path, job: Callable) -> None:
    hostcore.run(job(max_steps=2))
    log = here / job()["run_id"] / "logs" / "events.jsonl"
    good = log.read_bytes()
    log.write_bytes(b"a note of mine\n" + good)
    with pytest.raises(HostcoreError, match="not an event") as caught:
        hostcore.run(job())
    assert caught.value.file == str(log)
    log.write_bytes(good)
    result = hostcore.run(job())
    assert (result.status, result.step, result.attempt) == ("succeeded", 6, 2)


def test_a_run_in_a_process_of_its_own_has_the_same_numbers(project, job: Callable) -> None:
    keys = {"max_steps": 20, "metric_every": 1, "seed": 7}
    job_file = project.job("same.json", run_id="same", **keys)
    process, in_process = [
        project.start("run", job_file, "--json", *arguments)
        for arguments in ([], ["--in-process", "--set", "run_id=same-in-process"])
    ]
    finished = [process.end(), in_process.end()]
    assert [one.json["status"] for one in finished] == ["succeeded", "succeeded"]
    assert "hello from the trainer" in finished[1].err
    assert project.run("same").metric("noise") == project.run("same-in-process").metric("noise")
    assert project.run("same").metric() == project.run("same-in-process").metric()
    noise: dict[int, float] = {}

    def listen(event: Event) -> None:
        if event.name == "metrics":
            noise[event.step] = event.payload.metrics["noise"]

    hostcore.run(job(**keys), on_event=listen)
    assert noise == project.run("same").metric("noise")

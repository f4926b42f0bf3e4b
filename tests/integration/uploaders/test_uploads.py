"""Uploads by real processes: killed at any instant, interrupted, and gone on with by ``hostcore upload``."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from fork_server import popen

from hostcore.checkpoints.commit import commit
from hostcore.checkpoints.find import newest, verify
from hostcore.checkpoints.record import CommitRecord
from hostcore.events.writer import now_ms
from hostcore.runs.directory import RunDirectory
from hostcore.runs.lease import Lease, ProcessIdentity
from hostcore.runs.record import RunRecord
from hostcore.runs.result import RunResult

PROCESS = Path(__file__).with_name("upload_process.py")
UPLOAD = (sys.executable, "-c", "from hostcore.cli.commands.upload import upload_command; upload_command()")
#: The same, with an uploader that never comes to the end of ``result.json``.
GATED = (sys.executable, str(Path(__file__).with_name("gated_upload.py")))
SECONDS = 300
KILLS = 8


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    """A run that was preempted after two checkpoints."""
    made = RunDirectory(tmp_path / "runs" / "a")
    made.make()
    job = {"trainer": "somewhere:Trainer", "run_id": "a", "max_steps": 10, "terminal": False}
    RunRecord(job=job, job_dir=str(tmp_path)).write(made.record)
    (made.attempts / "1.json").write_text("{}")
    made.events.write_bytes(b"")
    return made


def checkpoint(directory: RunDirectory, step: int) -> None:
    def fill(folder: Path) -> None:
        (folder / "weights.bin").write_bytes(bytes(range(256)) * 40)

    commit(directory.checkpoints, step=step, epoch=0, final=False, attempt=1, fill=fill)


@pytest.fixture
def ended(directory: RunDirectory) -> RunDirectory:
    for step in (100, 200):
        checkpoint(directory, step)
    times = {"started_ms": now_ms(), "ended_ms": now_ms()}
    RunResult(run_id="a", status="preempted", exit_code=75, attempt=1, step=200, epoch=0, **times).write(
        directory.result
    )
    return directory


@pytest.fixture
def upload(tmp_path: Path) -> Callable[..., "subprocess.Popen[str]"]:
    """``upload("a", "--to", "mirror")``: the command, started in the folder of the test."""

    def start(*arguments: str, command: Sequence[str] = UPLOAD) -> "subprocess.Popen[str]":
        return popen(
            [*command, *arguments],
            cwd=tmp_path,
            env={**os.environ, "HOSTCORE_RUNS_DIR": str(tmp_path / "runs")},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return start


def ended_with(process: "subprocess.Popen[str]", code: int) -> tuple[str, str]:
    out, err = process.communicate(timeout=SECONDS)
    assert process.returncode == code, err + out
    return out, err


def test_uploads_that_are_killed_at_any_instant_end_up_whole_and_make_nothing_twice(
    directory: RunDirectory, tmp_path: Path, seed: int
) -> None:
    instants = random.Random(seed)
    mirror = tmp_path / "mirror"

    def start(attempt: int) -> "subprocess.Popen[bytes]":
        return popen([sys.executable, str(PROCESS), str(directory.path), str(mirror), str(attempt)])

    for attempt in range(1, KILLS + 1):
        before = lines(directory.uploads)
        with start(attempt) as process:
            until(lambda before=before: lines(directory.uploads) > before, process)
            time.sleep(instants.uniform(0, 0.2))
            process.kill()
    with start(0) as process:
        assert process.wait(SECONDS) == 0

    heard = {int(line) for line in (tmp_path / "heard.txt").read_text().split()}
    assert heard
    for step in heard:
        record = CommitRecord.from_json((mirror / f"checkpoints/step-{step:06d}.json").read_bytes())
        verify(mirror / "checkpoints", record)
    made = (tmp_path / "made.txt").read_text().splitlines()
    assert len(made) == len(set(made))
    ledger = [json.loads(line) for line in directory.uploads.read_text().splitlines()]
    known = [(line["path"], line["sha256"]) for line in ledger]
    assert len(known) == len(set(known))
    assert not directory.spool.exists()
    assert not list(directory.checkpoints.glob(".*.retired"))


def lines(path: Path) -> int:
    """How many whole lines a file has."""
    return path.read_bytes().count(b"\n") if path.exists() else 0


def until(condition: Callable[[], Any], process: "subprocess.Popen[Any]") -> Any:
    """Wait for a condition, or for the end of a process."""
    end = time.monotonic() + SECONDS
    while process.poll() is None and time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.005)
    return None


def test_upload_copies_an_ended_run_to_a_uri_once(
    ended: RunDirectory, upload: Callable[..., "subprocess.Popen[str]"], tmp_path: Path
) -> None:
    out, _ = ended_with(upload("a", "--to", "mirror", "--json"), 0)
    document = json.loads(out)
    assert {"checkpoints/step-000100", "checkpoints/step-000200", "config/run.json", "result.json"} <= {
        one["path"] for one in document["uploaded"]
    }
    assert (document["run_id"], document["skipped"], document["failed"]) == ("a", [], [])
    mirrored = tmp_path / "mirror" / "a" / "framework=somewhere-Trainer"
    found = newest(mirrored / "checkpoints").found
    assert found is not None
    assert found.record.step == 200
    assert (mirrored / "result.json").read_bytes() == ended.result.read_bytes()

    again = json.loads(ended_with(upload("a", "--to", "mirror", "--json"), 0)[0])
    assert (again["uploaded"], again["failed"]) == ([], [])
    assert {one["path"] for one in again["skipped"]} >= {one["path"] for one in document["uploaded"]}
    assert not ended.spool.exists()


def test_upload_uses_the_runs_own_uploaders_with_their_settings(
    ended: RunDirectory, upload: Callable[..., "subprocess.Popen[str]"], tmp_path: Path
) -> None:
    record = RunRecord.read(ended.record)
    uploaders = [{"use": "fsspec", "uri": str(tmp_path / "one")}, {"use": "fsspec", "uri": str(tmp_path / "two")}]
    RunRecord(job={**record.job, "uploaders": uploaders}, job_dir=record.job_dir).write(ended.record)
    ended_with(upload("a", "--uploader", "fsspec.2"), 0)
    assert not (tmp_path / "one").exists()
    assert list((tmp_path / "two").rglob("result.json"))
    ended_with(upload("a"), 0)
    assert list((tmp_path / "one").rglob("result.json"))
    assert not ended.spool.exists()


def test_upload_says_what_is_left_and_fails(
    ended: RunDirectory, upload: Callable[..., "subprocess.Popen[str]"], tmp_path: Path
) -> None:
    (tmp_path / "mirror").write_text("a file, where a folder should be")
    out, err = ended_with(upload("a", "--to", "mirror", "--json", "--patience", "0.2"), 1)
    failed = {one["path"]: one["message"] for one in json.loads(out)["failed"]}
    assert "checkpoints/step-000200" in failed
    assert "incomplete" in err


def test_an_interrupted_upload_goes_on_next_time(
    ended: RunDirectory, upload: Callable[..., "subprocess.Popen[str]"], tmp_path: Path
) -> None:
    mirrored = tmp_path / "mirror" / "a" / "framework=somewhere-Trainer"
    process = upload("a", "--to", "mirror", command=GATED)
    until(lambda: lines(ended.uploads) >= 7, process)  # all but the result
    process.send_signal(signal.SIGINT)
    out, _ = ended_with(process, 130)
    assert "The same command goes on" in out
    assert not (mirrored / "result.json").exists()
    again = json.loads(ended_with(upload("a", "--to", "mirror", "--json"), 0)[0])
    assert "result.json" in {one["path"] for one in again["uploaded"]}
    assert {"checkpoints/step-000100", "checkpoints/step-000200"} <= {one["path"] for one in again["skipped"]}
    assert (mirrored / "result.json").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("a",), "the job of a has no uploaders"),
        (("a", "--to", "mirror", "--uploader", "fsspec"), "--to is a place of its own"),
        (("b", "--to", "mirror"), "there is no run 'b'"),
    ],
)
def test_upload_refuses_what_makes_no_sense(
    ended: RunDirectory, upload: Callable[..., "subprocess.Popen[str]"], arguments: tuple[str, ...], message: str
) -> None:
    assert ended.path.exists()
    _, err = ended_with(upload(*arguments), 2)
    assert message in err


def test_upload_is_refused_while_the_run_uploads_by_itself(
    directory: RunDirectory, upload: Callable[..., "subprocess.Popen[str]"]
) -> None:
    now = now_ms()
    Lease(process=ProcessIdentity.current(), attempt=1, step=0, last_progress_ms=now, renewed_ms=now).write(
        directory.lease
    )
    _, err = ended_with(upload("a", "--to", "mirror"), 2)
    assert "a is running, and uploads by itself" in err
    assert "what is left when it has ended can be uploaded then" in err

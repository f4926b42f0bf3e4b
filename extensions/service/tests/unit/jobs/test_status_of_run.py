"""How a job's run stands, whatever its job has written into its directory, and however often that is asked."""

import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from hostcore.checkpoints.commit import commit
from hostcore.runs.directory import RunDirectory
from hostcore.runs.history import History
from hostcore.runs.record import RunRecord
from hostcore_service.jobs import histories as histories_module


def metrics(seq: int, loss: float) -> bytes:
    event = {
        "schema": "hostcore.event/1",
        "seq": seq,
        "time_ms": 1000 + seq,
        "run_id": "a",
        "attempt": 1,
        "src": [0, 1, seq],
        "event": "metrics",
        "step": seq,
        "epoch": 0,
        "metrics": {"loss": loss},
        "nonfinite": [],
    }
    return orjson.dumps(event) + b"\n"


def add(directory: RunDirectory, *lines: bytes) -> None:
    with directory.events.open("ab") as log:
        log.writelines(lines)


@pytest.fixture
def directory(opened: Any) -> RunDirectory:
    found: RunDirectory = opened.job(phase="launched", status="running", due_ms=2**50)
    RunRecord(job={"trainer": "tiny"}, job_dir="/").write(found.record)
    (found.attempts / "1.json").write_text("{}")
    add(found, metrics(1, 0.5))
    return found


def run_of(opened: Any) -> dict[str, Any]:
    found: dict[str, Any] = opened.get("/v1/jobs/a").json()["run"]
    return found


def test_a_log_is_read_once_however_often_its_job_is_looked_at(opened: Any, directory: RunDirectory) -> None:
    assert run_of(opened)["metrics"] == {"loss": 0.5}
    size = directory.events.stat().st_size
    with directory.events.open("r+b") as log:
        log.write(b"x" * (size - 1))  # what was read already
    assert run_of(opened)["metrics"] == {"loss": 0.5}
    add(directory, metrics(2, 0.25))
    assert (run_of(opened)["metrics"], run_of(opened)["step"]) == ({"loss": 0.25}, 2)


def test_a_log_in_place_of_another_is_read_from_its_beginning(opened: Any, directory: RunDirectory) -> None:
    add(directory, metrics(2, 0.25))
    assert run_of(opened)["step"] == 2
    other = directory.events.with_suffix(".new")
    other.write_bytes(metrics(1, 4.0))
    other.replace(directory.events)
    assert (run_of(opened)["metrics"], run_of(opened)["step"]) == ({"loss": 4.0}, 1)
    directory.events.write_bytes(b"")
    assert run_of(opened)["metrics"] == {}


def test_a_long_log_is_taken_in_over_several_looks(
    opened: Any, directory: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(histories_module, "_MOST_BYTES", 2 * len(metrics(10, 0.5)) - 8)  # the first line is shorter
    add(directory, *(metrics(seq, 0.5) for seq in range(10, 15)))
    assert [run_of(opened)["step"] for _ in range(4)] == [10, 12, 14, 14]


def test_an_attempt_of_any_number_costs_no_more_than_another(opened: Any, directory: RunDirectory) -> None:
    for number in ("999999999", "9" * 200):
        (directory.attempts / f"{number}.json").write_text("{}")
    assert [one["attempt"] for one in run_of(opened)["attempts"]] == [1, 999_999_999]


def test_whatever_lies_in_place_of_a_file_a_job_can_be_looked_at(opened: Any) -> None:
    wrong = '{"schema": "hostcore.run/1", "job": {"trainer": "x"}, "job_dir": "/", "attempt": "1"}\n'
    kinds: dict[str, Callable[[Path], object]] = {
        "pipe": os.mkfifo,
        "link": lambda place: place.symlink_to("/dev/zero"),
        "folder": Path.mkdir,
        "wrong": lambda place: place.write_text(wrong),
    }
    names = ("config/run.json", "result.json", "lease.json", "logs/events.jsonl")
    for number, (name, kind) in enumerate(itertools.product(names, kinds)):
        run_id = f"job-{number}"
        folder = opened.job(run_id, phase="launched", status="running", due_ms=2**50)
        RunRecord(job={"trainer": "tiny"}, job_dir="/").write(folder.record)
        add(folder, metrics(1, 0.5))
        (folder.path / name).unlink(missing_ok=True)
        kinds[kind](folder.path / name)
        answer = opened.get(f"/v1/jobs/{run_id}")
        assert (answer.status_code, answer.json()["status"]) == (200, "running"), (name, kind)


def test_checkpoints_elsewhere_are_not_looked_at(opened: Any, directory: RunDirectory, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    commit(elsewhere, step=5, epoch=0, final=False, attempt=1, fill=lambda folder: None)
    contract = {
        "contract_version": "v1",
        "trainer_plugin": "tiny",
        "job_spec_path": "",
        "checkpoints_dir": str(elsewhere),
        "samples_dir": str(elsewhere),
        "events_path": "",
        "run_dir": str(directory.path),
    }
    directory.contract(1, 0).write_bytes(orjson.dumps(contract))
    (elsewhere / "samples.png").write_text("for nobody else")

    assert run_of(opened)["checkpoints"] == []
    assert opened.get("/v1/jobs/a/checkpoints").json() == {"checkpoints": []}
    assert opened.get("/v1/jobs/a/checkpoints/5").status_code == 404
    assert "samples/samples.png" not in [one["path"] for one in opened.get("/v1/jobs/a/artifacts").json()["artifacts"]]
    assert opened.get("/v1/jobs/a/artifacts/samples/samples.png").status_code == 404


def test_neither_output_nor_events_nor_checkpoints_are_read_through_a_link(
    opened: Any, directory: RunDirectory, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("for nobody else\n")
    directory.rank_output(1, 0).symlink_to(tmp_path / "token")
    directory.events.unlink()
    directory.events.symlink_to(tmp_path / "token")
    for name in ("logs", "events"):
        answer = opened.get(f"/v1/jobs/a/{name}", Accept="application/x-ndjson")
        assert (answer.status_code, answer.text) == (200, "")
    elsewhere = tmp_path / "elsewhere"
    commit(elsewhere, step=5, epoch=0, final=False, attempt=1, fill=lambda folder: (folder / "state.json").touch())
    directory.checkpoints.rmdir()
    directory.checkpoints.symlink_to(elsewhere)
    assert opened.get("/v1/jobs/a/checkpoints/5/files/state.json").status_code == 404


def test_a_start_that_is_taken_back_meanwhile_leaves_a_job_without_a_run(
    opened: Any, directory: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(History, "read_on", lambda _: directory.remove())  # as the dispatcher does it in its own thread
    assert run_of(opened) is None

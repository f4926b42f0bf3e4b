"""The documents of a run: each comes back as it was written, and what another version or hand wrote is told apart."""

import json
from pathlib import Path
from typing import Any

import attrs
import pytest

from hostcore.errors import Errors
from hostcore.job.load import load_job
from hostcore.runs.contract import InvalidContract, WorkerContract
from hostcore.runs.documents import CorruptDocument, read_document, write_document
from hostcore.runs.launch import Launch
from hostcore.runs.lease import Lease, ProcessIdentity
from hostcore.runs.record import RunRecord
from hostcore.runs.result import EXIT_CODES, RunResult, RunWarning
from hostcore_hookspecs import LaunchHandle
from hostcore_hookspecs.errors import RunError

FAILED = RunResult(
    run_id="a",
    status="failed",
    exit_code=1,
    attempt=2,
    step=7,
    epoch=1,
    metrics={"train/loss": None},
    error=RunError(type="ValueError", message="no", traceback="…", rank=0),
    warnings=(RunWarning(code="metrics.nonfinite", message="…", hint="do", metric="train/loss", first_step=4),),
    started_ms=1,
    ended_ms=2,
)
CONTRACT = WorkerContract(
    trainer_plugin="mine",
    job_spec_path="/runs/a/config/run.json",
    checkpoints_dir="/runs/a/checkpoints",
    samples_dir="/runs/a/samples",
    events_path="/runs/a/logs/rank-0.attempt-3.jsonl",
    run_dir="/runs/a",
    attempt=3,
    attempts_dir="/runs/a/attempts",
    start_from="/runs/b/checkpoints/step-000003",
)
DOCUMENTS = [
    RunRecord(
        job={"trainer": "mine"},
        job_dir="/jobs",
        plugins=[{"kind": "trainer", "name": "mine"}],
        environment={"python": "3.11"},
        parent="/runs/b/checkpoints/step-000003",
        submitted_ms=5,
    ),
    FAILED,
    attrs.evolve(FAILED, status="succeeded", exit_code=0, error=None, warnings=()),
    CONTRACT,
    Lease(process=ProcessIdentity.current(), attempt=1, step=7, last_progress_ms=1, renewed_ms=2, workers=[4, None]),
    Launch(attempt=1, submitted_ms=2, launch_id="a.1", handle=LaunchHandle(launcher="local", id="7")),
]


@pytest.mark.parametrize("written", DOCUMENTS, ids=lambda one: type(one).__name__)
class TestADocument:
    def test_comes_back_as_it_was_written(self, tmp_path: Path, written: Any) -> None:
        written.write(tmp_path / "a.json")
        assert type(written).read(tmp_path / "a.json") == written

    def test_of_a_newer_hostcore_is_read_without_what_is_new(self, tmp_path: Path, written: Any) -> None:
        written.write(tmp_path / "a.json")
        document = {**read_document(tmp_path / "a.json"), "newer": 1}
        inner = {key: {**document[key], "newer": 1} for key in ("error", "process", "handle") if document.get(key)}
        write_document(tmp_path / "a.json", {**document, **inner})
        assert type(written).read(tmp_path / "a.json") == written


@pytest.mark.parametrize(
    ("cls", "document", "says"),
    [
        (RunRecord, {}, "job is missing"),
        (RunRecord, {"job": {}, "job_dir": "/"}, "the record holds no job"),
        (RunRecord, {"job": None, "job_dir": "/"}, "the record holds no job"),
        (RunRecord, {"job_dir": "/"}, "job is missing"),
        (RunResult, {"status": "succeeded"}, "not a RunResult"),
        *((RunResult, {**FAILED.as_dict(), "attempt": one}, "not a RunResult: attempt is ") for one in ("1", None)),
        (RunResult, {**FAILED.as_dict(), "run_id": 3}, "not a RunResult: run_id is 3, not str"),
        *(
            (RunResult, {**FAILED.as_dict(), "warnings": one}, "not a Run")
            for one in (3, {"code": "x"}, ["x"], [{"message": "no code"}], [{"code": 3, "message": "m"}])
        ),
        (Launch, {"attempt": "1", "submitted_ms": 2}, "not a Launch: attempt is '1', not int"),
        (Launch, {"attempt": 1, "submitted_ms": 2, "handle": {"id": "7"}}, "not a LaunchHandle: launcher is missing"),
    ],
)
def test_what_is_no_such_document_is_an_error_that_names_the_file(
    tmp_path: Path, cls: Any, document: dict[str, Any], says: str
) -> None:
    (tmp_path / "a.json").write_text(json.dumps(document))
    with pytest.raises(CorruptDocument) as caught:
        cls.read(tmp_path / "a.json")
    assert says in caught.value.message
    assert caught.value.file == str(tmp_path / "a.json")


@pytest.mark.parametrize("cls", [RunResult, Launch, Lease])
def test_what_is_not_there_is_none(tmp_path: Path, cls: Any) -> None:
    assert cls.read(tmp_path / "a.json") is None


@pytest.mark.parametrize("content", ["", "{", "{}", '{"process": {}}', '{"process": null}', '{"process": {"pid": 1}}'])
def test_a_lease_that_says_nothing_is_none_since_it_is_advice(tmp_path: Path, content: str) -> None:
    (tmp_path / "lease.json").write_text(content)
    assert Lease.read(tmp_path / "lease.json") is None


def contract(folder: Path, change: dict[str, Any]) -> Path:
    """The file of a contract with some fields changed; without those that are None."""
    changed = {**attrs.asdict(CONTRACT), **change}
    write_document(folder / "a.json", {key: value for key, value in changed.items() if value is not None})
    return folder / "a.json"


@pytest.mark.parametrize(
    ("change", "says"),
    [
        *(({"contract_version": one}, "this worker follows 'v1'") for one in ("v2", "v0", "", 1, None)),
        *(({name: None}, f"{name} is missing") for name in ("trainer_plugin", "job_spec_path", "events_path")),
        ({"run_dir": 5}, "run_dir is 5, not str"),
        ({"attempt": "1"}, "attempt is '1', not int"),
        ({"attempt": True}, "attempt is True, not int"),
        ({"devices": "cuda:0"}, "devices"),
        *(({"inputs": one}, "inputs") for one in (["/m"], {"m": 3}, "m")),
    ],
    ids=str,
)
def test_a_contract_that_cannot_be_followed_names_the_field(tmp_path: Path, change: dict[str, Any], says: str) -> None:
    path = contract(tmp_path, change)
    with pytest.raises(InvalidContract, match=says) as caught:
        WorkerContract.read(path)
    assert (caught.value.pointer, caught.value.file) == (f"/{next(iter(change))}", str(path))


def test_a_contract_of_an_older_hostcore_has_the_defaults_and_lies_around_its_events(tmp_path: Path) -> None:
    path = contract(tmp_path, {"attempt": None, "start_from": None, "inputs": None, "arrow_ipc_path": None})
    assert WorkerContract.read(path) == attrs.evolve(CONTRACT, attempt=1, start_from="", inputs={})
    seven = [field.name for field in attrs.fields(WorkerContract)][:7]
    write_document(path, {name: value for name, value in attrs.asdict(CONTRACT).items() if name in seven})
    around = Path(CONTRACT.events_path).parent
    read = WorkerContract.read(path)
    assert (read.run_dir, read.attempts_dir) == (str(around), str(around / "attempts"))


def test_a_contract_that_is_missing_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidContract, match="does not exist") as caught:
        WorkerContract.read(tmp_path / "none.json")
    assert caught.value.file == str(tmp_path / "none.json")


def test_a_result_of_an_earlier_version_has_no_warnings(tmp_path: Path) -> None:
    write_document(tmp_path / "a.json", {key: value for key, value in FAILED.as_dict().items() if key != "warnings"})
    assert RunResult.read(tmp_path / "a.json") == attrs.evolve(FAILED, warnings=())


def test_every_end_has_an_exit_code() -> None:
    assert EXIT_CODES == {"succeeded": 0, "failed": 1, "cancelled": 130, "preempted": 75}


def test_a_record_gives_the_job_back_with_its_folder_and_the_ranks_that_are_known_best(tmp_path: Path) -> None:
    job = {"trainer": "somewhere:Trainer", "run_id": "a", "max_steps": 1, "weights": "w", "devices": ["cpu"]}
    spec = load_job(job, job_dir=tmp_path)
    record = RunRecord(job=spec.to_json(), job_dir=str(tmp_path))
    assert record.spec() == spec
    assert (record.spec().job_dir, record.spec().ranks) == (tmp_path, 1)
    started = attrs.evolve(record, world_size=4)
    assert started.spec().ranks == 4
    assert started.spec(world_size=2).ranks == 2


def test_a_recorded_job_that_is_not_taken_any_more_is_told_in_full() -> None:
    with pytest.raises(Errors) as raised:
        RunRecord(job={"trainer": "somewhere:Trainer", "max_step": 1}, job_dir="/").spec()
    assert "/max_step" in [one.pointer for one in raised.value.errors]

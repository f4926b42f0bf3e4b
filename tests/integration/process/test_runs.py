"""Runs of the trainer ``process``, with the program that ``example_trainers/linear`` has in Python."""

import json
import os
import random
import signal
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import attrs
import jsonschema
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from checkout import ROOT
from command_line import Said, said_by
from fork_server import hostcore
from waiting import wait_until

from hostcore_builtin_plugins.processes import look

HERE = Path(__file__).parent
PROGRAM = ROOT / "example_trainers/linear/python/linear.py"
SCHEMA = "hostcore.trainer-1.schema.json"


@attrs.frozen
class Place:
    """A folder with a job and its data."""

    path: Path

    def job(self, run_id: str, *command: str, settings: dict[str, Any] | None = None, **keys: Any) -> None:
        own = {"columns": ["a", "b"], "target": "y", "learning_rate": 0.1, **(settings or {})}
        job = {
            "trainer": "process",
            "run_id": run_id,
            "hyperparams": {"command": command or [sys.executable, str(PROGRAM)], "cwd": ".", "settings": own},
            "dataset": {"parquet_paths": ["rows.parquet"], "batch_size": 16, "shuffle": True},
            "epochs": 4,
            "metric_every": 1,
            "checkpoint_every": 4,
            "device": "cpu",
            "terminal": False,
            **keys,
        }
        (self.path / f"{run_id}.json").write_text(json.dumps(job))

    def start(self, *arguments: str) -> Any:
        around = {name: value for name, value in os.environ.items() if not name.startswith("HOSTCORE_")}
        return hostcore(arguments, cwd=self.path, env=around, stdout=-1, stderr=-1, text=True)

    def run(self, run_id: str, *arguments: str) -> Said:
        return said_by(self.start("run", f"{run_id}.json", *arguments))

    def of(self, run_id: str) -> Path:
        return self.path / "runs" / run_id

    def result(self, run_id: str) -> Any:
        return orjson.loads((self.of(run_id) / "result.json").read_bytes())

    def events(self, run_id: str) -> list[Any]:
        lines = (self.of(run_id) / "logs/events.jsonl").read_bytes().splitlines(keepends=True)
        return [orjson.loads(line) for line in lines if line.endswith(b"\n")]

    def losses(self, run_id: str) -> dict[int, float]:
        metrics = [event for event in self.events(run_id) if event["event"] == "metrics"]
        return {event["step"]: event["metrics"]["train/loss"] for event in metrics}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    chance = random.Random(0)
    a, b = ([chance.gauss(0, 1) for _ in range(160)] for _ in range(2))
    target = [2 * one - other + chance.gauss(0, 0.1) for one, other in zip(a, b, strict=True)]
    folder = tmp_path_factory.mktemp("place")
    pq.write_table(pa.table({"a": a, "b": b, "y": target}), folder / "rows.parquet", row_group_size=40)
    return Place(folder)


@pytest.fixture(scope="module")
def whole(place: Place) -> dict[int, float]:
    """The losses of a run that nothing happened to, and that was then extended; what was said is in a file."""
    data = {"parquet_paths": ["rows.parquet"], "batch_size": 100}
    sections = {"validation": data, "test": data, "validate_every": "epoch", "samples": [{}], "sample_every": 40}
    recorder = (sys.executable, str(HERE / "recorder.py"), str(place.path / "said"), sys.executable, str(PROGRAM))
    place.job("whole", *recorder, **sections)
    done = place.run("whole")
    assert done.code == 0, done.err
    losses = place.losses("whole")
    place.job("whole", *recorder, **sections, epochs=5)
    assert place.run("whole").code == 0
    return losses


def test_it_learns(place: Place, whole: dict[int, float]) -> None:
    metrics = place.result("whole")["metrics"]
    assert metrics["val/loss"] < 0.02 < whole[1]
    assert metrics["test/loss"] == metrics["val/loss"]
    weights = (place.of("whole") / "samples/step-000040/0/weights.txt").read_text().split()
    assert [round(float(one)) for one in weights[1::2]] == [2, -1, 0]


def test_what_is_said_is_what_the_schema_says(place: Place, whole: dict[int, float]) -> None:
    schema = json.loads(files("hostcore_builtin_plugins.process").joinpath(SCHEMA).read_text())

    def validator(*keys: str) -> Any:
        return jsonschema.Draft202012Validator({**schema, "oneOf": [{"$ref": "/".join(["#/$defs", *keys])}]})

    requests, answers = validator("request"), validator("answer")
    results = {method: validator("results", method) for method in schema["$defs"]["results"]}
    results |= {"validate_step": results["train_step"], "test_step": results["train_step"]}
    methods: dict[int, str] = {}
    seen: set[str] = set()
    for mark, line in (line.split(" ", 1) for line in (place.path / "said").read_text().splitlines()):
        message = json.loads(line)
        if mark == "request":
            requests.validate(message)
            methods[message["id"]] = message["method"]
            seen.add(message["method"])
        else:
            answers.validate(message)
            method = methods[message["id"]]
            if method in results:
                results[method].validate(message["result"])
            else:
                assert message["result"] is None
    optional = {"validate_step", "test_step", "generate_sample"}
    required = {"initialize", "setup", "configure", "prepare_batch", "train_step", "save_checkpoint", "load_checkpoint"}
    assert seen == required | optional


@pytest.mark.parametrize(
    ("change", "pointer", "message"),
    [
        ({"settings": {"learning_rate": -1}}, "/hyperparams/settings/learning_rate", "-1 is no learning rate"),
        ({"settings": {"columns": ["a", "z"]}}, "/dataset", "there is no column z"),
        ({"hyperparams": {}}, "/hyperparams/command", "is missing"),
        ({"hyperparams": {"command": []}}, "/hyperparams/command", "at least 1"),
        ({"hyperparams": {"command": ["./nowhere"], "cwd": "."}}, "/hyperparams/command", "cannot be started"),
        ({"hyperparams": {"command": ["true"], "rate": 1}}, "/hyperparams/rate", "unknown key"),
        ({"device": "auto", "precision": "bf16"}, "/precision", "bf16"),
    ],
)
def test_a_job_that_cannot_be_is_one_error(place: Place, change: dict[str, Any], pointer: str, message: str) -> None:
    place.job("wrong", **change)
    done = place.run("wrong", "--json")
    assert done.code == 2, done.err
    (error,) = done.json["errors"]
    assert error["pointer"] == pointer
    assert message in f"{error['message']} {error['hint']}"
    assert not place.of("wrong").exists()


def altered(place: Place, run_id: str, *, settings: dict[str, Any], **keys: Any) -> None:
    """A job whose program fails once."""
    place.job(run_id, sys.executable, str(HERE / "altered.py"), settings={"run": run_id, **settings}, **keys)


def held(place: Place, run_id: str) -> int:
    """The program, once it does nothing more."""
    wait_until((place.path / f"{run_id}.holding").exists, "the program to hold")
    return int((place.path / f"{run_id}.failed").read_text())


def wait_for_the_end_of(pid: int) -> None:
    def is_over() -> bool:
        process = look(pid)
        return process is None or process.is_zombie

    wait_until(is_over, "the end of the program")


def test_a_program_ends_with_its_worker_and_the_run_goes_on_as_if_it_had_not(
    place: Place, whole: dict[int, float]
) -> None:
    altered(place, "ends", settings={"holds_at": 9})
    started = place.start("run", "ends.json")
    pid = held(place, "ends")
    os.kill(int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1]), signal.SIGKILL)
    assert said_by(started).code == 1
    wait_for_the_end_of(pid)
    again = place.run("ends")
    assert again.code == 0, again.err
    assert "resumes from" in again.err or place.result("ends")["attempt"] == 2
    assert place.losses("ends") == whole


def test_a_program_that_dies_fails_the_attempt_and_is_started_again_by_max_restarts(
    place: Place, whole: dict[int, float]
) -> None:
    altered(place, "again", settings={"aborts_at": 9}, max_restarts=1)
    done = place.run("again")
    assert done.code == 0, done.err
    (error,) = [event["error"] for event in place.events("again") if event["event"] == "run_failed"]
    assert error["type"] == "ChildFailed"
    assert "was ended by SIGABRT without an answer, in `train_step`" in error["message"]
    assert error["plugin"].startswith("process (hostcore-builtin-plugins")
    assert "Traceback" not in done.err
    assert place.result("again")["attempt"] == 2
    assert place.losses("again") == whole
    assert "I give up" in (place.of("again") / "logs/rank-0.attempt-1.log").read_text()


def test_a_program_that_does_not_answer_is_a_run_that_stalls(place: Place) -> None:
    altered(place, "stalls", settings={"holds_at": 9}, stall_seconds=5)
    done = place.run("stalls")
    assert done.code == 1, done.err
    assert "did not get beyond step 9 for 5 s" in place.result("stalls")["error"]["message"]
    wait_for_the_end_of(held(place, "stalls"))


def test_a_stop_waits_for_the_step_and_then_has_a_checkpoint(place: Place) -> None:
    place.job("stopped", max_steps=100_000, epochs=None, checkpoint_every=0)
    started = place.start("run", "stopped.json")
    wait_until(lambda: (place.of("stopped") / "logs/events.jsonl").exists() and place.losses("stopped"), "a step")
    started.send_signal(signal.SIGTERM)
    done = said_by(started)
    assert done.code == 75, done.err
    result = place.result("stopped")
    assert (place.of("stopped") / f"checkpoints/step-{result['step']:06}/trainer/weights.json").is_file()

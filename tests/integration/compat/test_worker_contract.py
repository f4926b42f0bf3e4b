"""``python -m hostcore.worker``: the versioned contract between the supervisor's process and the worker's."""

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


def start_worker(contract: Path) -> tuple[int, dict[str, Any], str]:
    """Start a worker as a supervisor does: exit code, its first word, and its output."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        command = [sys.executable, "-P", "-m", "hostcore.worker", str(contract), str(theirs.fileno())]
        worker = subprocess.Popen(
            command, pass_fds=[theirs.fileno()], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        theirs.close()
        with ours.makefile("rb") as line:
            word = json.loads(line.readline())
        ours.shutdown(socket.SHUT_RDWR)  # nobody says "go"
        output, _ = worker.communicate()
    return worker.returncode, word, output


def run_worker(contract: Path) -> tuple[int, list[dict[str, Any]], str]:
    """Start a worker, let it train, and hear it out: exit code, all its words, and its output."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        command = [sys.executable, "-P", "-m", "hostcore.worker", str(contract), str(theirs.fileno())]
        worker = subprocess.Popen(
            command,
            cwd=contract.parent,
            pass_fds=[theirs.fileno()],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        theirs.close()
        ours.sendall(b'{"go":{}}\n')
        with ours.makefile("rb") as line:
            words = [json.loads(word) for word in line]
        output, _ = worker.communicate()
    return worker.returncode, words, output


@pytest.fixture
def contract(mount: Any) -> dict[str, Any]:
    """A contract with a plain job file, as another host would write it."""
    return {
        "contract_version": "v1",
        "trainer_plugin": "skeleton:MyTrainer",
        "job_spec_path": str(mount.folder / "trainer_job.json"),
        "arrow_ipc_path": "",
        "checkpoints_dir": str(mount.folder / "checkpoints"),
        "samples_dir": str(mount.folder / "samples"),
        "events_path": str(mount.folder / "events.jsonl"),
    }


def test_a_worker_follows_a_contract_of_its_version(mount: Any, contract: dict[str, Any]) -> None:
    path = mount.folder / "contract.json"
    path.write_text(json.dumps(contract))
    code, word, output = start_worker(path)
    assert (code, output) == (0, "")
    assert word["ready"]["total_steps"] == 1000
    assert word["ready"]["num_rows"] == 640
    assert not (mount.folder / "events.jsonl").exists()


@pytest.mark.parametrize(
    ("change", "pointer", "says"),
    [
        ({"contract_version": "v2"}, "/contract_version", "contract_version is 'v2'; this worker follows 'v1'"),
        ({"job_spec_path": 7}, "/job_spec_path", "must be str, not 7"),
    ],
)
def test_a_contract_that_the_worker_cannot_follow_is_refused(
    mount: Any, contract: dict[str, Any], change: dict[str, Any], pointer: str, says: str
) -> None:
    path = mount.folder / "contract.json"
    path.write_text(json.dumps({**contract, **change}))
    code, word, output = start_worker(path)
    assert (code, output) == (2, "")
    (error,) = word["invalid"]
    assert error["code"] == "contract.invalid"
    assert (error["pointer"], error["file"]) == (pointer, str(path))
    assert says in error["message"]


def test_a_worker_trains_with_the_seven_fields_alone(mount: Any, contract: dict[str, Any]) -> None:
    assert len(contract) == 7
    (mount.folder / "900.json").write_text("{}")  # is no attempt, wherever the worker is started
    path = mount.folder / "contract.json"
    path.write_text(json.dumps(contract))
    mount.changed(max_steps=20, checkpoint_every=10, sample_every=5)
    code, words, output = run_worker(path)
    assert (code, output, [*words[0]]) == (0, "", ["ready"])
    names = [event["event"] for event in mount.lines("events.jsonl")]
    assert names[0] == "run_started"
    assert names[-1] == "run_succeeded"
    assert names.count("checkpoint_saved") == 2
    assert mount.document("checkpoints/step-000020.json")["step"] == 20
    assert not (mount.folder / "samples").exists()

    mount.changed(run_id="another")
    code, (word,), _ = run_worker(path)
    assert code == 2
    (error,) = word["invalid"]
    assert "belong to the run 'run_123'" in error["message"]


def test_a_contract_that_hands_over_batches_is_refused(mount: Any, contract: dict[str, Any]) -> None:
    path = mount.folder / "contract.json"
    path.write_text(json.dumps({**contract, "arrow_ipc_path": str(mount.folder / "batches.arrow")}))
    code, word, _ = start_worker(path)
    (error,) = word["invalid"]
    assert (code, error["code"], error["pointer"]) == (2, "contract.invalid", "/arrow_ipc_path")
    assert "cannot be handed over as Arrow IPC yet" in error["message"]


def test_a_worker_started_by_hand_says_who_starts_it(mount: Any) -> None:
    answer = mount.start("hostcore.worker")
    assert answer.returncode == 2
    assert answer.stderr.startswith("usage: python -m hostcore.worker CONTRACT FD")

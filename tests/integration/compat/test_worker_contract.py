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
        "run_dir": str(mount.folder),
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


def test_a_worker_started_by_hand_says_who_starts_it(mount: Any) -> None:
    answer = mount.start("hostcore.worker")
    assert answer.returncode == 2
    assert answer.stderr.startswith("usage: python -m hostcore.worker CONTRACT FD")

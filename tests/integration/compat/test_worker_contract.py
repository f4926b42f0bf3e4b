"""``python -m hostcore.worker``: the versioned contract between the supervisor's process and the worker's."""

import json
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fork_server import popen

from hostcore.worker.devices import is_for_cpu_alone

#: A trainer that imports torch when it begins to train, and notes what the garbage collector has done before.
LIGHT = """
import gc, json, pathlib

seen = {"frozen": gc.get_freeze_count(), "full": gc.get_stats()[2]["collections"], "on": gc.isenabled()}
(pathlib.Path(__file__).parent / "seen.json").write_text(json.dumps(seen))

class Trainer:
    def setup(self, ctx):
        import torch
    def configure(self, ctx): return {}
    def prepare_batch(self, raw_batch, state, ctx): return raw_batch
    def train_step(self, prepared_batch, state, ctx): return None
    def state_dict(self, state): return {}
    def load_state_dict(self, state, payload, ctx): pass
"""


def start_worker(contract: Path) -> tuple[int, dict[str, Any], str]:
    """Start a worker as a supervisor does: exit code, its first word, and its output."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        command = [sys.executable, "-P", "-m", "hostcore.worker", str(contract), str(theirs.fileno())]
        worker = popen(command, pass_fds=[theirs.fileno()], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
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
        worker = popen(
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
        ({"job_spec_path": 7}, "/job_spec_path", "job_spec_path is 7, not str"),
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
    mount.changed(
        max_steps=20, checkpoint_every=10, sample_every=5, keep_checkpoints=1, checkpoint_base_uri="s3://bucket/runs"
    )
    code, words, output = run_worker(path)
    assert (code, output, [*words[0]]) == (0, "", ["ready"])
    names = [event["event"] for event in mount.lines("events.jsonl")]
    assert names[0] == "run_started"
    assert names[-1] == "run_succeeded"
    assert names.count("checkpoint_saved") == 2
    assert mount.document("checkpoints/step-000020.json")["step"] == 20
    folder = Path(contract["checkpoints_dir"])  # no supervisor uploads the first, so the worker removes it
    assert sorted(path.name for path in folder.iterdir()) == ["step-000020", "step-000020.json"]
    assert not (mount.folder / "samples").exists()

    mount.changed(run_id="another")
    code, (word,), _ = run_worker(path)
    assert code == 2
    (error,) = word["invalid"]
    assert "belong to the run 'run_123'" in error["message"]


def handed_over(mount: Any, *, rows: int, begin: Callable[..., Any]) -> Path:
    """Batches that another process has written: those of the job's data, in its order.

    :param begin: Of the file, or of the stream.
    """
    data = pq.read_table(mount.folder / "data").slice(0, rows)
    path = mount.folder / "batches.arrow"
    with begin(path, data.schema) as file:
        for batch in data.to_batches(max_chunksize=100):
            file.write_batch(batch)
    return path


@pytest.mark.parametrize("begin", [pa.ipc.new_file, pa.ipc.new_stream], ids=["file", "stream"])
def test_a_contract_hands_over_batches(mount: Any, contract: dict[str, Any], begin: Callable[..., Any]) -> None:
    path = mount.folder / "contract.json"
    handed = {**contract, "arrow_ipc_path": str(handed_over(mount, rows=320, begin=begin))}
    path.write_text(json.dumps(handed))
    mount.changed(max_steps=20, dataset={"parquet_paths": ["not/there"], "batch_size": 8})
    code, (ready, *_), output = run_worker(path)
    assert (code, output) == (0, "")
    assert (ready["ready"]["num_rows"], ready["ready"]["num_shards"]) == (320, 4)
    assert mount.lines("events.jsonl")[-1]["event"] == "run_succeeded"


def test_a_run_over_one_arrow_file_has_it_in_its_contract(mount: Any) -> None:
    path = handed_over(mount, rows=320, begin=pa.ipc.new_file)
    place = mount.folder / "exp[1]"
    place.mkdir()
    (place / "batches.arrow").write_bytes(path.read_bytes())
    several, folder = [path.name, "exp[1]/batches.arrow"], "exp[1]"
    cases = {
        "name": (path.name, path),
        "list": ([several[1]], place / "batches.arrow"),
        "several": (several, ""),
        "folder": (folder, ""),
    }
    for run_id, (paths, expected) in cases.items():
        data = {"source": "arrow", "paths": paths, "batch_size": 8, "allow_nulls": True}
        mount.changed(run_id=run_id, max_steps=4, dataset=data)
        answer = mount.start("hostcore", "run", "trainer_job.json")
        assert answer.returncode == 0, answer.stderr
        assert mount.document(f"runs/{run_id}/config/contract.attempt-1.rank-0.json")["arrow_ipc_path"] == str(expected)


def test_a_contract_that_hands_over_what_is_no_arrow_is_refused(mount: Any, contract: dict[str, Any]) -> None:
    (mount.folder / "batches.arrow").write_text("no arrow")
    path = mount.folder / "contract.json"
    path.write_text(json.dumps({**contract, "arrow_ipc_path": str(mount.folder / "batches.arrow")}))
    code, word, output = start_worker(path)
    assert (code, output) == (2, "")
    (error,) = word["invalid"]
    assert error["code"] == "data.invalid"
    assert "batches.arrow" in f"{error['message']} {error['file']}"


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.skipif(not is_for_cpu_alone(), reason="only torch knows which GPUs there are")
@pytest.mark.parametrize("only_check", [True, False])
def test_a_worker_that_only_checks_a_job_imports_torch_for_plugins_alone(
    mount: Any, contract: dict[str, Any], only_check: bool
) -> None:
    (mount.folder / "light.py").write_text(LIGHT)
    callbacks = [{"use": name} for name in ("throughput", "lr-monitor", "nonfinite-guard")]
    mount.changed(trainer="light:Trainer", device="auto", callbacks=callbacks)
    path = mount.folder / "contract.json"
    path.write_text(json.dumps({**contract, "trainer_plugin": "light:Trainer", "only_check": only_check}))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        command = [sys.executable, "-P", "-m", "hostcore.worker", str(path), str(theirs.fileno())]
        worker = subprocess.Popen(command, pass_fds=[theirs.fileno()])  # a fork would have torch already
        with ours.makefile("rb") as line:
            word = json.loads(line.readline())
        mapped = Path(f"/proc/{worker.pid}/maps").read_text()
        ours.shutdown(socket.SHUT_RDWR)
        assert worker.wait() == 0
    assert (word["ready"]["device"], word["ready"]["num_rows"]) == ("cpu", 640)
    assert ("libtorch" in mapped) != only_check
    seen = mount.document("seen.json")
    assert (seen["on"], seen["full"]) == (True, 0)
    assert only_check or seen["frozen"] > 100_000, "what the host imports is never searched for garbage"


def test_a_worker_started_by_hand_says_who_starts_it(mount: Any) -> None:
    answer = mount.start("hostcore.worker")
    assert answer.returncode == 2
    assert answer.stderr.startswith("usage: python -m hostcore.worker CONTRACT FD")
